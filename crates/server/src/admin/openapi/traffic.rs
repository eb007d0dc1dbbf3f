//! Operations on traffic statistics, and their schemas.
#![expect(dead_code, reason = "only for the document")]

use serde_json::Value;
use utoipa::ToSchema;

use super::errors::{AccessResponses, BodyResponses, RequestResponses, TrafficResponses};
use super::schema::FileText;

/// Totals, rates, latency and series of this node.
#[utoipa::path(
    get, path = "/api/v1/traffic", tag = "traffic", extensions(("x-role" = json!("read"))),
    params(("series" = Option<String>, Query, description = "`both` (default), `seconds`, `minutes` or `none`.")),
    responses((status = 200, description = "The overview.", body = TrafficOverview), AccessResponses, RequestResponses, TrafficResponses),
)]
pub(super) fn overview() {}

/// Figures of each rule in the last hour, with a judgement.
#[utoipa::path(
    get, path = "/api/v1/traffic/rules", tag = "traffic", extensions(("x-role" = json!("read"))),
    params(
        ("sort" = Option<String>, Query, description = "`denied` (default), `shadow_denied`, `hits`, `denied_share` or `rule`."),
        ("limit" = Option<u64>, Query, description = "0 to 1000; 100 by default."),
        ("offset" = Option<u64>, Query, description = "Rows to skip."),
    ),
    responses((status = 200, description = "A page of rules.", body = TrafficRulePage), AccessResponses, RequestResponses, TrafficResponses),
)]
pub(super) fn rules() {}

/// Figures of one rule, with its series, identities and usage.
#[utoipa::path(
    get, path = "/api/v1/traffic/rules/{id}", tag = "traffic", extensions(("x-role" = json!("read"))),
    params(("id" = String, Path, description = "Id or path of the rule; it may contain slashes.")),
    responses(
        (status = 200, description = "The rule.", body = TrafficRule),
        (status = 404, description = "`unknown_rule`: no rule in force has this id.", body = super::errors::AdminErrorResponse),
        AccessResponses, TrafficResponses,
    ),
)]
pub(super) fn rule() {}

/// Decides the recorded sample of requests with other rules.
#[utoipa::path(
    post, path = "/api/v1/traffic/what-if", tag = "traffic", extensions(("x-role" = json!("read"))),
    request_body = WhatIfRequest,
    responses(
        (status = 200, description = "Both outcomes.", body = WhatIfInfo),
        (status = 404, description = "`unknown_rule`: no rule in force has this id.", body = super::errors::AdminErrorResponse),
        (status = 422, description = "`invalid_rules`: the files or limits are invalid.", body = super::errors::AdminErrorResponse),
        AccessResponses, BodyResponses, TrafficResponses,
    ),
)]
pub(super) fn what_if() {}

/// Identities with the most denied hits, over all rules.
#[utoipa::path(
    get, path = "/api/v1/traffic/limited", tag = "traffic", extensions(("x-role" = json!("read"))),
    params(
        ("key" = Option<String>, Query, description = "Key of descriptors: its values are the rows."),
        ("domain" = Option<String>, Query, description = "Rules of this domain only."),
        ("limit" = Option<u64>, Query, description = "0 to 1000; 50 by default."),
    ),
    responses((status = 200, description = "The identities.", body = IdentityPage), AccessResponses, RequestResponses, TrafficResponses),
)]
pub(super) fn limited() {}

/// Identities with the most hits, over all rules.
#[utoipa::path(
    get, path = "/api/v1/traffic/talkers", tag = "traffic", extensions(("x-role" = json!("read"))),
    params(
        ("key" = Option<String>, Query, description = "Key of descriptors: its values are the rows."),
        ("domain" = Option<String>, Query, description = "Rules of this domain only."),
        ("limit" = Option<u64>, Query, description = "0 to 1000; 50 by default."),
    ),
    responses((status = 200, description = "The identities.", body = IdentityPage), AccessResponses, RequestResponses, TrafficResponses),
)]
pub(super) fn talkers() {}

/// Events of this node as Server-Sent Events: `tick` (the overview without series, once a second),
/// `denial` (the first 20 of a second), `rules`, `store`, `threshold`, `dropped` (the client reads
/// too slowly; the stream ends) and `shutdown`.
#[utoipa::path(
    get, path = "/api/v1/events", tag = "traffic", extensions(("x-role" = json!("read"))),
    responses(
        (status = 200, description = "The stream.", body = String, content_type = "text/event-stream"),
        (status = 503, description = "`too_many_streams`: 64 are open.", body = super::errors::AdminErrorResponse),
        AccessResponses, TrafficResponses,
    ),
)]
pub(super) fn events() {}

