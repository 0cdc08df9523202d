//! What an entered line means, and the calls that it comes to.
//!
//! Owns: that a message is taken whatever the run does at that moment: one atomic call decides
//! between prompting and steering, and a run that is just ending is waited for.

use std::sync::Arc;

use agent_client_library::client::{CallError, Client};
use agent_core::RunId;
use agent_protocol::{
    Abort, AbortParams, FollowUp, NoRun, OnBusy, Prompt, PromptParams, QueueParams, RpcError,
    WaitForIdle, WaitForIdleParams,
};
use futures_util::{FutureExt, future::BoxFuture};

/// A call that is under way.
pub type PendingCall = BoxFuture<'static, CallOutcome>;

/// What a call came to; with an error, the text that was not taken.
pub type CallOutcome = Result<(), (CallError, String)>;

/// What an entered line means.
#[derive(Debug, PartialEq, Eq)]
pub enum Said {
    Nothing,
    /// Also steers.
    Prompt(String),
    FollowUp(String),
    Abort,
    State,
    Help,
    Quit,
    Unknown(String),
}

/// Reads an entered line. A text that begins with a slash is written with two.
pub fn parse(line: &str) -> Said {
    let text = line.trim();
    if text.is_empty() {
        return Said::Nothing;
    }
    let Some(command) = text.strip_prefix('/') else { return Said::Prompt(text.to_owned()) };
    if command.starts_with('/') {
        return Said::Prompt(command.to_owned());
    }
    let (name, rest) = command.split_once(char::is_whitespace).unwrap_or((command, ""));
    match (name, rest.trim()) {
        ("follow-up" | "followUp", text) if !text.is_empty() => Said::FollowUp(text.to_owned()),
        ("abort", "") => Said::Abort,
        ("state", "") => Said::State,
        ("help", "") => Said::Help,
        ("quit" | "exit", "") => Said::Quit,
        // A path is no command.
        (name, _) if name.contains('/') => Said::Prompt(text.to_owned()),
        ("follow-up" | "followUp", _) => Said::Unknown("/follow-up without a text".to_owned()),
        (name, _) => Said::Unknown(format!("/{name}")),
    }
}

/// A session on a connection.
pub struct Session {
    /// The connection.
    pub client: Arc<Client>,
    /// The session.
    pub id: String,
}

impl Session {
    /// Starts a run, or steers the one that is active.
    pub fn prompt(self, text: String, message_id: String) -> PendingCall {
        let params = PromptParams {
            input: text.as_str().into(),
            on_busy: Some(OnBusy::Steer),
            client_message_id: Some(message_id),
            session_id: Some(self.id.clone()),
            ..PromptParams::default()
        };
        async move {
            loop {
                match self.client.call::<Prompt>(&params).await {
                    Ok(_) => return Ok(()),
                    Err(error) => {
                        self.wait_out(error).await.map_err(|error| (error, text.clone()))?
                    }
                }
            }
        }
        .boxed()
    }

    /// Follows the active run up, or starts one.
    pub fn follow_up(self, text: String, message_id: String) -> PendingCall {
        let params = QueueParams {
            input: text.as_str().into(),
            when_idle: Some(NoRun::Prompt),
            client_message_id: Some(message_id),
            session_id: Some(self.id.clone()),
            ..QueueParams::default()
        };
        async move {
            loop {
                match self.client.call::<FollowUp>(&params).await {
                    Ok(_) => return Ok(()),
                    Err(error) => {
                        self.wait_out(error).await.map_err(|error| (error, text.clone()))?
                    }
                }
            }
        }
        .boxed()
    }

    /// Ends a run, if it is still the active one.
    pub fn abort(self, run_id: RunId) -> PendingCall {
        let params = AbortParams {
            expected_run_id: Some(run_id),
            session_id: Some(self.id),
            ..AbortParams::default()
        };
        async move {
            match self.client.call::<Abort>(&params).await {
                Ok(_) => Ok(()),
                // It has ended by itself.
                Err(error) if matches!(error.reason(), Some(RpcError::WrongRun { .. })) => Ok(()),
                Err(error) => Err((error, String::new())),
            }
        }
        .boxed()
    }

    /// Waits until a run that takes no more messages has ended; other errors are final.
    async fn wait_out(&self, error: CallError) -> Result<(), CallError> {
        let Some(RpcError::Busy { run_id }) = error.reason() else { return Err(error) };
        let params = WaitForIdleParams {
            run_id: Some(run_id),
            session_id: Some(self.id.clone()),
            ..WaitForIdleParams::default()
        };
        self.client.call::<WaitForIdle>(&params).await.map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_message_unless_it_begins_with_a_command() {
        for (line, expected) in [
            ("", Said::Nothing),
            ("  \n", Said::Nothing),
            (" count to ten ", Said::Prompt("count to ten".to_owned())),
            ("/follow-up and then\nthis", Said::FollowUp("and then\nthis".to_owned())),
            ("/followUp x", Said::FollowUp("x".to_owned())),
            ("/follow-up ", Said::Unknown("/follow-up without a text".to_owned())),
            ("/abort", Said::Abort),
            ("/state", Said::State),
            ("/help", Said::Help),
            ("/quit ", Said::Quit),
            ("/abrot", Said::Unknown("/abrot".to_owned())),
            ("/abort the plan", Said::Unknown("/abort".to_owned())),
            ("/etc/passwd has what owner?", Said::Prompt("/etc/passwd has what owner?".to_owned())),
            ("//quit", Said::Prompt("/quit".to_owned())),
        ] {
            assert_eq!(parse(line), expected, "{line:?}");
        }
    }
}
