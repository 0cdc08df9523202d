#![allow(clippy::unwrap_used)]

use std::fs;

use agent_core::{QueueMode, ThinkingLevel, WhenIdle};
use clap::Parser;

use super::*;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    flags: Flags,
}

/// A user with a directory of its own, and what its daemon is started with.
struct Scene {
    home: tempfile::TempDir,
    environment: Vec<(&'static str, String)>,
}

impl Scene {
    fn new() -> Self {
        Scene { home: tempfile::tempdir().unwrap(), environment: Vec::new() }
    }

    fn file(self, path: &str, text: &str) -> Self {
        let path = self.home.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    fn variable(mut self, name: &'static str, value: &str) -> Self {
        self.environment.push((name, value.to_owned()));
        self
    }

    fn load(&self, flags: &[&str]) -> Result<Configuration, String> {
        let arguments = ["agent-daemon"].iter().chain(flags);
        let flags = Cli::try_parse_from(arguments).map_err(|error| error.to_string())?.flags;
        let home = self.home.path().canonicalize().unwrap();
        let around = Surroundings {
            variable: &|name| {
                let set = self.environment.iter().find(|(variable, _)| *variable == name);
                set.map(|(_, value)| value.clone())
            },
            directories: Directories {
                config: Some(home.join("config")),
                cache: Some(home.join("cache")),
                state: Some(home.join("state")),
                runtime: Ok(home.join("runtime")),
            },
            current_dir: home.clone(),
        };
        Configuration::load(flags, &around)
            .map_err(|error| error.to_string().replace(home.to_str().unwrap(), "HOME"))
    }
}

fn refused(text: &str) -> String {
    Scene::new().file("config/agent-daemon/config.toml", text).load(&[]).unwrap_err()
}

#[test]
fn without_anything_there_are_defaults_and_the_default_socket() {
    let scene = Scene::new();
    let configuration = scene.load(&[]).unwrap();
    assert_eq!(configuration.settings.model, None);
    assert_eq!(configuration.settings.limits, LimitsTable::default());
    assert_eq!(configuration.cwd, scene.home.path().canonicalize().unwrap());
    let [socket] = &configuration.listen[..] else { panic!() };
    let default = scene.home.path().canonicalize().unwrap().join("runtime/daemon.sock");
    assert_eq!(socket.to_string(), format!("unix:{}", default.display()));
    assert_eq!(configuration.token_file, None);
}

#[test]
fn the_file_of_the_documentation_is_understood() {
    let text = r#"
        model = "local/gemma"

        [providers.local]
        api = "openai-completions"
        base_url = "http://127.0.0.1:8080/v1"
        api_key_env = "LOCAL_API_KEY"
        models = [{ id = "gemma", context_window = 32768, max_output_tokens = 4096, images = false, thinking = false }]

        [session]
        system_prompt = "Be brief."
        steering_mode = "one-at-a-time"
        follow_up_mode = "all"
        when_idle = "hold"
        tool_execution = "parallel"
        max_turns = 0
        thinking_level = "low"

        [limits]
        abort_grace_ms = 5000
        max_message_bytes = 33554432
        max_answer_bytes = 1024

        [retry]
        max_retries = 3
        base_delay_ms = 1000
        max_delay_ms = 30000
    "#;
    let configuration =
        Scene::new().file("config/agent-daemon/config.toml", text).load(&[]).unwrap();
    assert_eq!(configuration.settings.model.as_deref(), Some("local/gemma"));
    assert_eq!(configuration.settings.providers["local"].models[0].id, "gemma");
    assert_eq!(configuration.settings.session.system_prompt.as_deref(), Some("Be brief."));
    assert_eq!(configuration.settings.session.follow_up_mode, QueueMode::All);
    assert_eq!(configuration.settings.session.when_idle, WhenIdle::Hold);
    assert_eq!(configuration.settings.session.thinking_level, ThinkingLevel::Low);
    assert_eq!(configuration.settings.limits.max_answer_bytes, 1024);
    assert_eq!(configuration.settings.retry, RetryTable::default());
}

#[test]
fn flags_win_over_environment_and_environment_over_file() {
    let scene = Scene::new().file("mine.toml", "model = 'file/m'");
    let model = |scene: &Scene, flags: &[&str]| scene.load(flags).unwrap().settings.model.unwrap();
    assert_eq!(model(&scene, &["--config", "mine.toml"]), "file/m");
    let scene = scene
        .variable("AGENT_DAEMON_CONFIG", "mine.toml")
        .variable("AGENT_DAEMON_MODEL", "environment/m");
    assert_eq!(model(&scene, &[]), "environment/m");
    assert_eq!(model(&scene, &["--model", "flag/m"]), "flag/m");
}

#[test]
fn an_empty_variable_is_not_set() {
    let scene = Scene::new().variable("AGENT_DAEMON_MODEL", "");
    assert_eq!(scene.load(&[]).unwrap().settings.model, None);
}

#[test]
fn what_is_wrong_in_the_file_is_named_with_its_line() {
    const FILE: &str = "HOME/config/agent-daemon/config.toml";
    let cases = [
        ("modle = 'a/b'", ":1: `modle`: unknown field `modle`, expected one of `model`, "),
        (
            "\n[session]\nsteering_mode = 'both'",
            ":3: `session.steering_mode`: unknown variant `both`, expected `one-at-a-time` or `all`",
        ),
        ("[session]\nmax_turns = -1", ":2: `session.max_turns`: invalid value: integer `-1`, "),
        (
            "[limits]\nmax_message_bytes = 5",
            ":2: `limits.max_message_bytes`: 5 is not between 1024 and 1073741824",
        ),
        (
            "[retry]\nbase_delay_ms = 50000",
            ": `retry.max_delay_ms`: it must be at least base_delay_ms, 50000",
        ),
        ("[tools]\nbash = 'ask'", ":2: `tools.bash`: unknown variant `ask`, expected `allow` or"),
        ("[providers.x]\napi = 'grpc'", ":2: `providers.x.api`: unknown variant `grpc`"),
        (
            "[providers.x]\napi = 'openai-completions'",
            ":1: `providers.x`: missing field `base_url`",
        ),
        (
            "[providers.x]\napi = 'openai-completions'\nbase_url = 'http://x'\nmodels = [{ id = 'm' }, { id = 'm' }]",
            ":4: `providers.x.models`: `m` is described twice",
        ),
        (
            "[providers.x]\napi = 'openai-completions'\nbase_url = 'http://x'\nmodels = [{ id = ' ' }]",
            ":4: `providers.x.models[0].id`: it must not be empty",
        ),
        (
            "[providers.x]\napi = 'openai-completions'\nbase_url = 'http://x'\nmodels = [{ id = 'm', max_output_tokens = 0 }]",
            ":4: `providers.x.models[0].max_output_tokens`: it must be at least 1; leave it out",
        ),
        ("model = ", ":1: "),
    ];
    for (text, expected) in cases {
        let error = refused(text);
        assert!(error.starts_with(&format!("{FILE}{expected}")), "{text}\n{error}");
    }
}

#[test]
fn a_secret_in_the_wrong_place_is_not_repeated() {
    let key = "api = 'openai-completions'\nbase_url = 'http://x'";
    let error = refused(&format!("[providers.x]\n{key}\napi_key = 'sk-secret'"));
    assert!(error.contains("name that with `api_key_env`"), "{error}");
    for headers in ["headers = 'sk-secret'", "headers = { Authorization = ['sk-secret'] }"] {
        let error = refused(&format!("[providers.x]\n{key}\n{headers}"));
        assert!(error.contains(":4: `providers.x.headers"), "{error}");
        assert!(!error.contains("secret"), "{error}");
    }
}

#[test]
fn a_file_that_is_named_must_exist() {
    let error = Scene::new().load(&["--config", "none.toml"]).unwrap_err();
    assert!(error.starts_with("cannot read the configuration file HOME/none.toml: "), "{error}");
}

#[test]
fn stdio_alone_opens_no_socket_and_listen_adds_some() {
    let scene = Scene::new().variable("AGENT_DAEMON_SOCKET", "other.sock");
    let listen = |flags: &[&str]| -> Vec<String> {
        let home = scene.home.path().canonicalize().unwrap();
        let listen = scene.load(flags).unwrap().listen;
        listen.iter().map(|at| at.to_string().replace(home.to_str().unwrap(), "HOME")).collect()
    };
    assert_eq!(listen(&[]), ["unix:HOME/other.sock"]);
    assert!(listen(&["--stdio"]).is_empty());
    assert_eq!(listen(&["--stdio", "--listen", "unix:x"]), ["unix:HOME/x"]);
    assert_eq!(listen(&["--listen", "tcp:127.0.0.1:0"]), ["tcp:127.0.0.1:0"]);
}

#[test]
fn a_token_is_kept_where_a_transport_needs_one() {
    let scene = Scene::new();
    let token = |flags: &[&str]| scene.load(flags).unwrap().token_file;
    assert_eq!(token(&["--listen", "unix:x"]), None);
    let path = token(&["--listen", "unix:x", "--listen", "ws:127.0.0.1:0"]).unwrap();
    assert!(path.ends_with("runtime/token"));
    let path = token(&["--listen", "tcp:127.0.0.1:0", "--token-file", "mine"]).unwrap();
    assert!(path.ends_with("mine") && path.is_absolute());
}

#[test]
fn a_flag_that_cannot_be_used_is_named() {
    let scene = Scene::new().file("plain", "");
    let long = format!("unix:{}", "x".repeat(110));
    let cases: &[(&[&str], &str)] = &[
        (&["--cwd", "plain"], "--cwd: HOME/plain is not a directory"),
        (&["--cwd", "none"], "--cwd: HOME/none is not usable: No such file"),
        (&["--log-level", "loud"], "--log-level: `loud` is no log level"),
        (&["--listen", &long], "--listen: the path of a socket may have at most 10"),
        (&["--listen", "x"], "error: invalid value 'x' for '--listen <ENDPOINT>': expected unix:"),
    ];
    for (flags, expected) in cases {
        let error = scene.load(flags).unwrap_err();
        assert!(error.starts_with(expected), "{flags:?}: {error}");
    }
}
