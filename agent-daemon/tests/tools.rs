//! What the tools promise about processes and memory, tried with a process of its own.
//!
//! The program runs itself again: once as a program that hosts supervisors, once as one that does
//! not, and as a host that is killed. A test is a function in [`TESTS`]; arguments select some by
//! parts of their names, as with any other test program.
#![allow(clippy::unwrap_used)]

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use agent_core::{
    CancelSignal, CancelSource, Tool, ToolContext, ToolError, ToolOutput, ToolUpdates,
};
use agent_daemon::tool::{ToolPolicy, Workspace, built_in, supervisor};
use serde_json::{Value, json};

/// A test, its name, and whether it needs a supervisor.
type Test = (&'static str, fn(), bool);

const TESTS: &[Test] = &[
    ("a_line_far_into_a_big_file_costs_little_memory", big_file, false),
    ("commands_tell_their_story", commands_tell_their_story, false),
    ("a_command_inherits_no_file_and_no_signal_of_ours", clean_start, false),
    ("our_secrets_stay_ours", secrets, false),
    ("a_command_that_was_aborted_first_never_runs", aborted_first, false),
    ("an_abort_keeps_what_was_said", abort_keeps_output, false),
    ("a_time_limit_ends_the_command", time_limit, false),
    ("what_ignores_sigterm_is_killed", ignores_term, false),
    ("what_is_left_in_the_background_ends", background, false),
    ("long_output_goes_to_a_file", long_output, false),
    ("updates_are_few_and_short", updates, false),
    ("an_editor_says_that_there_is_none", editors, false),
    ("a_command_that_stands_still_is_ended", standstill, false),
    ("what_takes_its_time_is_not", no_standstill, false),
    ("a_directory_that_is_gone_is_told_and_harms_nothing", gone_directory, true),
    ("a_directory_that_is_back_works_again", directory_is_back, true),
    ("a_dropped_call_leaves_nothing", dropped_call, false),
    ("whatever_escapes_its_group_ends_too", escapes, true),
    ("a_detached_writer_does_not_hold_up_an_abort", detached_writer, true),
    ("a_crowd_ends_as_one", crowd, true),
    ("a_stopped_supervisor_is_no_way_out", stopped_supervisor, true),
    ("a_supervisor_that_is_stopped_for_ever_is_none_either", ever_stopped_supervisor, true),
    ("a_command_that_stops_its_supervisor_and_ends_is_not_waited_for", stopped_at_the_end, true),
    ("killing_the_supervisor_kills_the_command", killed_supervisor, true),
    ("killing_the_supervisor_frees_nothing", killed_supervisor_with_session, true),
    ("a_session_from_outside_of_the_container_is_known", foreign_session, true),
    ("there_is_no_terminal", no_terminal, true),
    ("a_killed_host_leaves_nothing", killed_host, true),
    ("a_host_killed_at_any_moment_leaves_nothing", killed_host_early, true),
    ("a_killed_host_whose_supervisors_are_stopped_leaves_nothing", killed_stopped, true),
    ("a_command_that_stops_or_kills_all_above_it_ends_with_the_host", killed_chain, true),
    ("a_daemon_that_is_asked_to_end_leaves_nothing", terminated_daemon, true),
];

const HOST: &str = "host";
const SUPERVISED: &str = "supervised";
const GROUPED: &str = "grouped";

fn main() {
    // Without this call the program is one that cannot host a supervisor.
    if std::env::args().nth(1).as_deref() != Some(GROUPED) {
        supervisor::run_if_asked();
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        [HOST, commands @ ..] => host(commands),
        [SUPERVISED, filters @ ..] => run_tests(filters, |_| true),
        [GROUPED, filters @ ..] => run_tests(filters, |needs_supervisor| !needs_supervisor),
        filters => {
            for mode in [SUPERVISED, GROUPED] {
                let filters = filters.iter().filter(|filter| !filter.starts_with('-'));
                // One of our own, so that what is left in it is ours.
                let temp = tempfile::tempdir().unwrap();
                // As whoever starts a daemon in the background from a script leaves it.
                let mut command = Command::new("sh");
                command
                    .args(["-c", "trap '' HUP INT QUIT USR1 TSTP TTOU; exec \"$0\" \"$@\""])
                    .arg(std::env::current_exe().unwrap())
                    .arg(mode)
                    .args(filters)
                    .env("OPENAI_API_KEY", "sk-1")
                    .env("LOCAL_KEY", "2")
                    // What someone has set for git stays, but for what names an editor.
                    .env("GIT_CONFIG_COUNT", "2")
                    .env("GIT_CONFIG_KEY_0", "user.name")
                    .env("GIT_CONFIG_VALUE_0", "Someone")
                    .env("GIT_CONFIG_KEY_1", "core.editor")
                    .env("GIT_CONFIG_VALUE_1", "sleep 1000; vi")
                    .env("TMPDIR", temp.path());
                assert!(command.status().unwrap().success(), "{mode}: see above");
            }
        }
    }
}

fn run_tests(filters: &[&str], applies: impl Fn(bool) -> bool) {
    for (name, test, needs_supervisor) in TESTS {
        let selected = filters.is_empty() || filters.iter().any(|filter| name.contains(filter));
        if selected && applies(*needs_supervisor) {
            let begin = Instant::now();
            println!("tools: {name} …");
            test();
            println!("tools: {name}: ok, {} ms", begin.elapsed().as_millis());
        }
    }
}

/// A directory, and the tool in it.
struct Scratch {
    directory: tempfile::TempDir,
    tool: Arc<dyn Tool>,
}

impl Scratch {
    fn new() -> Self {
        Self::with(ToolPolicy::default())
    }

    fn with(policy: ToolPolicy) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let tool = tool(directory.path(), "bash", policy);
        Scratch { directory, tool }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    async fn call(&self, arguments: Value, signal: CancelSignal) -> Result<ToolOutput, ToolError> {
        let (context, _updates) = ToolContext::detached("1", signal);
        self.tool.call(arguments, context).await
    }

    async fn story(&self, command: &str) -> String {
        told(&self.call(json!({ "command": command }), CancelSignal::never()).await)
    }
}

fn bash(directory: &Path) -> Arc<dyn Tool> {
    tool(directory, "bash", ToolPolicy::default())
}

fn tool(directory: &Path, name: &str, policy: ToolPolicy) -> Arc<dyn Tool> {
    let secrets = vec!["LOCAL_KEY".into()];
    let workspace = Workspace::new(directory.into(), policy, secrets);
    built_in(workspace.into()).into_iter().find(|tool| tool.spec().name == name).unwrap()
}

fn told(result: &Result<ToolOutput, ToolError>) -> String {
    match result {
        Ok(output) => agent_core::text_of(&output.content),
        Err(error) => format!("ERROR {error}"),
    }
}

fn details(result: &Result<ToolOutput, ToolError>) -> Value {
    let output = match result {
        Ok(output) => output,
        Err(error) => &error.output,
    };
    output.details.clone().unwrap()
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.unwrap().block_on(future)
}

/// The command lines of the living processes that have a marker in them, our own excepted.
fn running(marker: &str) -> Vec<String> {
    let own = std::process::id().to_string();
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let alive = numbers.filter(|name| name.parse::<u32>().is_ok() && *name != own);
    let lines = alive.map(|pid| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        format!("{pid} {}", String::from_utf8_lossy(&line).replace('\0', " "))
    });
    lines.filter(|line| line.contains(marker)).collect()
}

