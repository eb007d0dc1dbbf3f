//! The service's log lines, one call site each, so that each has a rate limit of its own.
//!
//! - error, an operator must act: [`listener_failed`], [`rules_error`], [`rules_rejected`],
//!   [`no_rules`], [`rules_withheld`], [`snapshot_rejected`], [`snapshot_failed`],
//!   [`gateway_config_rejected`], `usage_not_written`, `admin_tokens_rejected`, `audit_failed`
//! - warn, an operator should know: [`setting_warning`], [`rules_warning`], [`auth_failed`],
//!   `control_plane_lost`, `control_plane_silent`, `usage_not_removed`, [`example_rules`],
//!   [`no_domains`], [`domain_removed`], [`certificate_rejected`],
//!   [`certificate_validity`], [`store_disconnected`], [`store_partly_down`],
//!   [`store_rejects_writes`], [`store_lost_data`], [`unknown_domain`], [`more_unknown_domains`],
//!   [`statsd_failed`], [`threshold_reached`], [`traces_lost`], `webhook_failed`,
//!   [`drain_timed_out`], [`rule_store_disconnected`], [`rules_from_cache`],
//!   [`rules_without_cache`], [`rule_store_empty`]
//! - info: [`started`], `control_plane_connected`, [`rules_reloaded`], [`rules_restored`],
//!   [`nothing_to_reload`],
//!   [`certificate_loaded`], [`drain_started`], [`snapshot_saved`], [`snapshot_restored`],
//!   [`stopped`], [`store_connected`], [`store_complete`], [`store_accepts_writes`],
//!   [`gateway_config_reloaded`], `admin_tokens_reloaded`, `admin_change`
//! - debug: [`request_denied`], [`throttle_denied`] and [`request_unmatched`], without descriptor
//!   values
//! - trace: [`descriptor_denied`], with them
//!
//! Failed authentication and unknown domains aside, a single client causes neither errors nor
//! warnings.

use std::fmt::Display;
use std::net::IpAddr;
use std::time::Duration;

use sluicegate::rules::request::Entry;
use sluicegate::{Reloaded, Saved, ThresholdReached};
use sluicegate_rulestore::Revision;
use tracing::{debug, error, field, info, trace, warn};

use crate::server::Addresses;
use crate::tls::{Validity, ValidityWarning};
use crate::webhook::WebhookOptions;

// === life cycle ===

/// What a service that starts enforces, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Startup {
    /// Paths of the rules.
    pub rules: String,
    /// Number of rules.
    pub count: usize,
    /// Digest of the rules, to compare nodes.
    pub hash: u64,
    /// Number of rules of each consistency level.
    pub levels: String,
    /// The store, without its secrets.
    pub store: String,
    /// Whether nothing is enforced.
    pub shadow: bool,
    /// All addresses.
    pub addresses: Addresses,
}

/// The service starts.
pub fn started(startup: &Startup) {
    let Startup { rules, count, hash, levels, store, shadow, addresses } = startup;
    let Addresses { grpc, http, admin, resp, metrics } = addresses;
    let (version, hash) = (env!("CARGO_PKG_VERSION"), format!("{hash:016x}"));
    let (resp, metrics) = (resp.map(field::display), metrics.map(field::display));
    info!(version, rules, count, hash, levels, store, shadow, %grpc, %http, %admin, resp, metrics, "started");
}

/// No rules are configured.
pub fn example_rules() {
    warn!("no rules are configured: the example rules are served; `--rules` names your own");
}

/// Shutdown has begun: the service is unready, and stops accepting after `delay`.
pub fn drain_started(delay: Duration) {
    info!(delay_s = delay.as_secs_f64(), "draining");
}

/// The time to drain a listener has passed: its open connections are closed.
pub fn drain_timed_out(timeout: Duration, connections: usize) {
    warn!(timeout_s = timeout.as_secs_f64(), connections, "drain timed out: connections closed");
}

