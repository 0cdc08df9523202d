//! The daemon: agents over JSON-RPC on stdio and sockets, with the real models and tools.
//!
//! To read the code, begin with `agent-protocol`, then [`methods`], [`sessions`] and [`peer`].
//!
//! What is public is there for the two programs, which are [`process::cli`] and, before anything
//! else, [`tool::supervisor`]; and for programs that host the sessions themselves and bring their
//! own streams:
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use agent_daemon::{
//!     config::{Configuration, Flags, Surroundings},
//!     methods,
//!     model::ModelCatalog,
//!     peer::{
//!         connection::serve_bytes,
//!         server::{ServerLimits, Server},
//!     },
//!     sessions::{daemon::Daemon, registry::Blueprint},
//!     transport::unix::UNIX,
//! };
//! use agent_protocol::local::paths::Directories;
//!
//! # async fn host() -> Result<(), Box<dyn std::error::Error>> {
//! let variable = |name: &str| std::env::var(name).ok();
//! let around = Surroundings {
//!     variable: &variable,
//!     directories: Directories::of_user(),
//!     current_dir: std::env::current_dir()?,
//! };
//! let configuration = Configuration::load(Flags::default(), &around)?;
//! let catalog = ModelCatalog::new(configuration.settings.providers.clone(), &variable);
//! let model = catalog.get(&catalog.default_model());
//! let blueprint = Blueprint { catalog: Arc::new(catalog), model, tools: None, configuration };
//! let daemon = Arc::new(Daemon::new(blueprint));
//! let server = Server::new(methods::table(daemon.clone()), ServerLimits::default(), None);
//!
//! // Whoever has `ours` speaks the protocol, and is trusted as a process of the same user is.
//! let (ours, theirs) = tokio::io::duplex(64 * 1024);
//! let (reader, writer) = tokio::io::split(theirs);
//! let serving = tokio::spawn(serve_bytes(server.clone(), reader, writer, &UNIX));
//! # drop(ours);
//!
//! daemon.shut_down().await;
//! server.stop();
//! serving.await?;
//! # Ok(())
//! # }
//! ```

pub mod config;
mod events;
pub mod methods;
pub mod model;
pub mod peer;
mod picture;
pub mod process;
pub mod sessions;
mod system;
pub mod tool;
pub mod transport;