/// Waits until so many processes with the marker live.
fn await_running(marker: &str, count: usize) {
    let begin = Instant::now();
    while running(marker).len() < count {
        assert!(begin.elapsed() < Duration::from_secs(20), "only {:?} run", running(marker));
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Nothing with the marker is left, at once or after a moment.
fn assert_gone(marker: &str, moment: Duration) {
    let begin = Instant::now();
    loop {
        let left = running(marker);
        if left.is_empty() {
            return;
        }
        assert!(begin.elapsed() < moment, "still running: {left:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A number of seconds to sleep for that no other process has in its command line.
fn marker() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{}.{}{:04}", 7_000, std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Waits until some update shows this text.
async fn until_said(updates: &mut ToolUpdates, text: &str) {
    loop {
        let update = updates.next().await.expect("the command still runs");
        if agent_core::text_of(&update.content).contains(text) {
            return;
        }
    }
}

fn big_file() {
    let scratch = tempfile::tempdir().unwrap();
    let line = "x".repeat(1_023) + "\n";
    // In pieces: a peak of our own would hide that of the tool.
    let mut file = std::fs::File::create(scratch.path().join("big")).unwrap();
    let piece = line.repeat(1024);
    for _ in 0..100 {
        file.write_all(piece.as_bytes()).unwrap();
    }
    // A first call, so that what is needed once is not counted.
    let mut before = 0;
    for offset in [1, 90_000, 102_400] {
        let arguments = json!({ "path": "big", "offset": offset });
        let (context, _updates) = ToolContext::detached("1", CancelSignal::never());
        let told = told(&block_on(
            tool(scratch.path(), "read", Default::default()).call(arguments, context),
        ));
        assert!(told.starts_with(&line), "{told}");
        let peak = peak_memory();
        assert!(before == 0 || peak - before < 4 << 20, "{} bytes more", peak - before);
        before = peak;
    }
}

/// The most memory that this process ever had, in bytes.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

fn commands_tell_their_story() {
    const CASES: &[(&str, &str)] = &[
        ("echo hi", "hi\n"),
        ("true", "(No output.)"),
        ("printf 'no line end'", "no line end"),
        ("echo a; echo b >&2; echo c", "a\nb\nc\n"),
        ("cd / && pwd", "/\n"),
        ("exit 3", "ERROR (No output.)\n\n[Exit code 3.]"),
        ("echo out; exit 1", "ERROR out\n\n[Exit code 1.]"),
        ("printf out; exit 1", "ERROR out\n\n[Exit code 1.]"),
        ("no-such-command-at-all 2>/dev/null", "ERROR (No output.)\n\n[Exit code 127.]"),
        // A peer took this for a success.
        ("kill -9 $$", "ERROR (No output.)\n\n[The command was ended by SIGKILL.]"),
        ("echo a; kill -TERM $$", "ERROR a\n\n[The command was ended by SIGTERM.]"),
        (
            "exec 2>/dev/null; bash -c 'kill -9 $$'; exit $?",
            "ERROR (No output.)\n\n[Exit code 137: something in it was ended by SIGKILL.]",
        ),
        ("cat; read line || echo no input", "no input\n"),
        ("printf '\\033[31mred\\033[0m \\033]0;title\\007done'", "red done"),
        ("printf '\\303'; sleep 0.05; printf '\\251'", "é"),
        ("printf 'caf\\351'", "caf\u{fffd}"),
        // Rust programs ignore SIGPIPE; what they start must not.
        ("yes | head -n 1; echo ${PIPESTATUS[0]}", "y\n141\n"),
        ("echo said late > >(sleep 0.05; cat)", "said late\n"),
        ("echo \"$0\"; echo $#", "bash\n0\n"),
    ];
    let scratch = Scratch::new();
    block_on(async {
        for (command, story) in CASES {
            let told = scratch.story(command).await;
            let told = told.replace("/usr/bin/bash", "bash").replace("/bin/bash", "bash");
            assert_eq!(told, *story, "{command}");
        }
        let result = scratch.call(json!({"command": "exit 3"}), CancelSignal::never()).await;
        let details = details(&result);
        assert_eq!((&details["exitCode"], &details["signal"]), (&json!(3), &Value::Null));
        let result = scratch.call(json!({"command": "kill -9 $$"}), CancelSignal::never()).await;
        let details = self::details(&result);
        assert_eq!((&details["exitCode"], &details["signal"]), (&Value::Null, &json!("SIGKILL")));
        for timeout in [json!(0), json!(-1), json!(86_401), json!("5")] {
            let arguments = json!({"command": "touch ran", "timeout": timeout});
            let told = told(&scratch.call(arguments, CancelSignal::never()).await);
            assert!(told.starts_with("ERROR ") && told.contains("timeout`"), "{told}");
        }
        assert!(!scratch.path().join("ran").exists());
    });
}

fn clean_start() {
    let scratch = Scratch::new();
    block_on(async {
        // Whatever started this program may have left it some; those are not ours.
        let command = "ls /proc/self/fd";
        let inherited = Command::new("bash").args(["-c", command]).output().unwrap().stdout;
        assert_eq!(scratch.story(command).await, String::from_utf8(inherited).unwrap());
        if std::env::args().nth(1).as_deref() == Some(SUPERVISED) {
            let signals = scratch.story("grep -E 'Sig(Ign|Blk)' /proc/self/status").await;
            for line in signals.lines() {
                let mask = line.split_whitespace().last().unwrap();
                // Without those for real-time programs.
                let standard = u64::from_str_radix(mask, 16).unwrap() & 0x7fff_ffff;
                assert_eq!(standard, 0, "{signals}");
            }
        }
        assert_eq!(scratch.story("readlink /proc/self/fd/0").await, "/dev/null\n");
    });
}

fn secrets() {
    let scratch = Scratch::new();
    block_on(async {
        let told = scratch.story("env | grep -E 'OPENAI_API_KEY|LOCAL_KEY'; echo $PATH").await;
        assert!(told.starts_with('/'), "{told}");
        let parent = scratch.story("tr '\\0' '\\n' < /proc/$PPID/environ | grep LOCAL_KEY").await;
        if std::env::args().nth(1).as_deref() == Some(SUPERVISED) {
            assert_eq!(parent, "ERROR (No output.)\n\n[Exit code 1.]");
        }
    });
}

fn aborted_first() {
    let scratch = Scratch::new();
    let source = CancelSource::default();
    source.cancel(Duration::ZERO);
    let call = scratch.call(json!({"command": "touch ran"}), source.signal());
    let told = told(&block_on(call));
    assert_eq!(told, "ERROR The command was not run: the run was aborted before.");
    assert!(!scratch.path().join("ran").exists());
}

fn abort_keeps_output() {
    let scratch = Scratch::new();
    let marker = marker();
    block_on(async {
        let source = CancelSource::default();
        let (context, mut updates) = ToolContext::detached("1", source.signal());
        let command = format!("trap 'echo bye; exit 0' TERM; echo begun; sleep {marker} & wait");
        let call = scratch.tool.call(json!({ "command": command }), context);
        let abort = async {
            until_said(&mut updates, "begun").await;
            source.cancel(Duration::from_secs(5));
            Instant::now()
        };
        let (result, aborted) = futures_util::future::join(call, abort).await;
        let expected = "ERROR begun\nbye\n\n[The run was aborted; the command was ended.]";
        assert_eq!(told(&result), expected);
        assert_eq!(details(&result)["aborted"], true);
        assert!(aborted.elapsed() < Duration::from_secs(3), "{:?}", aborted.elapsed());
    });
    assert_gone(&marker, Duration::ZERO);
}

fn time_limit() {
    let scratch = Scratch::new();
    let marker = marker();
    let begin = Instant::now();
    let arguments = json!({ "command": format!("echo a; sleep {marker}; echo b"), "timeout": 0.2 });
    let result = block_on(scratch.call(arguments, CancelSignal::never()));
    assert_eq!(
        told(&result),
        "ERROR a\n\n[The command was ended after 0.2 seconds, its time limit.]"
    );
    assert_eq!(details(&result)["timedOut"], true);
    assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
    assert_gone(&marker, Duration::ZERO);
}

fn ignores_term() {
    let scratch = Scratch::new();
    let marker = marker();
    let begin = Instant::now();
    let command = format!("trap '' TERM; (sleep {marker}) & sleep {marker}; sleep {marker}");
    let arguments = json!({ "command": command, "timeout": 0.1 });
    let told = told(&block_on(scratch.call(arguments, CancelSignal::never())));
    assert!(told.contains("its time limit"), "{told}");
    assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
    assert_gone(&marker, Duration::ZERO);
}

fn background() {
    let scratch = Scratch::new();
    let marker = marker();
    for redirect in ["", ">/dev/null 2>&1"] {
        let begin = Instant::now();
        let command = format!("sleep {marker} {redirect} & echo begun");
        let told = block_on(scratch.story(&command));
        assert_eq!(told, "begun\n\n[What it left running was ended.]", "{redirect}");
        assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
        assert_gone(&marker, Duration::ZERO);
    }
    // What ends by itself in time is not worth a word.
    assert_eq!(block_on(scratch.story("(sleep 0.05; echo late) & echo soon")), "soon\nlate\n");
}

fn long_output() {
    let scratch = Scratch::new();
    let result = block_on(scratch.call(json!({"command": "seq 3000"}), CancelSignal::never()));
    let told = told(&result);
    let file = details(&result)["fullOutputPath"].as_str().unwrap().to_owned();
    let notice = format!("[Lines 1,001-3,000 of 3,000 are shown. The whole output is in {file}]");
    assert!(told.starts_with("1001\n") && told.ends_with(&notice), "{told}");
    assert_eq!(std::fs::read_to_string(&file).unwrap().lines().count(), 3_000);
    // A command can look through it, too.
    let command = format!("grep -c 7 {file}");
    assert_eq!(block_on(scratch.story(&command)), "813\n");
    drop(scratch);
    assert!(!Path::new(&file).exists());
}

fn updates() {
    let scratch = Scratch::new();
    block_on(async {
        let (context, mut updates) = ToolContext::detached("1", CancelSignal::never());
        let command = "for i in $(seq 200); do echo line $i; sleep 0.001; done";
        let begin = Instant::now();
        let result = scratch.tool.call(json!({ "command": command }), context).await;
        let seconds = begin.elapsed().as_secs_f64();
        assert!(result.is_ok());
        let mut count = 0;
        while let Some(update) = updates.next().await {
            count += 1;
            let text = agent_core::text_of(&update.content);
            assert!(text.lines().count() <= 40 && text.len() <= 4096 && text.starts_with("line "));
        }
        assert!(count >= 3, "{count} updates in {seconds} s");
        assert!(f64::from(count) <= seconds * 10.0 + 1.0, "{count} updates in {seconds} s");
    });
}

/// Git as someone has set it up who likes editors.
const REPOSITORY: &str = "git init -q . && git config user.email a@b && \
    git config core.editor 'sleep 1000; vi' && git config sequence.editor 'sleep 1000; vi' && \
    git commit -q --allow-empty -m one && git commit -q --allow-empty -m two && \
    echo a > a && git add a && git commit -q -m three";

fn editors() {
    let scratch = Scratch::new();
    block_on(async {
        assert_eq!(scratch.story(REPOSITORY).await, "(No output.)");
        for command in [
            "$EDITOR a",
            "\"$EDITOR\" a b",
            "$VISUAL a",
            "sh -c \"$GIT_EDITOR a\"",
            "git commit --allow-empty",
            "git commit --allow-empty --amend",
            "git rebase -i HEAD~1",
            "git -c user.name=x commit --allow-empty --amend",
            "env -u GIT_EDITOR -u VISUAL -u EDITOR git commit --allow-empty --amend",
            "env -u GIT_SEQUENCE_EDITOR -u GIT_EDITOR -u VISUAL -u EDITOR git rebase -i HEAD~1",
            // The text of the message is one that the first program does not write.
            "GIT_SEQUENCE_EDITOR='sed -i s/pick/reword/' git rebase -i HEAD~1; git rebase --abort",
        ] {
            let told = scratch.story(command).await;
            assert!(told.contains("No editor can be opened: there is no terminal."), "{told}");
            assert!(told.starts_with("ERROR ") || command.contains("abort"), "{command}: {told}");
        }
        // Whoever names a program in the command means it.
        for command in [
            "GIT_EDITOR=true git commit --allow-empty --amend",
            "EDITOR=true git commit --allow-empty --amend",
            "VISUAL=true git commit --allow-empty --amend",
            "git -c core.editor=true commit --allow-empty --amend",
            "GIT_SEQUENCE_EDITOR=true git rebase -i HEAD~1",
            "GIT_EDITOR=true git rebase -i HEAD~1",
            "git -c sequence.editor=true rebase -i HEAD~1",
            "git -c core.editor=true rebase -i HEAD~1",
            "EDITOR='touch a\\ b; :' git commit --allow-empty --amend && rm 'a b'",
            "test \"$(git config user.name)\" = Someone",
        ] {
            let told = scratch.story(command).await;
            assert!(!told.starts_with("ERROR "), "{command}: {told}");
        }
        assert_eq!(scratch.story("git log --format=%s%an | sort -u | wc -l").await, "3\n");
    });
}

fn impatient(seconds: u32) -> Scratch {
    Scratch::with(ToolPolicy { bash_stall: seconds, ..ToolPolicy::default() })
}

fn standstill() {
    let scratch = impatient(1);
    let marker = marker();
    let begin = Instant::now();
    let command = format!("echo a; sleep {marker} & sleep {marker} & wait");
    let result = block_on(scratch.call(json!({ "command": command }), CancelSignal::never()));
    let told = told(&result);
    let expected = "ERROR a\n\n[The command was ended: it had said and done nothing for 1 seconds";
    assert!(told.starts_with(expected) && told.contains("give a `timeout`"), "{told}");
    assert_eq!(details(&result)["stalled"], true);
    assert!(begin.elapsed() > Duration::from_secs(1), "{:?}", begin.elapsed());
    assert_gone(&marker, Duration::ZERO);
    // What an editor does that looks for its terminal where its errors go.
    let looks = format!("(exec 0>&2; exec sleep {marker}); echo never");
    let told = block_on(scratch.story(&looks));
    assert!(told.contains("sleep in it waits for a terminal, and there is none."), "{told}");
    let told = block_on(scratch.story("bash -c 'kill -STOP $$'; echo never"));
    assert!(told.contains("bash in it is stopped."), "{told}");
}

fn no_standstill() {
    // Long enough for a machine that has much to do.
    let scratch = impatient(4);
    block_on(async {
        let speaks = "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.7; done";
        let works = "while [ $SECONDS -lt 6 ]; do :; done; echo done";
        let starts = "setsid sh -c 'while :; do sleep 0.02; done' >/dev/null & sleep 6; kill $!";
        let calls = [(speaks, None), (works, None), (starts, None), ("sleep 5", Some(60))];
        let scratch = &scratch;
        let calls = calls.map(|(command, timeout)| async move {
            let arguments = match timeout {
                Some(seconds) => json!({ "command": command, "timeout": seconds }),
                None => json!({ "command": command }),
            };
            told(&scratch.call(arguments, CancelSignal::never()).await)
        });
        let told = futures_util::future::join_all(calls).await;
        assert_eq!(told, ["1\n2\n3\n4\n5\n6\n7\n8\n", "done\n", "(No output.)", "(No output.)"]);
    });
}

/// A directory that was there when the session began, the tools in it, and its path.
fn removed_directory() -> (Scratch, std::path::PathBuf) {
    let mut scratch = Scratch::new();
    let directory = scratch.path().join("project");
    std::fs::create_dir(&directory).unwrap();
    scratch.tool = bash(&directory);
    assert_eq!(block_on(scratch.story("touch a; ls")), "a\n");
    std::fs::remove_dir_all(&directory).unwrap();
    (scratch, directory)
}

fn gone_directory() {
    let (scratch, directory) = removed_directory();
    let note = format!(
        "The session's directory {} is gone, so the command ran in none",
        directory.display()
    );
    let temp = std::env::temp_dir();
    std::fs::create_dir_all(temp.join("canary")).unwrap();
    let before = std::fs::read_dir(&temp).unwrap().count();
    block_on(async {
        let removes = "for at in canary {,../}{,../../}{,../../../../}canary; do rm -rf $at; done";
        for command in [removes, "touch made", "mkdir -p x", "cat a", "git add ."] {
            let told = scratch.story(command).await;
            assert!(told.contains(&note), "{command}: {told}");
            assert_eq!(told.starts_with("ERROR "), command != removes, "{command}: {told}");
        }
        // What names its place works.
        for command in ["cd / && pwd", "(cd /; pwd)", "cd \"$PWD\" 2>/dev/null || cd / && pwd"] {
            let told = scratch.story(command).await;
            assert!(
                told.contains("/\n\n[The session") && told.contains(&note),
                "{command}: {told}"
            );
            assert!(!told.starts_with("ERROR "), "{command}: {told}");
        }
    });
    // Nothing went, and nothing was left.
    assert!(temp.join("canary").exists() && !directory.exists());
    assert_eq!(std::fs::read_dir(&temp).unwrap().count(), before);
}

fn directory_is_back() {
    let (scratch, directory) = removed_directory();
    let tools = ["read", "write", "edit"].map(|name| tool(&directory, name, Default::default()));
    let call = |at: usize, arguments: Value| {
        let (context, _updates) = ToolContext::detached("1", CancelSignal::never());
        told(&block_on(tools[at].call(arguments, context)))
    };
    let gone = call(0, json!({ "path": "a" }));
    assert!(gone.contains(&format!("There is no {} either", directory.display())), "{gone}");
    let place = directory.display();
    let back = block_on(scratch.story(&format!("mkdir -p {place} && cd {place} && echo 1 > a")));
    assert!(!back.starts_with("ERROR "), "{back}");
    assert_eq!(block_on(scratch.story("pwd; cat a")), format!("{place}\n1\n"));
    assert!(call(0, json!({ "path": "a" })).starts_with("1\n"));
    let edits = [json!({ "oldText": "1", "newText": "2" })];
    assert!(!call(2, json!({ "path": "a", "edits": edits })).starts_with("ERROR "));
    std::fs::remove_dir_all(&directory).unwrap();
    // It makes directories, this one too.
    assert!(!call(1, json!({ "path": "b/c", "content": "3" })).starts_with("ERROR "));
    assert_eq!(block_on(scratch.story("cat b/c")), "3");
}

/// Abandoned as the loop does it, after any time: no process, and no file.
fn dropped_call() {
    let scratch = Scratch::new();
    let marker = marker();
    block_on(async {
        for millis in (0..60).chain([100, 200, 400]) {
            let (context, _updates) = ToolContext::detached("1", CancelSignal::never());
            let tool = scratch.tool.clone();
            let command = format!("trap '' TERM; seq 30000; sleep {marker}; sleep {marker}");
            let call =
                tokio::spawn(
                    async move { tool.call(json!({ "command": command }), context).await },
                );
            tokio::time::sleep(Duration::from_millis(millis)).await;
            call.abort();
            assert!(call.await.unwrap_err().is_cancelled());
        }
    });
    assert_gone(&marker, Duration::from_secs(5));
    let begin = Instant::now();
    while let logs @ [_, ..] = &*logs(&std::env::temp_dir()) {
        // One whose making was under way goes a moment later.
        assert!(begin.elapsed() < Duration::from_secs(5), "{logs:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The files of outputs below a directory.
fn logs(directory: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let below = entries.map(|entry| entry.path()).flat_map(|path| match path.is_dir() {
        true => logs(&path),
        false => vec![path],
    });
    below.filter(|path| path.extension().is_some_and(|extension| extension == "log")).collect()
}

/// Ways out of a process group.
fn ways_out(marker: &str) -> [String; 4] {
    [
        format!("set -m; sleep {marker} >/dev/null 2>&1 & echo out"),
        format!("setsid sleep {marker} >/dev/null 2>&1 & sleep 0.05; echo out"),
        format!("(setsid sh -c 'sleep {marker} & sleep {marker}' &) ; sleep 0.05; echo out"),
        format!(
            "setsid sh -c 'trap \"\" TERM HUP; sleep {marker}; sleep {marker}' & sleep 0.05; echo out"
        ),
    ]
}

fn escapes() {
    let scratch = Scratch::new();
    let marker = marker();
    for command in ways_out(&marker) {
        let begin = Instant::now();
        let told = block_on(scratch.story(&command));
        assert_eq!(told, "out\n\n[What it left running was ended.]", "{command}");
        assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
        assert_gone(&marker, Duration::ZERO);
    }
}

/// A peer waited for ever.
fn detached_writer() {
    let scratch = Scratch::new();
    let marker = marker();
    block_on(async {
        let source = CancelSource::default();
        let (context, mut updates) = ToolContext::detached("1", source.signal());
        let writer = format!("trap \"\" TERM; while :; do echo noise; sleep 0.001 {marker}; done");
        let command = format!("setsid sh -c '{writer}' & sleep {marker}");
        let call = scratch.tool.call(json!({ "command": command }), context);
        let abort = async {
            until_said(&mut updates, "noise").await;
            source.cancel(Duration::from_secs(5));
            Instant::now()
        };
        let (result, aborted) = futures_util::future::join(call, abort).await;
        assert!(told(&result).ends_with("[The run was aborted; the command was ended.]"));
        assert!(aborted.elapsed() < Duration::from_secs(3), "{:?}", aborted.elapsed());
    });
    assert_gone(&marker, Duration::ZERO);
}

fn crowd() {
    let scratch = Scratch::new();
    let marker = marker();
    let each = format!("sleep {marker} & setsid sleep {marker} &");
    // Some go on being born while the others die.
    let command = format!(
        "trap '' TERM; for i in $(seq 150); do {each} done; echo begun; \
         while :; do sleep {marker} & sleep 0.001; done >/dev/null 2>&1"
    );
    block_on(async {
        let source = CancelSource::default();
        let (context, mut updates) = ToolContext::detached("1", source.signal());
        let call = scratch.tool.call(json!({ "command": command }), context);
        let abort = async {
            until_said(&mut updates, "begun").await;
            source.cancel(Duration::from_secs(5));
        };
        let (result, ()) = futures_util::future::join(call, abort).await;
        assert_eq!(told(&result), "ERROR begun\n\n[The run was aborted; the command was ended.]");
    });
    assert_gone(&marker, Duration::ZERO);
}

fn stopped_supervisor() {
    let scratch = Scratch::new();
    let marker = marker();
    let command = format!("sleep {marker} & echo a; kill -STOP $PPID; sleep {marker}");
    let arguments = json!({ "command": command, "timeout": 0.2 });
    let told = told(&block_on(scratch.call(arguments, CancelSignal::never())));
    assert_eq!(told, "ERROR a\n\n[The command was ended after 0.2 seconds, its time limit.]");
    assert_gone(&marker, Duration::ZERO);
    // Dropped, too.
    let call = scratch.call(json!({ "command": command }), CancelSignal::never());
    block_on(async { tokio::time::timeout(Duration::from_millis(200), call).await }).unwrap_err();
    assert_gone(&marker, Duration::from_secs(5));
    // Among many, a command is often so quick that its supervisor has not said yet that it started.
    let arguments = json!({ "command": format!("kill -STOP $PPID; sleep {marker}"), "timeout": 1 });
    let calls = (0..30).map(|_| scratch.call(arguments.clone(), CancelSignal::never()));
    for result in block_on(async {
        tokio::time::timeout(Duration::from_secs(20), futures_util::future::join_all(calls)).await
    })
    .expect("time limits hold")
    {
        assert!(crate::told(&result).contains("after 1 seconds, its time limit"));
    }
}

/// Commands that do what they can to stay, most of them by stopping their supervisor without end.
fn stayers(marker: &str) -> Vec<String> {
    let stop = format!("while :; do kill -STOP $S; done # {marker}");
    let begin = "S=$PPID; trap '' TERM HUP INT; echo begun";
    let mut commands = vec![
        format!("{begin}; sleep {marker} & {stop}"),
        format!("{begin}; setsid sleep {marker} & (sleep {marker} &); sleep {marker}"),
        format!("export S=$PPID; sh -c '{stop}' & echo begun; sleep {marker}"),
        format!("export S=$PPID; setsid setsid sh -c '{stop}' & echo begun; sleep {marker}"),
        format!("export S=$PPID; (setsid sh -c '{stop}' &); {begin}; nohup sleep {marker}"),
        format!("{begin}; (while :; do sleep {marker} & setsid sleep 0.01; done &); {stop}"),
    ];
    // Where the kernel gives one to everybody.
    if Command::new("unshare").args(["-Ur", "true"]).status().is_ok_and(|status| status.success()) {
        commands.push(format!("export S=$PPID; echo begun; unshare -Ur sh -c '{stop}'"));
    }
    commands
}

fn ever_stopped_supervisor() {
    if cfg!(not(target_os = "linux")) {
        return;
    }
    let scratch = Scratch::new();
    let marker = marker();
    let stayers = stayers(&marker);
    for (count, timeout, abort) in [(1, Some(0.2), false), (7, Some(0.2), false), (15, None, true)]
    {
        let source = CancelSource::default();
        let calls = stayers.iter().cycle().take(count).map(|command| {
            scratch.call(json!({ "command": command, "timeout": timeout }), source.signal())
        });
        let abort = async {
            if abort {
                until_running(&marker, count).await;
                source.cancel(Duration::from_secs(5));
            }
        };
        let calls = futures_util::future::join(futures_util::future::join_all(calls), abort);
        let results =
            block_on(async { tokio::time::timeout(Duration::from_secs(30), calls).await });
        for (result, command) in
            results.expect("each is ended").0.iter().zip(stayers.iter().cycle())
        {
            let told = told(result);
            let expected = ["its time limit.]", "[The run was aborted; the command was ended.]"];
            assert!(expected.iter().any(|end| told.ends_with(end)), "{command}: {told}");
        }
        assert_gone(&marker, Duration::ZERO);
        assert_eq!(ended_children(), 0);
    }
    // Dropped, too.
    for command in &stayers {
        let call = scratch.call(json!({ "command": command }), CancelSignal::never());
        let dropped = async {
            tokio::select! {
                result = call => panic!("{}", told(&result)),
                () = until_running(&marker, 1) => {}
            }
        };
        block_on(dropped);
        assert_gone(&marker, Duration::from_secs(5));
    }
}

/// Waits for a number of processes with the marker.
async fn until_running(marker: &str, count: usize) {
    while running(marker).len() < count {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// How many children of ours have ended that nobody collects.
fn ended_children() -> usize {
    let parent = format!("PPid:\t{}\n", std::process::id());
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let states =
        entries.filter_map(|entry| std::fs::read_to_string(entry.path().join("status")).ok());
    states.filter(|state| state.contains(&parent) && state.contains("State:\tZ")).count()
}

fn stopped_at_the_end() {
    let scratch = Scratch::new();
    let call = scratch.story("echo a; kill -STOP $PPID");
    let told = block_on(async { tokio::time::timeout(Duration::from_secs(20), call).await });
    assert_eq!(told.unwrap(), "a\n");
}

fn killed_supervisor() {
    let scratch = Scratch::new();
    let marker = marker();
    let expected =
        "ERROR (No output.)\n\n[The command was killed, with the process that watched it.]";
    // At once, a little later, and with something in a group of its own.
    for first in ["", "sleep 0.01;", "set -m; sleep $TIME & set +m;"] {
        let command = format!("TIME={marker}; {first} kill -9 $PPID; sleep $TIME");
        for _ in 0..10 {
            assert_eq!(block_on(scratch.story(&command)), expected, "{first}");
            assert_gone(&marker, Duration::ZERO);
        }
    }
    // What merely asks it to end is not heard.
    let told =
        block_on(scratch.story("kill -TERM $PPID; kill -INT $PPID; kill -HUP $PPID; echo on"));
    assert_eq!(told, "on\n");
}

/// What made a session of its own comes to the host then.
/// In a container the session of what `docker exec` started has no number.
fn foreign_session() {
    let enter = |program: &Path, arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--pid", "--fork", "--kill-child"]);
        command.arg("--mount-proc").arg(program).args(arguments);
        command.stdin(Stdio::null()).status()
    };
    if !enter(Path::new("true"), &[]).is_ok_and(|status| status.success()) {
        println!("tools: skipped: this system lets nobody make a container");
        return;
    }
    let us = std::env::current_exe().unwrap();
    let stories = ["killing_the_supervisor", "ends_and_is_not_waited_for"];
    let status = enter(&us, &[&[SUPERVISED], &stories[..]].concat()).unwrap();
    assert!(status.success(), "{status}");
}

fn killed_supervisor_with_session() {
    if cfg!(not(target_os = "linux")) {
        return;
    }
    let scratch = Scratch::new();
    let marker = marker();
    let expected = "ERROR begun\n\n[The command was killed, with the process that watched it.]";
    for way_out in ways_out(&marker) {
        let way_out = way_out.replace("echo out", "echo begun");
        let command = format!("{way_out}; kill -9 $PPID; sleep {marker}");
        // Another command of the same time is not touched.
        let (other, killed) = block_on(futures_util::future::join(
            scratch.story("sleep 0.5; echo on"),
            scratch.story(&command),
        ));
        assert_eq!((other.as_str(), killed.as_str()), ("on\n", expected), "{way_out}");
        assert_gone(&marker, Duration::ZERO);
        assert_eq!(ended_children(), 0);
    }
}

fn no_terminal() {
    let scratch = Scratch::new();
    let told = block_on(scratch.story("(: < /dev/tty) 2>/dev/null || echo none"));
    assert_eq!(told, "none\n");
}

/// Runs commands and says when each has begun; for being killed.
fn host(commands: &[&str]) {
    block_on(async {
        println!("calling");
        let calls = commands.iter().map(async |command| {
            let (context, mut updates) = ToolContext::detached("1", CancelSignal::never());
            let tool = bash(&std::env::temp_dir());
            let call = tool.call(json!({ "command": command }), context);
            let tell = async {
                until_said(&mut updates, "begun").await;
                println!("begun");
            };
            let (result, ()) = futures_util::future::join(call, tell).await;
            panic!("the command ended: {}", told(&result));
        });
        futures_util::future::join_all(calls).await;
    });
}

fn host_of<S: AsRef<std::ffi::OsStr>>(
    commands: impl IntoIterator<Item = S>,
) -> (std::process::Child, BufReader<std::process::ChildStdout>) {
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.arg(HOST).args(commands).stdout(Stdio::piped()).process_group(0);
    let mut host = program.spawn().unwrap();
    let lines = BufReader::new(host.stdout.take().unwrap());
    (host, lines)
}

fn wait_for(lines: &mut impl BufRead, word: &str) {
    let found = lines.lines().map_while(Result::ok).any(|line| line.trim() == word);
    assert!(found, "the host never said {word}");
}

fn killed_host() {
    let marker = marker();
    let command = |then: &str| {
        format!(
            "trap '' TERM HUP INT; set -m; sleep {marker} >/dev/null & (sleep {marker} &) ; \
             setsid sleep {marker} >/dev/null & sleep {marker} | cat & sleep 0.1; {then} echo begun; \
             sleep {marker}"
        )
    };
    let stop_supervisor = if cfg!(target_os = "linux") { "kill -STOP $PPID;" } else { "" };
    for (then, whole_group) in [("", false), ("", true), (stop_supervisor, false)] {
        let command = command(then);
        let (mut host, mut lines) = host_of([&command]);
        wait_for(&mut lines, "begun");
        // The host's own command line has it too.
        // Its last sleep begins after it has spoken.
        await_running(&marker, 6);
        let pid = rustix::process::Pid::from_child(&host);
        match whole_group {
            true => {
                rustix::process::kill_process_group(pid, rustix::process::Signal::KILL).unwrap()
            }
            false => host.kill().unwrap(),
        }
        host.wait().unwrap();
        assert_gone(&marker, Duration::from_secs(5));
    }
}

fn killed_host_early() {
    let marker = marker();
    let processes = format!("sleep {marker} & setsid sleep {marker} &");
    let stopper = match cfg!(target_os = "linux") {
        true => format!("export S=$PPID; setsid sh -c 'while :; do kill -STOP $S; done' {marker}"),
        false => format!("sleep {marker}"),
    };
    let commands = [format!("{processes} sleep {marker}"), format!("{stopper} & {processes} wait")];
    for round in 0..80 {
        let (mut host, mut lines) = host_of([&commands[round % 2]]);
        wait_for(&mut lines, "calling");
        std::thread::sleep(Duration::from_micros(round as u64 * 300));
        host.kill().unwrap();
        host.wait().unwrap();
        assert_gone(&marker, Duration::from_secs(5));
    }
}

/// Batches of all sizes, killed when all have begun and when some may not have.
fn killed_stopped() {
    if cfg!(not(target_os = "linux")) {
        return;
    }
    let marker = marker();
    let stayers = stayers(&marker);
    for round in 0..16 {
        let count = [1, 2, 5, 12][round % 4];
        let commands = stayers.iter().cycle().skip(round).take(count);
        let (mut host, mut lines) = host_of(commands);
        wait_for(&mut lines, "calling");
        let begun = if round % 3 == 2 { 1 } else { count };
        for _ in 0..begun {
            wait_for(&mut lines, "begun");
        }
        host.kill().unwrap();
        host.wait().unwrap();
        assert_gone(&marker, Duration::from_secs(5));
    }
}

/// Once, and without end, what is above it is stopped or killed: supervisor and host.
fn killed_chain() {
    if cfg!(not(target_os = "linux")) {
        return;
    }
    let marker = marker();
    let own = std::process::id();
    // Up to us, who would not like it.
    let chain = format!(
        "chain=; p=$PPID; while [ $p -gt 1 ] && [ $p != {own} ]; do chain=\"$chain $p\"; \
         p=$(sed -n 's/^PPid:.//p' /proc/$p/status); done; \
         sleep {marker} & trap '' TERM HUP INT; echo begun; until [ -e $0 ]; do sleep 0.01; done"
    );
    let scratch = tempfile::tempdir().unwrap();
    for (round, then) in [
        "kill -STOP $chain",
        "while :; do kill -STOP $chain; done",
        "(setsid sh -c \"while :; do kill -STOP $chain; done\" &)",
        "kill -9 $chain",
    ]
    .iter()
    .enumerate()
    {
        let go = scratch.path().join(round.to_string());
        let chain = chain.replace("$0", &go.display().to_string());
        let (mut host, mut lines) = host_of([format!("{chain}; {then}; sleep {marker}")]);
        wait_for(&mut lines, "begun");
        std::fs::write(go, "").unwrap();
        let begin = Instant::now();
        let status = format!("/proc/{}/status", host.id());
        let lives = || {
            let state = std::fs::read_to_string(&status).unwrap();
            !["State:\tT", "State:\tZ"].iter().any(|stopped| state.contains(stopped))
        };
        while lives() {
            assert!(begin.elapsed() < Duration::from_secs(10), "{then}: nothing happens");
            std::thread::sleep(Duration::from_millis(5));
        }
        host.kill().unwrap();
        host.wait().unwrap();
        assert_gone(&marker, Duration::from_secs(5));
    }
}

/// The real one, since a host has no way to end but at once.
fn terminated_daemon() {
    if cfg!(not(target_os = "linux")) {
        return;
    }
    let marker = marker();
    let stayers = stayers(&marker);
    let scratch = tempfile::tempdir().unwrap();
    let script = |index: usize| scratch.path().join(format!("{index}.sh"));
    for (index, command) in stayers.iter().enumerate() {
        std::fs::write(script(index), command).unwrap();
    }
    let lines = (0..stayers.len()).map(|index| format!("run . {}", script(index).display()));
    let input = lines.collect::<Vec<_>>().join("\n");
    let prompt = json!({
        "jsonrpc": "2.0", "id": 1, "method": "prompt", "params": { "input": input }
    });
    let mut program = Command::new(env!("CARGO_BIN_EXE_agent-daemon"));
    for variable in ["HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"] {
        program.env(variable, scratch.path());
    }
    program.arg("--stdio").current_dir(scratch.path()).stdin(Stdio::piped()).stdout(Stdio::null());
    program.stderr(Stdio::null());
    let mut daemon = program.spawn().unwrap();
    // Held open: its end would end the daemon too.
    let mut input = daemon.stdin.take().unwrap();
    writeln!(input, "{prompt}").unwrap();
    await_running(&marker, stayers.len());
    let pid = rustix::process::Pid::from_child(&daemon);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(daemon.wait().unwrap().code(), Some(0));
    assert_gone(&marker, Duration::ZERO);
}
