//! The methods: one short handler for each.
//!
//! Owns: what each method does with its params. The protocol says which there are; one without a
//! handler does not compile.
//! Never: waits, but in `waitForIdle`, `closeSession` and `shutdown`, and for pictures to be looked
//! at, which holds up the calls behind; so calls take effect in the order in which they arrive (W1.5).

use std::sync::Arc;

use agent_protocol::{Method, RpcError, Visit, each_method};
use futures_util::future::BoxFuture;
use jsonrpsee::{Extensions, RpcModule, types::ErrorObjectOwned};
use serde_json::value::RawValue;

use crate::{
    peer::caller::Caller,
    sessions::{daemon::Daemon, session::Session},
};

mod connection;
mod input;
pub(crate) mod params;
mod runs;
mod sessions;

/// The longest id or name that a client may give something, in bytes.
const MAX_NAME: usize = 256;

/// What a method answers with.
type Response<M> = Result<<M as Method>::Result, RpcError>;

/// Who calls, and whom.
struct Asked<'a> {
    daemon: &'a Daemon,
    caller: &'a Arc<Caller>,
}

/// What carries a method out.
trait Handler: Method<Params: Send + 'static, Result: Clone + 'static> + Sized {
    /// How that is done.
    const HOW: How<Self>;

    /// Reads the params of a call of it.
    fn read(params: Option<&str>) -> Result<Self::Params, RpcError> {
        params::parse(params)
    }
}

type LaterResponse<M> = BoxFuture<'static, Response<M>>;

/// How a method is carried out.
enum How<M: Method> {
    /// In one step.
    AtOnce(fn(Asked<'_>, M::Params) -> Response<M>),
    /// Its result is there already, as it is sent.
    Written(fn(&Daemon) -> Arc<RawValue>),
    /// In several, between which it may wait. The first is done at once, too.
    Later(fn(Arc<Daemon>, Arc<Caller>, M::Params) -> LaterResponse<M>),
}

/// All methods of the protocol.
pub fn table(daemon: Arc<Daemon>) -> RpcModule<Daemon> {
    let mut table = Table { module: RpcModule::from_arc(daemon) };
    each_method(&mut table);
    table.module
}

struct Table {
    module: RpcModule<Daemon>,
}

impl<M: Handler> Visit<M> for Table {
    fn visit(&mut self) {
        let added = match M::HOW {
            How::AtOnce(handle) => {
                self.module.register_method(M::NAME, move |params, daemon, extensions| {
                    let call = Asked { daemon, caller: caller(extensions)? };
                    let result = M::read(params.as_str()).and_then(|params| handle(call, params));
                    result.map_err(ErrorObjectOwned::from)
                })
            }
            How::Written(result) => {
                self.module.register_method(M::NAME, move |params, daemon, _| {
                    let read = M::read(params.as_str());
                    read.map(|_| result(daemon)).map_err(ErrorObjectOwned::from)
                })
            }
            How::Later(handle) => {
                self.module.register_async_method(M::NAME, move |params, daemon, extensions| {
                    let read = M::read(params.as_str());
                    async move {
                        let caller = caller(&extensions)?.clone();
                        handle(daemon, caller, read?).await.map_err(ErrorObjectOwned::from)
                    }
                })
            }
        };
        added.expect("each method is added once");
    }
}

impl Asked<'_> {
    fn session(&self, id: &Option<String>) -> Result<Arc<Session>, RpcError> {
        self.daemon.sessions.get(id.as_deref())
    }
}

fn check_name(field: &str, name: &str) -> Result<(), RpcError> {
    match (1..=MAX_NAME).contains(&name.len()) {
        true => Ok(()),
        false => Err(RpcError::invalid_param(field, format!("expected 1 to {MAX_NAME} bytes"))),
    }
}

fn caller(extensions: &Extensions) -> Result<&Arc<Caller>, RpcError> {
    // Only a connection makes calls, and it says whose they are.
    extensions
        .get::<Arc<Caller>>()
        .ok_or_else(|| RpcError::InternalError { problem: "a call without a caller".to_owned() })
}