/// A listener failed; the service ends.
pub fn listener_failed(endpoint: &str, error: &dyn Display) {
    error!(endpoint, %error, "listener failed: shutting down");
}

/// The service has ended.
pub fn stopped() {
    info!("stopped");
}

// === store ===

/// The store replies.
pub fn store_connected(address: &dyn Display) {
    info!(%address, "the store answers");
}

/// The store does not reply, for some time already. `policies` has the number of rules of each
/// `on_store_failure`.
pub fn store_disconnected(address: &str, error: &str, lasted: Duration, policies: &str) {
    let seconds = lasted.as_secs();
    warn!(
        address,
        error,
        seconds,
        "the store cannot be reached: `on_store_failure` of each rule applies: {policies}"
    );
}

/// An identity has reached a threshold of its budget.
pub fn threshold_reached(reached: &ThresholdReached<'_>, rule: &str, descriptor: &str) {
    let ThresholdReached { limit, threshold, used, quota, .. } = *reached;
    let domain = reached.domain();
    warn!(domain, rule, limit, descriptor, threshold, used, quota, "budget threshold reached");
}

/// An event was not delivered.
pub(crate) fn webhook_failed(webhook: &WebhookOptions, attempts: u32, reason: &str) {
    warn!(%webhook, attempts, reason, "event not delivered to the webhook");
}

/// Some primaries of a Cluster do not reply, for some time already.
pub fn store_partly_down(
    addresses: &str,
    error: &str,
    lost: &str,
    lasted: Duration,
    policies: &str,
) {
    let seconds = lasted.as_secs();
    warn!(
        addresses,
        error,
        lost,
        seconds,
        "a part of the Cluster cannot be reached: `on_store_failure` of each rule applies to its identities: {policies}"
    );
}

/// All primaries of the Cluster reply again.
pub fn store_complete() {
    info!("all primaries of the Cluster answer");
}

/// The store replies and rejects writes: it is full, or a replica.
pub fn store_rejects_writes(error: &str, lasted: Duration, policies: &str) {
    let seconds = lasted.as_secs();
    warn!(
        error,
        seconds, "the store rejects writes: `on_store_failure` of each rule applies: {policies}"
    );
}

/// The store no longer rejects writes.
pub fn store_accepts_writes() {
    info!("the store accepts writes again");
}

/// Another server became the primary, or the server restarted: recent writes may be lost.
pub fn store_lost_data(epoch: u64) {
    warn!(epoch, "the store may have lost data: re-asserting recent counts");
}

// === settings, rules and certificates ===

/// A variable or flag without effect, or with an unexpected one.
pub fn setting_warning(warning: &dyn Display) {
    warn!("{warning}");
}

/// A warning about valid rules.
pub fn rules_warning(warning: &dyn Display) {
    warn!("{warning}");
}

/// Rules were loaded.
pub fn rules_reloaded(reloaded: &Reloaded) {
    let Reloaded { same, changed, added, removed, domains } = reloaded;
    info!(changed, added, removed, same, domains, "rules reloaded");
}

/// A part of a schedule began or ended, or an override ended.
pub fn rules_switched(reloaded: &Reloaded) {
    let Reloaded { same, changed, added, removed, domains } = reloaded;
    info!(changed, added, removed, same, domains, "rules changed by their schedule");
}

/// One error of invalid rules.
pub fn rules_error(error: &dyn Display) {
    error!("{error}");
}

/// Invalid rules were not loaded.
pub fn rules_rejected() {
    error!("rules not loaded: the previous rules stay in force");
}

/// Rules were not loaded, and there are none from before.
pub fn no_rules() {
    error!(
        "rules not loaded: no rules are in force, and the service is not ready until they are valid"
    );
}

/// A revision of the rule store is new, or in another state.
pub fn rules_revision(revision: &Revision) {
    let Revision { number, author, note, .. } = revision;
    let (kind, state) = (revision.kind.name(), revision.state.name());
    info!(number, kind, state, author, note, "rules revision");
}

