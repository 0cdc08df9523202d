//! A whole daemon in memory, and peers that speak to it over pipes in its own bytes.

use std::{collections::VecDeque, path::Path, sync::Arc, time::Duration};

use agent_core::{Model, Tool};
use agent_daemon::{
    config::{Configuration, Flags, Surroundings},
    methods,
    model::ModelCatalog,
    peer::{
        connection::{Ending, serve_bytes},
        server::{Server, ServerLimits},
        transport::Transport,
    },
    sessions::{daemon::Daemon, registry::Blueprint},
    transport::stdio::STDIO,
};
use agent_protocol::local::paths::Directories;
use serde_json::{Value, json};
use tokio::{
    io::{
        AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf,
        duplex, split,
    },
    task::JoinHandle,
};

/// Longer than anything takes; a test that waits so long has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// A daemon without a process. Its directory is a temporary one.
pub struct InMemory {
    /// What its connections share.
    pub daemon: Arc<Daemon>,
    server: Arc<Server>,
    directory: tempfile::TempDir,
}

/// One connection's client side. Speaks in lines of JSON.
pub struct Peer {
    writer: Option<WriteHalf<DuplexStream>>,
    lines: Lines<BufReader<ReadHalf<DuplexStream>>>,
    serving: JoinHandle<Ending>,
    frames: VecDeque<Value>,
    answers: Vec<Value>,
    last_id: u64,
}

impl InMemory {
    /// A daemon whose sessions run on this model, with the built-in tools.
    pub fn new(model: impl Model) -> Self {
        InMemory::with(model, None, "")
    }

    /// The same with other tools, and a configuration file of this text.
    pub fn with(model: impl Model, tools: Option<Vec<Arc<dyn Tool>>>, file: &str) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let configuration = configuration(directory.path(), file);
        let catalog = ModelCatalog::new(configuration.settings.providers.clone(), &|name| {
            (name == "KEY_OF_TESTS").then(|| "sk-secret-of-tests".to_owned())
        });
        let blueprint = Blueprint {
            catalog: Arc::new(catalog),
            model: Ok(Arc::new(model)),
            tools,
            configuration,
        };
        let daemon = Arc::new(Daemon::new(blueprint));
        let server = Server::new(methods::table(daemon.clone()), ServerLimits::default(), None);
        InMemory { daemon, server, directory }
    }

    /// The directory of the default session.
    pub fn directory(&self) -> std::path::PathBuf {
        self.directory.path().canonicalize().expect("the directory exists")
    }

    /// Connects as the parent process would.
    pub fn connect(&self) -> Peer {
        self.connect_by(&STDIO)
    }

    /// Connects with nothing but bytes, for a client that is not ours to write.
    pub fn stream(&self) -> DuplexStream {
        self.serve(&STDIO).0
    }

    fn serve(&self, transport: &'static Transport) -> (DuplexStream, JoinHandle<Ending>) {
        let (ours, theirs) = duplex(64 * 1024);
        let (reader, writer) = split(theirs);
        (ours, tokio::spawn(serve_bytes(self.server.clone(), reader, writer, transport)))
    }

    /// Connects by a transport.
    pub fn connect_by(&self, transport: &'static Transport) -> Peer {
        let (ours, serving) = self.serve(transport);
        let (reader, writer) = split(ours);
        Peer {
            writer: Some(writer),
            lines: BufReader::new(reader).lines(),
            serving,
            frames: VecDeque::new(),
            answers: Vec::new(),
            last_id: 0,
        }
    }
}

fn configuration(directory: &Path, file: &str) -> Configuration {
    let file_path = directory.join("config.toml");
    std::fs::write(&file_path, file).expect("the directory can be written to");
    let flags = Flags { config: Some(file_path), stdio: true, ..Flags::default() };
    let around = Surroundings {
        variable: &|_| None,
        directories: Directories::of_user(),
        current_dir: directory.to_owned(),
    };
    Configuration::load(flags, &around).unwrap_or_else(|error| panic!("{error}"))
}

impl Peer {
    /// Makes a call and waits for its answer.
    ///
    /// # Errors
    /// The answer's `error`.
    pub async fn call(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        let id = self.send(method, params).await;
        self.answer(id).await
    }

    /// Makes a call that must succeed.
    pub async fn ask(&mut self, method: &str, params: Value) -> Value {
        match self.call(method, params.clone()).await {
            Ok(result) => result,
            Err(error) => panic!("{method} {params}: {error}"),
        }
    }

