//! `agent-client attach` on a terminal of its own (W7).

use rustix::{
    process::{Signal, kill_process},
    termios::{LocalModes, tcgetattr},
};
use support::process::{Attached, Home, ModelServer, finished};

const INTERRUPT: &str = "\x03";

#[test]
fn enter_prompts_at_idle_and_steers_a_run_and_ctrl_c_ends_it() {
    let model = ModelServer::start();
    let home = Home::with_model(&model);
    let _daemon = home.daemon();
    let mut attached = Attached::new(&home);
    assert!(!tcgetattr(attached.terminal()).unwrap().local_modes.contains(LocalModes::ICANON));

    attached.types("Tell me a stOry\x7f\x7f\x7fory.\r");
    let mut call = model.call();
    assert_eq!(call.transcript(), ["user: Tell me a story."]);
    call.begin();
    call.say("Once upon");
    attached.shows("Once upon");
    attached.types("a short one\r");
    attached.shows("1 queued");
    attached.types(INTERRUPT);
    attached.shows("aborted");
    attached.shows("not delivered (steering): a short one");
    // It was ours, so it is there to be sent again.
    attached.shows("› a short one");
    attached.types("\r");
    let call = model.call();
    assert_eq!(call.transcript().last().unwrap(), "user: a short one");
    call.answer("The end.");
    attached.shows("The end.");
    attached.shows("idle");
    attached.types(INTERRUPT);
    assert_eq!(attached.leaves(), Some(0));
}

#[test]
fn others_messages_and_the_past_are_shown_and_a_pasted_text_is_one_message() {
    let model = ModelServer::start();
    let home = Home::with_model(&model);
    let _daemon = home.daemon();
    let prompt = |text: &str| {
        let mut command = home.client_command(&["prompt", text]);
        std::thread::spawn(move || finished(&mut command))
    };
    let before = prompt("from before");
    model.call().answer("Long ago.");
    assert!(before.join().unwrap().status.success());

    let mut attached = Attached::new(&home);
    attached.shows("› from before");
    attached.shows("Long ago.");
    let other = prompt("from elsewhere");
    attached.shows("› from elsewhere");
    model.call().answer("Hostile \u{1b}]0;title\u{7}\u{202e}.");
    attached.shows("Hostile ␛]0;title␇<U+202E>.");
    assert!(other.join().unwrap().status.success());

    attached.types("\x1b[200~two\rlines\x1b[201~\r");
    let call = model.call();
    assert_eq!(call.transcript().last().unwrap(), "user: two\nlines");
    call.answer("Both.");
    attached.shows("Both.");
    attached.types("/follow-up and more\r");
    let call = model.call();
    assert_eq!(call.transcript().last().unwrap(), "user: and more");
    call.answer("More.");
    attached.shows("More.");
    attached.types("/state\r");
    attached.shows("status     idle; run 4 ended: stop");
    attached.types("/quit\r");
    assert_eq!(attached.leaves(), Some(0));
}

#[test]
fn a_signal_and_a_lost_daemon_leave_the_terminal_as_it_was() {
    let home = Home::new();
    let daemon = home.daemon();
    let mut terminated = Attached::new(&home);
    kill_process(terminated.pid(), Signal::TERM).unwrap();
    assert_eq!(terminated.leaves(), Some(0));

    let mut attached = Attached::new(&home);
    daemon.signal(Signal::TERM);
    attached.shows("the daemon has ended");
    assert_eq!(attached.leaves(), Some(3));
}

#[test]
fn without_a_terminal_attach_says_what_else_there_is() {
    let home = Home::new();
    let output = finished(&mut home.client_command(&["attach"]));
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("`events`"));
}