/// A write of the rule store in the background failed; it is repeated.
pub fn rule_store_failed(error: &dyn Display) {
    error!(%error, "rule store failed");
}

/// A candidate runs beside the enforced rules.
pub fn candidate_began(revision: u64, note: &str) {
    info!(revision, note, "candidate runs beside the enforced rules");
}

/// The candidate was activated, withdrawn or superseded.
pub fn candidate_ended(revision: u64) {
    info!(revision, "candidate ended");
}

/// The candidate cannot run; the enforced rules are not affected.
pub fn candidate_failed(revision: u64, error: &dyn Display) {
    warn!(revision, %error, "candidate does not run");
}

/// The database of rules is connected.
pub fn rule_store_connected() {
    info!("rule store connected");
}

/// The database of rules cannot be reached.
pub fn rule_store_disconnected(error: &dyn Display) {
    warn!(%error, "rule store disconnected: the last rules stay in force");
}

/// The rules are those of the copy on disk.
pub fn rules_from_cache(revision: u64, written_at: &dyn Display) {
    warn!(revision, %written_at, "rules are served from the copy on disk, which may be out of date");
}

/// There is no copy of the rules for the time when the database is down.
pub fn rules_without_cache() {
    warn!(
        "no copy of the rules on disk: without the database this node cannot start; `--rules-cache` names a file"
    );
}

