//! Schemas of rules, overrides, usage and the audit log.
#![expect(dead_code, reason = "only for the document")]

use std::collections::BTreeMap;

use serde_json::Value;
use utoipa::ToSchema;

/// Metadata of a revision.
#[derive(ToSchema)]
pub(super) struct RevisionInfo {
    /// From 1, without gaps.
    number: u64,
    /// The revision that was active when it was written.
    base: Option<u64>,
    /// Name of the token, or of the program that edited the files.
    author: String,
    /// Time of the proposal.
    at: String,
    /// Why.
    note: String,
    /// `edit`, `rollback`, `import`, or `outside`: edited past the store.
    kind: String,
    /// `pending`, `scheduled`, `suspended`, `shadow`, `active`, `superseded` or `withdrawn`.
    state: String,
    /// Hash of the compiled rules, equal to that of the metric `sluicegate_rules_hash`.
    digest: String,
    /// The revision that a rollback restores.
    restores: Option<u64>,
    /// When it is to be activated.
    activate_at: Option<String>,
    /// When it became active for the first time.
    activated_at: Option<String>,
    /// Name of the token that approved it.
    approved_by: Option<String>,
    /// Why its activation was suspended.
    suspended_because: Option<String>,
}

/// A file of rules.
#[derive(ToSchema)]
pub(super) struct FileText {
    /// Path below the directory of the rules.
    name: String,
    /// YAML.
    text: String,
}

/// The active rules, and the revisions beside them.
#[derive(ToSchema)]
pub(super) struct RulesInfo {
    /// The active revision.
    revision: Option<RevisionInfo>,
    /// Its files.
    files: Vec<FileText>,
    /// Hash of the rules that this node enforces.
    digest: Option<String>,
    /// The revision that this node enforces; 0 for none.
    enforced: u64,
    /// A candidate, which is not enforced.
    candidate: Option<RevisionInfo>,
    /// Revisions with a time of activation.
    scheduled: Vec<RevisionInfo>,
    /// Revisions that wait for approval.
    pending: Vec<RevisionInfo>,
    /// Why the rules cannot be changed here.
    read_only: Option<ReadOnlyInfo>,
    /// Whether a second person has to approve changes.
    require_approval: bool,
    /// `files`, `postgres` or `example`.
    backend: String,
    /// Path or address, without secrets.
    location: String,
    /// Whether the store can be reached.
    connected: bool,
    /// Whether the rules are those of the copy on disk.
    served_from_cache: bool,
}

/// Why the rules cannot be changed.
#[derive(ToSchema)]
pub(super) struct ReadOnlyInfo {
    /// For programs.
    code: String,
    /// For people: also where the rules are changed instead.
    reason: String,
}

/// Revisions, the newest first.
#[derive(ToSchema)]
pub(super) struct RevisionPage {
    revisions: Vec<RevisionInfo>,
    /// `before` of the next page.
    next_before: Option<u64>,
}

/// A revision with its files.
#[derive(ToSchema)]
pub(super) struct RevisionDetail {
    revision: RevisionInfo,
    files: Vec<FileText>,
    /// The revision that `diff` starts from.
    against: Option<u64>,
    /// Unified diff of the files.
    diff: String,
}

/// A changed revision.
#[derive(ToSchema)]
pub(super) struct RevisionChange {
    revision: RevisionInfo,
    /// Whether this node enforces it already: always `false` of one that is not active.
    enforced: bool,
    /// Domains that it leaves out, whose last rules stay in force for the grace period.
    withheld: Vec<String>,
}

/// A check of files.
#[derive(ToSchema)]
pub(super) struct RulesCheckRequest {
    files: Vec<FileText>,
    /// The revision to compare with; the active one by default.
    base: Option<u64>,
}

/// What the files would do.
#[derive(ToSchema)]
pub(super) struct RulesPreview {
    /// Whether the files can be loaded.
    valid: bool,
    /// Errors.
    problems: Vec<ProblemInfo>,
    /// Warnings.
    warnings: Vec<ProblemInfo>,
    /// Hash of the compiled rules.
    digest: Option<String>,
    /// Unified diff of the files.
    diff: String,
    /// Rules that differ, and their counters: as of `sluicegate diff --json`.
    #[schema(value_type = Option<Object>)]
    changes: Option<Value>,
    /// The same, as of `sluicegate diff`.
    changes_text: Option<String>,
}

/// An error or a warning, with its place.
#[derive(ToSchema)]
pub(super) struct ProblemInfo {
    file: String,
    /// From 1.
    line: usize,
    /// From 1.
    column: usize,
    /// Path of the field, such as `descriptors[0].limits`.
    path: String,
    message: String,
}

/// A change of the rules.
#[derive(ToSchema)]
pub(super) struct ProposalRequest {
    /// All files of the new rules.
    files: Vec<FileText>,
    /// The revision that the change is based on: that which was read before.
    base: Option<u64>,
    /// Why; required.
    note: String,
    /// `now` (default), `shadow`, or a time.
    activate: Option<String>,
}

/// A rollback.
#[derive(ToSchema)]
pub(super) struct RollbackRequest {
    /// Why; required.
    note: String,
    /// The revision that is active now.
    base: Option<u64>,
}

/// Nodes that follow the same rules.
#[derive(ToSchema)]
pub(super) struct NodesInfo {
    nodes: Vec<NodeDetail>,
}

