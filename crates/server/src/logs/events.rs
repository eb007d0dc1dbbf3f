//! What the service has to say. Each is a place of its own, with a limit of its own.
//!
//! | level | what |
//! |---|---|
//! | error | [`listener_broken`], [`rules_problem`], [`rules_refused`], [`rules_withheld`], [`snapshot_refused`], [`snapshot_failed`] |
//! | warn | [`setting_warning`], [`rules_warning`], [`auth_failed`], [`no_domains`], [`domain_removed`], [`certificate_refused`], [`store_changed`], [`store_lost`], [`store_refuses`], [`traces_lost`] |
//! | info | [`rules_taken`], [`rules_restored`], [`nothing_to_reread`], [`certificate_taken`], [`drain_begun`], [`snapshot_saved`], [`snapshot_restored`], [`stopped`], [`store_accepts`], [`store_reached`] |
//! | debug | [`request_denied`]: whose it was is not told |
//! | trace | [`keys_denied`]: whose it was |
//!
//! ERROR is what an operator must act on, and WARN what he should know of; neither is written for what a single client does, except that
//! nobody else gets in.

use std::fmt::Display;
use std::net::IpAddr;
use std::time::Duration;

use sluicegate::rules::request::Entry;
use sluicegate::{Reloaded, Saved};
use tracing::{debug, error, info, trace, warn};

// === beginning and end ===

/// Told to end: unready from now on, and after a while no more is accepted.
pub fn drain_begun(delay: Duration) {
    info!(delay_s = delay.as_secs_f64(), "draining");
}

/// Nobody can get in any more; it is the end.
pub fn listener_broken(endpoint: &str, error: &dyn Display) {
    error!(endpoint, %error, "cannot listen any more: ending");
}

/// The end.
pub fn stopped() {
    info!("stopped");
}

// === the store ===

/// The store that counters are in answers.
pub fn store_reached() {
    info!("the store answers");
}

/// It does not; each rule says what happens meanwhile.
pub fn store_lost(why: Option<&str>) {
    let why = why.unwrap_or("unknown");
    warn!(why, "the store cannot be reached: `on_store_failure` of each rule says what happens");
}

/// It answers, and refuses what it is asked: it is full, or a replica.
pub fn store_refuses(words: &str) {
    warn!(words, "the store refuses: `on_store_failure` of each rule says what happens");
}

/// It does what it is asked again.
pub fn store_accepts() {
    info!("the store does what it is asked again");
}

/// Another server is the primary, or the same was started anew: what it had not written down or passed on is gone.
pub fn store_changed(epoch: u64) {
    warn!(epoch, "the store may have forgotten something: telling it what was seen lately");
}

// === what it is told to do ===

/// An environment variable or an argument that has no effect, or another than it seems.
pub fn setting_warning(why: &dyn Display) {
    warn!("{why}");
}

/// Something in the rules that is valid and odd.
pub fn rules_warning(warning: &dyn Display) {
    warn!("{warning}");
}

/// Rules were loaded.
pub fn rules_taken(reloaded: &Reloaded) {
    let Reloaded { same, changed, added, removed } = reloaded;
    info!(changed, added, removed, same, "rules reloaded");
}

/// Something that is wrong with the rules.
pub fn rules_problem(problem: &dyn Display) {
    error!("{problem}");
}

/// Rules were not loaded.
pub fn rules_refused() {
    error!("rules not loaded: they stay as they were");
}

/// The files have no rules for a domain any more; its last rules stay in force.
pub fn rules_withheld(domain: &dyn Display) {
    error!("rules withheld: {domain}");
}

/// The files have rules again for a domain whose removal was withheld.
pub fn rules_restored(domain: &str) {
    info!(domain, "rules are in the files again");
}

/// A domain was removed after its removal was withheld.
pub fn domain_removed(domain: &str) {
    warn!(domain, "domain removed: it has no limits any more");
}

/// The rules have no domain.
pub fn no_domains() {
    warn!("no domain has rules: every request is allowed");
}

/// Somebody wants the rules read again that are no file.
pub fn nothing_to_reread() {
    info!("the example rules do not change; `--rules` names files that can");
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
pub fn snapshot_saved(path: &dyn Display, saved: &Saved) {
    let (identities, bytes) = (saved.identities, saved.bytes);
    info!(%path, identities, bytes, "snapshot saved");
}

/// States were read again.
pub fn snapshot_restored(path: &dyn Display) {
    info!(%path, "snapshot restored");
}

/// States were not read: counters at zero admit more than they should.
pub fn snapshot_refused(error: &dyn Display, moved_to: &dyn Display) {
    error!(%error, %moved_to, "snapshot not restored: counters start at zero");
}

/// States were not written down.
pub fn snapshot_failed(error: &dyn Display) {
    error!(%error, "snapshot not saved");
}

// === who asks ===

/// Wrong password or operator token. Limited to the comparisons of `AuthGuard`: one per second and
/// address after a burst.
pub fn auth_failed(endpoint: &str, peer: Option<IpAddr>, is_last: bool) {
    let peer = peer.map_or_else(|| "unknown".to_owned(), |peer| peer.to_canonical().to_string());
    if is_last {
        warn!(endpoint, %peer, "authentication failed: rate limit reached, further secrets from this address are rejected");
    } else {
        warn!(endpoint, %peer, "authentication failed");
    }
}

/// A request was denied, by a rule if it is known which.
#[inline]
pub fn request_denied(domain: &str, rule: Option<&str>) {
    debug!(domain, rule, "request denied");
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
