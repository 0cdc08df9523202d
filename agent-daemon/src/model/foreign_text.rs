//! Text that a server sent, on its way to a person.
//!
//! Owns: taking out markup and control characters, and bounding the length. Pure.
//! Never: knows secrets; whoever shows the text takes them out.

/// The words of an error page: its title if it has one, else its text.
pub(super) fn words_of_page(body: &str) -> String {
    let trimmed = body.trim_start();
    if !trimmed.starts_with('<') {
        return trimmed.to_owned();
    }
    let title = between(trimmed, "<title", "</title").and_then(|title| title.split_once('>'));
    match title.map(|(_, title)| title.trim()).filter(|title| !title.is_empty()) {
        Some(title) => format!("a web page, “{}”", without_tags(title).trim()),
        None => {
            let page = without("style", &without("script", trimmed));
            format!("a web page, “{}”", clean(&without_tags(&page)))
        }
    }
}

/// One line: blanks, control characters, what changes the direction of writing and what stands for
/// parts of characters become single spaces.
pub(super) fn clean(text: &str) -> String {
    let words = text.split(|character: char| {
        character.is_whitespace()
            || character.is_control()
            || matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}')
            || matches!(character, '\u{2066}'..='\u{2069}' | '\u{10f700}'..)
    });
    words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

/// At most `limit` characters, and a sign where more followed.
pub(super) fn cut(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        Some((end, _)) => format!("{}…", text[..end].trim_end()),
        None => text.to_owned(),
    }
}

/// What stands between two tags, in whatever case they are written.
fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    // ASCII only, so that the positions stay those of the original.
    let lower = text.to_ascii_lowercase();
    let from = lower.find(start)? + start.len();
    let to = from + lower[from..].find(end)?;
    Some(&text[from..to])
}

/// The page without one kind of element that holds no words.
fn without(element: &str, page: &str) -> String {
    let mut rest = page.to_owned();
    let (start, end) = (format!("<{element}"), format!("</{element}"));
    while let Some(inside) = between(&rest, &start, &end).map(str::len) {
        let from = rest.to_ascii_lowercase().find(&start).unwrap_or_default();
        rest.replace_range(from..from + start.len() + inside, "");
    }
    rest
}

fn without_tags(page: &str) -> String {
    let mut words = String::with_capacity(page.len());
    let mut in_tag = false;
    for character in page.chars() {
        match character {
            '<' => in_tag = true,
            '>' if in_tag => {
                in_tag = false;
                words.push(' ');
            }
            _ if in_tag => {}
            _ => words.push(character),
        }
    }
    for (entity, character) in [
        ("&nbsp;", " "),
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&#39;", "'"),
        ("&amp;", "&"),
    ] {
        words = words.replace(entity, character);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A body, and its words.
    const PAGES: &[(&str, &str)] = &[
        ("plain text", "plain text"),
        (
            "<html><head><TITLE>502 Bad Gateway</TITLE></head><body>nginx</body></html>",
            "a web page, “502 Bad Gateway”",
        ),
        (
            "<!DOCTYPE html><style>b{}</style><SCRIPT>var a='<b>';</SCRIPT><h1>Not &lt;found&gt;</h1><p>here",
            "a web page, “Not <found> here”",
        ),
        ("<title></title><b>x</b>", "a web page, “x”"),
        ("<", "a web page, “”"),
        ("", ""),
    ];

    #[test]
    fn markup_is_no_words() {
        for (page, expected) in PAGES {
            assert_eq!(words_of_page(page), *expected, "{page}");
        }
    }

    #[test]
    fn text_becomes_one_line_of_bounded_length() {
        assert_eq!(clean(" a\r\n\tb\u{1b}[31m\0c "), "a b [31m c");
        assert_eq!(clean("a\u{202e}b\u{2066}\u{9b}c"), "a b c");
        assert_eq!(cut("né à", 10), "né à");
        assert_eq!(cut("né à", 2), "né…");
        assert_eq!(cut("né à", 3), "né…");
    }
}
