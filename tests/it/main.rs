//! What the whole promises, one module for each section of the contract.

#![allow(clippy::unwrap_used)]

mod abort;
mod bytes;
mod client_attach;
mod client_commands;
mod client_keys;
mod client_mirror;
mod client_process;
mod client_stdin;
mod daemon_attach;
mod daemon_calls;
mod daemon_schema;
mod daemon_sessions;
mod daemon_timeline;
mod events;
mod faults;
mod hooks;
mod interleavings;
mod lifecycle;
mod listeners;
mod models;
mod peers;
mod process_arguments;
mod process_client;
mod process_harmless;
mod process_life;
mod process_model;
mod process_network;
mod process_outputs;
mod process_secrets;
mod process_socket;
mod process_stdio;
mod process_trust;
mod properties;
mod queues;
mod readme;
mod reducer;
mod smoke;
mod stock_jsonrpsee;
mod stock_scripts;
mod tidy;
mod tools;
mod tools_task;
mod waiting;
mod wire;
