//! Blocks and grants of operators (`/api/v1/overrides`, the console): temporary overrides in the
//! rules, as revisions of the rule store.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sluicegate::Timestamp;
use sluicegate::config::overrides::{self, ChangeSpec, EditError, OverrideSpec, OverrideTarget};
use sluicegate::config::rules::{Source, load};
use sluicegate::config::suggest::nearest;
use sluicegate::config::units::show_factor;
use sluicegate::rules::domain::{DescriptorConfig, Domain, ListEntry, Pattern};
use sluicegate::rules::overrides::{OverrideChange, TemporaryOverride};
use sluicegate_rulestore::{Revision, RuleStore, StoreError};

use super::access::{Caller, Role};
use super::rules::RulesFailure;
use super::{AdminInner, error, json as json_response};
use crate::logs::rfc3339;

/// An override of the active rules.
#[derive(Debug, Clone)]
pub(super) struct OverrideRow {
    pub(super) domain: String,
    pub(super) matches: Vec<ListEntry>,
    pub(super) rule: Option<String>,
    pub(super) change: OverrideChange,
    pub(super) until: Timestamp,
    pub(super) note: String,
}

/// A request to add an override.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AddBody {
    domain: String,
    r#match: Map<String, Value>,
    rule: Option<String>,
    #[serde(default)]
    block: bool,
    #[serde(default)]
    unlimited: bool,
    factor: Option<f64>,
    limits: Option<Value>,
    /// RFC 3339, or `for_s`.
    until: Option<String>,
    for_s: Option<u64>,
    note: String,
}

/// A request to lift an override.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LiftBody {
    domain: String,
    r#match: Map<String, Value>,
    rule: Option<String>,
    note: String,
}

/// An override of this length or longer belongs into the rules.
const LENGTH_S_MAX: u64 = 366 * 24 * 60 * 60;

pub(super) fn routes() -> Router<Arc<AdminInner>> {
    Router::new()
        .route("/api/v1/overrides", get(list).post(add))
        .route("/api/v1/overrides/lift", post(lift))
}

async fn list(
    State(admin): State<Arc<AdminInner>>,
    caller: Caller,
) -> Result<Response, RulesFailure> {
    caller.require(Role::Read)?;
    let now = admin.app.engine().now();
    let rows = active(&admin).await?;
    let rows: Vec<Value> = rows.iter().map(|row| row.to_json(now)).collect();
    Ok(json_response(&json!({ "overrides": rows })))
}

async fn add(
    State(admin): State<Arc<AdminInner>>,
    caller: Caller,
    body: Bytes,
) -> Result<Response, RulesFailure> {
    caller.require(Role::Edit)?;
    let body: AddBody = decoded(&body)?;
    let spec = spec_of(&body, admin.app.engine().now()).map_err(|message| refused(&message))?;
    let revision = change(&admin, &caller, &body.domain, Change::Add(&spec)).await?;
    let body = json!({ "revision": revision.number, "until": rfc3339(spec.until).to_string() });
    Ok((StatusCode::CREATED, json_response(&body)).into_response())
}

