//! The capacity model is as accurate as its guide says.
#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

use sluicegate_sim::capacity::{Fleet, FleetLevel, validate};

/// Below this many calls per second the error has no meaning: leases that grow, heartbeats.
const FEW_CALLS: f64 = 50.0;
/// Stated error of calls, in percent.
const CALLS_ERROR: f64 = 45.0;

#[test]
fn the_model_is_near_the_simulator() {
    for row in validate().unwrap() {
        let error = row.error_percent();
        assert!(row.calls.1 < FEW_CALLS || error.abs() <= CALLS_ERROR, "{error} %: {row:?}");
        let bound = row.fleet.estimate(row.level).over_bound;
        assert!(row.over.1 <= bound, "{row:?}");
        // The largest of several windows and identities is above the mean.
        assert!(row.over.0 <= row.over.1 * 1.5 && row.over.1 <= row.over.0 * 2.5, "{row:?}");
    }
}

#[test]
fn more_nodes_than_hold_leases_call_the_store() {
    let calls = |nodes: f64| {
        let fleet =
            Fleet { nodes, rate: 10_000.0, identities: 1.0, limit: 1e6, ..Fleet::default() };
        fleet.estimate(FleetLevel::Leased).calls
    };
    assert!(calls(64.0) < 200.0, "{}", calls(64.0));
    assert!(calls(640.0) > 8_000.0, "{}", calls(640.0));
}
