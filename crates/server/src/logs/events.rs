//! What the service has to say. Each is a place of its own, with a limit of its own.
//!
//! | level | what |
//! |---|---|
//! | error | [`snapshot_failed`], [`listener_failed`] |
//! | warn | [`setting_warning`], [`rules_warning`], [`rules_refused`], [`certificate_refused`], [`connection_refused`], [`drain_cut_short`], [`traces_lost`] |
//! | info | [`started`], [`listening`], [`rules_taken`], [`certificate_taken`], [`drain_begun`], [`drain_ended`], [`snapshot_saved`], [`snapshot_restored`], [`stopped`] |
//! | debug | [`request_invalid`], [`request_late`], [`request_denied`]: whose it was is not told |
//! | trace | [`keys_denied`]: whose it was |
//!
//! ERROR is what an operator must act on, and WARN what he should know of; neither is written for what a single client does, except that
//! nobody else gets in.

use std::fmt::Display;

use sluicegate::rules::request::Entry;
use sluicegate::{Reloaded, Span};
use tracing::{debug, error, info, trace, warn};

// === beginning and end ===

/// The process has begun to serve.
pub fn started(version: &str) {
    info!(version, "started");
}

/// Somebody may ask here: `door` is `grpc`, `http`, `debug` or such.
pub fn listening(door: &str, address: &dyn Display) {
    info!(door, %address, "listening");
}

/// A listener is broken, and the process ends.
pub fn listener_failed(door: &str, error: &dyn Display) {
    error!(door, %error, "the listener has failed");
}

/// Told to end: no more is accepted.
pub fn drain_begun(connections: u64) {
    info!(connections, "draining");
}

/// Everything that had begun was answered.
pub fn drain_ended(took: Span) {
    info!(took_ms = took.as_micros() / 1_000, "drained");
}

/// Some had not been answered when time was up.
pub fn drain_cut_short(connections: u64, took: Span) {
    let took_ms = took.as_micros() / 1_000;
    warn!(connections, took_ms, "drain cut short: connections are closed as they are");
}

/// The end.
pub fn stopped() {
    info!("stopped");
}

// === what it is told to do ===

/// An environment variable or an argument that has no effect, or another than it seems.
pub fn setting_warning(name: &str, why: &dyn Display) {
    warn!(name, %why, "setting");
}

/// Something in the rules that is valid and odd.
pub fn rules_warning(warning: &dyn Display) {
    warn!(%warning, "rules");
}

/// Rules were loaded.
pub fn rules_taken(reloaded: &Reloaded) {
    let Reloaded { same, changed, added, removed } = reloaded;
    info!(changed, added, removed, same, "rules loaded");
}

/// Rules were not loaded.
pub fn rules_refused(error: &dyn Display) {
    warn!(%error, "rules not loaded: they stay as they were");
}

/// A certificate was loaded.
pub fn certificate_taken(path: &dyn Display) {
    info!(%path, "certificate loaded");
}

/// A certificate was not loaded.
pub fn certificate_refused(path: &dyn Display, error: &dyn Display) {
    warn!(%path, %error, "certificate not loaded: it stays as it was");
}

// === what it keeps ===

/// States were written down.
pub fn snapshot_saved(path: &dyn Display, entries: u64, took: Span) {
    info!(%path, entries, took_ms = took.as_micros() / 1_000, "snapshot saved");
}

/// States were read again.
pub fn snapshot_restored(path: &dyn Display, entries: u64, took: Span) {
    info!(%path, entries, took_ms = took.as_micros() / 1_000, "snapshot restored");
}

/// States were not written down, or not read.
pub fn snapshot_failed(path: &dyn Display, error: &dyn Display) {
    error!(%path, %error, "snapshot failed");
}

// === who asks ===

/// A connection was closed at once, since there are as many as there may be.
pub fn connection_refused(door: &str, peer: &dyn Display, most: u64) {
    warn!(door, %peer, most, "connection refused: there are as many as there may be");
}

/// What came was no request.
#[inline]
pub fn request_invalid(door: &str, why: &dyn Display) {
    debug!(door, %why, "request invalid");
}

/// A request took too long to come.
#[inline]
pub fn request_late(door: &str) {
    debug!(door, "request late");
}

/// A request was denied, by a rule if it is known which.
#[inline]
pub fn request_denied(door: &str, domain: &str, rule: Option<&str>) {
    debug!(door, domain, rule, "request denied");
}

/// Whose request was denied: one line for each descriptor, only where everything is told.
#[inline]
pub fn keys_denied(domain: &str, entries: &[Entry<'_>]) {
    if tracing::enabled!(tracing::Level::TRACE) {
        let keys: Vec<String> = entries.iter().map(|e| format!("{}={}", e.key, e.value)).collect();
        trace!(domain, keys = keys.join(","), "descriptor denied");
    }
}

/// Spans did not get to where they are gathered.
pub fn traces_lost(spans: u64, error: &dyn Display) {
    warn!(spans, %error, "traces lost");
}
