//! Errors of the admin API.
#![expect(dead_code, reason = "only for the document")]

use utoipa::{IntoResponses, ToSchema};

use super::schema::{ProblemInfo, RevisionInfo};

/// An error.
#[derive(ToSchema)]
pub(super) struct AdminErrorResponse {
    error: AdminErrorInfo,
}

/// What is wrong.
#[derive(ToSchema)]
pub(super) struct AdminErrorInfo {
    /// For programs.
    code: String,
    /// For people: what is wrong, and what to do.
    message: String,
    /// Of `read_only`: why no change is possible.
    reason: Option<String>,
    /// Of `conflict`: the revision that the change is based on.
    base: Option<u64>,
    /// Of `conflict`: the revision that is active instead.
    newer: Option<RevisionInfo>,
    /// Of `invalid_rules`: the errors.
    problems: Option<Vec<ProblemInfo>>,
    /// Of `invalid_rules`: the warnings.
    warnings: Option<Vec<ProblemInfo>>,
    /// Of requests about counters: the place of the error.
    #[schema(value_type = Option<Object>)]
    context: Option<serde_json::Value>,
}

/// Errors of all operations.
#[derive(IntoResponses)]
pub(super) enum AccessResponses {
    /// `unauthorized`: the token is missing or wrong, or the session has ended.
    #[response(status = 401)]
    NoToken(AdminErrorResponse),
    /// `forbidden`: another role is needed. `other_site`: a page of another origin has sent the
    /// request. `no_tokens`: off loopback, a token has to be configured. `read_only`: the rules
    /// cannot be changed here.
    #[response(status = 403)]
    Forbidden(AdminErrorResponse),
    /// `too_many_failures`: too many wrong tokens from this address.
    #[response(status = 429)]
    TooManyFailures(AdminErrorResponse),
}

/// Errors of operations with parameters or a body.
#[derive(IntoResponses)]
pub(super) enum RequestResponses {
    /// `bad_request` or `invalid_request`: a parameter or the body is malformed.
    #[response(status = 400)]
    Malformed(AdminErrorResponse),
}

/// Errors of operations with a body.
#[derive(IntoResponses)]
pub(super) enum BodyResponses {
    /// `bad_request` or `invalid_request`: a parameter or the body is malformed.
    #[response(status = 400)]
    Malformed(AdminErrorResponse),
    /// `too_large`: the body is too large.
    #[response(status = 413)]
    TooLarge(AdminErrorResponse),
}

/// Errors of the rule store.
#[derive(IntoResponses)]
pub(super) enum StoreResponses {
    /// `not_found`: there is no such revision, or the process has no rule store.
    #[response(status = 404)]
    NotFound(AdminErrorResponse),
    /// `unavailable`: the database cannot be reached.
    #[response(status = 503)]
    Unavailable(AdminErrorResponse),
}

/// Errors of changes of the rules.
#[derive(IntoResponses)]
pub(super) enum ChangeResponses {
    /// `conflict`: another revision has become active meanwhile. `not_allowed`: the state of the
    /// revision does not permit this, or its author cannot approve it.
    #[response(status = 409)]
    Conflict(AdminErrorResponse),
    /// `invalid_rules` or `invalid_override`: nothing was changed.
    #[response(status = 422)]
    Invalid(AdminErrorResponse),
}

/// Errors of operations on counters.
#[derive(IntoResponses)]
pub(super) enum KeyResponses {
    /// `timeout`: the body did not arrive in time.
    #[response(status = 408)]
    Late(AdminErrorResponse),
    /// The `Idempotency-Key` was used for another request.
    #[response(status = 422)]
    Reused(AdminErrorResponse),
    /// No rules are loaded, or the store cannot be reached.
    #[response(status = 503)]
    Unavailable(AdminErrorResponse),
}

/// Errors of traffic statistics.
#[derive(IntoResponses)]
pub(super) enum TrafficResponses {
    /// `traffic_off`: statistics are switched off. `ambiguous_rule`: use the `path` of the rule.
    #[response(status = 409)]
    Off(AdminErrorResponse),
}
