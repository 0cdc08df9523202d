//! What the keys of a terminal do in `agent-client attach`: by the bytes that terminals send.

use rustix::{
    process::{Signal, kill_process},
    termios::{Winsize, tcsetwinsize},
};
use support::process::{Attached, Home, ModelServer, finished};

/// Bytes, each piece read by itself, and the message that Enter sends after them.
const KEYS: &[(&[&[u8]], &str)] = &[
    (&[b"ab"], "ab"),
    (&["é日👍".as_bytes()], "é日👍"),
    (&["é日👍".as_bytes().split_at(3).0, "é日👍".as_bytes().split_at(3).1], "é日👍"),
    // Escape by itself is no part of what follows.
    (&[b"a", b"\x1b", b"b"], "ab"),
    (&[b"\x1b", b"x", b"\x1b", b"y"], "xy"),
    (&[b"a", b"\x1b", b"\x7f", b"b"], "b"),
    (&[b"a", b"\x1b", b"\x1b[D", b"b"], "ba"),
    // Alt with a letter that means nothing.
    (&[b"a\x1bxb"], "ab"),
    (&[b"a\x1bqb\x1b9c\x1b.d"], "abcd"),
    (&["a\x1bäb".as_bytes()], "ab"),
    (&[b"a\x1b\tb"], "ab"),
    // Left, right, home and end, as xterm, rxvt, the console and vt220 send them.
    (&[b"bd\x1b[Dc\x1b[Ha\x1b[Fe"], "abcde"),
    (&[b"bd\x1bODc\x1bOHa\x1bOFe"], "abcde"),
    (&[b"bd\x1b[Dc\x1b[1~a\x1b[4~e"], "abcde"),
    (&[b"bd\x02c\x01a\x05e"], "abcde"),
    (&[b"bd\x1b[7~a\x1b[8~e\x1b[D\x1b[Dc\x1b[C\x06\x1bOCf"], "abcdef"),
    // A sequence whose first two bytes are there comes in pieces.
    (&[b"b\x1b[", b"D", b"a"], "ab"),
    (&[b"b c\x1b[1;", b"5", b"Da"], "b ac"),
    // Words: with Ctrl, with Alt, as Emacs.
    (&[b"one three\x1b[1;5Dtwo \x1b[1;5C four"], "one two three four"),
    (&[b"one three\x1b[1;3Dtwo \x1b[1;3C four"], "one two three four"),
    (&[b"one three\x1bbtwo \x1bf four"], "one two three four"),
    // Deleting.
    (&[b"abx\x7fc\x08d\x1b[H\x1b[3~"], "bd"),
    (&[b"one two\x17three"], "one three"),
    (&[b"one two\x1b\x7fthree"], "one three"),
    (&[b"one two\x15three"], "three"),
    (&[b"one two\x1bb\x0bthree"], "one three"),
    (&[b"ab\x1b[D\x04c"], "ac"),
    // A line of its own: Alt-Enter, Ctrl-J, and Shift-Enter where it can be told.
    (&[b"a\x1b\rb"], "a\nb"),
    (&[b"a\nb"], "a\nb"),
    (&[b"a\x1b[13;2ub"], "a\nb"),
    // Pasted: nothing in it is a key.
    (&[b"\x1b[200~one\r\ntwo\x03\x1b[A\rthree\x1b[201~"], "one\ntwo\x03\x1b[A\nthree"),
    (&[b"\x1b[200~one ", b"two\x1b[20", b"1~ three"], "one two three"),
    // Nothing that we know: function keys, a mouse, focus, a report, a stray byte.
    (&[b"a\x1b[15~\x1bOP\x1b[24;5~\x1b[Z\x1b[2~\x1b[5~b"], "ab"),
    (&[b"a\x1b[<0;1;1M\x1b[I\x1b[O\x1b[1;1R\xffb"], "ab"),
    // The one before, and back to what was being written.
    (&[b"new\x1b[A\x1b[B er"], "new er"),
    (&[b"new\x10\x0e er"], "new er"),
    (&[b"new\x1bOA\x1bOB er"], "new er"),
];

/// Whether the end of a key is missing.
fn is_part(piece: &[u8]) -> bool {
    let is_sequence = piece.iter().rposition(|byte| *byte == 0x1b).is_some_and(|start| {
        let rest = &piece[start + 1..];
        rest.first() == Some(&b'[') && !rest[1..].iter().any(|byte| (0x40..0x7f).contains(byte))
    });
    is_sequence || piece.starts_with(b"\x1b[200~") || std::str::from_utf8(piece).is_err()
}

