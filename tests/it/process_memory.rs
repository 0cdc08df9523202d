//! Memory that is no longer used is given back, by the real program.

use std::{
    fs,
    time::{Duration, Instant},
};

use agent_core::Block;
use base64::{Engine, prelude::BASE64_STANDARD};
use image::{
    Rgb, RgbImage,
    codecs::png::{CompressionType, FilterType, PngEncoder},
};
use serde_json::{Value, json};
use support::process::{Daemon, Home, ModelServer, Peer};

const MIB: u64 = 1 << 20;
/// How many commands the model has run,
const COMMANDS: usize = 400;
/// and how many of them at once.
const AT_ONCE: usize = 8;
/// In which memory has to be given back, without anything being asked of the daemon.
const AT_REST: Duration = Duration::from_secs(10);

/// What a process has in memory but for pages of its program, which a debug build has many of.
fn held(pid: u64) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let of = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
    };
    (of("RssAnon:") + of("RssShmem:")) * 1024
}

struct Memory {
    peer: Peer,
    pid: u64,
}

impl Memory {
    /// Waits for rest, and until no more than so much is held beside three times the transcript.
    fn comes_down_to(&mut self, what: &str, most: u64) {
        self.peer.call("waitForIdle", json!({}));
        let state = self.peer.call("getState", json!({ "messages": "all" }));
        let transcript = state["state"]["messages"].to_string().len() as u64;
        let most = 3 * transcript + most;
        let start = Instant::now();
        while held(self.pid) > most {
            let (held, most) = (held(self.pid) / MIB, most / MIB);
            assert!(start.elapsed() < AT_REST, "{what}: {held} MiB are held; {most} are the most");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// A picture of ten million bytes, since nothing was done to make it smaller.
fn picture() -> Vec<u8> {
    let waves = RgbImage::from_fn(1_900, 1_800, |x, y| Rgb([x, y, x + y].map(|it| it as u8)));
    let mut bytes = Vec::new();
    let plainly = PngEncoder::new_with_quality(
        &mut bytes,
        CompressionType::Uncompressed,
        FilterType::NoFilter,
    );
    waves.write_with_encoder(plainly).unwrap();
    assert!(bytes.len() > 10_000_000);
    bytes
}

fn run_commands(server: &ModelServer) {
    for turn in 0..COMMANDS / AT_ONCE {
        let mut call = server.call();
        call.begin();
        for index in 0..AT_ONCE {
            let id = format!("call_{turn}_{index}");
            call.call_tool(index, &id, "bash", json!({ "command": "true" }));
        }
        call.end("tool_calls");
    }
    server.call().answer("That is all.");
}

#[test]
fn memory_that_is_no_longer_used_is_given_back() {
    let server = ModelServer::start();
    let home = Home::with_model(&server);
    let mut daemon: Daemon = home.stdio_daemon(&[]);
    let mut peer = daemon.peer();
    let pid = peer.initialize(None).unwrap()["serverInfo"]["pid"].as_u64().unwrap();
    let mut memory = Memory { peer, pid };
    memory.comes_down_to("at the start", 8 * MIB);

    memory.peer.call("prompt", json!({ "input": "Run them." }));
    run_commands(&server);
    memory.comes_down_to("after many commands", 20 * MIB);

    let bytes = picture();
    fs::write(home.work().join("picture.png"), &bytes).unwrap();
    let said = Block::image("image/png", BASE64_STANDARD.encode(bytes));
    memory.peer.call("prompt", json!({ "input": [said] }));
    memory.comes_down_to("after a picture", 20 * MIB);
    memory.peer.call("prompt", json!({ "input": "Read it." }));
    let mut call = server.call();
    call.begin();
    call.call_tool(0, "read", "read", json!({ "path": "picture.png" }));
    call.end("tool_calls");
    server.call().answer("I see.");
    memory.comes_down_to("after the picture was read", 20 * MIB);

    memory.peer.call("reset", json!({}));
    memory.comes_down_to("after all was forgotten", 15 * MIB);

    let sessions = ["a", "b"];
    for session in sessions {
        memory.peer.call("createSession", json!({ "sessionId": session }));
        let said = Block::image("image/png", BASE64_STANDARD.encode(picture()));
        memory.peer.call("prompt", json!({ "input": [said], "sessionId": session }));
        memory.peer.call("waitForIdle", json!({ "sessionId": session }));
    }
    for session in sessions {
        memory.peer.call("closeSession", json!({ "sessionId": session }));
    }
    memory.comes_down_to("after sessions were closed", 15 * MIB);
    let seen: Vec<&Value> =
        memory.peer.frames.iter().filter(|frame| frame["type"] == "message_end").collect();
    assert_eq!(seen.len(), 0, "nobody subscribed, so that only the daemon holds anything");
    memory.peer.end();
    memory.peer.closed();
    assert_eq!(daemon.exit().code(), Some(0));
}
