//! What the user can ask for: one short function for each command.
//!
//! Owns: which one is meant. What they have in common is the [`Context`]'s.

use crate::{
    arguments::{Arguments, Command},
    attach,
    context::Context,
    exit::{Exit, Failure},
};

mod call;
mod config;
mod events;
mod follow_run;
mod input;
mod interrupts;
mod prompt;
mod queue;
mod sessions;
mod shutdown;
mod state;
mod stdin;
mod wait;

/// Carries a command out.
///
/// # Errors
/// It could not be; the error's text is for people.
pub async fn run(arguments: Arguments) -> Result<Exit, Failure> {
    let Arguments { connection, session, json, command } = arguments;
    let context = Context::new(connection, session, json)?;
    let result = carry_out(&context, command).await;
    context.connector.finish().await;
    result
}

async fn carry_out(context: &Context, command: Command) -> Result<Exit, Failure> {
    match command {
        Command::Prompt(arguments) => prompt::prompt(context, arguments).await,
        Command::Steer(arguments) => queue::steer(context, arguments).await,
        Command::FollowUp(arguments) => queue::follow_up(context, arguments).await,
        Command::Abort { run } => queue::abort(context, run).await,
        Command::WaitForIdle { run, timeout } => wait::wait_for_idle(context, run, timeout).await,
        Command::State { messages } => state::state(context, messages).await,
        Command::Messages { from, last } => state::messages(context, from, last).await,
        Command::Events { from } => events::events(context, from).await,
        Command::Attach => attach::attach(context).await,
        Command::Sessions => sessions::sessions(context).await,
        Command::New { id, cwd, model } => sessions::new(context, id, cwd, model).await,
        Command::Close => sessions::close(context).await,
        Command::Models => sessions::models(context).await,
        Command::Config { settings } => config::config(context, settings).await,
        Command::Reset => config::reset(context).await,
        Command::Call { method, params } => call::call(context, method, params).await,
        Command::Shutdown => shutdown::shutdown(context).await,
    }
}
