//! Traffic of rules: a row for each, and the page of one.

use std::cmp::Reverse;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use serde_json::{Value, json};
use sluicegate::rules::rule::Limits;
use sluicegate::rules::set::{RuleNo, RuleSet};
use sluicegate::{
    DISTINCT_STANDARD_ERROR, RULES_OBSERVED_MAX, RuleTraffic, Snapshot, Stats, Timestamp,
};
use sluicegate_core::mode::Mode;

use super::identities::identity_json;
use super::query::Query;
use super::what_if::usage_json;
use super::{AdminInner, Caller, Refused, optional_time, share, time, traffic, unix_ms};
use crate::admin::{self, error, shown};
use crate::app::App;
use crate::traffic::Traffic;
use crate::traffic::judgement::{Evidence, judge};
use crate::traffic::rules::{RuleHits, RulePoint, RuleTable};

/// Rows of a page.
const ROWS_MAX: usize = 1_000;
const ROWS: usize = 100;

/// Identities of the page of a rule.
const IDENTITIES: usize = 20;

/// Orders of the rows.
#[derive(Debug, Clone, Copy)]
pub(in crate::admin) enum Sort {
    Denied,
    ShadowDenied,
    Hits,
    DeniedShare,
    Rule,
}

/// A rule with its figures.
struct TrafficRow<'a> {
    no: RuleNo,
    id: String,
    stats: Stats,
    total: Option<RuleHits>,
    since: Option<Timestamp>,
    window: Option<(RuleHits, Timestamp)>,
    rules: &'a Snapshot<'a>,
    now: Timestamp,
    is_candidate: bool,
}

pub(super) async fn list(
    State(admin): State<Arc<AdminInner>>,
    caller: Caller,
    uri: Uri,
) -> Result<Response, Refused> {
    let statistics = traffic(&admin, &caller)?;
    let query = Query::read(uri.query(), &["sort", "limit", "offset"])?;
    let orders = [
        ("denied", Sort::Denied),
        ("shadow_denied", Sort::ShadowDenied),
        ("hits", Sort::Hits),
        ("denied_share", Sort::DeniedShare),
        ("rule", Sort::Rule),
    ];
    let sort = query.choice("sort", &orders)?.unwrap_or(Sort::Denied);
    let limit = query.number("limit", ROWS_MAX, ROWS)?;
    let offset = query.number("offset", usize::MAX >> 1, 0)?;
    Ok(admin::json(&page(&admin.app, statistics, sort, offset, limit)))
}

/// Rows of rules.
pub(in crate::admin) fn page(
    app: &App,
    statistics: &Traffic,
    sort: Sort,
    offset: usize,
    limit: usize,
) -> Value {
    let (rules, now) = (app.engine().snapshot(), app.engine().now());
    let mut rows: Vec<TrafficRow<'_>> = statistics.read(|state| {
        let limited = rules.rules().rules().filter(|no| is_limited(rules.rules(), *no));
        limited.map(|no| TrafficRow::new(&state.rules, &rules, no, now)).collect()
    });
    sort_rows(&mut rows, sort);
    let page: Vec<Value> = rows.iter().skip(offset).take(limit).map(TrafficRow::to_json).collect();
    json!({
        "scope": "node",
        "at": time(now),
        "count": rows.len(),
        "offset": offset,
        "rules": page,
    })
}

/// Rules of a candidate, those that deny the most first.
pub(in crate::admin) fn rows_of_candidate(
    rules: &Snapshot<'_>,
    table: &RuleTable,
    now: Timestamp,
    limit: usize,
) -> Vec<Value> {
    let limited = rules.rules().rules().filter(|no| is_limited(rules.rules(), *no));
    let row = |no| TrafficRow { is_candidate: true, ..TrafficRow::new(table, rules, no, now) };
    let mut rows: Vec<TrafficRow<'_>> = limited.map(row).collect();
    sort_rows(&mut rows, Sort::Denied);
    rows.iter().take(limit).map(TrafficRow::to_json).collect()
}