/// Totals, rates, latency and series.
#[derive(ToSchema)]
struct TrafficOverview {
    /// `node`.
    scope: String,
    at: String,
    /// When the node began to count.
    observed_since: Option<String>,
    totals: OutcomeTotals,
    now: OutcomeRates,
    latency: LatencyInfo,
    rules: RulesSummary,
    store: StoreSummary,
    /// Whether every request is allowed.
    shadow_mode: bool,
    ready: bool,
    unready_reason: Option<String>,
    series: OverviewSeries,
}

/// Requests since the start.
#[derive(ToSchema)]
struct OutcomeTotals {
    requests: u64,
    /// With those that are only denied in shadow mode.
    allowed: u64,
    denied: u64,
    shadow_denied: u64,
}

/// Rates of the last 10 seconds.
#[derive(ToSchema)]
struct OutcomeRates {
    seconds: f64,
    requests_per_second: Option<f64>,
    allowed_per_second: Option<f64>,
    denied_per_second: Option<f64>,
    shadow_denied_per_second: Option<f64>,
    /// Why the rates are `null`.
    unknown: Option<String>,
}

/// Response times of the last minute: upper bounds of histogram buckets, in microseconds; `null`
/// above the largest.
#[derive(ToSchema)]
struct LatencyInfo {
    calls: u64,
    p50_us_max: Option<u64>,
    p90_us_max: Option<u64>,
    p99_us_max: Option<u64>,
    bucket_us_max: u64,
    /// The reason if they are `null`.
    unknown: Option<String>,
}

/// The rules in force.
#[derive(ToSchema)]
struct RulesSummary {
    count: usize,
    /// As in the metric `sluicegate_rules_hash`.
    hash: String,
    /// Rules with traffic of which identities are observed.
    detailed_max: usize,
}

/// Where counters are.
#[derive(ToSchema)]
struct StoreSummary {
    /// `memory` or `redis`.
    kind: String,
    /// `connecting`, `up` or `down`.
    state: String,
}

/// Series as columns, the oldest point first.
#[derive(ToSchema)]
struct OverviewSeries {
    /// One point for each second.
    seconds: Option<OutcomeSeries>,
    /// One point for each minute.
    minutes: Option<OutcomeSeries>,
}

/// Points of intervals between `from_ms` and the values of `to_ms`.
#[derive(ToSchema)]
struct OutcomeSeries {
    step_seconds: u64,
    from_ms: Option<u64>,
    to_ms: Vec<u64>,
    allowed: Vec<u64>,
    denied: Vec<u64>,
    shadow_denied: Vec<u64>,
    p50_us_max: Vec<Option<u64>>,
    p99_us_max: Vec<Option<u64>>,
}

/// Rows of rules.
#[derive(ToSchema)]
struct TrafficRulePage {
    scope: String,
    at: String,
    /// Rules with a limit.
    count: usize,
    offset: usize,
    rules: Vec<TrafficRule>,
}

/// Figures of a rule in the last hour, or since `window_since`.
#[derive(ToSchema)]
struct TrafficRule {
    rule: String,
    path: String,
    pool: Option<String>,
    domain: String,
    /// `hard`, `soft`, `elastic` or `shadow`.
    mode: String,
    /// `strict`, `leased` or `eventual`.
    consistency: String,
    observed_since: Option<String>,
    window_since: Option<String>,
    hits: Option<u64>,
    denied_hits: Option<u64>,
    shadow_denied_hits: Option<u64>,
    near_limit_hits: Option<u64>,
    denied_share: Option<f64>,
    /// Estimated number of identities.
    identities: Option<u64>,
    /// Estimated number of identities with denied hits.
    denied_identities: Option<u64>,
    identities_since: Option<String>,
    /// Relative standard error of both estimates.
    identities_standard_error: f64,
    total: RuleTotals,
    last_hit: Option<String>,
    last_denied: Option<String>,
    last_shadow_denied: Option<String>,
    top_denied: Option<IdentityCount>,
    judgement: Option<JudgementInfo>,
    /// Why figures are `null`.
    unknown: Option<String>,
    at: String,
    /// Of a single rule: `node`.
    scope: Option<String>,
    /// Of a single rule.
    series: Option<RuleSeries>,
    /// Of a single rule: its identities.
    top: Option<TopInfo>,
    /// Of a single rule: usage of identities in the window of its first limit.
    usage: Option<UsageInfo>,
}

/// Hits since the start.
#[derive(ToSchema)]
struct RuleTotals {
    hits: u64,
    denied_hits: u64,
    shadow_denied_hits: u64,
    near_limit_hits: u64,
    since: Option<String>,
}

