//! An agent on the command line, with a model that only repeats what it is told.
//!
//! `cargo run -p agent-core --example minimal`

use std::io::{self, BufRead, Write};

use agent_core::{
    Agent, AgentOptions, BoxFuture, EventKind, Model, ModelEnd, ModelError, ModelEvent,
    ModelRequest, ModelSink, StopReason, Usage,
};

struct Echo;

impl Model for Echo {
    fn name(&self) -> &str {
        "example/echo"
    }

    fn respond<'a>(
        &'a self,
        request: ModelRequest,
        sink: ModelSink,
    ) -> BoxFuture<'a, Result<ModelEnd, ModelError>> {
        Box::pin(async move {
            let said = request.messages.last().map(|message| message.text()).unwrap_or_default();
            for word in said.split_inclusive(' ') {
                sink.send(ModelEvent::Text { index: 0, delta: word.to_owned() }).await?;
            }
            Ok(ModelEnd { stop_reason: StopReason::Stop, usage: Usage::default() })
        })
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let agent = Agent::new(AgentOptions::new(Echo));
    agent.subscribe(|event, _| async move {
        if let EventKind::TextDelta { delta, .. } = &event.kind {
            print!("{delta}");
            io::stdout().flush()?;
        }
        Ok(())
    });
    for line in io::stdin().lock().lines() {
        agent.prompt(line?)?.await?;
        println!();
    }
    Ok(())
}
