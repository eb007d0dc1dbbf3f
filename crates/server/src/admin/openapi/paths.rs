//! Operations on rules, overrides, counters, usage and the audit log.
#![expect(dead_code, reason = "only for the document")]

use super::errors::{
    AccessResponses, BodyResponses, ChangeResponses, KeyResponses, RequestResponses, StoreResponses,
};
use super::schema::{
    AuditInfo, CandidateInfo, LiftRequest, NodesInfo, OverrideAdded, OverrideLifted, OverrideList,
    OverrideRequest, ProposalRequest, RevisionChange, RevisionDetail, RevisionPage,
    RollbackRequest, RulesCheckRequest, RulesInfo, RulesPreview, UsageSums,
};
use crate::http::schema::{CheckBody, CheckResponse, ExplainResponse, InspectResponse};

/// The active rules, and the revisions that wait beside them.
#[utoipa::path(
    get, path = "/api/v1/rules", tag = "rules", extensions(("x-role" = json!("read"))),
    responses((status = 200, description = "The rules.", body = RulesInfo), AccessResponses, StoreResponses),
)]
pub(super) fn rules() {}

/// Validates files, and compares them with the active rules. Nothing is stored.
#[utoipa::path(
    post, path = "/api/v1/rules/check", tag = "rules", extensions(("x-role" = json!("read"))),
    request_body = RulesCheckRequest,
    responses((status = 200, description = "Problems, or what the files would change.", body = RulesPreview), AccessResponses, BodyResponses, StoreResponses),
)]
pub(super) fn check_rules() {}

/// The files as one stream of YAML documents.
#[utoipa::path(
    get, path = "/api/v1/rules/export", tag = "rules", extensions(("x-role" = json!("read"))),
    params(("revision" = Option<u64>, Query, description = "The active one by default.")),
    responses((status = 200, description = "The stream.", body = String, content_type = "application/yaml"), AccessResponses, RequestResponses, StoreResponses),
)]
pub(super) fn export_rules() {}

/// Replaces all files by those of a stream.
#[utoipa::path(
    post, path = "/api/v1/rules/import", tag = "rules", extensions(("x-role" = json!("edit"))),
    params(
        ("note" = String, Query, description = "Why; required."),
        ("base" = Option<u64>, Query, description = "The revision that the import is based on; the active one by default."),
    ),
    request_body(content = String, content_type = "application/yaml"),
    responses((status = 201, description = "The revision.", body = RevisionChange), AccessResponses, BodyResponses, StoreResponses, ChangeResponses),
)]
pub(super) fn import_rules() {}

/// The candidate that runs beside the enforced rules of this node, and what it would have decided.
#[utoipa::path(
    get, path = "/api/v1/rules/candidate", tag = "rules", extensions(("x-role" = json!("read"))),
    responses((status = 200, description = "Its state.", body = CandidateInfo), AccessResponses, StoreResponses),
)]
pub(super) fn candidate() {}

/// Nodes that follow the same rules.
#[utoipa::path(
    get, path = "/api/v1/rules/nodes", tag = "rules", extensions(("x-role" = json!("read"))),
    responses((status = 200, description = "The nodes.", body = NodesInfo), AccessResponses, StoreResponses),
)]
pub(super) fn nodes() {}

/// Revisions, the newest first.
#[utoipa::path(
    get, path = "/api/v1/rules/revisions", tag = "rules", extensions(("x-role" = json!("read"))),
    params(
        ("before" = Option<u64>, Query, description = "Only revisions with smaller numbers."),
        ("limit" = Option<u64>, Query, description = "1 to 200; 50 by default."),
    ),
    responses((status = 200, description = "A page of revisions.", body = RevisionPage), AccessResponses, RequestResponses, StoreResponses),
)]
pub(super) fn revisions() {}

/// Changes the rules: a new revision.
#[utoipa::path(
    post, path = "/api/v1/rules/revisions", tag = "rules", extensions(("x-role" = json!("edit"))),
    request_body = ProposalRequest,
    responses((status = 201, description = "The revision.", body = RevisionChange), AccessResponses, BodyResponses, StoreResponses, ChangeResponses),
)]
pub(super) fn propose() {}

/// A revision with its files, and its difference from another one.
#[utoipa::path(
    get, path = "/api/v1/rules/revisions/{number}", tag = "rules", extensions(("x-role" = json!("read"))),
    params(
        ("number" = u64, Path, description = "Its number."),
        ("against" = Option<u64>, Query, description = "The other revision; its base by default."),
    ),
    responses((status = 200, description = "The revision.", body = RevisionDetail), AccessResponses, RequestResponses, StoreResponses),
)]
pub(super) fn revision() {}

/// Approves a revision that waits for a second person.
#[utoipa::path(
    post, path = "/api/v1/rules/revisions/{number}/approve", tag = "rules", extensions(("x-role" = json!("edit"))),
    params(("number" = u64, Path, description = "Its number.")),
    responses((status = 200, description = "The revision.", body = RevisionChange), AccessResponses, RequestResponses, StoreResponses, ChangeResponses),
)]
pub(super) fn approve() {}

/// Activates a candidate, or a scheduled or suspended revision.
#[utoipa::path(
    post, path = "/api/v1/rules/revisions/{number}/activate", tag = "rules", extensions(("x-role" = json!("edit"))),
    params(("number" = u64, Path, description = "Its number.")),
    responses((status = 200, description = "The revision.", body = RevisionChange), AccessResponses, RequestResponses, StoreResponses, ChangeResponses),
)]
pub(super) fn activate() {}

