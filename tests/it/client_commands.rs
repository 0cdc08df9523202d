//! What `agent-client` makes of a command line: what it changes, what it leaves alone, and what it
//! says can be typed.

use std::path::Path;

use serde_json::Value;
use support::process::{Home, ModelServer, finished, repository};

/// Status, stdout and stderr, in a directory.
fn client_in(home: &Home, place: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = finished(home.client_command(arguments).current_dir(place));
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn client(home: &Home, arguments: &[&str]) -> (Option<i32>, String, String) {
    client_in(home, &home.work(), arguments)
}

/// A directory that no session has.
fn project(home: &Home) -> std::path::PathBuf {
    let project = home.work().join("project");
    std::fs::create_dir(&project).unwrap();
    project
}

#[test]
fn no_tip_names_a_command_that_loses_something() {
    let home = Home::new();
    let losing = ["abort", "close", "reset", "shutdown"];
    for word in [
        "resume",
        "stop",
        "rest",
        "reste",
        "restart",
        "rseet",
        "rset",
        "Reset",
        "shut",
        "shutdwon",
        "shut-down",
        "Shutdown",
        "SHUTDOWN",
        "down",
        "clsoe",
        "close-session",
        "closes",
        "abrot",
        "abort-run",
        "about",
        "quit",
        "exit",
        "clear",
        "cancel",
        "kill",
    ] {
        let (status, _, err) = client(&home, &[word]);
        assert_eq!(status, Some(2), "{word}: {err}");
        let said = err.replace(&format!("'{word}'"), "");
        assert!(!losing.iter().any(|command| said.contains(command)), "{word}: {err}");
        assert!(said.contains("--help"), "{word}: {err}");
    }
    for (word, meant) in
        [("promt", "prompt"), ("sesions", "sessions"), ("stat", "state"), ("mesages", "messages")]
    {
        let (status, _, err) = client(&home, &[word]);
        assert_eq!(status, Some(2));
        assert!(err.contains(&format!("'{meant}'")), "{word}: {err}");
    }
    // Options keep theirs.
    let (_, _, err) = client(&home, &["prompt", "--detatch", "x"]);
    assert!(err.contains("'--detach'"), "{err}");
}

#[test]
fn without_a_session_reading_makes_none() {
    let home = Home::new();
    let _daemon = home.daemon();
    let place = project(&home);
    let path = place.canonicalize().unwrap().display().to_string();
    let cases: &[(&[&str], i32, &str)] = &[
        (&["state"], 0, ""),
        (&["state", "--json"], 0, "null\n"),
        (&["messages"], 0, ""),
        (&["messages", "--json", "--last", "3"], 0, ""),
        (&["wait-for-idle"], 0, ""),
        (&["wait-for-idle", "--json", "--timeout", "5"], 0, "{\"status\":\"idle\",\"seq\":0}\n"),
        (&["wait-for-idle", "--run", "1"], 1, ""),
        (&["config"], 0, ""),
        (&["config", "--json"], 0, "null\n"),
        (&["abort"], 0, ""),
        (&["close"], 0, ""),
        (&["reset"], 0, ""),
        (&["steer", "--when-idle", "reject", "x"], 14, ""),
        (&["call", "getState"], 1, ""),
        (&["call", "getMessages"], 1, ""),
        (&["call", "waitForIdle"], 1, ""),
        (&["call", "abort"], 1, ""),
    ];
    let sessions = || client(&home, &["sessions", "--json"]).1;
    let before = sessions();
    for (arguments, expected, printed) in cases {
        let (status, out, err) = client_in(&home, &place, arguments);
        assert_eq!((status, out.as_str()), (Some(*expected), *printed), "{arguments:?}: {err}");
        let is_told = err.contains(&path) || *arguments == ["steer", "--when-idle", "reject", "x"];
        assert!(is_told, "{arguments:?}: {err}");
        assert_eq!(sessions(), before, "{arguments:?}");
    }
    // The models are the daemon's, whichever session there is.
    let (status, out, err) = client_in(&home, &place, &["models"]);
    assert_eq!((status, err.as_str()), (Some(0), ""));
    assert!(out.contains("* offline/demo"), "{out}");
    assert_eq!(sessions(), before);
    // Once there is one, it is that which is read.
    assert_eq!(client_in(&home, &place, &["prompt", "hello"]).0, Some(0));
    let (status, out, _) = client_in(&home, &place, &["state"]);
    assert_eq!(status, Some(0));
    assert!(out.contains("project"), "{out}");
    assert!(client_in(&home, &place, &["messages"]).1.contains("hello"));
    // A path to the same directory means the same session.
    let link = home.path("link");
    std::os::unix::fs::symlink(&place, &link).unwrap();
    assert!(client_in(&home, &link, &["messages"]).1.contains("hello"));
}

#[test]
fn without_a_daemon_reading_starts_none() {
    let home = Home::new();
    let cases: &[(&[&str], i32, &str)] = &[
        (&["state"], 0, ""),
        (&["state", "--json"], 0, "null\n"),
        (&["messages"], 0, ""),
        (&["wait-for-idle"], 0, ""),
        (&["config"], 0, ""),
        (&["sessions"], 0, ""),
        (&["sessions", "--json"], 0, "{\"sessions\":[]}\n"),
        (&["abort"], 0, ""),
        (&["close"], 0, ""),
        (&["reset"], 0, ""),
        (&["--session", "main", "state"], 1, ""),
        (&["--session", "main", "wait-for-idle"], 1, ""),
        (&["call", "getState"], 1, ""),
        (&["--no-start", "state"], 3, ""),
        (&["--no-start", "wait-for-idle"], 3, ""),
        (&["--no-start", "sessions"], 3, ""),
    ];
    for (arguments, expected, printed) in cases {
        let (status, out, err) = client(&home, arguments);
        assert_eq!((status, out.as_str()), (Some(*expected), *printed), "{arguments:?}: {err}");
        assert!(err.contains("no daemon"), "{arguments:?}: {err}");
        assert!(home.processes().is_empty(), "{arguments:?}");
    }
    assert!(!home.path("runtime/agent-daemon").exists());
}

#[test]
fn events_wait_for_a_session_that_is_not_there_yet_and_miss_nothing_of_it() {
    let model = ModelServer::start();
    let home = Home::with_model(&model);
    let mut command = home.client_command(&["events", "--json"]);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut events = command.spawn().unwrap();
    let mut err = std::io::BufReader::new(events.stderr.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut err, &mut line).unwrap();
    assert!(line.contains("waiting for"), "{line}");
    assert_eq!(home.processes().len(), 1);
    let mut prompt = home.client_command(&["prompt", "--detach", "go"]);
    assert!(finished(&mut prompt).status.success());
    let mut out = std::io::BufReader::new(events.stdout.take().unwrap());
    let mut types = Vec::new();
    model.call().answer("Gone.");
    while types.last().is_none_or(|last| last != "run_end") {
        let mut line = String::new();
        assert_ne!(std::io::BufRead::read_line(&mut out, &mut line).unwrap(), 0);
        let event: Value = serde_json::from_str(&line).unwrap();
        types.push(event["type"].as_str().unwrap().to_owned());
    }
    assert_eq!(types[..2], ["subscribed", "run_start"]);
    events.kill().unwrap();
    events.wait().unwrap();
    home.shut_down();
}

/// A configuration with two models of one server.
fn two_models(model: &ModelServer) -> String {
    let other = "models = [{ id = \"test\", context_window = 32768, max_output_tokens = 4096 }, \
                 { id = \"other/one\" }]";
    let configuration = model.configuration();
    let start = configuration.find("models = ").unwrap();
    format!("{}{other}\n", &configuration[..start])
}

#[test]
fn a_prompt_chooses_the_session_s_model_from_now_on() {
    let model = ModelServer::start();
    let home = Home::new();
    home.configure(&two_models(&model));
    let _daemon = home.daemon();
    let place = project(&home);
    let prompt = |arguments: &[&str]| {
        let mut command = home.client_command(&[&["prompt"], arguments].concat());
        command.current_dir(&place);
        std::thread::spawn(move || finished(&mut command))
    };
    // A model that there is not: nothing is made and nothing prompted.
    let before = client(&home, &["sessions", "--json"]).1;
    for (name, words) in
        [("mock/none", "test, other/one"), ("none/x", "offline"), ("x", "PROVIDER/ID")]
    {
        let (status, out, err) = client_in(&home, &place, &["prompt", "--model", name, "go"]);
        assert_eq!((status, out.as_str()), (Some(1), ""), "{err}");
        assert!(err.contains(name) && err.contains(words), "{err}");
    }
    assert_eq!(client(&home, &["sessions", "--json"]).1, before);

    // A new session begins with it, and a later prompt goes on with it.
    for arguments in [&["--model", "mock/other/one", "go"][..], &["go on"]] {
        let prompt = prompt(arguments);
        let call = model.call();
        assert_eq!(call.body["model"], "other/one");
        call.answer("Yes.");
        assert!(prompt.join().unwrap().status.success());
    }
    // One that exists changes, detached or not, and a wrong name changes nothing.
    assert_eq!(client_in(&home, &place, &["prompt", "--model", "mock/none", "go"]).0, Some(1));
    let (status, _, err) =
        client_in(&home, &place, &["prompt", "--detach", "--model", "mock/test", "go"]);
    assert_eq!(status, Some(0), "{err}");
    let call = model.call();
    assert_eq!(call.body["model"], "test");
    assert_eq!(call.transcript().len(), 5);
    // A prompt that is refused leaves the run its model.
    let (status, _, err) = client_in(&home, &place, &["prompt", "--model", "mock/other/one", "go"]);
    assert_eq!(status, Some(13), "{err}");
    assert!(client_in(&home, &place, &["config"]).1.contains("model=mock/test"));
    call.answer("Yes.");
    assert_eq!(client_in(&home, &place, &["wait-for-idle"]).0, Some(0));
    // By its id, too.
    let (status, _, _) =
        client(&home, &["--session", "none", "prompt", "--model", "mock/test", "go"]);
    assert_eq!(status, Some(1));
}

#[test]
fn the_demo_s_hint_can_be_typed() {
    let home = Home::new();
    let (_, out, _) = client(&home, &["prompt", "hello"]);
    assert!(out.contains("`agent-client prompt --model PROVIDER/ID`"), "{out}");
    home.shut_down();
    home.configure(
        "model = \"offline/demo\"\n[providers.dead]\napi = \"openai-completions\"\n\
         base_url = \"http://127.0.0.1:1/v1\"\nmodels = [{ id = \"m\" }]\n",
    );
    let (_, out, _) = client(&home, &["prompt", "hello"]);
    assert!(out.contains("`agent-client prompt --model dead/m`"), "{out}");
    let (status, _, _) = client(&home, &["config", "model=dead/m"]);
    assert_eq!(status, Some(0));
    home.shut_down();
}

/// What stands between backquotes in the texts of a program's sources.
fn quoted(directory: &str) -> Vec<String> {
    let mut open = vec![repository().join(directory)];
    let mut found = Vec::new();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let code = text.split("\n#[cfg(test)]").next().unwrap();
        if path.to_string_lossy().contains("tests") {
            continue;
        }
        // A text may be continued on the next line; comments are for other readers.
        let lines = code.lines().map(str::trim).filter(|line| !line.starts_with("//"));
        let code: String = lines.map(|line| format!("{} ", line.trim_end_matches('\\'))).collect();
        found.extend(code.split('`').skip(1).step_by(2).map(str::to_owned));
    }
    found
}

#[test]
fn every_command_line_that_a_text_shows_can_be_typed() {
    let home = Home::new();
    let mut typed = 0;
    for words in ["agent-client/src", "agent-daemon/src", "agent-daemon/protocol/src"]
        .into_iter()
        .flat_map(quoted)
    {
        let mut words = words.split_whitespace().map(str::to_owned);
        let program = words.next().unwrap_or_default();
        if !["agent-client", "agent-daemon"].contains(&program.as_str()) {
            continue;
        }
        // Asked for help, it does nothing, and complains about what it does not know.
        let arguments: Vec<String> = words.chain(["--help".to_owned()]).collect();
        let mut command = home.command(support::process::binary(&program));
        let output = finished(command.args(&arguments));
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} {arguments:?}: {err}");
        typed += 1;
    }
    assert!(typed >= 5, "only {typed} were found");
}
