//! What a client asks of the daemon itself: to be let in, to be sent events, and to end.

use std::sync::Arc;

use agent_protocol::{
    ClientInfo, GetSchema, Health, Initialize, InitializeParams, RpcError, Shutdown,
    ShutdownParams, ShutdownScope, Subscribe, SubscribeParams, Unsubscribe, UnsubscribeParams,
};
use futures_util::FutureExt;

use crate::{
    methods::{
        Handler, How, Response, check_name,
        params::{parse_initialize, parse_subscription},
    },
    peer::caller::Caller,
    sessions::daemon::Daemon,
};

impl Handler for Initialize {
    const HOW: How<Self> = How::AtOnce(|call, params: InitializeParams| {
        call.caller.authorize(params.token.as_deref())?;
        check_name("clientInfo.name", &params.client_info.name)?;
        call.caller.initialize(&params.client_info.name)?;
        let ClientInfo { name, version } = &params.client_info;
        tracing::info!(client = name, version, "client introduced itself");
        if let (true, Some(parent)) = (call.caller.transport().is_parent, params.process_id) {
            call.daemon.watch_parent(parent);
        }
        Ok(call.daemon.introduction())
    });

    fn read(params: Option<&str>) -> Result<Self::Params, RpcError> {
        parse_initialize(params)
    }
}

impl Handler for Shutdown {
    const HOW: How<Self> =
        How::Later(|daemon, caller, params| shutdown(daemon, caller, params).boxed());
}

async fn shutdown(
    daemon: Arc<Daemon>,
    caller: Arc<Caller>,
    params: ShutdownParams,
) -> Response<Shutdown> {
    let is_ours = caller.transport().is_parent;
    if !is_ours && params.scope != Some(ShutdownScope::Daemon) {
        let problem =
            "expected \"daemon\": others may be using it; `exit` ends the connection only";
        return Err(RpcError::invalid_param("scope", problem));
    }
    tracing::info!("a client asked for the daemon's end");
    caller.note_shutdown();
    daemon.close();
    // In a task of its own: whoever asked may go away, and a daemon that takes no work and does
    // not end is of no use to anybody.
    let ending = tokio::spawn(async move {
        daemon.shut_down().await;
        if !is_ours {
            daemon.has_shut_down();
        }
    });
    ending.await.map_err(|error| RpcError::InternalError { problem: error.to_string() })
}

impl Handler for Subscribe {
    const HOW: How<Self> = How::AtOnce(|call, params: SubscribeParams| {
        let session = call.session(&params.session_id)?;
        let id = call.caller.subscribe(&session.log, &params)?;
        Ok(id.to_string())
    });
}

impl Handler for Unsubscribe {
    const HOW: How<Self> = How::AtOnce(|call, params: UnsubscribeParams| {
        Ok(call.caller.unsubscribe(&params.subscription))
    });

    fn read(params: Option<&str>) -> Result<Self::Params, RpcError> {
        parse_subscription(params)
    }
}

impl Handler for Health {
    const HOW: How<Self> =
        How::AtOnce(|call, _| Ok(call.daemon.health(call.caller.server().connections())));
}

impl Handler for GetSchema {
    const HOW: How<Self> = How::Written(|daemon| daemon.schema().text.clone());
}
