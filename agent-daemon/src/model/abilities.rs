//! What is taken for granted of models that no configuration describes.
//!
//! Owns: the few facts about the hosted models that a request cannot do without.
//! Never: limits what can be configured; a described model is taken as described.

use reqwest::Url;

/// Whether a model that Anthropic hosts can be told how much to think.
pub(super) fn claude_thinks(id: &str) -> bool {
    claude_version(id).is_none_or(|version| version >= (3, 7))
}

/// Whether a model that OpenAI hosts can be told how much to think.
pub(super) fn openai_thinks(id: &str) -> bool {
    let first = ["o1", "o3", "o4", "gpt-5", "gpt-6", "codex"];
    first.iter().any(|prefix| id.starts_with(prefix))
}

/// Whether a model decides by itself how long to think: from Claude 4.6 on a budget is discouraged,
/// and later refused.
pub(super) fn thinks_adaptively(id: &str) -> bool {
    claude_version(id).is_some_and(|version| version >= (4, 6)) || id.starts_with("claude-mythos")
}

/// The largest picture, in bytes of base64, that a model takes over Anthropic's API if it takes any. A larger one
/// would be refused again with every request that still holds it.
pub(super) fn largest_picture(id: &str) -> usize {
    if is_claude(id) { 5 * 1024 * 1024 } else { usize::MAX }
}

/// Whether a model proves its thoughts, and takes back none without proof.
pub(super) fn proves_thoughts(id: &str) -> bool {
    is_claude(id)
}

fn is_claude(id: &str) -> bool {
    id.to_lowercase().contains("claude")
}

/// Whether a model wants a thought with every earlier answer, be it another model's: DeepSeek and
/// Kimi refuse a conversation otherwise, as soon as there are tool calls in it.
pub(super) fn wants_every_thought(id: &str) -> bool {
    let id = id.to_lowercase();
    ["deepseek", "kimi"].iter().any(|name| id.contains(name))
}

/// What such a model is given in place of a thought that there was not. Not empty, which counts as
/// missing.
pub(super) const NO_THOUGHT: &str = " ";

/// Whether the models at an address think unless they are told not to.
pub(super) fn thinks_unless_told(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    ["api.deepseek.com", "api.z.ai", "open.bigmodel.cn"].contains(&host)
}

/// The output limit to send where none is configured; Anthropic demands one.
pub(super) fn presumed_output_limit(id: &str) -> u64 {
    match claude_version(id) {
        Some(version) if version < (3, 5) => 4_096,
        Some(version) if version < (3, 7) => 8_192,
        Some(_) => 32_000,
        None => 16_384,
    }
}

/// Version 4.6 of `claude-opus-4-6`, 3.7 of `claude-3-7-sonnet-20250219`, 4.0 of
/// `claude-sonnet-4-20250514`.
fn claude_version(id: &str) -> Option<(u32, u32)> {
    let (_, parts) = id.split_once("claude-")?;
    // Longer numbers are dates.
    let number = |part: &str| part.parse().ok().filter(|_| part.len() <= 2);
    let mut parts = parts.split(['-', '.', '@', ':']).skip_while(|part| number(part).is_none());
    let major = number(parts.next()?)?;
    Some((major, parts.next().and_then(number).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_names() {
        for (id, expected) in [
            ("claude-opus-4-6", Some((4, 6))),
            ("claude-opus-4-20250514", Some((4, 0))),
            ("claude-sonnet-4.5", Some((4, 5))),
            ("claude-3-7-sonnet-20250219", Some((3, 7))),
            ("claude-3-haiku-20240307", Some((3, 0))),
            ("anthropic.claude-haiku-4-5-20251001-v1:0", Some((4, 5))),
            ("claude-opus-5", Some((5, 0))),
            ("claude-instant", None),
            ("gemma", None),
        ] {
            assert_eq!(claude_version(id), expected, "{id}");
        }
    }

    #[test]
    fn only_models_that_can_think_are_told_to() {
        for (id, expected) in [
            ("claude-3-5-sonnet-20241022", false),
            ("claude-3-7-sonnet-20250219", true),
            ("claude-opus-4-6", true),
        ] {
            assert_eq!(claude_thinks(id), expected, "{id}");
        }
        for (id, expected) in [("gpt-4o", false), ("gpt-5.1", true), ("o3-mini", true)] {
            assert_eq!(openai_thinks(id), expected, "{id}");
        }
        assert!(thinks_adaptively("claude-opus-4-6") && !thinks_adaptively("claude-opus-4-5"));
        assert!(thinks_adaptively("claude-mythos-preview") && !thinks_adaptively("gemma"));
    }

    #[test]
    fn names_tell_what_becomes_of_thoughts() {
        for (id, proves, wants_every) in [
            ("anthropic.claude-haiku-4-5-20251001-v1:0", true, false),
            ("DeepSeek-V4-Pro", false, true),
            ("moonshotai/kimi-k2.6", false, true),
            ("gemma", false, false),
        ] {
            assert_eq!(
                (proves_thoughts(id), wants_every_thought(id)),
                (proves, wants_every),
                "{id}"
            );
        }
    }
}
