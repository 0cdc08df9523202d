//! One row per thing that `read` must get right.

#![allow(clippy::unwrap_used)]

use std::os::unix::fs::symlink;

use agent_core::CancelSignal;
use base64::{Engine, prelude::BASE64_STANDARD};
use proptest::prelude::*;

use super::{super::boundary, *};
use crate::picture::tests::png;

struct Scratch(tempfile::TempDir);

impl Scratch {
    fn new() -> Self {
        Scratch(tempfile::tempdir().unwrap())
    }

    fn with(self, name: &str, content: impl AsRef<[u8]>) -> Self {
        std::fs::write(self.0.path().join(name), content).unwrap();
        self
    }

    async fn read(&self, arguments: Value) -> Result<ToolOutput, ToolError> {
        let workspace = Workspace::new(self.0.path().into(), Default::default(), Vec::new());
        let (context, _updates) = ToolContext::detached("1", CancelSignal::never());
        Read::new(workspace.into()).call(arguments, context).await
    }

    /// The text of the result, an error marked as one.
    async fn story(&self, arguments: Value) -> String {
        match self.read(arguments).await {
            Ok(output) => agent_core::text_of(&output.content),
            Err(error) => format!("ERROR {error}"),
        }
    }
}

fn numbered(lines: usize) -> String {
    (1..=lines).map(|line| format!("line {line}\n")).collect()
}

#[tokio::test]
async fn text_is_shown_as_it_is() {
    let scratch = Scratch::new()
        .with("plain", "a\nb\n")
        .with("unended", "a\nb")
        .with("crlf", "a\r\nb\r\n")
        .with("mixed", "a\r\nb\n")
        .with("empty", "")
        .with("newline", "\n")
        .with("latin1", b"caf\xe9\n")
        .with("bom", "\u{feff}a\n")
        .with("colour", "\u{1b}[31mred\u{1b}[0m\n");
    let cases = [
        (json!({"path": "plain"}), "a\nb\n"),
        (json!({"path": "./plain"}), "a\nb\n"),
        (json!({"path": "unended"}), "a\nb"),
        (json!({"path": "crlf"}), "a\r\nb\r\n\n[Line ends are CRLF.]"),
        (json!({"path": "mixed"}), "a\r\nb\n\n[Line ends are mixed: some are CRLF, some LF.]"),
        (json!({"path": "mixed", "offset": 2}), "b\n"),
        (json!({"path": "empty"}), "(The file is empty.)"),
        (json!({"path": "newline"}), "\n"),
        (json!({"path": "bom"}), "\u{feff}a\n"),
        (json!({"path": "colour"}), "\u{1b}[31mred\u{1b}[0m\n"),
        (json!({"path": "plain", "offset": 2}), "b\n"),
        (
            json!({"path": "plain", "offset": 1, "limit": 1}),
            "a\n\n[Lines 1-1 of 2 are shown. Use offset=2 to go on.]",
        ),
        (
            json!({"path": "unended", "limit": 1}),
            "a\n\n[Lines 1-1 of 2 are shown. Use offset=2 to go on.]",
        ),
        (
            json!({"path": "plain", "offset": 3}),
            "ERROR Line 3 of plain does not exist: the file has 2 lines.",
        ),
        (
            json!({"path": "unended", "offset": 3}),
            "ERROR Line 3 of unended does not exist: the file has 2 lines.",
        ),
        (
            json!({"path": "unended", "offset": 9}),
            "ERROR Line 9 of unended does not exist: the file has 2 lines.",
        ),
        (
            json!({"path": "empty", "offset": 2}),
            "ERROR Line 2 of empty does not exist: the file has 0 lines.",
        ),
        (
            json!({"path": "latin1"}),
            "caf\u{fffd}\n\n[1 byte is not UTF-8 and shown as \u{fffd}. `edit` keeps such bytes; leave them out of oldText.]",
        ),
        (
            json!({"path": "plain", "offset": 0}),
            "ERROR The arguments are wrong at `offset`: 0 is not a whole number from 1",
        ),
        (json!({}), "ERROR The arguments are wrong: missing field `path`"),
    ];
    for (arguments, story) in cases {
        assert_eq!(scratch.story(arguments.clone()).await, story, "{arguments}");
    }
}

