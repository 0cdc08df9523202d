//! The params of the methods.
//!
//! Owns: their names and shapes. Never: takes a field that it does not know, but in `initialize`: a
//! misspelt `expectedRunId` must not be lost.

use std::sync::Arc;

use agent_core::{
    ConfigChange, NoRun, OnBusy, QueueMode, RunId, ThinkingLevel, ToolExecution, WhenIdle,
};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::Value;

use crate::{content::Content, frames::EVENT_TYPES};

// Params. `deny_unknown_fields` does not go together with `flatten`, and errors inside a flattened
// struct lose their field's name, so the common fields are written out by a macro.
macro_rules! params {
    ($(#[$about:meta])* $name:ident {
        $($(#[$doc:meta])* $field:ident: $type:ty,)*
    }) => {
        $(#[$about])*
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        pub struct $name {
            $($(#[$doc])* pub $field: $type,)*
            /// The session that is meant; `main` without it.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub session_id: Option<String>,
            /// Free for the client's own use. The daemon ignores it.
            #[serde(default, rename = "_meta", skip_serializing_if = "Option::is_none")]
            pub meta: Option<Value>,
        }
    };
}

// As `params!`, with a field for each setting.
macro_rules! settings_params {
    ($(#[$about:meta])* $name:ident {
        $($(#[$doc:meta])* $field:ident: $type:ty,)*
    }) => {
        params! {
            $(#[$about])*
            $name {
                $($(#[$doc])* $field: $type,)*
                /// The model that is asked from the next turn on, as `PROVIDER/ID`.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                model: Option<String>,
                /// How much the model thinks before it answers.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                thinking_level: Option<ThinkingLevel>,
                /// The instructions that precede the transcript.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                system_prompt: Option<Arc<str>>,
                /// The names of the tools that the model may call.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                tools: Option<Vec<String>>,
                /// How many steering messages are taken at a boundary.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                steering_mode: Option<QueueMode>,
                /// How many follow-ups are taken when the run would stop.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                follow_up_mode: Option<QueueMode>,
                /// What becomes of `steer` and `followUp` at idle.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                when_idle: Option<WhenIdle>,
                /// The most turns that a run may have; 0 for no limit.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                max_turns: Option<u32>,
                /// Whether the tool calls of one turn may overlap.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                tool_execution: Option<ToolExecution>,
            }
        }

        impl $name {
            /// The settings that are to change.
            pub fn change(&self) -> ConfigChange {
                ConfigChange {
                    model: self.model.clone(),
                    thinking_level: self.thinking_level,
                    system_prompt: self.system_prompt.clone(),
                    tools: self.tools.clone(),
                    steering_mode: self.steering_mode,
                    follow_up_mode: self.follow_up_mode,
                    when_idle: self.when_idle,
                    max_turns: self.max_turns,
                    tool_execution: self.tool_execution,
                }
            }
        }
    };
}

/// What `initialize` takes. Unlike all others it ignores fields that it does not know.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InitializeParams {
    /// The version of the protocol that the client speaks: 1.
    pub protocol_version: u32,
    /// Which program the client is.
    pub client_info: ClientInfo,
    /// On stdio, the process id of the parent that is to be watched: when it is gone, the daemon
    /// ends. Ignored elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_id: Option<u32>,
    /// The daemon's token, in hex. Needed over TCP and WebSocket, ignored elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

/// Which program a client is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClientInfo {
    /// The name of the program, 1 to 256 bytes. It becomes `origin.client` of what the client says.
    pub name: String,
    /// The version of the program, for the daemon's log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

params! {
    /// What methods take that need no more than a session.
    SessionParams {}
}

params! {
    /// What `shutdown` takes.
    ShutdownParams {
        /// Whose end is meant. Needed on a socket, so that nobody ends everybody's daemon by a
        /// habit from LSP.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        scope: Option<ShutdownScope>,
    }
}

params! {
    /// What `prompt` takes.
    PromptParams {
        /// What the user says: a text, or blocks of text and images.
        input: Content,
        /// An id of the client's own, 1 to 256 bytes, that makes a repeated call harmless: seen
        /// again, the first answer is given again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        client_message_id: Option<String>,
        /// What becomes of the message while a run is active; without it the call is refused then.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        on_busy: Option<OnBusy>,
    }
}

params! {
    /// What `steer` and `followUp` take.
    QueueParams {
        /// What the user says: a text, or blocks of text and images.
        input: Content,
        /// The run that is meant. When another is active, or none, the call is refused and nothing
        /// happens.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expected_run_id: Option<RunId>,
        /// What becomes of the message when no run can take it; the session's setting without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        when_idle: Option<NoRun>,
        /// An id of the client's own, 1 to 256 bytes, that makes a repeated call harmless: seen
        /// again, the first answer is given again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        client_message_id: Option<String>,
    }
}

params! {
    /// What `abort` takes.
    AbortParams {
        /// The run that is meant. When another is active, or none, the call is refused and nothing
        /// happens.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expected_run_id: Option<RunId>,
    }
}

params! {
    /// What `waitForIdle` takes.
    WaitForIdleParams {
        /// The run whose end is waited for; without it, the moment when the agent is idle.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        run_id: Option<RunId>,
        /// After how many milliseconds the call is answered at the latest; without it, it waits for
        /// as long as it takes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_ms: Option<u64>,
    }
}

params! {
    /// What `removeQueued` takes.
    RemoveQueuedParams {
        /// The id of the message, from the answer of `steer` or `followUp`.
        message_id: String,
    }
}

params! {
    /// What `clearQueues` takes.
    ClearQueuesParams {
        /// Which queues are emptied; both without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        which: Option<WhichQueues>,
    }
}

params! {
    /// What `getState` takes.
    GetStateParams {
        /// How much of the transcript the state holds; all without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        messages: Option<MessagesWanted>,
        /// How many messages the state holds at most, the newest. For `tail`, 50 without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<usize>,
    }
}

params! {
    /// What `getMessages` takes.
    GetMessagesParams {
        /// The index of the first message of the page, from 0.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<usize>,
        /// How many messages the page has at most; 100 without it. An answer may hold fewer: ask on
        /// at `from` + their number.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<usize>,
    }
}

params! {
    /// What `subscribe` takes.
    SubscribeParams {
        /// The number of the event after which to begin: all with a larger `seq` come first.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from_seq: Option<u64>,
        /// The instance that `fromSeq` counts in.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        instance_id: Option<String>,
        /// Whether to begin with the whole state.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        snapshot: Option<bool>,
        /// How much of the transcript a state holds; all without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        messages: Option<MessagesWanted>,
        /// The types of events that are sent; all without it.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "event_types")]
        include: Option<Vec<String>>,
        /// The types of events that are not sent.
        #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "event_types")]
        exclude: Option<Vec<String>>,
    }
}

params! {
    /// What `unsubscribe` takes; `[id]` will do, too.
    UnsubscribeParams {
        /// The id of the subscription, which `subscribe` answered with.
        subscription: String,
    }
}

settings_params! {
    /// What `setConfig` takes. Only the settings that are given change, all or none of them.
    SetConfigParams {}
}

settings_params! {
    /// What `createSession` takes. Without a `sessionId` it means the oldest session of the
    /// directory.
    CreateSessionParams {
        /// The working directory of the session; the daemon's own without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cwd: Option<String>,
    }
}

impl From<CreateSessionParams> for SetConfigParams {
    fn from(params: CreateSessionParams) -> Self {
        SetConfigParams {
            model: params.model,
            thinking_level: params.thinking_level,
            system_prompt: params.system_prompt,
            tools: params.tools,
            steering_mode: params.steering_mode,
            follow_up_mode: params.follow_up_mode,
            when_idle: params.when_idle,
            max_turns: params.max_turns,
            tool_execution: params.tool_execution,
            session_id: params.session_id,
            meta: params.meta,
        }
    }
}

/// Whose end `shutdown` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ShutdownScope {
    /// The end of the whole daemon, for everybody who uses it.
    Daemon,
}

/// The queues that `clearQueues` empties.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum WhichQueues {
    /// What waits for the next model request.
    Steering,
    /// What waits for when the run would stop.
    FollowUp,
    /// Both queues.
    #[default]
    All,
}

/// How much of the transcript a state holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum MessagesWanted {
    /// The whole transcript.
    #[default]
    All,
    /// The newest messages: 50, unless a limit is given.
    Tail,
    /// No messages.
    None,
}

// A misspelt type would filter everything, or nothing, and nobody would know why.
fn event_types<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<String>>, D::Error> {
    let types = Option::<Vec<String>>::deserialize(deserializer)?;
    match types.iter().flatten().find(|name| !EVENT_TYPES.contains(&name.as_str())) {
        Some(unknown) => Err(de::Error::unknown_variant(unknown, EVENT_TYPES)),
        None => Ok(types),
    }
}
