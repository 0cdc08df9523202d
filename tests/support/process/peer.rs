//! The plainest client: one JSON text per line, and what comes back in the order in which it came.

use std::{
    collections::{BTreeMap, VecDeque},
    io::{self, BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpStream},
    os::unix::net::UnixStream,
    path::Path,
    sync::mpsc::{Receiver, RecvTimeoutError, sync_channel},
};

use serde_json::{Value, json};

use super::PATIENCE;

/// One connection to a daemon.
pub struct Peer {
    writer: Option<Box<dyn Ending>>,
    lines: Receiver<String>,
    last_id: u64,
    answers: BTreeMap<u64, Value>,
    /// Answers to no call of ours: errors whose id is null.
    pub strays: Vec<Value>,
    waiting: VecDeque<Value>,
    /// Every event and control frame so far.
    pub frames: Vec<Value>,
    /// Every line so far, as it came.
    pub text: String,
}

/// A writer that can say that nothing more comes.
pub trait Ending: Write + Send {
    /// Says so. A pipe does, when it is dropped.
    fn end(self: Box<Self>) {}
}

impl Ending for std::process::ChildStdin {}

impl Ending for UnixStream {
    fn end(self: Box<Self>) {
        let _ = self.shutdown(Shutdown::Write);
    }
}

impl Ending for TcpStream {
    fn end(self: Box<Self>) {
        let _ = self.shutdown(Shutdown::Write);
    }
}

impl Peer {
    /// A peer over any pair of streams.
    pub fn over(reader: impl Read + Send + 'static, writer: Box<dyn Ending>) -> Self {
        // When the test does not look, the daemon meets a reader that has stopped.
        let (sender, lines) = sync_channel(4096);
        std::thread::spawn(move || {
            for line in BufReader::new(reader).lines() {
                let Ok(line) = line else { break };
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Peer {
            writer: Some(writer),
            lines,
            last_id: 0,
            answers: BTreeMap::new(),
            strays: Vec::new(),
            waiting: VecDeque::new(),
            frames: Vec::new(),
            text: String::new(),
        }
    }

    /// Connects to a Unix socket.
    pub fn unix(path: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        Ok(Peer::over(stream.try_clone()?, Box::new(stream)))
    }

    /// Connects to an address.
    pub fn tcp(address: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        Ok(Peer::over(stream.try_clone()?, Box::new(stream)))
    }

    /// Writes bytes as they are.
    pub fn write(&mut self, bytes: &[u8]) {
        let writer = self.writer.as_mut().expect("the peer has not ended its side");
        writer.write_all(bytes).and_then(|()| writer.flush()).unwrap();
    }

    /// Says that nothing more comes.
    pub fn end(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.end();
        }
    }

    /// Sends a call and does not wait; gives its id.
    pub fn send(&mut self, method: &str, params: Value) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        let call = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.write(format!("{call}\n").as_bytes());
        id
    }

    /// Sends a notification.
    pub fn notify(&mut self, method: &str, params: Value) {
        let call = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        self.write(format!("{call}\n").as_bytes());
    }

    /// The answer to a call: its result or its error.
    ///
    /// # Errors
    /// The call was refused.
    pub fn answer(&mut self, id: u64) -> Result<Value, Value> {
        loop {
            if let Some(mut answer) = self.answers.remove(&id) {
                return match answer.get_mut("error") {
                    Some(error) => Err(error.take()),
                    None => Ok(answer["result"].take()),
                };
            }
            assert!(self.receive(), "closed without an answer to {id}:\n{}", self.text);
        }
    }

    /// What a call gives.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params);
        self.answer(id).unwrap_or_else(|error| panic!("{method} was refused: {error}"))
    }

    /// What a call is refused with, as `CODE KIND`.
    pub fn refused(&mut self, method: &str, params: Value) -> String {
        let id = self.send(method, params);
        match self.answer(id) {
            Ok(result) => format!("answered {result}"),
            Err(error) => {
                let kind = error["data"]["kind"].as_str().unwrap_or("without a kind");
                format!("{} {kind}", error["code"])
            }
        }
    }

    /// Initialises with a token, where one is needed.
    ///
    /// # Errors
    /// The daemon does not let us in.
    pub fn initialize(&mut self, token: Option<&str>) -> Result<Value, Value> {
        let mut params = json!({ "protocolVersion": 1, "clientInfo": { "name": "test" } });
        if let Some(token) = token {
            params["token"] = token.into();
        }
        let id = self.send("initialize", params);
        self.answer(id)
    }

    /// Subscribes, and waits for the first frame.
    pub fn subscribe(&mut self) -> Value {
        self.call("subscribe", json!({}));
        self.frame("subscribed")
    }

    /// The next frame.
    pub fn next_frame(&mut self) -> Value {
        loop {
            if let Some(frame) = self.waiting.pop_front() {
                return frame;
            }
            assert!(self.receive(), "closed without another event:\n{}", self.text);
        }
    }

    /// The next frame of a type; those before it are passed over.
    pub fn frame(&mut self, kind: &str) -> Value {
        self.until(kind).pop().expect("the last one is it")
    }

    /// All frames up to the next one of a type.
    pub fn until(&mut self, kind: &str) -> Vec<Value> {
        let mut frames = Vec::new();
        loop {
            let frame = self.next_frame();
            let is_last = frame["type"] == kind;
            frames.push(frame);
            if is_last {
                return frames;
            }
        }
    }

    /// Reads until the daemon closes the connection.
    pub fn closed(&mut self) {
        while self.receive() {}
    }

    /// Takes in the next message; false at the end.
    fn receive(&mut self) -> bool {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => self.take(&line),
            Err(RecvTimeoutError::Disconnected) => return false,
            Err(RecvTimeoutError::Timeout) => panic!("nothing comes any more:\n{}", self.text),
        }
        true
    }

    fn take(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
        let message: Value = serde_json::from_str(line)
            .unwrap_or_else(|error| panic!("not the protocol: {error}: {line}"));
        if message["method"] == "event" {
            let frame = message["params"]["result"].clone();
            self.frames.push(frame.clone());
            self.waiting.push_back(frame);
        } else if let Some(id) = message["id"].as_u64() {
            self.answers.insert(id, message);
        } else {
            self.strays.push(message);
        }
    }
}

/// Events in the contract's words: deltas and updates that repeat are one, calls by their ids,
/// messages by their source.
pub fn story(frames: &[Value]) -> String {
    let mut words: Vec<String> = Vec::new();
    for frame in frames.iter().filter(|frame| frame.get("seq").is_some()) {
        let word = word(frame);
        let repeats = word.ends_with("_delta") && words.last() == Some(&word);
        if !repeats && !word.starts_with("tool_update") {
            words.push(word);
        }
    }
    words.join(" ")
}

fn word(frame: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let kind = text(&frame["type"]);
    let detail = match kind.as_str() {
        "tool_start" | "tool_end" | "tool_skipped" => text(&frame["toolCallId"]),
        "message_end" if frame["source"] == "tool" => text(&frame["message"]["toolCallId"]),
        "message_end" if frame["source"] != "model" => text(&frame["source"]),
        "queue_update" => {
            let change = if frame.get("added").is_some() { '+' } else { '-' };
            format!("{change}{}", text(&frame["queue"]))
        }
        "run_end" => text(&frame["reason"]),
        _ => return kind,
    };
    if detail.is_empty() { kind } else { format!("{kind}({detail})") }
}
