//! `sluicegate simulate plan`: what a fleet needs of its store, from a model.

use std::fmt::Write as _;
use std::process::ExitCode;

use serde_json::json;
use sluicegate_sim::capacity::{Estimate, Fleet, FleetLevel, Validation, validate};

use crate::simulate::print;

/// Arguments of `simulate plan`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    sluicegate simulate plan --nodes 20 --rate 50000 --keys 2000 --limit 100\n  \
    sluicegate simulate plan --nodes 10000 --rate 10000000 --keys 1000000 --limit 100\n  \
    sluicegate simulate plan --validate        the model beside simulated fleets\n\n\
    The cost of a decision in Redis is in the guide on Redis; measure yours with\n\
    `sluicegate bench` and `INFO cpu`.")]
pub(crate) struct PlanArgs {
    /// Nodes of the fleet
    #[arg(long, default_value = "3", value_parser = positive)]
    nodes: f64,
    /// Requests per second of the whole fleet
    #[arg(long, default_value = "1000", value_parser = positive)]
    rate: f64,
    /// Identities (keys) with about the same traffic
    #[arg(long, default_value = "1000", value_parser = positive)]
    keys: f64,
    /// Limit of an identity per second
    #[arg(long, default_value = "100", value_parser = positive)]
    limit: f64,
    /// Sync interval of eventual rules, in milliseconds
    #[arg(long, value_name = "MS", default_value = "100", value_parser = positive)]
    sync_interval: f64,
    /// Round trip to Redis, in milliseconds
    #[arg(long, value_name = "MS", default_value = "1", value_parser = positive)]
    round_trip: f64,
    /// CPU time of Redis for the decision on one identity, in microseconds
    #[arg(long, value_name = "US", default_value = "13", value_parser = positive)]
    decision_cost: f64,
    /// CPU time of Redis for the exchange of the counts of one identity, in microseconds
    #[arg(long, value_name = "US", default_value = "13", value_parser = positive)]
    exchange_cost: f64,
    /// Compare the model with simulated fleets
    #[arg(long)]
    validate: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The largest value of a flag.
const LARGEST: f64 = 1e12;

/// Runs `simulate plan`.
pub(crate) fn run(args: &PlanArgs) -> anyhow::Result<ExitCode> {
    if args.validate {
        let rows = validate()?;
        print(&if args.json { validation_json(&rows) } else { validation_text(&rows) })?;
        return Ok(ExitCode::SUCCESS);
    }
    let fleet = Fleet {
        nodes: args.nodes,
        rate: args.rate,
        identities: args.keys,
        limit: args.limit,
        sync: args.sync_interval / 1e3,
        round_trip: args.round_trip / 1e3,
        decision_us: args.decision_cost,
        exchange_us: args.exchange_cost,
    };
    let estimates = FleetLevel::ALL.map(|level| fleet.estimate(level));
    print(&if args.json {
        estimates_json(&estimates)
    } else {
        estimates_text(&fleet, &estimates)
    })?;
    Ok(ExitCode::SUCCESS)
}

fn estimates_text(fleet: &Fleet, estimates: &[Estimate]) -> String {
    let mut text = format!(
        "{} nodes, {} requests/s of {} keys, {}/s each\n\n",
        fleet.nodes, fleet.rate, fleet.identities, fleet.limit
    );
    text += "level     store calls/s   keys/s in calls   Redis cores   \
             above the limit   at most   unused lease\n";
    for one in estimates {
        let Estimate { level, calls, operations, cores, over, over_bound, short } = one;
        let level = level.name();
        let _ = writeln!(
            text,
            "{level:9} {calls:13.0} {operations:17.0} {cores:13.2} {over:17.1} {over_bound:9.1} \
             {short:14.1}"
        );
    }
    text += "\nAbove the limit and unused leases are hits of one key, within a second.\n";
    text
}

fn estimates_json(estimates: &[Estimate]) -> String {
    let each = estimates.iter().map(|one| {
        json!({
            "level": one.level.name(), "store_calls_per_second": one.calls,
            "store_keys_per_second": one.operations, "store_cores": one.cores, "over": one.over,
            "over_bound": one.over_bound, "unused_lease": one.short,
        })
    });
    format!("{}\n", json!({ "levels": each.collect::<Vec<_>>() }))
}

fn validation_text(rows: &[Validation]) -> String {
    let mut text = "level     nodes   keys   requests/s   limit/s   calls/s: model   simulated   \
                    error   above the limit: model   simulated\n"
        .to_owned();
    for row in rows {
        let (fleet, level) = (&row.fleet, row.level.name());
        let _ = writeln!(
            text,
            "{level:9} {:5} {:6} {:12} {:9} {:16.0} {:11.0} {:+6.0} % {:24.0} {:11.0}",
            fleet.nodes,
            fleet.identities,
            fleet.rate,
            fleet.limit,
            row.calls.0,
            row.calls.1,
            row.error_percent(),
            row.over.0,
            row.over.1
        );
    }
    text
}

fn validation_json(rows: &[Validation]) -> String {
    let each = rows.iter().map(|row| {
        json!({
            "level": row.level.name(), "nodes": row.fleet.nodes, "keys": row.fleet.identities,
            "rate": row.fleet.rate, "limit": row.fleet.limit,
            "calls": { "model": row.calls.0, "simulated": row.calls.1 },
            "over": { "model": row.over.0, "simulated": row.over.1 },
        })
    });
    format!("{}\n", json!({ "rows": each.collect::<Vec<_>>() }))
}

fn positive(text: &str) -> Result<f64, String> {
    let number = text.replace('_', "").parse::<f64>().ok();
    number.filter(|number| (1e-6..=LARGEST).contains(number)).ok_or_else(|| {
        format!("must be a number above 0 and up to {LARGEST}, got `{text}`; write it like `1000`")
    })
}
