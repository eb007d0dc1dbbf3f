//! The gateway: a reverse proxy that enforces the rules by itself.
//!
//! ```text
//!   client ── listener ── connection ── handler ── route ── limit ── forward ── upstream
//!             worker       HTTP/1.1, 2               │        │                   pool
//!                                                    │        └ denial: 429, or the next step
//!                                                    └ none: 404
//! ```
//!
//! - [`gateway`] starts the process and its workers; each is a thread with an accept loop, its own
//!   connections and its own idle connections to upstreams.
//! - [`config`] loads the file of a gateway and follows its changes; `checks` opens the files that
//!   it names, and `active` is its compiled form.
//! - `listener` decides about a connection before its first request: access lists, limits of the
//!   client address, PROXY protocol, TLS.
//! - `acme` obtains and renews certificates.
//! - `handler` answers a request: it finds the [`route`], has the engine decide (`limit`), and
//!   forwards the request or denies it.
//! - [`identity`] verifies credentials and reads what descriptors need beyond the head.
//! - `shape` lets requests over their limit wait for a turn; `scheduler` is the order of those that
//!   wait, there and for an upstream.
//! - `deferred` stores requests over their limit, and sends them later.
//! - `denial` is the response to a denied request, `action` those of routes without an upstream.
//! - `exchange` follows a request to the end of its response: `metrics`, `access_log`, its trace,
//!   and the slot of a concurrency limit; `settle` charges what the response costs.
//! - `tokens` counts what requests to language models cost, while their responses stream.
//! - `forward` rewrites the head and carries bodies; `upstream` chooses a server and keeps its
//!   connections.
//!
//! Engine, rules, stores, telemetry and the admin endpoint are those of the service
//! (`sluicegate-server`).

#![forbid(unsafe_code)]

mod access_log;
mod acme;
mod action;
mod active;
mod body;
mod checks;
mod client_body;
pub mod config;
mod deferred;
mod denial;
mod error;
mod exchange;
mod forward;
pub mod gateway;
mod handler;
mod header_changes;
mod held_ticket;
pub mod identity;
mod json_scanner;
mod limit;
mod listener;
mod metrics;
pub mod route;
mod route_state;
mod scheduler;
mod settle;
mod shape;
#[cfg(test)]
mod tests;
mod tokens;
mod upstream;
