//! What a user says, as clients send it.
//!
//! Owns: the two forms that the wire knows, a string and an array of blocks.
//! Never: lets a client say what only a model can, thinking and tool calls.

use std::{fmt, sync::Arc};

use agent_core::Block;
use schemars::JsonSchema;
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{self, SeqAccess, Visitor},
};

/// What a user says. On the wire a string, or an array of text and image blocks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Content(pub Vec<Block>);

/// The blocks that a user can say.
#[derive(Deserialize, JsonSchema)]
#[serde(
    tag = "type",
    rename_all = "camelCase",
    rename_all_fields = "camelCase",
    deny_unknown_fields
)]
enum InputBlock {
    /// Plain text.
    Text {
        /// The text.
        text: String,
    },
    /// A picture.
    Image {
        /// Such as `image/png`.
        mime_type: String,
        /// The bytes in base64.
        data: Arc<str>,
    },
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        Content(vec![Block::text(text)])
    }
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        Content(vec![Block::Text { text }])
    }
}

impl Serialize for Content {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.as_slice() {
            [Block::Text { text }] => serializer.serialize_str(text),
            blocks => blocks.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct StringOrBlocks;

        impl<'de> Visitor<'de> for StringOrBlocks {
            type Value = Content;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a string or an array of text and image blocks")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Content, E> {
                Ok(text.into())
            }

            fn visit_string<E: de::Error>(self, text: String) -> Result<Content, E> {
                Ok(text.into())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut blocks: A) -> Result<Content, A::Error> {
                let mut content = Vec::new();
                while let Some(block) = blocks.next_element::<InputBlock>()? {
                    content.push(match block {
                        InputBlock::Text { text } => Block::Text { text },
                        InputBlock::Image { mime_type, data } => Block::Image { mime_type, data },
                    });
                }
                Ok(Content(content))
            }
        }

        deserializer.deserialize_any(StringOrBlocks)
    }
}

impl JsonSchema for Content {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Content".into()
    }

    fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let blocks = generator.subschema_for::<Vec<InputBlock>>();
        schemars::json_schema!({
            "description": "What a user says: a string, or text and image blocks.",
            "anyOf": [{ "type": "string" }, blocks],
        })
    }
}