#[tokio::test]
async fn big_files_are_shown_in_pieces() {
    let scratch = Scratch::new()
        .with("many", numbered(5_000))
        .with("wide", "x".repeat(1_000).repeat(60) + "\nend\n");
    let story = scratch.story(json!({"path": "many"})).await;
    assert!(story.starts_with("line 1\n"), "{story}");
    assert!(
        story.ends_with(
            "line 2000\n\n[Lines 1-2,000 of 5,000 are shown. Use offset=2001 to go on.]"
        )
    );

    let story = scratch.story(json!({"path": "many", "offset": 4_500, "limit": 2})).await;
    assert_eq!(
        story,
        "line 4500\nline 4501\n\n[Lines 4,500-4,501 of 5,000 are shown. Use offset=4502 to go on.]"
    );

    let story = scratch.story(json!({"path": "many", "offset": 4_500})).await;
    assert!(story.ends_with("line 5000\n"), "{story}");

    let story = scratch.story(json!({"path": "wide"})).await;
    let notice = "\n\n[Line 1 of 2 is too long: the first 51,200 of its 60,001 bytes are shown. For \
                  the rest of it use bash, for example: sed -n 1p wide | cut -b 51201-102400. Use \
                  offset=2 for the next line.]";
    assert_eq!(story, "x".repeat(51_200) + notice);
}

#[tokio::test]
async fn the_byte_limit_ends_at_a_line() {
    let line = "y".repeat(999) + "\n";
    let scratch = Scratch::new().with("lines", line.repeat(60));
    let story = scratch.story(json!({"path": "lines"})).await;
    let shown = line.repeat(51);
    assert_eq!(story, shown + "\n[Lines 1-51 of 60 are shown. Use offset=52 to go on.]");
}

/// A peer showed nothing at all of a line of 3 MB.
#[tokio::test]
async fn a_line_longer_than_the_limit_is_never_empty() {
    let scratch = Scratch::new()
        .with("long", "é".repeat(1_500_000))
        .with("odd", format!("a{}", "é".repeat(60_000)));
    let story = scratch.story(json!({"path": "long"})).await;
    assert!(story.starts_with(&"é".repeat(25_600)), "cut in the middle of a character");
    assert!(story.contains("of its 3,000,000 bytes"), "{}", &story[51_200..]);
    assert!(!story.contains("next line"), "there is none");
    let story = scratch.story(json!({"path": "odd"})).await;
    assert!(!story.contains('\u{fffd}'), "a cut character is left out");
    assert!(story.contains("the first 51,199 of its 120,001 bytes"));
}

#[tokio::test]
async fn a_sparse_file_is_not_read_through() {
    let scratch = Scratch::new();
    let path = scratch.0.path().join("huge");
    std::fs::write(&path, numbered(10)).unwrap();
    let file = File::options().append(true).open(&path).unwrap();
    // Reading a terabyte would take a while.
    file.set_len(1 << 40).unwrap();
    std::io::Write::write_all(&mut &file, b"\nlast line\n").unwrap();
    let cases = [
        (3, "line 3\nline 4\n\n[Lines 3-4 are shown. Use offset=5 to go on.]"),
        (11, "ERROR huge is a binary file of 1,099,511,627,787 bytes"),
        (12, "last line\n"),
        (13, "ERROR Line 13 of huge does not exist: the file has 12 lines."),
    ];
    for (offset, expected) in cases {
        let story = scratch.story(json!({"path": "huge", "offset": offset, "limit": 2})).await;
        assert!(story.starts_with(expected), "{offset}: {story}");
    }
    file.set_len(1 << 30).unwrap();
    let story = scratch.story(json!({"path": "huge", "offset": 12})).await;
    assert_eq!(story, "ERROR Line 12 of huge does not exist: the file has 11 lines.");
}

#[tokio::test]
async fn images_are_image_blocks() {
    let fits = png(2_000, 1);
    let mut large = png(2, 3);
    large.resize(20 * 1024 * 1024 + 1, 0);
    let mut vast = png(2, 3);
    vast[16..24].copy_from_slice(&[0, 1, 0, 0, 0, 1, 0, 0]);
    let scratch = Scratch::new()
        .with("picture.txt", &fits)
        .with("wide.png", png(3_000, 1_500))
        .with("large.png", large)
        .with("vast.png", vast)
        .with("cut.png", &fits[..40])
        .with("page", "GIF89a is how it begins.\n");
    let output = scratch.read(json!({"path": "picture.txt"})).await.unwrap();
    let image = Block::image("image/png", BASE64_STANDARD.encode(&fits));
    let note = format!("picture.txt: image/png, 2000 x 1, {} bytes.", fits.len());
    assert_eq!(output.content, [Block::text(note), image]);

    let output = scratch.read(json!({"path": "wide.png"})).await.unwrap();
    let [Block::Text { text: note }, Block::Image { .. }] = &output.content[..] else {
        panic!("{output:?}")
    };
    assert!(note.starts_with("wide.png: image/png, 2000 x 1000, "), "{note}");
    assert!(note.ends_with(" bytes; made smaller, the file's is 3000 x 1500."), "{note}");

    const REFUSED: &[(&str, &str)] = &[
        (
            "large.png",
            "is a picture that cannot be shown: it has 20,971,521 bytes, and 20,971,520 are the",
        ),
        ("vast.png", "cannot be shown as a picture: it is damaged or cut short, as image/png: "),
        ("cut.png", "cannot be shown as a picture: it is damaged or cut short, as image/png: "),
        (
            "page",
            "cannot be shown as a picture: it has 26912 x 8307 pixels; 64000000 are the most.",
        ),
    ];
    for (path, told) in REFUSED {
        let story = scratch.story(json!({"path": path})).await;
        assert!(story.starts_with(&format!("ERROR {path} {told}")), "{story}");
    }
}

