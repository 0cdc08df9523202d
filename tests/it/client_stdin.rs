//! What is piped into `agent-client` beside its arguments: never dropped in silence.

use std::{
    fs::File,
    io::Write,
    os::unix::net::UnixStream,
    process::{Child, Command, Stdio},
};

use support::process::{Home, ModelServer, finished};

fn client(home: &Home, arguments: &[&str], stdin: impl Into<Stdio>) -> Command {
    let mut command = home.client_command(arguments);
    command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Status, stdout and stderr.
fn told(child: Child) -> (Option<i32>, String, String) {
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn what_is_piped_in_follows_the_text() {
    let model = ModelServer::start();
    let home = Home::with_model(&model);
    let _daemon = home.daemon();
    let mut piped = client(&home, &["prompt", "review", "this"], Stdio::piped()).spawn().unwrap();
    piped.stdin.take().unwrap().write_all("+ a line\n\n+ ‘another’\r\n\n".as_bytes()).unwrap();
    let call = model.call();
    assert_eq!(call.transcript(), ["user: review this\n\n+ a line\n\n+ ‘another’"]);
    call.answer("Good.");
    assert_eq!(told(piped), (Some(0), "Good.\n".to_owned(), String::new()));

    // A file and a socket are as good as a pipe.
    let path = home.work().join("notes");
    std::fs::write(&path, "from a file").unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    (&ours).write_all(b"from a socket").unwrap();
    drop(ours);
    for (stdin, expected) in [
        (Stdio::from(File::open(&path).unwrap()), "user: look\n\nfrom a file"),
        (Stdio::from(std::os::fd::OwnedFd::from(theirs)), "user: look\n\nfrom a socket"),
    ] {
        let piped = client(&home, &["prompt", "look"], stdin).spawn().unwrap();
        let call = model.call();
        assert_eq!(call.transcript().last().unwrap(), expected);
        call.answer("Yes.");
        assert_eq!(told(piped).0, Some(0));
    }
}

#[test]
fn steering_and_following_up_take_it_as_well_and_pictures_do_not_push_it_out() {
    let model = ModelServer::start();
    let home = Home::with_model(&model);
    let _daemon = home.daemon();
    std::fs::write(home.work().join("notes"), "piped").unwrap();
    image::RgbImage::new(1, 1).save(home.work().join("a.png")).unwrap();
    let notes = || File::open(home.work().join("notes")).unwrap();
    for arguments in [
        &["steer", "--when-idle", "hold", "one"][..],
        &["follow-up", "--when-idle", "hold", "two"],
        &["follow-up", "--when-idle", "hold", "--image", "a.png"],
    ] {
        let (status, _, err) = told(client(&home, arguments, notes()).spawn().unwrap());
        assert_eq!(status, Some(0), "{err}");
    }
    let state = finished(&mut home.client_command(&["state", "--json"])).stdout;
    let state: serde_json::Value = serde_json::from_slice(&state).unwrap();
    let content = |queue: &str, place: usize| state["state"][queue][place]["content"].clone();
    assert_eq!(content("steering", 0)[0]["text"], "one\n\npiped");
    assert_eq!(content("followUp", 0)[0]["text"], "two\n\npiped");
    assert_eq!(content("followUp", 1)[0]["text"], "piped");
    assert_eq!(content("followUp", 1)[1]["type"], "image");
}

#[test]
fn a_terminal_a_closed_stdin_and_nothing_are_no_input() {
    let home = Home::new();
    let _daemon = home.daemon();
    let quiet = |command: &mut Command| {
        let output = finished(command);
        assert_eq!(output.status.code(), Some(0));
        assert_eq!(String::from_utf8_lossy(&output.stderr), "");
        String::from_utf8(output.stdout).unwrap()
    };
    let words = ["prompt", "--detach", "hello"];
    let run = quiet(&mut home.client_command(&words));
    assert_eq!(run, "1\n");
    finished(&mut home.client_command(&["wait-for-idle"]));
    let program = support::process::binary("agent-client");
    let closed = format!("exec {} prompt --detach hello <&-", program.display());
    quiet(home.command("sh").args(["-c", &closed]));
    finished(&mut home.client_command(&["wait-for-idle"]));
    let pty = support::process::Pty::open();
    quiet(home.client_command(&words).stdin(pty.terminal()));
    finished(&mut home.client_command(&["wait-for-idle"]));
    // A pipe that was closed without a word.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(writer);
    quiet(home.client_command(&words).stdin(reader));
    finished(&mut home.client_command(&["wait-for-idle"]));
    let messages = finished(&mut home.client_command(&["messages", "--json"])).stdout;
    let messages = String::from_utf8(messages).unwrap();
    let prompts = messages.lines().filter(|line| line.contains("\"role\":\"user\""));
    let prompts: Vec<serde_json::Value> =
        prompts.map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(prompts.len(), 4);
    assert!(prompts.iter().all(|prompt| prompt["content"][0]["text"] == "hello"), "{messages}");
}

#[test]
fn a_pipe_that_gives_nothing_is_waited_for_said_and_left_with_a_warning() {
    let home = Home::new();
    let _daemon = home.daemon();
    let (reader, writer) = std::io::pipe().unwrap();
    let start = std::time::Instant::now();
    let (status, out, err) =
        told(client(&home, &["prompt", "run echo on"], reader).spawn().unwrap());
    assert!(start.elapsed().as_secs() >= 10);
    assert_eq!(status, Some(0), "{err}");
    assert!(out.contains("printed: “on”"), "{out}");
    let lines: Vec<&str> = err.lines().take(2).collect();
    assert!(lines[0].contains("waiting for stdin") && lines[0].contains("</dev/null"), "{err}");
    assert!(lines[1].contains("nothing came from stdin") && lines[1].contains('-'), "{err}");
    drop(writer);
}

#[test]
fn a_pipe_that_has_begun_is_read_to_its_end() {
    let model = ModelServer::start();
    let home = Home::with_model(&model);
    let _daemon = home.daemon();
    let mut piped = client(&home, &["prompt", "sum up"], Stdio::piped()).spawn().unwrap();
    let mut stdin = piped.stdin.take().unwrap();
    stdin.write_all(b"first\n").unwrap();
    // Says that it waits, and for what.
    let mut err = std::io::BufReader::new(piped.stderr.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut err, &mut line).unwrap();
    assert!(line.contains("waiting for the end of stdin"), "{line}");
    stdin.write_all(b"second\n").unwrap();
    drop(stdin);
    let call = model.call();
    assert_eq!(call.transcript(), ["user: sum up\n\nfirst\nsecond"]);
    call.answer("Two.");
    assert_eq!(told(piped).0, Some(0));
}

#[test]
fn what_cannot_be_a_text_or_is_too_much_of_it_is_refused_with_what_is_wrong() {
    let home = Home::new();
    let _daemon = home.daemon();
    let path = home.work().join("input");
    let refused = |content: &[u8], arguments: &[&str]| {
        std::fs::write(&path, content).unwrap();
        let stdin = File::open(&path).unwrap();
        let (status, out, err) = told(client(&home, arguments, stdin).spawn().unwrap());
        assert_eq!((status, out.as_str()), (Some(2), ""), "{err}");
        err
    };
    let err = refused(b"caf\xe9 au lait", &["prompt", "translate"]);
    assert!(err.contains("not UTF-8") && err.contains("byte 3"), "{err}");
    let err = refused(b"caf\xe9 au lait", &["prompt", "-"]);
    assert!(err.contains("not UTF-8"), "{err}");
    let err = refused(&vec![b'x'; (1 << 20) + 1], &["prompt", "count"]);
    assert!(err.contains("1 MiB"), "{err}");
    let err = refused(b"", &["prompt"]);
    assert!(err.contains("nothing to say"), "{err}");
    // What has no end is not read to it.
    let zeros = File::open("/dev/zero").unwrap();
    let (status, _, err) = told(client(&home, &["prompt", "count"], zeros).spawn().unwrap());
    assert_eq!(status, Some(2));
    assert!(err.contains("1 MiB"), "{err}");
    let (status, _, err) =
        told(client(&home, &["prompt", "x"], File::open(home.work()).unwrap()).spawn().unwrap());
    assert_eq!(status, Some(2));
    assert!(err.contains("cannot read stdin") && err.contains("directory"), "{err}");
    assert!(!finished(&mut home.client_command(&["messages"])).stdout.starts_with(b"x"));
}
