//! Events about failed loads of rules: one when loads begin to fail, and one when they succeed
//! again. What fails in between is logged, and counted in metrics.

use serde_json::{Value, json};
use sluicegate::Timestamp;

use super::EventReporter;
use crate::app::App;
use crate::logs::rfc3339;

/// Loads that failed since the last one that succeeded.
#[derive(Debug, Clone, Copy)]
pub(super) struct FailedLoads {
    since: Timestamp,
    count: u64,
}

impl EventReporter {
    /// Reports that rules were not loaded, with one problem per line.
    pub(crate) fn rules_refused(&self, app: &App, location: &str, problem: &str) {
        let at = app.engine().now();
        {
            let mut failed = self.failed_loads.lock();
            if let Some(failed) = &mut *failed {
                failed.count += 1;
                return;
            }
            *failed = Some(FailedLoads { since: at, count: 1 });
        }
        let active = app.rule_store().and_then(|store| store.overview().active);
        let data = json!({
            "rules": location,
            "problem": problem.lines().next().unwrap_or_default(),
            "problems": problem.lines().count(),
            "active_revision": active.map(|revision| revision.number),
            "enforced": app.health().has_rules().then(|| enforced(app)),
        });
        self.send("rules.reload_failed", at, &data);
    }

    /// Reports that rules were loaded after a failure.
    pub(crate) fn rules_loaded(&self, app: &App, location: &str) {
        let Some(FailedLoads { since, count }) = self.failed_loads.lock().take() else { return };
        let data = json!({
            "rules": location,
            "failed_since": rfc3339(since).to_string(),
            "failed_loads": count,
            "enforced": enforced(app),
        });
        self.send("rules.reloaded", app.engine().now(), &data);
    }
}

/// The rules that this node enforces.
fn enforced(app: &App) -> Value {
    let revision = app.rule_store().map(|store| store.status().enforced());
    let since = app.health().last_load().succeeded_at;
    let rules = app.engine().snapshot();
    json!({
        "revision": revision.filter(|number| *number > 0),
        "hash": format!("{:016x}", rules.rules().digest()),
        "rules": rules.rules().rules().len(),
        "since": since.map(|at| rfc3339(at).to_string()),
    })
}
