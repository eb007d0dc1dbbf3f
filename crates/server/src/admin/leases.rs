//! What this node holds of limits that it shares: leases, and the keys of strict rules that are hot.

use serde_json::{Value, json};
use sluicegate::rules::set::{RuleSet, write_readable};
use sluicegate_redis::Leased;

use crate::counters::SharedEngine;

use crate::app::App;
use crate::counters::Counters;

/// How many are told of: the busiest. How many there are is in the metrics.
const TOLD_MAX: usize = 100;

/// All of it; nothing where no counters are shared.
pub(super) fn page(app: &App) -> String {
    let told = match app.counters() {
        Counters::Own(_) => json!({ "node": null, "leases": [] }),
        Counters::Shared(shared) => told(shared),
    };
    format!("{told:#}\n")
}

fn told(shared: &SharedEngine) -> Value {
    let rules = shared.snapshot();
    let leases = shared.backend().leases(TOLD_MAX);
    let leases: Vec<Value> = leases.iter().map(|lease| one(lease, rules.rules())).collect();
    json!({ "node": format!("{:016x}", shared.backend().store().node()), "leases": leases })
}

fn one(lease: &Leased, rules: &RuleSet) -> Value {
    let mut key = Vec::new();
    write_readable(&lease.identity, &mut key);
    // Its number is that of the rules by which it was asked for last; there may be fewer now.
    let known = lease.rule.index() < rules.rules().len();
    json!({
        "key": String::from_utf8_lossy(&key),
        "rule": known.then(|| rules.id(lease.rule)),
        "hot": lease.is_hot,
        "unspent": lease.unspent,
        "per_second": lease.per_second,
        "lasts_ms": lease.lasts.as_micros() / 1_000,
    })
}