/// The database of rules has no revision.
pub fn rule_store_empty() {
    warn!(
        "the rule store is empty and nothing is limited: `sluicegate rules import PATH` fills it"
    );
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

/// A reload was requested without rule files.
pub fn nothing_to_reload() {
    info!("nothing to reload: the example rules are built in; `--rules` names files");
}

/// The control plane sends rules.
pub(crate) fn control_plane_connected(server: &str) {
    info!(server, "the control plane answers");
}

/// There is no stream to the control plane.
pub(crate) fn control_plane_lost(server: &str, error: &str, pause: Duration) {
    let retry_s = pause.as_secs_f64();
    warn!(server, error, retry_s, "no stream to the control plane: the last rules stay in force");
}

/// The control plane has sent nothing for some time.
pub(crate) fn control_plane_silent(server: &str, node_id: &str) {
    warn!(
        server,
        node_id,
        "the control plane has sent no rules yet: check that it has rules for this node id \
         (CONFIG_GRPC_XDS_NODE_ID)"
    );
}

/// The configuration of a gateway was replaced.
pub fn gateway_config_reloaded(routes: usize, upstreams: usize) {
    info!(routes, upstreams, "gateway configuration reloaded");
}

/// A changed configuration of a gateway was not loaded.
pub fn gateway_config_rejected() {
    error!("gateway configuration not loaded: the previous one stays in force");
}

/// A certificate was loaded.
pub fn certificate_loaded(path: &dyn Display) {
    info!(%path, "certificate loaded");
}

/// A certificate was not loaded.
pub fn certificate_rejected(path: &dyn Display, error: &dyn Display) {
    warn!(%path, %error, "certificate not loaded: the previous one stays in use");
}

/// Clients refuse a certificate in use, or soon will.
pub fn certificate_validity(path: &dyn Display, validity: Validity, warning: ValidityWarning) {
    let (start, end) = (validity.start(), validity.end());
    match warning {
        ValidityWarning::NotYetValid => warn!(%path, %start, "certificate in use is not valid yet"),
        ValidityWarning::ExpiresSoon => warn!(%path, %end, "certificate in use expires soon"),
        ValidityWarning::Expired => warn!(%path, %end, "certificate in use has expired"),
    }
}

// === snapshots ===

/// A snapshot was written.
pub fn snapshot_saved(path: &dyn Display, saved: &Saved) {
    let (identities, bytes) = (saved.identities, saved.bytes);
    info!(%path, identities, bytes, "snapshot saved");
}

/// A snapshot was read.
pub fn snapshot_restored(path: &dyn Display) {
    info!(%path, "snapshot restored");
}

/// A snapshot was not read: counters at zero admit more than they should.
pub fn snapshot_rejected(error: &dyn Display, moved_to: &dyn Display) {
    error!(%error, %moved_to, "snapshot not restored: counters start at zero");
}

/// A snapshot was not written.
pub fn snapshot_failed(error: &dyn Display) {
    error!(%error, "snapshot not saved");
}

// === usage records ===

/// Usage records were not written; they are part of the next write.
pub(crate) fn usage_not_written(directory: &dyn Display, error: &dyn Display, rows: usize) {
    error!(%directory, %error, rows, "usage records not written: they are kept for the next write");
}

/// Old usage records were not deleted.
pub(crate) fn usage_not_removed(directory: &dyn Display, error: &dyn Display) {
    warn!(%directory, %error, "old usage records not deleted");
}

// === requests ===

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

/// A request was denied, by `rule` if a single one decided.
#[inline]
pub fn request_denied(domain: &str, rule: Option<&str>) {
    debug!(domain, rule, "request denied");
}

/// `CL.THROTTLE` was denied. It has no rule, and its key is not logged.
#[inline]
pub fn throttle_denied() {
    debug!(command = "CL.THROTTLE", "request denied");
}

/// A descriptor was denied.
#[inline]
pub fn descriptor_denied(domain: &str, entries: &[Entry<'_>]) {
    if tracing::enabled!(tracing::Level::TRACE) {
        let keys: Vec<String> = entries.iter().map(|e| format!("{}={}", e.key, e.value)).collect();
        trace!(domain, keys = keys.join(","), "descriptor denied");
    }
}

/// A request has a descriptor that no rule matches, the first with these entries.
#[inline]
pub fn request_unmatched(domain: &str, reason: &str, entries: &[Entry<'_>]) {
    if tracing::enabled!(tracing::Level::DEBUG) {
        let keys: Vec<&str> = entries.iter().map(|entry| entry.key).collect();
        debug!(domain, reason, keys = keys.join(","), "no rule matches");
    }
}

/// A domain without rules, the first time within a period.
pub fn unknown_domain(domain: &str, policy: &str, hint: &str) {
    warn!(
        domain,
        unmatched = policy,
        "requests for a domain without rules: {hint}; correct the domain in the client (Envoy's `domain`) or add \
         rules; `--unmatched` allows or denies such requests"
    );
}

/// More domains without rules than are listed.
pub fn more_unknown_domains(listed: usize) {
    warn!(
        "more than {listed} domains without rules: further ones are not logged for now; see `sluicegate_unmatched_total`"
    );
}

/// Spans did not reach the collector.
pub fn traces_lost(spans: u64, error: &dyn Display) {
    warn!(spans, %error, "traces lost");
}

/// Counters did not reach StatsD.
pub fn statsd_failed(host: &str, port: u16, error: &dyn Display) {
    warn!(host, port, %error, "counters not sent to StatsD: they are part of the next flush");
}

// === admin endpoint ===

/// An operator has changed something through the admin endpoint.
pub(crate) fn admin_change(caller: &str, action: &str, target: &str) {
    info!(caller, action, target, "change by an operator");
}

/// An entry of the audit log was not written to its file.
pub(crate) fn audit_failed(error: &std::io::Error) {
    error!(%error, "audit log not written: this change is in this log only");
}

/// The file of tokens has changed.
pub(crate) fn admin_tokens_reloaded(count: usize) {
    info!(count, "tokens of operators reloaded");
}

/// The changed file of tokens is invalid.
pub(crate) fn admin_tokens_rejected(reason: &str) {
    error!(reason, "tokens of operators not loaded: the last valid ones stay in force");
}