#[tokio::test]
async fn what_is_no_text_is_named() {
    let scratch = Scratch::new()
        .with("binary", b"\x7fELF\x02\x01\0\0\0")
        .with("utf16", b"\xff\xfeh\0i\0")
        .with("russian", b"\xcf\xf0\xe8\xe2\xe5\xf2, \xec\xe8\xf0\n".repeat(50))
        .with("controls", b"\x01\x02\x03\x04abc")
        .with("main.rs", "fn main() {}");
    std::fs::create_dir_all(scratch.0.path().join("dir/inner")).unwrap();
    std::fs::create_dir(scratch.0.path().join("hollow")).unwrap();
    std::fs::write(scratch.0.path().join("dir/file"), "").unwrap();
    symlink("nowhere", scratch.0.path().join("dangling")).unwrap();
    let fifo = scratch.0.path().join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(fifo).status().unwrap().success());
    const CASES: &[(&str, &str)] = &[
        ("binary", "ERROR binary is a binary file of 9 bytes, which cannot be shown as text."),
        ("utf16", "ERROR utf16 is a file in UTF-16 of 6 bytes, which cannot be shown as text."),
        ("russian", "ERROR russian is a file in an unknown encoding of 600 bytes, which cannot"),
        ("controls", "ERROR controls is a binary file of 7 bytes"),
        ("dir", "ERROR dir is a directory. Read one of its files:\nfile\ninner/"),
        ("hollow", "ERROR hollow is a directory, and empty."),
        ("fifo", "ERROR fifo is a device, socket or pipe; only regular files"),
        ("/dev/zero", "ERROR /dev/zero is a device, socket or pipe"),
        (
            "mian.rs",
            "ERROR Cannot read mian.rs: No such file or directory (os error 2). Nearest names: ",
        ),
        (
            "dangling",
            "ERROR Cannot read dangling: No such file or directory (os error 2). It is a symbolic \
             link to nowhere, which does not exist.",
        ),
        ("main.rs/x", "ERROR Cannot read main.rs/x: Not a directory"),
        ("", "ERROR  is a directory"),
    ];
    for (path, beginning) in CASES {
        let story = scratch.story(json!({"path": path})).await;
        if path.is_empty() {
            assert!(story.contains("is a directory"), "{story}");
            continue;
        }
        assert!(story.starts_with(beginning), "{path}: {story}");
    }
    let story = scratch.story(json!({"path": "mian.rs"})).await;
    assert!(story.ends_with("/main.rs."), "{story}");
}

/// What `cut` promises, said with the whole file in memory.
fn oracle(file: &str, first: usize, limit: usize, bytes: usize) -> Option<(String, u64)> {
    let lines: Vec<&str> = file.split_inclusive('\n').collect();
    if first > 1 && first > lines.len() {
        return None;
    }
    let mut shown = String::new();
    let mut last = first - 1;
    for line in lines.iter().skip(first - 1).take(limit) {
        if shown.len() + line.len() > bytes {
            break;
        }
        shown.push_str(line);
        last += 1;
    }
    if shown.is_empty()
        && let Some(line) = lines.get(first - 1)
    {
        return Some((line[..boundary::floor(line, bytes)].into(), first as u64));
    }
    Some((shown, last as u64))
}

/// Bytes in memory have no holes.
impl window::Source for BufReader<&[u8]> {}

proptest! {
    #[test]
    fn a_window_is_the_lines_of_the_whole(
        file in "[aé\n]{0,40}", first in 1usize..8, limit in 1usize..8, bytes in 4usize..20, chunk in 1usize..9,
    ) {
        let size = WindowSize { first: first as u64, lines: limit as u64, bytes, file: file.len() as u64 };
        let reader = BufReader::with_capacity(chunk, file.as_bytes());
        let lines = file.split_inclusive('\n').count() as u64;
        match (window::cut(reader, size, &|| false), oracle(&file, first, limit, bytes)) {
            (Ok(window), Some((text, last))) => {
                prop_assert_eq!(String::from_utf8(window.text.clone()).unwrap(), text);
                prop_assert_eq!((window.last, window.total), (last, Some(lines)));
                let rest = lines > last || window.text.len() < file.len() && first == 1;
                prop_assert!(window.is_cut() || !rest);
            }
            (Err(WindowError::PastTheEnd { lines: told }), None) => prop_assert_eq!(told, lines),
            (told, expected) => prop_assert!(false, "{:?} instead of {:?}", told, expected),
        }
    }
}