/// Judgement of a rule.
#[derive(ToSchema)]
struct JudgementInfo {
    /// `never_matched`, `too_little_traffic`, `never_fired`, `not_fired_lately`, `near_limit`,
    /// `abusers`, `too_strict`, `limiting` or `unknown`.
    code: String,
    text: String,
}

/// Points of 10 seconds.
#[derive(ToSchema)]
struct RuleSeries {
    step_seconds: u64,
    from_ms: Option<u64>,
    to_ms: Vec<u64>,
    hits: Vec<u64>,
    denied_hits: Vec<u64>,
    shadow_denied_hits: Vec<u64>,
    near_limit_hits: Vec<u64>,
}

/// Identities with the most hits under a rule.
#[derive(ToSchema)]
struct TopInfo {
    since: String,
    denied: Vec<IdentityCount>,
    talkers: Vec<IdentityCount>,
    hits: u64,
    denied_hits: u64,
    /// One in this many hits is counted.
    sample_interval: u64,
    unsketched_hits: u64,
}

/// An identity and its hits.
#[derive(ToSchema)]
struct IdentityCount {
    descriptor: String,
    /// Whether `descriptor` is only its beginning.
    truncated: bool,
    hits: u64,
    /// The true number is at most this much smaller.
    over_estimate_max: u64,
}

/// Usage of identities in a window, from the sample of recent requests.
#[derive(ToSchema)]
struct UsageInfo {
    window_seconds: Option<f64>,
    identities: Option<usize>,
    p50: Option<u64>,
    p90: Option<u64>,
    p99: Option<u64>,
    max: Option<u64>,
    /// A threshold that 99 % of the identities never exceed.
    suggested: Option<u64>,
    /// Why figures are missing.
    unknown: Option<String>,
    sample: SampleInfo,
}

/// The sample of recent requests.
#[derive(ToSchema)]
struct SampleInfo {
    from: Option<String>,
    to: Option<String>,
    span_seconds: f64,
    requests: usize,
    /// One identity in this many has all its requests in the sample.
    one_identity_in: u64,
    too_long_requests: u64,
    missed_requests: u64,
}

/// Either the files of other rules, or one rule and its other limits.
#[derive(ToSchema)]
struct WhatIfRequest {
    files: Option<Vec<FileText>>,
    /// Id or path of a rule.
    rule: Option<String>,
    /// Limits as in a file of rules: YAML as a string, or the same as JSON.
    #[schema(value_type = Option<Object>)]
    limits: Option<Value>,
}

/// Outcomes of the sample with both sets of rules.
#[derive(ToSchema)]
struct WhatIfInfo {
    scope: String,
    at: String,
    sample: SampleInfo,
    requests: WhatIfRequests,
    /// Rules whose outcome differs, or that were asked for.
    rules: Vec<WhatIfRule>,
    /// What the figures leave out.
    notes: Vec<String>,
}

/// Requests of the sample.
#[derive(ToSchema)]
struct WhatIfRequests {
    requests: u64,
    /// Denied when they were made.
    recorded_denied: u64,
    denied_before: Option<u64>,
    denied_after: Option<u64>,
    unknown: Option<String>,
}

/// A rule with both sets of rules.
#[derive(ToSchema)]
struct WhatIfRule {
    rule: String,
    before: Option<WhatIfTally>,
    after: Option<WhatIfTally>,
    notes: Vec<String>,
}

/// Requests of the sample under a rule.
#[derive(ToSchema)]
struct WhatIfTally {
    requests: u64,
    denied: u64,
    denied_share: Option<f64>,
    identities: u64,
    denied_identities: u64,
    unjudged_requests: u64,
}

/// Identities or values, the most hits first.
#[derive(ToSchema)]
struct IdentityPage {
    scope: String,
    at: String,
    /// The key whose values are listed.
    key: Option<String>,
    since: Option<String>,
    /// One in this many hits is counted.
    sample_interval: u64,
    count: usize,
    identities: Vec<IdentityRowInfo>,
}

/// An identity or a value, over all rules.
#[derive(ToSchema)]
struct IdentityRowInfo {
    domain: String,
    descriptor: String,
    /// With `key`: the value.
    value: Option<String>,
    /// The true number is at most this much smaller.
    over_estimate_max: u64,
    truncated: bool,
    /// Ids of at most 10 rules, the most hits first.
    rules: Vec<String>,
    rules_count: usize,
    /// Of `limited`: denied hits, also those denied in shadow mode.
    denied_hits: Option<u64>,
    /// Of `talkers`.
    hits: Option<u64>,
}