pub(super) async fn one(
    State(admin): State<Arc<AdminInner>>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Response, Refused> {
    let statistics = traffic(&admin, &caller)?;
    Ok(admin::json(&rule(&admin.app, statistics, &id)?))
}

/// The page of one rule, by its id or path.
pub(in crate::admin) fn rule(
    app: &App,
    statistics: &Traffic,
    id: &str,
) -> Result<Value, Box<Response>> {
    let (rules, now) = (app.engine().snapshot(), app.engine().now());
    let no = rule_of(rules.rules(), id)?;
    let (row, points) = statistics.read(|state| {
        let points = state.rules.get(rules.rules(), no).map(|rule| rule.points.clone());
        (TrafficRow::new(&state.rules, &rules, no, now), points.unwrap_or_default())
    });
    let mut body = row.to_json();
    let observed = rules.traffic(no);
    let column = |of: fn(&RulePoint) -> u64| points.iter().map(of).collect::<Vec<_>>();
    body["scope"] = "node".into();
    body["at"] = time(now);
    body["series"] = json!({
        "step_seconds": 10,
        "from_ms": points.front().map(|point| unix_ms(point.from)),
        "to_ms": column(|point| unix_ms(point.to)),
        "hits": column(|point| point.hits.hits),
        "denied_hits": column(|point| point.hits.denied),
        "shadow_denied_hits": column(|point| point.hits.shadow_denied),
        "near_limit_hits": column(|point| point.hits.near_limit),
    });
    body["top"] = observed.as_ref().map_or(Value::Null, top_json);
    body["usage"] = usage_json(statistics, &rules, no);
    Ok(body)
}

/// The identities with the most hits of one rule.
fn top_json(traffic: &RuleTraffic) -> Value {
    let top = &traffic.top;
    let list = |all: &[sluicegate::IdentityHits]| {
        all.iter().take(IDENTITIES).map(identity_json).collect::<Vec<_>>()
    };
    json!({
        "since": time(top.since),
        "denied": list(&top.denied),
        "talkers": list(&top.talkers),
        "hits": top.hits,
        "denied_hits": top.denied_hits,
        "sample_interval": top.sample_interval,
        "unsketched_hits": top.unsketched_hits,
    })
}

/// The rule of an id or a path.
pub(in crate::admin) fn rule_of(rules: &RuleSet, id: &str) -> Result<RuleNo, Box<Response>> {
    let limited = || rules.rules().filter(|no| is_limited(rules, *no));
    let mut named = limited().filter(|no| rules.id(*no) == id);
    match (named.next(), named.next()) {
        (Some(no), None) => Ok(no),
        (Some(_), Some(_)) => {
            let message = format!("several rules are called `{}`; use the `path` of one", shown(id));
            Err(Box::new(error(StatusCode::CONFLICT, "ambiguous_rule", &message)))
        }
        _ => limited().find(|no| rules.pool_of(*no).is_none() && rules.path_of(*no) == id).ok_or_else(|| {
            let message = format!(
                "there is no rule `{}` with a limit in the rules in force; /api/v1/traffic/rules lists all",
                shown(id)
            );
            Box::new(error(StatusCode::NOT_FOUND, "unknown_rule", &message))
        }),
    }
}

/// Unlimited rules are not counted.
pub(super) fn is_limited(rules: &RuleSet, no: RuleNo) -> bool {
    !matches!(rules.rule(no).limits, Limits::Unlimited)
}

fn sort_rows(rows: &mut [TrafficRow<'_>], sort: Sort) {
    let hits = |row: &TrafficRow<'_>| row.window.map(|(hits, _)| hits).unwrap_or_default();
    let share = |hits: RuleHits| hits.denied.saturating_mul(1 << 20) / hits.hits.max(1);
    rows.sort_by(|a, b| a.id.cmp(&b.id));
    match sort {
        Sort::Denied => rows.sort_by_key(|row| Reverse(hits(row).denied)),
        Sort::ShadowDenied => rows.sort_by_key(|row| Reverse(hits(row).shadow_denied)),
        Sort::Hits => rows.sort_by_key(|row| Reverse(hits(row).hits)),
        Sort::DeniedShare => rows.sort_by_key(|row| Reverse(share(hits(row)))),
        Sort::Rule => {}
    }
}

impl<'a> TrafficRow<'a> {
    fn new(table: &RuleTable, rules: &'a Snapshot<'a>, no: RuleNo, now: Timestamp) -> Self {
        let (stats, tracked) = (rules.stats(no), table.get(rules.rules(), no));
        Self {
            no,
            id: rules.rules().id(no),
            stats,
            total: tracked.map(|rule| rule.total(&stats)),
            since: tracked.map(|rule| rule.since),
            window: tracked.and_then(|rule| rule.last_hour(&stats, now)),
            rules,
            now,
            is_candidate: false,
        }
    }

    fn to_json(&self) -> Value {
        let Self { no, rules, window, now, .. } = self;
        let (set, no) = (rules.rules(), *no);
        let observed = rules.traffic(no);
        let (hits, window_since) = window.unzip();
        let count = |of: fn(&RuleHits) -> u64| hits.as_ref().map(of);
        let unknown = match (self.since, window, rules.has_traffic_room(no)) {
            (None, ..) => {
                Some("the rule is new: it is observed from the next second on".to_owned())
            }
            (_, None, _) => Some("too many rules have traffic: only totals are known".to_owned()),
            (.., false) => {
                Some(format!("identities are observed for {RULES_OBSERVED_MAX} rules with traffic"))
            }
            _ => None,
        };
        // Without a hit there is no identity.
        let has_details = rules.has_traffic_room(no);
        let distinct = observed.as_ref().map(|traffic| traffic.distinct);
        let identities = distinct.map(|one| one.identities).or(has_details.then_some(0));
        let denied_identities = distinct.map(|one| one.denied).or(has_details.then_some(0));
        let top_denied = observed.as_ref().and_then(|traffic| traffic.top.denied.first());
        let judgement = self.since.map(|since| judge(&self.evidence(since, observed.as_ref())));
        json!({
            "rule": self.id,
            "path": set.path_of(no),
            "pool": set.pool_of(no),
            "domain": set.domain_of(no),
            "mode": mode(set.rule(no).mode),
            "consistency": crate::metrics::level_name(set.rule(no).effective_consistency()),
            "observed_since": optional_time(self.since),
            "window_since": optional_time(window_since),
            "hits": count(|hits| hits.hits),
            "denied_hits": count(|hits| hits.denied),
            "shadow_denied_hits": count(|hits| hits.shadow_denied),
            "near_limit_hits": count(|hits| hits.near_limit),
            "denied_share": hits.map_or(Value::Null, |hits| share(hits.denied, hits.hits)),
            "identities": identities,
            "denied_identities": denied_identities,
            "identities_since": distinct.map(|one| time(one.since)),
            "identities_standard_error": DISTINCT_STANDARD_ERROR,
            "total": {
                "hits": self.stats.total_hits,
                "denied_hits": self.stats.over_limit.saturating_sub(self.stats.shadow_mode),
                "shadow_denied_hits": self.stats.shadow_mode,
                "near_limit_hits": self.stats.near_limit,
                "since": optional_time(rules.traffic_observed_since()),
            },
            "last_hit": optional_time(observed.as_ref().and_then(|traffic| traffic.last_hit)),
            "last_denied": optional_time(observed.as_ref().and_then(|traffic| traffic.last_denied)),
            "last_shadow_denied": optional_time(observed.as_ref().and_then(|traffic| traffic.last_shadow_denied)),
            "top_denied": top_denied.map(identity_json),
            "judgement": judgement.map(|one| json!({ "code": one.code.name(), "text": one.text })),
            "unknown": unknown,
            "at": time(*now),
        })
    }

    fn evidence(&self, since: Timestamp, observed: Option<&RuleTraffic>) -> Evidence {
        let set = self.rules.rules();
        let started = self.rules.traffic_observed_since().unwrap_or(since);
        let last = observed.map(|traffic| (traffic.last_denied, traffic.last_shadow_denied));
        Evidence {
            now: self.now,
            since,
            // The first tick sees the rules that the node has started with.
            is_since_start: since.since(started) < sluicegate::Span::from_secs(5),
            is_candidate: self.is_candidate,
            total: self.total.unwrap_or_default(),
            window_since: self.window.map_or(since, |(_, since)| since),
            window: self.window.map(|(hits, _)| hits),
            identities: observed.map(|traffic| traffic.distinct.identities),
            denied_identities: observed.map(|traffic| traffic.distinct.denied),
            last_denied: last.and_then(|(denied, shadow)| denied.max(shadow)),
            is_shadow: set.rule(self.no).mode == Mode::Shadow,
            is_global: set.is_one_identity(self.no),
        }
    }
}

/// The name of a mode in rule files.
const fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Hard => "hard",
        Mode::Soft { .. } => "soft",
        Mode::Elastic { .. } => "elastic",
        Mode::Shadow => "shadow",
    }
}