    /// Makes a call that must be refused, and tells code and `data`.
    pub async fn refused(&mut self, method: &str, params: Value) -> (i64, Value) {
        match self.call(method, params.clone()).await {
            Ok(result) => panic!("{method} {params} was answered: {result}"),
            Err(error) => (error["code"].as_i64().expect("a code"), error["data"].clone()),
        }
    }

    /// Makes a call without waiting, and tells its id.
    pub async fn send(&mut self, method: &str, params: Value) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        let call = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.write(&format!("{call}\n")).await;
        id
    }

    /// Sends text as it is.
    pub async fn write(&mut self, text: &str) {
        let writer = self.writer.as_mut().expect("the input was not ended");
        writer.write_all(text.as_bytes()).await.expect("the daemon reads");
    }

    /// Waits for the answer to a call.
    ///
    /// # Errors
    /// The answer's `error`.
    pub async fn answer(&mut self, id: u64) -> Result<Value, Value> {
        loop {
            if let Some(index) = self.answers.iter().position(|answer| answer["id"] == id) {
                let mut answer = self.answers.remove(index);
                return match answer.get_mut("error") {
                    Some(error) => Err(error.take()),
                    None => Ok(answer["result"].take()),
                };
            }
            self.read().await.unwrap_or_else(|| panic!("closed before the answer to call {id}"));
        }
    }

    /// The next frame of any subscription; none once the connection is closed.
    pub async fn frame(&mut self) -> Option<Value> {
        while self.frames.is_empty() {
            self.read().await?;
        }
        self.frames.pop_front()
    }

    /// The next frame of that type; the others before it are lost.
    pub async fn frame_of(&mut self, kind: &str) -> Value {
        loop {
            let frame = self.frame().await.unwrap_or_else(|| panic!("closed before {kind}"));
            if frame["type"] == kind {
                return frame;
            }
        }
    }

    /// The frames that have come until now.
    pub fn frames(&mut self) -> Vec<Value> {
        self.frames.drain(..).collect()
    }

    /// The types of the frames that have come until now, and what they say in brief.
    pub fn timeline(&mut self) -> String {
        let told: Vec<_> = self.frames.drain(..).filter_map(|frame| told(&frame)).collect();
        told.join(" → ")
    }

    /// Ends the input and waits for the connection's end.
    pub async fn end(&mut self) -> Ending {
        if let Some(mut writer) = self.writer.take() {
            writer.shutdown().await.expect("a pipe can be closed");
        }
        while self.read().await.is_some() {}
        (&mut self.serving).await.expect("a connection does not panic")
    }

    async fn read(&mut self) -> Option<()> {
        let line = tokio::time::timeout(PATIENCE, self.lines.next_line()).await;
        let line = line.expect("the daemon answers").expect("a pipe can be read")?;
        let mut message: Value = serde_json::from_str(&line).expect("JSON");
        match message["method"].as_str() {
            Some("event") => self.frames.push_back(message["params"]["result"].take()),
            Some(other) => panic!("the daemon called {other}"),
            None => self.answers.push(message),
        }
        Some(())
    }
}

/// One frame in the contract's words; none for what only repeats.
fn told(frame: &Value) -> Option<String> {
    let text = |message: &Value| message["content"][0]["text"].as_str().unwrap_or("…").to_owned();
    let run = &frame["runId"];
    Some(match frame["type"].as_str()? {
        "run_start" => format!("start{run}({})", text(&frame["messages"][0])),
        "run_end" => format!("end{run}({})", frame["reason"].as_str()?),
        "message_end" => {
            let source = frame["source"].as_str()?;
            match (source, frame["message"]["toolCallId"].as_str()) {
                (_, Some(call)) => format!("result({call})"),
                ("model", _) => format!("says({})", text(&frame["message"])),
                (source, _) => format!("{source}({})", text(&frame["message"])),
            }
        }
        "tool_start" => format!("tool({})", frame["toolCallId"].as_str()?),
        "tool_end" => format!("done({})", frame["toolCallId"].as_str()?),
        "queue_update" if frame["added"].is_object() => {
            format!("{}+", frame["queue"].as_str()?)
        }
        "session_closed" | "server_shutdown" | "lagged" | "reset" | "config_changed" => {
            frame["type"].as_str()?.to_owned()
        }
        _ => return None,
    })
}
