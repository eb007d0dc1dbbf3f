//! Identities with the most denied hits, and with the most hits, over all rules.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use serde_json::{Value, json};
use sluicegate::{IdentityHits, Snapshot, Timestamp, TopIdentities};

use super::query::{Query, refuse};
use super::rules::is_limited;
use super::{AdminInner, Caller, Refused, optional_time, time, traffic};
use crate::admin;
use crate::app::App;

/// Rows of a page.
const ROWS_MAX: usize = 1_000;
const ROWS: usize = 50;
/// Rules that a row names.
const RULES_MAX: usize = 10;

/// What identities are ranked by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::admin) enum Ranking {
    /// Denied hits, also those denied in shadow mode.
    Limited,
    /// Hits.
    Talkers,
}

/// Identities or values, with their hits under all rules.
#[derive(Debug, Default)]
struct IdentityRow {
    hits: u64,
    over_estimate: u64,
    is_truncated: bool,
    rules: Vec<(String, u64)>,
}

/// Identities that are limited now.
pub(super) async fn limited(
    State(admin): State<Arc<AdminInner>>,
    caller: Caller,
    uri: Uri,
) -> Result<Response, Refused> {
    traffic(&admin, &caller)?;
    answer(&admin, &uri, Ranking::Limited)
}

/// Identities with the most hits.
pub(super) async fn talkers(
    State(admin): State<Arc<AdminInner>>,
    caller: Caller,
    uri: Uri,
) -> Result<Response, Refused> {
    traffic(&admin, &caller)?;
    answer(&admin, &uri, Ranking::Talkers)
}

fn answer(admin: &AdminInner, uri: &Uri, ranking: Ranking) -> Result<Response, Refused> {
    let query = Query::read(uri.query(), &["key", "domain", "limit"])?;
    let limit = query.number("limit", ROWS_MAX, ROWS)?;
    let key = query.get("key");
    if key.is_some_and(|key| key.contains(['=', '|'])) {
        let message = "`key` must be a key of descriptors, such as `user_id`, without a value";
        return Err(refuse(message).into());
    }
    let page = page(&admin.app, ranking, key, query.get("domain"), limit);
    Ok(admin::json(&page))
}

/// The identities with the most hits over all rules; with a key, its values.
pub(in crate::admin) fn page(
    app: &App,
    ranking: Ranking,
    key: Option<&str>,
    domain: Option<&str>,
    limit: usize,
) -> Value {
    let (field, of): (_, fn(&TopIdentities) -> &[IdentityHits]) = match ranking {
        Ranking::Limited => ("denied_hits", |top| &top.denied),
        Ranking::Talkers => ("hits", |top| &top.talkers),
    };
    let rules = app.engine().snapshot();
    let (rows, since, interval) = rows(&rules, key, domain, of);
    let count = rows.len();
    let rows: Vec<Value> = rows
        .into_iter()
        .take(limit)
        .map(|((domain, identity), mut row)| {
            row.rules.sort_by_key(|(_, hits)| std::cmp::Reverse(*hits));
            let rules: Vec<&str> = row.rules.iter().take(RULES_MAX).map(|(id, _)| &**id).collect();
            let mut json = json!({
                "domain": domain,
                "descriptor": identity,
                "value": key.map(|_| value_of(&identity)),
                "over_estimate_max": row.over_estimate,
                "truncated": row.is_truncated,
                "rules": rules,
                "rules_count": row.rules.len(),
            });
            json[field] = row.hits.into();
            json
        })
        .collect();
    json!({
        "scope": "node",
        "at": time(app.engine().now()),
        "key": key,
        "since": optional_time(since),
        "sample_interval": interval,
        "count": count,
        "identities": rows,
    })
}

/// The rows, the most hits first; the start of their window, and the largest sampling interval.
/// With a key, hits of all descriptors with the same value of it are one row.
#[expect(clippy::type_complexity, reason = "named by the fields of the answer")]
fn rows(
    rules: &Snapshot<'_>,
    key: Option<&str>,
    domain: Option<&str>,
    of: fn(&TopIdentities) -> &[IdentityHits],
) -> (Vec<((String, String), IdentityRow)>, Option<Timestamp>, u32) {
    let set = rules.rules();
    let mut rows = HashMap::<(String, String), IdentityRow>::new();
    let (mut since, mut interval) = (None, 1);
    for no in set.rules().filter(|no| is_limited(set, *no)) {
        let of_domain = set.domain_of(no);
        if domain.is_some_and(|domain| domain != of_domain) {
            continue;
        }
        let Some(traffic) = rules.traffic(no) else { continue };
        since = Some(traffic.top.since);
        interval = interval.max(traffic.top.sample_interval);
        for identity in of(&traffic.top) {
            let name = match key {
                None => identity.descriptor.clone(),
                Some(key) => match entry_of(&identity.descriptor, key) {
                    Some(entry) => entry.to_owned(),
                    None => continue,
                },
            };
            let row = rows.entry((of_domain.to_owned(), name)).or_default();
            row.hits = row.hits.saturating_add(identity.hits);
            row.over_estimate = row.over_estimate.saturating_add(identity.over_estimate);
            row.is_truncated |= identity.is_truncated;
            let id = set.id(no);
            match row.rules.iter_mut().find(|(known, _)| *known == id) {
                Some((_, hits)) => *hits = hits.saturating_add(identity.hits),
                None => row.rules.push((id, identity.hits)),
            }
        }
    }
    let mut rows: Vec<_> = rows.into_iter().collect();
    rows.sort_by(|(a_name, a), (b_name, b)| b.hits.cmp(&a.hits).then_with(|| a_name.cmp(b_name)));
    (rows, since, interval)
}

/// The entry of a key in a descriptor: `user_id=42`.
fn entry_of<'a>(descriptor: &'a str, key: &str) -> Option<&'a str> {
    let mut entries = descriptor.split('|');
    entries.find(|entry| entry.split(['=', '!']).next() == Some(key))
}

/// The value of an entry, if it has one.
fn value_of(entry: &str) -> Option<&str> {
    entry.split_once('=').map(|(_, value)| value)
}

pub(super) fn identity_json(identity: &IdentityHits) -> Value {
    let IdentityHits { descriptor, is_truncated, hits, over_estimate } = identity;
    json!({
        "descriptor": descriptor,
        "truncated": is_truncated,
        "hits": hits,
        "over_estimate_max": over_estimate,
    })
}
