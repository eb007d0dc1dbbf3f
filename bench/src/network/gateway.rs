//! `gateway`: the gateway beside nginx, HAProxy and Envoy, each with a limit per client address.

use std::process::ExitCode;

use serde_json::json;

use super::contestants::{
    self, ENVOY_RLS, Endpoint, GATEWAY, GATEWAY_REDIS, HAPROXY, NGINX, UNLIMITED,
};
use super::load::PacedRate;
use super::programs::Programs;
use super::{Loaded, connections, measure, report, seconds};
use crate::Common;
use crate::bars::{self, Bar, Goal};
use crate::frame::{Report, Results, Row};

const ROUNDS: u32 = 5;
const ROUNDS_QUICK: u32 = 3;
/// Rate of the open loop.
const HALF: f64 = 0.5;

const BARS: [Bar<Results<Loaded>>; 5] = [
    Bar::new("CPU per request, of nginx with limit_req", Goal::AtMost(1.0), "x", |all| {
        all.ratio(OURS, (OURS.0, NGINX), cpu)
    }),
    Bar::new("CPU per request, of HAProxy with a stick table", Goal::AtMost(1.0), "x", |all| {
        all.ratio(OURS, (OURS.0, HAPROXY), cpu)
    }),
    Bar::new("CPU per request, of Envoy alone with a limiter", Goal::AtMost(0.25), "x", |all| {
        all.ratio(OURS, (OURS.0, ENVOY_RLS), proxy_cpu)
    }),
    Bar::new("CPU per request, of Envoy and its limiter", Goal::AtMost(0.25), "x", |all| {
        all.ratio(OURS, (OURS.0, ENVOY_RLS), cpu)
    }),
    Bar::new("CPU per request, of the gateway without a limit", Goal::AtMost(1.05), "x", |all| {
        all.ratio(OURS, (OURS.0, UNLIMITED), cpu)
    }),
];

const OURS: (&str, &str) = (Endpoint::Gateway.name(), GATEWAY);

fn cpu(one: &Loaded) -> f64 {
    one.full.cpu_us
}

/// Without the limiter and the store.
fn proxy_cpu(one: &Loaded) -> f64 {
    one.full.cpu_us * (1.0 - one.full.store_share.unwrap_or(0.0))
}

/// Runs the benchmark, or what `--only` names beside it.
pub(crate) fn command(common: &Common) -> anyhow::Result<ExitCode> {
    crate::print(common, run(common)?)
}

pub(crate) fn run(common: &Common) -> anyhow::Result<Report> {
    let programs = Programs::find(common)?;
    let is_memory = common.only.iter().any(|text| text == connections::NAME);
    let mut whole = Report { text: String::new(), json: json!({}), failures: Vec::new() };
    if !is_memory {
        let report = loaded(common, &programs)?;
        whole.text.push_str(&report.text);
        whole.json["load"] = report.json;
        whole.failures.extend(report.failures);
    }
    if is_memory || common.only.is_empty() {
        let results = connections::run(common, &programs)?;
        let count = connections::connections(common);
        let heading = match is_memory {
            true => format!("{}\n", results.heading("")),
            false => "\n".to_owned(),
        };
        let table = connections::table(&results);
        let text = format!("{heading}**Memory of {count} connections**\n\n{table}");
        let report = results.report(text, json!({ "connections": count }), &[]);
        whole.text.push_str(&report.text);
        whole.json[connections::NAME] = report.json;
        whole.failures.extend(report.failures);
    }
    Ok(whole)
}

fn loaded(common: &Common, programs: &Programs) -> anyhow::Result<Report> {
    let rounds = if common.quick { ROUNDS_QUICK } else { ROUNDS };
    let rate = Some(PacedRate::Share(HALF));
    let results = measure(common, programs, contestants::gateway(), rounds, rate)?;
    let outcomes = bars::outcomes(&BARS, &results);
    let mut text = results.heading(&format!(" of {} s", seconds(common)));
    let base = |endpoint| if endpoint == Endpoint::Gateway { NGINX } else { GATEWAY_REDIS };
    let about = |endpoint: Endpoint| endpoint.about().to_owned();
    text.push_str(&report::tables(&results, base, about, |rows, _| shares(rows)));
    let list = bars::list(&outcomes);
    if !list.is_empty() {
        text.push_str(&format!("\n{list}"));
    }
    Ok(results.report(text, json!({ "seconds": seconds(common) }), &outcomes))
}

/// CPU time of a proxy without its limiter and store.
fn shares(rows: &[&Row<Loaded>]) -> String {
    let has_limiter =
        |row: &&&Row<Loaded>| row.readings().any(|one| one.full.store_share.is_some());
    let line = |row: &&Row<Loaded>| {
        format!("- {}: {} µs of it are the proxy's\n", row.name, row.shown(2, proxy_cpu))
    };
    let lines: String = rows.iter().filter(has_limiter).map(line).collect();
    if lines.is_empty() { lines } else { format!("\n{lines}") }
}
