//! Leases of this node, those of hot keys of strict rules among them.

use serde_json::{Value, json};
use sluicegate::Engine;
use sluicegate::rules::set::{RuleSet, write_readable};
use sluicegate_redis::{LeaseInfo, RedisBackend};

use crate::app::App;

/// How many are listed: the busiest. Their number is in the metrics.
const LISTED_MAX: usize = 100;

/// All leases; none on a memory backend.
pub(super) fn page(app: &App) -> String {
    let leases = app.redis().map_or_else(|| json!({ "node": null, "leases": [] }), leases);
    format!("{leases:#}\n")
}

fn leases(engine: &Engine<RedisBackend>) -> Value {
    let rules = engine.snapshot();
    let leases = engine.backend().leases(LISTED_MAX);
    let leases: Vec<Value> = leases.iter().map(|lease| one(lease, rules.rules())).collect();
    json!({ "node": format!("{:016x}", engine.backend().store().node()), "leases": leases })
}

fn one(lease: &LeaseInfo, rules: &RuleSet) -> Value {
    let mut key = Vec::new();
    write_readable(&lease.identity, &mut key);
    // The number is that of the rules at its last request; there may be fewer now.
    let known = lease.rule.index() < rules.rules().len();
    json!({
        "key": String::from_utf8_lossy(&key),
        "rule": known.then(|| rules.id(lease.rule)),
        "hot": lease.is_hot,
        "unspent": lease.unspent,
        "per_second": lease.per_second,
        "lasts_ms": lease.ttl.as_micros() / 1_000,
    })
}
