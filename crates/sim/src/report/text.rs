//! Results as text and as JSON.

use crate::figures::{Figures, Origins, RuleFigures};
use crate::spread::{RunFigures, Sweep};
use crate::{Fault, Outcome};
use serde_json::{Value, json};

/// Clients that are shown, those that waited longest first.
const CLIENTS_SHOWN: usize = 10;

/// Describes a run.
#[must_use]
pub fn run_text(outcome: &Outcome, figures: &Figures) -> String {
    let Outcome { scenario, history, violations } = outcome;
    let mut text = format!(
        "{}: {} s, {} nodes, seed {}\n\n",
        scenario.name,
        scenario.length_ms as f64 / 1e3,
        scenario.clocks.len(),
        scenario.seed
    );
    let Figures { requests, allowed, calls, latency_ms: (p50, p99, max), .. } = figures;
    text += &format!(
        "requests     {requests}: {allowed} admitted, {} denied; {} % of what one node admits\n",
        requests - allowed,
        percent(figures.utilization_permille())
    );
    let per_decision = figures.calls_permille() as f64 / 1e3;
    text += &format!("store calls  {calls}, {per_decision:.2} per decision\n");
    text += &format!("answers      median {p50} ms, 99th percentile {p99} ms, at most {max} ms\n");
    text += &format!("decided by   {}\n\n", origins_text(figures.origins));
    text += &rules_table(&figures.rules);
    let mut clients: Vec<_> = figures.clients.iter().collect();
    clients.sort_by_key(|client| std::cmp::Reverse(client.longest_denial_ms));
    text += "\nclient                          admitted   denied  longest denial\n";
    for client in clients.iter().take(CLIENTS_SHOWN) {
        let (name, longest) = (&client.name, format!("{} ms", client.longest_denial_ms));
        text += &format!("{name:30} {:9} {:8} {longest:>15}\n", client.allowed, client.denied);
    }
    if clients.len() > CLIENTS_SHOWN {
        text += &format!("and {} more\n", clients.len() - CLIENTS_SHOWN);
    }
    if !history.faults.is_empty() {
        text += "\nevents\n";
        for (at, fault) in events(outcome) {
            text += &format!("{:8.3} s  {fault}\n", at as f64 / 1e3);
        }
    }
    text.push('\n');
    match violations.as_slice() {
        [] => text += "no bound was violated\n",
        found => found.iter().for_each(|one| text += &format!("violation: {one}\n")),
    }
    text
}

fn rules_table(rules: &[RuleFigures]) -> String {
    let mut text =
        "rule                 level     admitted   possible    above the limit   bound\n"
            .to_owned();
    for rule in rules {
        let bound = rule.bound.map_or_else(|| "none".to_owned(), |bound| bound.to_string());
        let RuleFigures { name, level, admitted, possible, over, .. } = rule;
        text += &format!("{name:20} {level:9} {admitted:8} {possible:10} {over:18} {bound:>7}\n");
    }
    text
}

pub(super) fn origins_text(origins: Origins) -> String {
    let parts: Vec<String> = origin_parts(origins)
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| format!("{name} {count}"))
        .collect();
    parts.join(", ")
}

