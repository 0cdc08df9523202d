//! A model behind HTTP whose part the test plays, request by request.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, sync_channel},
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::PATIENCE;

/// A server of OpenAI's chat completions on loopback.
pub struct ModelServer {
    address: SocketAddr,
    calls: Receiver<ModelCall>,
    ends: Arc<AtomicBool>,
    acceptor: Option<JoinHandle<()>>,
}

/// One request, to be answered piece by piece. Dropped, it is cut off.
pub struct ModelCall {
    /// The request's headers, as they came.
    pub headers: String,
    /// The request's body.
    pub body: Value,
    stream: TcpStream,
}

impl ModelServer {
    /// Starts one.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, calls) = sync_channel(16);
        let ends = Arc::new(AtomicBool::new(false));
        let acceptor = std::thread::spawn({
            let ends = ends.clone();
            move || {
                for stream in listener.incoming() {
                    if ends.load(Ordering::Relaxed) {
                        break;
                    }
                    // Whoever connects and says nothing sensible is left alone.
                    let call = stream.and_then(ModelCall::read);
                    if call.is_ok_and(|call| sender.send(call).is_err()) {
                        break;
                    }
                }
            }
        });
        ModelServer { address, calls, ends, acceptor: Some(acceptor) }
    }

    /// The configuration of a daemon that uses it.
    pub fn configuration(&self) -> String {
        format!(
            "model = \"mock/test\"\n\
             [providers.mock]\n\
             api = \"openai-completions\"\n\
             base_url = \"http://{}/v1\"\n\
             models = [{{ id = \"test\", context_window = 32768, max_output_tokens = 4096 }}]\n",
            self.address
        )
    }

    /// The next request.
    pub fn call(&self) -> ModelCall {
        self.calls.recv_timeout(PATIENCE).expect("the model is asked")
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        // Wakes the acceptor.
        drop(TcpStream::connect(self.address));
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

impl ModelCall {
    fn read(stream: TcpStream) -> io::Result<Self> {
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut headers = String::new();
        while !headers.ends_with("\r\n\r\n") {
            if reader.read_line(&mut headers)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let length = headers.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            let is_length = name.eq_ignore_ascii_case("content-length");
            is_length.then(|| value.trim().parse::<usize>().ok())?
        });
        let mut body = vec![0; length.unwrap_or_default()];
        reader.read_exact(&mut body)?;
        Ok(ModelCall { headers, body: serde_json::from_slice(&body)?, stream })
    }

    /// The transcript as the model was shown it: each message's role, and the start of its text.
    pub fn transcript(&self) -> Vec<String> {
        let messages = self.body["messages"].as_array().expect("messages");
        messages.iter().filter(|message| message["role"] != "system").map(shown).collect()
    }

    /// Begins the answer.
    pub fn begin(&mut self) {
        let head =
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n";
        self.stream.write_all(head.as_bytes()).unwrap();
    }

    /// Says some text.
    pub fn say(&mut self, text: &str) {
        self.chunk(json!({ "content": text }), None);
    }

    /// Calls a tool.
    pub fn call_tool(&mut self, index: usize, id: &str, name: &str, arguments: Value) {
        let function = json!({ "name": name, "arguments": arguments.to_string() });
        let call = json!({ "index": index, "id": id, "type": "function", "function": function });
        self.chunk(json!({ "tool_calls": [call] }), None);
    }

    /// Ends the answer.
    pub fn end(mut self, reason: &str) {
        self.chunk(json!({}), Some(reason));
        self.stream.write_all(b"data: [DONE]\n\n").unwrap();
    }

    /// Says one text and no more.
    pub fn answer(mut self, text: &str) {
        self.begin();
        self.say(text);
        self.end("stop");
    }

    /// Answers with a failure.
    pub fn fail(mut self, status: &str, body: &str) {
        let head = "Content-Type: application/json\r\nConnection: close";
        let answer =
            format!("HTTP/1.1 {status}\r\n{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        self.stream.write_all(answer.as_bytes()).unwrap();
    }

    /// Waits until the other side closes the connection; how long that took.
    pub fn closed(mut self) -> Duration {
        let start = Instant::now();
        // A reset is an end, too.
        let _ = self.stream.read(&mut [0; 64]);
        start.elapsed()
    }

    fn chunk(&mut self, delta: Value, finish_reason: Option<&str>) {
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish_reason });
        let chunk = json!({
            "id": "chunk", "object": "chat.completion.chunk", "created": 0, "model": "test",
            "choices": [choice],
        });
        self.stream.write_all(format!("data: {chunk}\n\n").as_bytes()).unwrap();
        self.stream.flush().unwrap();
    }
}

fn shown(message: &Value) -> String {
    let content = &message["content"];
    let text = match content.as_str() {
        Some(text) => text,
        None => content[0]["text"].as_str().unwrap_or_default(),
    };
    let calls = message["tool_calls"].as_array().map_or(0, Vec::len);
    let calls = if calls > 0 { format!(" [{calls} calls]") } else { String::new() };
    let role = message["role"].as_str().unwrap_or_default();
    format!("{role}: {}{calls}", text.trim()).replace(":  [", ": [")
}
