//! `grpc.health.v1`, by which load balancers and orchestrators ask whether the service is fit to be asked.
//!
//! Its messages are a name and a number, so they are read and written here: a framework for them would cost more code than it saves.

use std::sync::Arc;

use h2::SendStream;
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::answer::Answer;
use super::call::{Told, end};
use super::message;
use super::status::Status;
use crate::health::{Health, State};
use crate::memory::Account;

/// The names of what can be asked for. The server as a whole has none, and always serves: that it answers shows it.
const SERVER: &str = "";
const RATE_LIMIT: [&str; 2] = ["ratelimit", "envoy.service.ratelimit.v3.RateLimitService"];

/// As the protocol numbers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Serving {
    Yes = 1,
    No = 2,
    Unknown = 3,
}

/// Answers `Check`.
pub(super) fn check(message: &[u8], health: &Health, out: &mut Vec<u8>) -> Result<(), Status> {
    let name = name(message)?;
    match serving(name, health.state()) {
        Serving::Unknown => Err(Status::not_found(format!("there is no service `{name}`"))),
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

/// Answers `Watch`: with what is, and then with every change, until either side has had enough.
///
/// Changes that come faster than they can be told are told together, so nothing piles up.
pub(super) async fn watch(
    message: Vec<u8>,
    mut stream: SendStream<Answer>,
    health: Health,
    mut told: watch::Receiver<Told>,
    _seat: OwnedSemaphorePermit,
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
            let since = told.borrow().since.clone();
            let Some(answer) = Answer::new(&out, since, &account) else { return };
            if stream.send_data(answer, false).is_err() {
                return;
            }
        }
        let left = std::future::poll_fn(|cx| stream.poll_reset(cx));
        tokio::select! {
            // First what there is to tell, then farewell.
            biased;
            _ = left => return,
            changed = changes.changed() => {
                if changed.is_err() {
                    return end(&mut stream, Err(Status::going_away()));
                }
            }
            _ = told.wait_for(|told| told.closing) => {
                return end(&mut stream, Err(Status::going_away()));
            }
        }
    }
}

fn serving(name: &str, state: State) -> Serving {
    match name {
        SERVER => Serving::Yes,
        name if !RATE_LIMIT.contains(&name) => Serving::Unknown,
        _ if state.is_healthy() => Serving::Yes,
        _ => Serving::No,
    }
}

/// The one field of a request. A name of more than 127 bytes is nobody's.
fn name(message: &[u8]) -> Result<&str, Status> {
    match message {
        [] => Ok(""),
        [0x0A, length @ 0..=0x7F, name @ ..] if usize::from(*length) == name.len() => {
            str::from_utf8(name).map_err(|_| Status::internal("the name of a service is no text"))
        }
        _ => Err(Status::internal("a health check has the name of a service, and nothing else")),
    }
}

fn put(serving: Serving, out: &mut Vec<u8>) {
    out.extend_from_slice(&[0x08, serving as u8]);
}

/// A field of bytes; all of ours are short.
fn put_bytes(key: u8, bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&[key, bytes.len() as u8]);
    out.extend_from_slice(bytes);
}