async fn lift(
    State(admin): State<Arc<AdminInner>>,
    caller: Caller,
    body: Bytes,
) -> Result<Response, RulesFailure> {
    caller.require(Role::Edit)?;
    let LiftBody { domain, r#match, rule, note } = decoded(&body)?;
    let target = OverrideTarget { matches: r#match.into_iter().collect(), rule };
    let revision = change(&admin, &caller, &domain, Change::Lift(&target, &note)).await?;
    Ok(json_response(&json!({ "revision": revision.number })))
}

fn decoded<'a, T: Deserialize<'a>>(body: &'a Bytes) -> Result<T, RulesFailure> {
    let read = serde_json::from_slice(body);
    read.map_err(|problem| refused(&format!("the body is not valid: {problem}")))
}

fn refused(message: &str) -> RulesFailure {
    Box::new(error(StatusCode::UNPROCESSABLE_ENTITY, "invalid_override", message)).into()
}

fn spec_of(body: &AddBody, now: Timestamp) -> Result<OverrideSpec, String> {
    let changes = [
        body.block.then_some(ChangeSpec::Block),
        body.unlimited.then_some(ChangeSpec::Unlimited),
        body.factor.map(factor).transpose()?,
        body.limits.clone().map(ChangeSpec::Limits),
    ];
    let mut changes = changes.into_iter().flatten();
    let (Some(change), None) = (changes.next(), changes.next()) else {
        return Err(
            "one of `block`, `unlimited`, `factor` and `limits` says what is changed".into()
        );
    };
    let until = match (&body.until, body.for_s) {
        (Some(text), None) => text
            .parse::<jiff::Timestamp>()
            .ok()
            .and_then(|at| u64::try_from(at.as_microsecond()).ok()),
        (None, Some(seconds)) if seconds <= LENGTH_S_MAX => {
            Some(now.as_micros().saturating_add(seconds.saturating_mul(1_000_000)))
        }
        _ => None,
    };
    let until = until.ok_or(
        "one of `until`, like `2026-12-01T00:00:00Z`, and `for_s`, seconds of at most a year, says when it ends",
    )?;
    if until <= now.as_micros() {
        return Err("it would have ended already: `until` must be in the future".to_owned());
    }
    Ok(OverrideSpec {
        target: OverrideTarget {
            matches: body.r#match.clone().into_iter().collect(),
            rule: body.rule.clone(),
        },
        change,
        until: Timestamp::from_micros(until),
        note: body.note.clone(),
    })
}

fn factor(factor: f64) -> Result<ChangeSpec, String> {
    match factor {
        factor if (0.001..=1_000.0).contains(&factor) => {
            Ok(ChangeSpec::Factor((factor * 1_000.0).round() as u64))
        }
        factor => Err(format!("`factor` must be from 0.001 to 1000, got {factor}")),
    }
}

/// A change of the overrides of a domain.
#[derive(Debug, Clone, Copy)]
pub(super) enum Change<'a> {
    Add(&'a OverrideSpec),
    /// With the note of the revision.
    Lift(&'a OverrideTarget, &'a str),
}

/// Makes a change, as a revision.
pub(super) async fn change(
    admin: &AdminInner,
    caller: &Caller,
    domain: &str,
    change: Change<'_>,
) -> Result<Revision, RulesFailure> {
    caller.require(Role::Edit)?;
    let store = store(admin)?;
    let (action, note) = match change {
        Change::Add(spec) => ("overrides.add", spec.note.as_str()),
        Change::Lift(_, note) => ("overrides.lift", note),
    };
    let options = *store.rules_options();
    let edited = store.edit(&caller.name, note, |sources| {
        let loaded = load(sources, &options)
            .map_err(|_| StoreError::BadRequest("the active rules are invalid".to_owned()))?;
        let index = loaded.domains.iter().position(|one| one.name == domain);
        let file = index.and_then(|index| loaded.files.get(index).cloned()).ok_or_else(|| {
            StoreError::BadRequest(format!("no file has rules of the domain `{domain}`"))
        })?;
        if let (Change::Add(spec), Some(domain)) =
            (change, index.and_then(|i| loaded.domains.get(i)))
        {
            check_keys(spec, domain)?;
        }
        let source = sources.iter_mut().find(|source| source.name == file);
        let source =
            source.ok_or_else(|| StoreError::BadRequest(format!("there is no file `{file}`")))?;
        edit(source, change)
    });
    let revision = edited.await?;
    admin.audit(caller, action, &format!("revision {}: {domain}: {note}", revision.number));
    super::wait_until_enforced(store, &revision).await;
    Ok(revision)
}

/// Refuses keys that are probably misspelt: such an override would match nothing. Requests may have
/// entries that no rule names, and be blocked by them.
fn check_keys(spec: &OverrideSpec, domain: &Domain) -> Result<(), StoreError> {
    fn collect<'a>(nodes: &'a [DescriptorConfig], keys: &mut BTreeSet<&'a str>) {
        for node in nodes {
            keys.insert(&node.key);
            collect(&node.descriptors, keys);
        }
    }
    let mut keys = BTreeSet::new();
    collect(&domain.descriptors, &mut keys);
    let is_listed = matches!(spec.change, ChangeSpec::Block | ChangeSpec::Unlimited);
    let is_similar = |key: &str| {
        nearest(key, keys.iter().copied()).is_some() || keys.iter().any(|one| one.contains(key))
    };
    let is_wrong = |key: &str| !keys.contains(key) && (!is_listed || is_similar(key));
    match spec.target.matches.iter().find(|(key, _)| is_wrong(key)) {
        Some((key, _)) => {
            let known: Vec<&str> = keys.into_iter().take(10).collect();
            let message = format!(
                "no rule of the domain `{}` has the key `{key}`, so it would match nothing; there are `{}`",
                domain.name,
                known.join("`, `")
            );
            Err(StoreError::BadRequest(message))
        }
        _ => Ok(()),
    }
}

fn edit(source: &mut Source, change: Change<'_>) -> Result<(), StoreError> {
    let edited = match change {
        Change::Add(spec) => overrides::add(&source.text, spec),
        Change::Lift(target, _) => overrides::remove(&source.text, target),
    };
    source.text = edited.map_err(|error: EditError| StoreError::BadRequest(error.to_string()))?;
    Ok(())
}

/// The overrides of the active rules, those that have ended too.
pub(super) async fn active(admin: &AdminInner) -> Result<Vec<OverrideRow>, RulesFailure> {
    let store = store(admin)?;
    let (_, sources) = store.active().await?;
    Ok(rows_of(store, &sources))
}

/// The overrides of files; none of invalid ones.
pub(super) fn rows_of(store: &RuleStore, sources: &[Source]) -> Vec<OverrideRow> {
    let Ok(loaded) = load(sources, store.rules_options()) else { return Vec::new() };
    let of_domain = |domain: &Domain| {
        let row = |one: &TemporaryOverride| OverrideRow {
            domain: domain.name.clone(),
            matches: one.matches.clone(),
            rule: one.rule.as_deref().map(str::to_owned),
            change: one.change.clone(),
            until: one.until,
            note: one.note.to_string(),
        };
        domain.overrides.iter().map(row).collect::<Vec<_>>()
    };
    loaded.domains.iter().flat_map(of_domain).collect()
}

fn store(admin: &AdminInner) -> Result<&RuleStore, RulesFailure> {
    let none =
        || Box::new(error(StatusCode::NOT_FOUND, "not_found", "this process has no rule store"));
    Ok(admin.app.rule_store().ok_or_else(none)?)
}

impl OverrideRow {
    /// What it changes, in words.
    pub(super) fn change_text(&self) -> String {
        match &self.change {
            OverrideChange::Block => "blocked".to_owned(),
            OverrideChange::Unlimited => "not limited".to_owned(),
            OverrideChange::Factor(thousandths) => {
                format!("limits × {}", show_factor(*thousandths))
            }
            OverrideChange::Limits(limits) => {
                sluicegate::explain::rule::text::limits(limits).join(", ")
            }
        }
    }

    /// Its entries, as people type them.
    pub(super) fn matches_text(&self) -> String {
        self.matches.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }

    /// Whether one of its entries holds an entry of a descriptor.
    pub(super) fn concerns(&self, key: &str, value: &str) -> bool {
        let holds = |pattern: &Pattern| match pattern {
            Pattern::Any => true,
            Pattern::Text(text) => match text.strip_suffix('*') {
                Some(prefix) => value.starts_with(prefix),
                None => **text == *value,
            },
            Pattern::Regex(regex) => regex.is_match(value),
            Pattern::Networks(networks) => {
                value.parse().is_ok_and(|address| networks.iter().any(|one| one.contains(address)))
            }
        };
        self.matches.iter().any(|entry| entry.key == key && holds(&entry.value))
    }

    /// Whether it applies at this moment.
    pub(super) fn is_in_force(&self, now: Timestamp) -> bool {
        now < self.until
    }

    fn to_json(&self, now: Timestamp) -> Value {
        let matches: Map<String, Value> = self
            .matches
            .iter()
            .map(|entry| {
                let text = entry.to_string();
                let value = text.split_once('=').map_or("", |(_, value)| value);
                (entry.key.to_string(), value.into())
            })
            .collect();
        json!({
            "domain": self.domain,
            "match": matches,
            "rule": self.rule,
            "change": self.change_text(),
            "until": rfc3339(self.until).to_string(),
            "in_force": self.is_in_force(now),
            "note": self.note,
        })
    }
}
