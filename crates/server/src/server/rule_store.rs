//! Opens the store of rules by the settings, logs its events, and shows its state in metrics.

use std::sync::Arc;

use jiff::Timestamp;
use sluicegate::RulesError;
use sluicegate::config::rules::Source;
use sluicegate_rulestore::{
    FilesOptions, PostgresOptions, ReadOnly, RuleStore, StoreEvent, StoreOptions,
};

use crate::EXAMPLE_RULES;
use crate::app::App;
use crate::logs::events;
use crate::metrics::{MetricsSource, Page};
use crate::settings::Settings;

/// Opens the store.
pub(super) async fn open(app: &App, settings: &Settings) -> Result<RuleStore, RulesError> {
    let options = options(app, settings);
    if let Some(url) = settings.rules.database.clone() {
        let cache = settings.rule_store.cache.clone();
        if cache.is_none() {
            events::rules_without_cache();
        }
        let postgres = PostgresOptions { url, cache, node_name: node_name(settings) };
        let store = RuleStore::postgres(postgres, &options).await;
        return store.map_err(|error| RulesError::Unfit(error.to_string()));
    }
    let read_only = settings.rule_store.read_only.then(|| ReadOnly {
        code: "configured",
        reason: "changes through the API are off (`--rules-read-only`): change the rules where they come from"
            .to_owned(),
    });
    let (paths, read) = (settings.rules.paths.clone(), settings.rules.files);
    Ok(RuleStore::files(&FilesOptions { paths, read, read_only }, &options))
}

/// Host and addresses, for lists of nodes.
fn node_name(settings: &Settings) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{} admin={} http={}", host.trim(), settings.admin, settings.http).trim().to_owned()
}

/// The example rules, or those of a command line.
pub(super) fn fixed(app: &App, settings: &Settings, text: Option<&str>) -> RuleStore {
    let (backend, reason) = match text {
        None => ("example", "these are the example rules: name your own with `--rules`"),
        Some(_) => {
            ("command_line", "these rules come from the command line: name files with `--rules`")
        }
    };
    let text = text.unwrap_or(EXAMPLE_RULES).to_owned();
    let sources = vec![Source { name: "rules.yaml".to_owned(), text }];
    let read_only = ReadOnly { code: backend, reason: reason.to_owned() };
    RuleStore::fixed(backend, sources, read_only, &options(app, settings))
}

fn options(app: &App, settings: &Settings) -> StoreOptions {
    let engine = app.engine().clone();
    let now = move || {
        let micros = i64::try_from(engine.now().as_micros()).unwrap_or(i64::MAX);
        Timestamp::from_microsecond(micros).unwrap_or(Timestamp::MAX)
    };
    StoreOptions {
        rules: settings.rules.options,
        require_approval: settings.rule_store.require_approval,
        clock: Arc::new(now),
        report: Arc::new(log),
    }
}

fn log(event: StoreEvent) {
    match event {
        StoreEvent::Revision(revision) => events::rules_revision(&revision),
        StoreEvent::Failed(error) => events::rule_store_failed(&error),
        StoreEvent::Connected => events::rule_store_connected(),
        StoreEvent::Disconnected(reason) => events::rule_store_disconnected(&reason),
        StoreEvent::ServedFromCache { revision, at } => events::rules_from_cache(revision, &at),
        StoreEvent::Empty => events::rule_store_empty(),
        _ => {}
    }
}

/// Revision and connection in metrics.
#[derive(Debug)]
pub(super) struct StoreMetrics {
    store: RuleStore,
}

impl StoreMetrics {
    pub(super) const fn new(store: RuleStore) -> Self {
        Self { store }
    }
}

impl MetricsSource for StoreMetrics {
    fn put(&self, page: &mut Page) {
        let status = self.store.status();
        let help = "Revision of the rule store that this node enforces; 0 for none.";
        page.gauge("sluicegate_rule_store_revision", help).value(status.enforced());
        let active = self.store.overview().active;
        let at = active.and_then(|active| active.activated_at).map_or(0, Timestamp::as_second);
        let help = "Unix time at which the active revision was activated; 0 for none.";
        page.gauge("sluicegate_rule_store_revision_timestamp_seconds", help).value(at);
        let (refused, conflicts) = status.refused();
        let help = "Changes through the rule store of this node that were refused.";
        page.counter("sluicegate_rule_store_refused_total", help)
            .each("reason", [("conflict", conflicts), ("invalid", refused)]);
        let help = "1 if the rule store can be reached, else 0: the last rules stay in force.";
        page.gauge("sluicegate_rule_store_connected", help).value(u8::from(status.is_connected()));
        let help =
            "1 if the rules are those of the copy on disk, which may be out of date, else 0.";
        page.gauge("sluicegate_rule_store_from_cache", help)
            .value(u8::from(status.is_served_from_cache()));
        let help = "Unix time of the last contact with the database of the rule store; 0 for none, and of files.";
        page.gauge("sluicegate_rule_store_contact_timestamp_seconds", help)
            .value(status.contacted_at());
    }
}
