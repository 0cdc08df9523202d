//! The protocol as JSON Schema: what `getSchema` and `agent-daemon schema` give.
//!
//! Owns: the document around the schemas. Never: describes a field; the types do.

use std::sync::Arc;

use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json, value::RawValue};

use crate::{
    error::ErrorData,
    frames::Frame,
    methods::{Method, PROTOCOL_VERSION, Visit, each_method},
};

/// The whole document. A method's `params` and `result`, `frame` and `errorData` are schemas;
/// what they refer to is under `$defs`.
pub fn protocol() -> Value {
    let mut methods = Methods { generator: generator(), described: Map::new() };
    each_method(&mut methods);
    let Methods { mut generator, described } = methods;
    let frame = generator.subschema_for::<Frame>();
    let error_data = generator.subschema_for::<ErrorData>();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "agent-daemon",
        "protocolVersion": PROTOCOL_VERSION,
        "methods": described,
        "notifications": {
            "event": {
                "type": "object",
                "properties": { "subscription": { "type": "string" }, "result": frame },
                "required": ["subscription", "result"],
            },
        },
        "frame": frame,
        "errorData": error_data,
        "$defs": generator.take_definitions(true),
    })
}

/// The document as it is sent, and its hash: made once, since every `initialize` tells the hash, and
/// writing so large a document anew for whoever asks takes as long as hundreds of other calls.
#[derive(Debug)]
pub struct Schema {
    /// What `getSchema` gives.
    pub text: Arc<RawValue>,
    /// What `initialize` gives.
    pub hash: String,
}

impl Schema {
    /// Describes the protocol.
    pub fn of_protocol() -> Self {
        let document = protocol().to_string();
        let hash = hash(&document);
        let text = RawValue::from_string(document).expect("a document is JSON");
        Schema { text: text.into(), hash }
    }
}

/// A short text that differs when the schema does. FNV-1a, so that it is the same everywhere.
fn hash(schema: &str) -> String {
    let hash = schema.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("{hash:016x}")
}

struct Methods {
    generator: SchemaGenerator,
    described: Map<String, Value>,
}

impl<M: Method> Visit<M> for Methods {
    fn visit(&mut self) {
        let described = json!({
            "description": M::ABOUT.trim(),
            "params": self.schema::<M::Params>(),
            "result": self.schema::<M::Result>(),
        });
        self.described.insert(M::NAME.to_owned(), described);
    }
}

impl Methods {
    fn schema<T: JsonSchema>(&mut self) -> schemars::Schema {
        self.generator.subschema_for::<T>()
    }
}

fn generator() -> SchemaGenerator {
    SchemaSettings::draft2020_12().with(|settings| settings.meta_schema = None).into_generator()
}