pub(super) fn origin_parts(origins: Origins) -> [(&'static str, u64); 6] {
    let Origins { store, lease, eventual, cached_denial, local_share, failure_policy } = origins;
    [
        ("store", store),
        ("lease", lease),
        ("exchanged counts", eventual),
        ("remembered denial", cached_denial),
        ("local share", local_share),
        ("failure policy", failure_policy),
    ]
}

/// Events of a run with their times in milliseconds; those of several nodes at once are one.
pub(super) fn events(outcome: &Outcome) -> Vec<(u64, String)> {
    let begin = outcome.history.span_us.0;
    let mut events: Vec<(u64, String, Vec<usize>)> = Vec::new();
    for (at, fault) in &outcome.history.faults {
        let at_ms = at.saturating_sub(begin) / 1_000;
        let (text, node) = describe_fault(fault);
        match events.last_mut() {
            Some((last, known, nodes)) if *known == text && at_ms <= *last + 250 => {
                nodes.extend(node);
            }
            _ => events.push((at_ms, text, node.into_iter().collect())),
        }
    }
    let each = events.into_iter().map(|(at, text, nodes)| {
        let numbers: Vec<String> = nodes.iter().map(ToString::to_string).collect();
        match numbers.len() {
            0 => (at, text),
            1 => (at, format!("node {}: {text}", numbers[0])),
            _ => (at, format!("nodes {}: {text}", numbers.join(", "))),
        }
    });
    each.collect()
}

/// Describes a fault, and names the node that it is about.
#[must_use]
pub fn describe_fault(fault: &Fault) -> (String, Option<usize>) {
    match *fault {
        Fault::Conditions(_) => ("the network changes".to_owned(), None),
        Fault::Link(node, Some(_)) => ("its network changes".to_owned(), Some(node)),
        Fault::Link(node, None) => ("its network is as that of the others".to_owned(), Some(node)),
        Fault::Cut(node) => ("partitioned from the store".to_owned(), Some(node)),
        Fault::Heal(node) => ("the partition ends".to_owned(), Some(node)),
        Fault::Stall(ms) => (format!("the store stalls for {ms} ms"), None),
        Fault::FailOver(ms) => {
            (format!("the primary is lost; its replica lacks {ms} ms of writes"), None)
        }
        Fault::LoseAll => ("the store is lost with all data".to_owned(), None),
        Fault::Down(None) => ("the store is unreachable".to_owned(), None),
        Fault::Down(Some(shard)) => (format!("primary {shard} is unreachable"), None),
        Fault::Back => ("the store is reachable".to_owned(), None),
        Fault::Reconnect(node) => ("connects to the new primary".to_owned(), Some(node)),
        Fault::Crash(node) => ("crashes".to_owned(), Some(node)),
        Fault::Stop(node) => ("shuts down".to_owned(), Some(node)),
        Fault::Start(node) => ("starts".to_owned(), Some(node)),
        Fault::Step(node, ms) => (format!("its clock is stepped by {ms} ms"), Some(node)),
        Fault::StoreStep(ms) => (format!("the clock of the store is stepped by {ms} ms"), None),
        Fault::Reload(node, _) => ("loads new rules".to_owned(), Some(node)),
    }
}

/// A run as JSON.
#[must_use]
pub fn run_json(outcome: &Outcome, figures: &Figures) -> Value {
    let Outcome { scenario, violations, .. } = outcome;
    let violations: Vec<String> = violations.iter().map(ToString::to_string).collect();
    let events = events(outcome).into_iter();
    let events: Vec<Value> =
        events.map(|(at_ms, what)| json!({ "at_ms": at_ms, "event": what })).collect();
    let mut value = figures_json(figures);
    value["name"] = json!(scenario.name);
    value["seed"] = json!(scenario.seed);
    value["nodes"] = json!(scenario.clocks.len());
    value["duration_ms"] = json!(scenario.length_ms);
    value["violations"] = json!(violations);
    value["events"] = json!(events);
    value
}

/// Several runs as JSON.
#[must_use]
pub fn runs_json(name: &str, sweep: Option<&Sweep>, runs: &[RunFigures]) -> Value {
    let each = runs.iter().map(|run| {
        let mut value = figures_json(&run.figures);
        value["seed"] = json!(run.seed);
        if sweep.is_some() {
            value["value"] = json!(run.value);
        }
        value["violations"] = json!(run.violations);
        value
    });
    let runs: Vec<Value> = each.collect();
    json!({ "name": name, "sweep": sweep.map(ToString::to_string), "runs": runs })
}

fn figures_json(figures: &Figures) -> Value {
    let rules = figures.rules.iter().map(|rule| {
        json!({
            "name": rule.name, "level": rule.level, "admitted": rule.admitted,
            "denied": rule.denied, "possible": rule.possible, "over": rule.over,
            "bound": rule.bound,
        })
    });
    let clients = figures.clients.iter().map(|client| {
        json!({
            "name": client.name, "allowed": client.allowed, "denied": client.denied,
            "longest_denial_ms": client.longest_denial_ms,
        })
    });
    let nodes = figures
        .nodes
        .iter()
        .map(|(allowed, denied)| json!({ "allowed": allowed, "denied": denied }));
    let timeline = figures.timeline.iter().map(|interval| {
        json!({
            "at_ms": interval.at_ms, "allowed": interval.allowed, "denied": interval.denied,
            "possible": interval.possible,
        })
    });
    let Origins { store, lease, eventual, cached_denial, local_share, failure_policy } =
        figures.origins;
    let (p50, p99, max) = figures.latency_ms;
    json!({
        "requests": figures.requests,
        "allowed": figures.allowed,
        "utilization": figures.utilization_permille() as f64 / 1e3,
        "store_calls": figures.calls,
        "latency_ms": { "p50": p50, "p99": p99, "max": max },
        "decided_by": {
            "store": store, "lease": lease, "eventual": eventual,
            "cached_denial": cached_denial, "local_share": local_share,
            "failure_policy": failure_policy,
        },
        "rules": rules.collect::<Vec<_>>(),
        "clients": clients.collect::<Vec<_>>(),
        "node_decisions": nodes.collect::<Vec<_>>(),
        "timeline": timeline.collect::<Vec<_>>(),
    })
}

/// The spread over seeds, and the command that repeats the worst one.
#[must_use]
pub fn seeds_text(name: &str, runs: &[RunFigures], repeat: impl Fn(u64) -> String) -> String {
    let mut text = format!("{name}: {} seeds\n\n", runs.len());
    text += "                          least   median     most\n";
    for (label, of) in spread_rows() {
        let [least, median, most] = spread(runs, of);
        text += &format!("{label:22} {least:8} {median:8} {most:8}\n");
    }
    let violations: usize = runs.iter().filter(|run| !run.violations.is_empty()).count();
    text += &format!("\n{violations} seeds with violations\n");
    if let Some(worst) = worst(runs) {
        text += &format!("worst seed: {}\n  {}\n", worst.seed, repeat(worst.seed));
        worst.violations.iter().for_each(|one| text += &format!("  violation: {one}\n"));
    }
    text
}

pub(super) type SpreadRow = (&'static str, fn(&Figures) -> f64);

pub(super) fn spread_rows() -> [SpreadRow; 4] {
    [
        ("above the limit, %", |figures| figures.over_permille() as f64 / 10.0),
        ("of the possible, %", |figures| figures.utilization_permille() as f64 / 10.0),
        ("calls per decision", |figures| figures.calls_permille() as f64 / 1e3),
        ("slowest answer, ms", |figures| figures.latency_ms.2 as f64),
    ]
}

pub(super) fn spread(runs: &[RunFigures], of: fn(&Figures) -> f64) -> [f64; 3] {
    let mut values: Vec<f64> = runs.iter().map(|run| of(&run.figures)).collect();
    values.sort_by(f64::total_cmp);
    let at = |index: usize| values.get(index).copied().unwrap_or(0.0);
    [at(0), at(values.len() / 2), at(values.len().saturating_sub(1))]
}

/// The run with most violations, or with most above a limit, or with the least use.
#[must_use]
pub fn worst(runs: &[RunFigures]) -> Option<&RunFigures> {
    runs.iter().max_by_key(|run| {
        let unused = std::cmp::Reverse(run.figures.utilization_permille());
        (run.violations.len(), run.figures.over_permille(), unused)
    })
}

/// A sweep.
#[must_use]
pub fn sweep_text(name: &str, sweep: &Sweep, runs: &[RunFigures]) -> String {
    let (variable, unit) = sweep.variable.name();
    let mut text = format!("{name}: {sweep}\n\n");
    text +=
        &format!("{variable:14} above the limit   bound   of the possible   calls per decision\n");
    for run in runs {
        let figures = &run.figures;
        let over = figures.rules.iter().map(|rule| rule.over).max().unwrap_or(0);
        let bounds: Option<Vec<u64>> = figures.rules.iter().map(|rule| rule.bound).collect();
        let bound = bounds.and_then(|bounds| bounds.into_iter().max());
        let bound = bound.map_or_else(|| "none".to_owned(), |bound| bound.to_string());
        let used = format!("{} %", percent(figures.utilization_permille()));
        let calls = figures.calls_permille() as f64 / 1e3;
        let value = format!("{}{unit}", run.value);
        text += &format!("{value:14} {over:15} {bound:>7} {used:>17} {calls:20.2}\n");
    }
    let wrong = runs.iter().flat_map(|run| &run.violations);
    wrong.for_each(|one| text += &format!("violation: {one}\n"));
    text
}

pub(super) fn percent(permille: u64) -> String {
    format!("{:.1}", permille as f64 / 10.0)
}