/// Withdraws a revision that is not active.
#[utoipa::path(
    post, path = "/api/v1/rules/revisions/{number}/withdraw", tag = "rules", extensions(("x-role" = json!("edit"))),
    params(("number" = u64, Path, description = "Its number.")),
    responses((status = 200, description = "The revision.", body = RevisionChange), AccessResponses, RequestResponses, StoreResponses, ChangeResponses),
)]
pub(super) fn withdraw() {}

/// Restores the files of an earlier revision, as a new one.
#[utoipa::path(
    post, path = "/api/v1/rules/revisions/{number}/rollback", tag = "rules", extensions(("x-role" = json!("edit"))),
    params(("number" = u64, Path, description = "The revision to restore.")),
    request_body = RollbackRequest,
    responses((status = 201, description = "The new revision.", body = RevisionChange), AccessResponses, BodyResponses, StoreResponses, ChangeResponses),
)]
pub(super) fn rollback() {}

/// Overrides of the active rules.
#[utoipa::path(
    get, path = "/api/v1/overrides", tag = "overrides", extensions(("x-role" = json!("read"))),
    responses((status = 200, description = "The overrides.", body = OverrideList), AccessResponses, StoreResponses),
)]
pub(super) fn overrides() {}

/// Blocks an identity, or grants it other limits, until a time: a new revision of the rules.
#[utoipa::path(
    post, path = "/api/v1/overrides", tag = "overrides", extensions(("x-role" = json!("edit"))),
    request_body = OverrideRequest,
    responses((status = 201, description = "Added.", body = OverrideAdded), AccessResponses, BodyResponses, StoreResponses, ChangeResponses),
)]
pub(super) fn add_override() {}

/// Lifts an override before its end.
#[utoipa::path(
    post, path = "/api/v1/overrides/lift", tag = "overrides", extensions(("x-role" = json!("edit"))),
    request_body = LiftRequest,
    responses((status = 200, description = "Lifted.", body = OverrideLifted), AccessResponses, BodyResponses, StoreResponses, ChangeResponses),
)]
pub(super) fn lift_override() {}

/// State of every limit of a request.
#[utoipa::path(
    post, path = "/api/v1/keys/inspect", tag = "keys", extensions(("x-role" = json!("read"))),
    request_body = CheckBody,
    responses((status = 200, description = "State of the limits.", body = InspectResponse), AccessResponses, BodyResponses, KeyResponses),
)]
pub(super) fn inspect() {}

/// Resets the limits of a request.
#[utoipa::path(
    post, path = "/api/v1/keys/reset", tag = "keys", extensions(("x-role" = json!("operate"))),
    request_body = CheckBody,
    responses((status = 200, description = "State of the limits after the reset.", body = CheckResponse), AccessResponses, BodyResponses, KeyResponses),
)]
pub(super) fn reset() {}

/// Gives `hits`, which are required, back to every limit of a request, at most until it is full.
#[utoipa::path(
    post, path = "/api/v1/keys/credit", tag = "keys", extensions(("x-role" = json!("operate"))),
    params(("Idempotency-Key" = Option<String>, Header, description = "1 to 255 bytes. A repeated request with the same key and body credits nothing again.")),
    request_body = CheckBody,
    responses((status = 200, description = "State of the limits after the credit.", body = CheckResponse), AccessResponses, BodyResponses, KeyResponses),
)]
pub(super) fn credit() {}

/// Explains which rules apply to a request, what would happen now, and why. Nothing is charged.
#[utoipa::path(
    post, path = "/api/v1/explain", tag = "keys", extensions(("x-role" = json!("read"))),
    request_body = CheckBody,
    responses((status = 200, description = "The explanation.", body = ExplainResponse), AccessResponses, BodyResponses, KeyResponses),
)]
pub(super) fn explain() {}

/// Sums of the usage records of this node.
#[utoipa::path(
    get, path = "/api/v1/usage", tag = "usage", extensions(("x-role" = json!("read"))),
    params(
        ("rule" = Option<String>, Query, description = "Id of a rule."),
        ("identity" = Option<String>, Query, description = "Identity, such as `team=search`."),
        ("from" = Option<String>, Query, description = "Day or time; 24 hours before `to` by default."),
        ("to" = Option<String>, Query, description = "Day or time, exclusive; now by default."),
    ),
    responses(
        (status = 200, description = "The sums.", body = UsageSums),
        (status = 404, description = "`not_found`: no usage is recorded.", body = super::errors::AdminErrorResponse),
        (status = 500, description = "`internal`: the files cannot be read.", body = super::errors::AdminErrorResponse),
        AccessResponses, RequestResponses,
    ),
)]
pub(super) fn usage() {}

/// The last changes through the admin endpoint of this node.
#[utoipa::path(
    get, path = "/api/v1/audit", tag = "service", extensions(("x-role" = json!("read"))),
    responses((status = 200, description = "The changes.", body = AuditInfo), AccessResponses),
)]
pub(super) fn audit() {}

/// This document.
#[utoipa::path(
    get, path = "/api/v1/openapi.json", tag = "service", extensions(("x-role" = json!("read"))),
    responses((status = 200, description = "This document.", body = Object), AccessResponses),
)]
pub(super) fn document() {}
