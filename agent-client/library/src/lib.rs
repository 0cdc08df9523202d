//! A session of `agent-daemon` as a client knows it: typed calls, and a state that stays equal to the
//! daemon's own, whatever becomes of the connection.
//!
//! It links neither models nor tools. To read the code, begin with [`client`], then [`fold`] and
//! [`mirror`]; [`connect`] is how a daemon is reached, and [`session`] which session is meant.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use agent_client_library::{
//!     connect::{Connector, Destination},
//!     mirror::{Beginning, Change, Mirror, News},
//!     session::SessionChoice,
//! };
//! use agent_protocol::{MessagesWanted, Prompt, PromptParams};
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let connector = Arc::new(Connector::new(Destination::of_user()?, None));
//! let client = connector.connect().await?;
//! let choice = SessionChoice::Directory("/home/me/project".to_owned());
//! let beginning = Beginning::Snapshot(MessagesWanted::Tail);
//! let mut mirror = Mirror::new(client, connector.dial(), choice, beginning).await?;
//!
//! let session_id = Some(mirror.session_id().to_owned());
//! let params = PromptParams { input: "hello".into(), session_id, ..PromptParams::default() };
//! mirror.client().call::<Prompt>(&params).await?;
//! while let Change::News { news, .. } = mirror.next().await? {
//!     if let News::Event(event) = news {
//!         println!("{} {:?}", event.seq, event.kind);
//!     }
//! }
//! # Ok(())
//! # }
//! ```

pub mod client;
pub mod connect;
pub mod fold;
pub mod mirror;
mod owner;
pub mod session;
pub mod transport;
