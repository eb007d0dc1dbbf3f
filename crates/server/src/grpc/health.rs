//! `grpc.health.v1`. Its messages are a name and a number, so they are coded by hand.

use std::sync::Arc;

use h2::SendStream;
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::call::{ConnectionState, end};
use super::message::{self, GrpcError, OutgoingMessage};
use crate::health::{Health, HealthState};
use crate::memory::Account;

/// Service names. The server as a whole is the empty name, and always serves.
const SERVER: &str = "";
const RATE_LIMIT: [&str; 2] = ["ratelimit", "envoy.service.ratelimit.v3.RateLimitService"];

/// `ServingStatus`, with its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Serving {
    Yes = 1,
    No = 2,
    Unknown = 3,
}

/// Answers `Check`.
pub(super) fn check(message: &[u8], health: &Health, out: &mut Vec<u8>) -> Result<(), GrpcError> {
    let name = name(message)?;
    match serving(name, health.state()) {
        Serving::Unknown => Err(GrpcError::not_found(format!("there is no service `{name}`"))),
        serving => {
            put(serving, out);
            Ok(())
        }
    }
}

/// Answers `List`.
pub(super) fn list(health: &Health, out: &mut Vec<u8>) {
    for name in [SERVER].into_iter().chain(RATE_LIMIT) {
        let mut entry = Vec::new();
        put_bytes(0x0A, name.as_bytes(), &mut entry);
        let mut value = Vec::new();
        put(serving(name, health.state()), &mut value);
        put_bytes(0x12, &value, &mut entry);
        put_bytes(0x0A, &entry, out);
    }
}

/// Answers `Watch` with the current status and every change. Changes are coalesced, so that nothing
/// piles up.
pub(super) async fn watch(
    message: Vec<u8>,
    mut stream: SendStream<OutgoingMessage>,
    health: Health,
    mut connection: watch::Receiver<ConnectionState>,
    _permit: OwnedSemaphorePermit,
    account: Arc<Account>,
) {
    let name = match name(&message) {
        Ok(name) => name,
        Err(status) => return end(&mut stream, Err(status)),
    };
    let mut changes = health.changes();
    let mut last = None;
    let mut out = Vec::new();
    loop {
        let now = serving(name, *changes.borrow_and_update());
        if last.replace(now) != Some(now) {
            message::begin(&mut out);
            put(now, &mut out);
            message::end(&mut out);
            let generation = connection.borrow().generation.clone();
            let Some(answer) = OutgoingMessage::new(&out, generation, &account) else { return };
            if stream.send_data(answer, false).is_err() {
                return;
            }
        }
        let left = std::future::poll_fn(|cx| stream.poll_reset(cx));
        tokio::select! {
            biased;
            _ = left => return,
            changed = changes.changed() => {
                if changed.is_err() {
                    return end(&mut stream, Err(GrpcError::going_away()));
                }
            }
            _ = connection.wait_for(|state| state.is_closing) => {
                return end(&mut stream, Err(GrpcError::going_away()));
            }
        }
    }
}

fn serving(name: &str, state: HealthState) -> Serving {
    match name {
        SERVER => Serving::Yes,
        name if !RATE_LIMIT.contains(&name) => Serving::Unknown,
        _ if state.is_healthy() => Serving::Yes,
        _ => Serving::No,
    }
}

/// The one field of a request. No name is longer than 127 bytes.
fn name(message: &[u8]) -> Result<&str, GrpcError> {
    match message {
        [] => Ok(""),
        [0x0A, length @ 0..=0x7F, name @ ..] if usize::from(*length) == name.len() => {
            str::from_utf8(name)
                .map_err(|_| GrpcError::internal("the name of a service is not UTF-8"))
        }
        _ => Err(GrpcError::internal(
            "a health check must have the name of a service, and nothing else",
        )),
    }
}

fn put(serving: Serving, out: &mut Vec<u8>) {
    out.extend_from_slice(&[0x08, serving as u8]);
}

/// A bytes field of at most 127 bytes.
fn put_bytes(key: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&[key, bytes.len() as u8]);
    out.extend_from_slice(bytes);
}