/// A candidate on one node; of one that does not run, the first fields.
#[derive(ToSchema)]
pub(super) struct CandidateInfo {
    /// `node`.
    scope: String,
    at: String,
    /// `none`, `running` or `failed`.
    state: String,
    revision: Option<RevisionInfo>,
    /// Why it cannot run.
    error: Option<String>,
    #[schema(required = false)]
    since: String,
    /// Requests by both outcomes, such as `only_candidate_denies`, and `total`.
    #[schema(required = false, value_type = std::collections::BTreeMap<String, u64>)]
    requests: (),
    #[schema(required = false)]
    rules_count: usize,
    /// Rows as of `/api/v1/traffic/rules`, with `newly_denied_requests`.
    #[schema(required = false, value_type = Vec<Object>)]
    rules: (),
    #[schema(required = false)]
    newly_denied: Vec<CandidateIdentity>,
    #[schema(required = false)]
    newly_allowed: Vec<CandidateIdentity>,
    /// What the figures do not show.
    #[schema(required = false)]
    notes: Vec<String>,
}

/// An identity that the candidate decides about otherwise.
#[derive(ToSchema)]
pub(super) struct CandidateIdentity {
    domain: String,
    descriptor: String,
    /// Whether `descriptor` is only its beginning.
    truncated: bool,
    requests: u64,
    /// The true number is at most this much smaller.
    over_estimate_max: u64,
}

/// A node.
#[derive(ToSchema)]
pub(super) struct NodeDetail {
    /// Its id.
    node: String,
    /// Its name and addresses.
    name: String,
    /// The revision that it enforces.
    revision: Option<u64>,
    /// Hash of the rules that it enforces.
    digest: String,
    /// Its last heartbeat.
    last_seen: String,
}

/// Overrides of the active rules, also those that have ended.
#[derive(ToSchema)]
pub(super) struct OverrideList {
    overrides: Vec<OverrideInfo>,
}

/// An override.
#[derive(ToSchema)]
pub(super) struct OverrideInfo {
    domain: String,
    /// Entries of descriptors that it applies to.
    r#match: BTreeMap<String, String>,
    /// The rule that it applies to; all by default.
    rule: Option<String>,
    /// What it does, in words.
    change: String,
    /// Its end.
    until: String,
    /// Whether it applies now.
    in_force: bool,
    /// Why.
    note: String,
}

/// An override to add: one of `block`, `unlimited`, `factor` and `limits`; one of `until` and
/// `for_s`.
#[derive(ToSchema)]
pub(super) struct OverrideRequest {
    domain: String,
    /// Entries of descriptors, such as `{ "user": "42" }`, with the patterns of rules.
    #[schema(value_type = Object)]
    r#match: Value,
    /// The rule that it applies to; all by default.
    rule: Option<String>,
    /// Denies every request.
    block: Option<bool>,
    /// Removes the limits.
    unlimited: Option<bool>,
    /// Multiplies the limits: 0.001 to 1000.
    factor: Option<f64>,
    /// Other limits, as in a file of rules.
    #[schema(value_type = Option<Object>)]
    limits: Option<Value>,
    /// Its end.
    until: Option<String>,
    /// Seconds until its end, a year at most.
    for_s: Option<u64>,
    /// Why; required.
    note: String,
}

/// An added override.
#[derive(ToSchema)]
pub(super) struct OverrideAdded {
    /// The revision of the rules that has it.
    revision: u64,
    /// Its end.
    until: String,
}

/// An override to lift.
#[derive(ToSchema)]
pub(super) struct LiftRequest {
    domain: String,
    /// The entries that it was added with.
    #[schema(value_type = Object)]
    r#match: Value,
    /// The rule that it was added with.
    rule: Option<String>,
    /// Why; required.
    note: String,
}

/// A lifted override.
#[derive(ToSchema)]
pub(super) struct OverrideLifted {
    /// The revision of the rules without it.
    revision: u64,
}

/// Sums of usage records.
#[derive(ToSchema)]
pub(super) struct UsageSums {
    from: String,
    to: String,
    total: UsageTotal,
    /// By hour, rule and identity; at most 10,000.
    rows: Vec<UsageSumRow>,
    /// Whether there are more rows; `total` has all.
    truncated: bool,
}

/// Sums of costs.
#[derive(ToSchema)]
pub(super) struct UsageTotal {
    admitted: u64,
    denied: u64,
    refunded: u64,
}

/// Usage of an identity in an hour.
#[derive(ToSchema)]
pub(super) struct UsageSumRow {
    hour: String,
    domain: String,
    rule: String,
    /// The pool, of rules with pools.
    pool: Option<String>,
    /// The identity; `null` for those beyond the maximum.
    descriptor: Option<String>,
    admitted: u64,
    denied: u64,
    refunded: u64,
    first: String,
    last: String,
}

/// The last changes through this node, the newest first; at most 200.
#[derive(ToSchema)]
pub(super) struct AuditInfo {
    /// `node`.
    scope: String,
    entries: Vec<AuditEntryInfo>,
}

/// A change.
#[derive(ToSchema)]
pub(super) struct AuditEntryInfo {
    at: String,
    /// Name of the token; `admin` for that of `--admin-token-file`, `local` without one.
    caller: String,
    /// Such as `rules.propose`, `overrides.add` or `keys.reset`.
    action: String,
    target: String,
}
