//! `sessions`, `new`, `close` and `models`.

use std::path::PathBuf;

use agent_client_library::session::new_session_id;
use agent_protocol::{
    CloseSession, CloseSessionResult, CreateSession, CreateSessionParams, CreateSessionResult,
    ListModels, ListModelsResult, ListSessions, ListSessionsResult, Method, SessionParams,
    harmless::one_line,
};

use crate::{
    context::{Context, utf8},
    exit::{Exit, Failure},
    output::{line, remark},
};

pub(super) async fn sessions(context: &Context) -> Result<Exit, Failure> {
    let Some(client) = context.running().await? else {
        if context.json {
            line(r#"{"sessions":[]}"#)?;
        }
        remark("agent-client: no daemon is running, so there is no session");
        return Ok(Exit::Done);
    };
    let params = SessionParams::default();
    context.print(&client, ListSessions::NAME, &params, session_table).await
}

pub(super) async fn new(
    context: &Context,
    id: Option<String>,
    cwd: Option<PathBuf>,
    model: Option<String>,
) -> Result<Exit, Failure> {
    let cwd = match cwd {
        Some(cwd) => std::path::absolute(cwd)?,
        None => std::env::current_dir()?,
    };
    let session_id = Some(id.unwrap_or_else(|| new_session_id(&cwd)));
    let cwd = Some(utf8(cwd)?);
    let params = CreateSessionParams { session_id, cwd, model, ..CreateSessionParams::default() };
    let client = context.connect().await?;
    let shown = |result: CreateSessionResult| format!("{}\n", result.session_id);
    context.print(&client, CreateSession::NAME, &params, shown).await
}

pub(super) async fn close(context: &Context) -> Result<Exit, Failure> {
    let (client, id) = match context.existing().await? {
        Ok(found) => found,
        Err(none) => return context.nothing(&none, Some("null")),
    };
    let params = SessionParams { session_id: Some(id.clone()), ..SessionParams::default() };
    let told = |result: CloseSessionResult| match result.closed {
        true => format!("session {id} is closed"),
        false => {
            format!("session {id} is the daemon's own and stays; `agent-client reset` empties it")
        }
    };
    context.tell(&client, CloseSession::NAME, &params, told).await
}

pub(super) async fn models(context: &Context) -> Result<Exit, Failure> {
    // The daemon's, whichever session there is; without one the mark is at a new session's.
    let client = context.connect().await?;
    let session_id = context.choice()?.existing(&client).await?;
    let params = SessionParams { session_id, ..SessionParams::default() };
    context.print(&client, ListModels::NAME, &params, model_table).await
}

fn session_table(result: ListSessionsResult) -> String {
    let rows = result.sessions.iter().map(|session| {
        let status = match session.active_run_id {
            Some(run_id) => format!("run {run_id}"),
            None => "idle".to_owned(),
        };
        let messages = format!("{} messages", session.messages);
        [&session.session_id, &status, &messages, &session.model, &session.cwd]
            .map(|cell| one_line(cell))
    });
    table(rows.collect())
}

fn model_table(result: ListModelsResult) -> String {
    let rows = result.models.iter().map(|model| {
        let mark = if model.id == result.current { "* " } else { "  " };
        let reason = model.reason.as_ref().map(|reason| format!("unavailable: {reason}"));
        let id = format!("{mark}{}", one_line(&model.id));
        [id, one_line(&model.api), one_line(&reason.unwrap_or_default())]
    });
    table(rows.collect())
}

/// Columns, two blanks apart.
fn table<const N: usize>(rows: Vec<[String; N]>) -> String {
    let width = |column: usize| {
        rows.iter().map(|row| unicode_width::UnicodeWidthStr::width(row[column].as_str())).max()
    };
    let widths: Vec<_> = (0..N).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let blanks = width - unicode_width::UnicodeWidthStr::width(cell.as_str()) + 2;
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', blanks));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_they_look() {
        let rows = [["a", "one"], ["日本", "two"], ["abc", ""]];
        let rows = rows.map(|row| row.map(str::to_owned));
        assert_eq!(table(rows.to_vec()), "a     one\n日本  two\nabc\n");
    }
}