#[test]
fn every_sequence_of_bytes_is_the_key_that_was_pressed() {
    let model = ModelServer::start();
    let home = Home::with_model(&model);
    let _daemon = home.daemon();
    let mut attached = Attached::new(&home);
    for (pieces, expected) in KEYS {
        for piece in *pieces {
            match pieces.len() {
                1 => attached.types_bytes(piece),
                // What is not whole yet changes nothing, and may as well be read with the rest.
                _ if is_part(piece) => attached.types_bytes(piece),
                _ => attached.presses(piece),
            }
        }
        attached.types("\r");
        let call = model.call();
        let last = call.transcript().pop().unwrap();
        assert_eq!(last, format!("user: {expected}"), "{pieces:?}");
        call.answer("Yes.");
        attached.shows("Yes.");
        attached.shows("idle");
    }
    attached.types("x\x04\x15\x04");
    assert_eq!(attached.leaves(), Some(0));
}

#[test]
fn stopped_from_outside_and_continued_it_is_as_before() {
    let model = ModelServer::start();
    let home = Home::with_model(&model);
    let _daemon = home.daemon();
    let mut attached = Attached::new(&home);
    attached.types("half a ");
    attached.shows("half a ");
    kill_process(attached.pid(), Signal::STOP).unwrap();
    attached.is_stopped();
    attached.goes_on();
    // The marks of pasted text again, and the line that was being written.
    attached.shows("\x1b[?2004h");
    attached.shows("› half a ");
    attached.types("message\r");
    let call = model.call();
    assert_eq!(call.transcript(), ["user: half a message"]);
    call.answer("Whole.");
    attached.shows("Whole.");
    attached.types("/quit\r");
    assert_eq!(attached.leaves(), Some(0));
}

#[test]
fn ctrl_z_gives_the_terminal_back_until_the_shell_continues_us() {
    let home = Home::new();
    let _daemon = home.daemon();
    let mut attached = Attached::new(&home);
    attached.types("draft");
    attached.shows("draft");
    for _ in 0..2 {
        attached.types("\x1a");
        attached.is_stopped();
        attached.shows("\x1b[?2004l");
        attached.is_as_before();
        attached.goes_on();
        attached.shows("› draft");
    }
    attached.types("\x15/quit\r");
    assert_eq!(attached.leaves(), Some(0));
}

#[test]
fn a_terminal_that_is_gone_ends_it() {
    let home = Home::new();
    let _daemon = home.daemon();
    let attached = Attached::new(&home);
    let status = attached.loses_its_terminal();
    assert!(status.code().is_some(), "{status}");
}

#[test]
fn another_size_is_drawn_anew() {
    let home = Home::new();
    let _daemon = home.daemon();
    let mut attached = Attached::new(&home);
    attached.types("a line that is longer than a narrow terminal");
    attached.shows("narrow terminal");
    let size = Winsize { ws_row: 24, ws_col: 20, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(attached.terminal(), size).unwrap();
    kill_process(attached.pid(), Signal::WINCH).unwrap();
    for row in ["› a line that is lon", "\nger than a narrow te", "\nrminal"] {
        attached.shows(row);
    }
    attached.types("\x15/quit\r");
    assert_eq!(attached.leaves(), Some(0));
}

#[test]
fn the_status_names_the_tool_that_is_at_work_and_no_other() {
    let model = ModelServer::start();
    let home = Home::with_model(&model);
    let _daemon = home.daemon();
    assert!(
        finished(std::process::Command::new("mkfifo").arg(home.work().join("gate")))
            .status
            .success()
    );
    let mut attached = Attached::new(&home);
    attached.types("go\r");
    let mut call = model.call();
    call.begin();
    let bash = |command: &str| serde_json::json!({ "command": command });
    call.call_tool(0, "c1", "bash", bash("cat gate"));
    call.call_tool(1, "c2", "bash", bash("echo quick"));
    call.end("tool_calls");
    // The second began last, and has finished.
    attached.shows("run 1: bash cat gate ");
    attached.shows("● bash echo quick");
    attached.shows("run 1: bash cat gate ");
    // Whoever comes in the middle sees the same.
    let mut late = Attached::new(&home);
    late.shows("run 1: bash cat gate ");
    std::fs::write(home.work().join("gate"), "open\n").unwrap();
    let call = model.call();
    // The model's turn: no tool is at work.
    attached.shows("run 1 ");
    call.answer("Done.");
    attached.shows("Done.");
    attached.shows("idle");
    for one in [&mut attached, &mut late] {
        one.types("/quit\r");
        assert_eq!(one.leaves(), Some(0));
    }
}
