//! Reads a scenario: the document, its nodes and its store.

use super::event::event;
use super::inline::rules;
use super::network::{millis, network};
use super::traffic::stream;
use super::{
    ActionConfig, DURATION_MAX_MS, EventConfig, NODES_MAX, NetworkConfig, NodeConfig, REQUESTS_MAX,
    SHARDS_MAX, ScenarioConfig, StoreConfig, StreamConfig,
};
use crate::fields::{self, Field, Fields, Value, unknown};
use crate::problem::{Problems, Report, Reported, quoted};
use crate::units::{self, UnitError};

const NAME: Field<String> =
    Field { name: "name", example: "store outage", read: |text| Ok(text.into()) };
const SEED: Field<u64> = Field { name: "seed", example: "1", read: units::whole };
const DURATION: Field<u64> = Field { name: "duration", example: "30s", read: millis };
const TIMEOUT: Field<u64> = Field { name: "timeout", example: "100ms", read: millis };
const SHARDS: Field<u64> = Field { name: "shards", example: "3", read: units::whole };
const BREAKER: Field<bool> = Field { name: "circuit_breaker", example: "true", read: units::truth };
const OFFSET: Field<i64> =
    Field { name: "clock_offset", example: "50ms", read: super::network::signed_millis };
const DRIFT: Field<i64> = Field { name: "clock_drift", example: "20ppm", read: ppm };

const KEYS: [&str; 9] =
    ["name", "seed", "duration", "nodes", "store", "network", "rules", "traffic", "events"];
const EXAMPLE: &str = "duration: 30s";
const QUANTILES: [(&str, u64); 5] =
    [("p50", 500), ("p90", 900), ("p99", 990), ("p999", 999), ("max", 1_000)];

/// Reads a scenario.
pub(super) fn read(source_name: &str, text: &str) -> Result<ScenarioConfig, Problems> {
    let mut report = Report::new(source_name);
    let read = fields::document(text, EXAMPLE, &mut report)
        .and_then(|root| document(text, &Value::root(&root), &mut report));
    report.finish(read)
}

fn document(
    text: &str,
    root: &Value<'_, '_>,
    report: &mut Report,
) -> Result<ScenarioConfig, Reported> {
    let mut fields = root.fields("a scenario", EXAMPLE, report)?;
    let (name, seed) = (fields.optional(&NAME, report), fields.optional(&SEED, report));
    let duration = duration(&mut fields, report);
    let duration_ms = duration.unwrap_or(DURATION_MAX_MS);
    let nodes = match fields.filled("nodes", "3", report)? {
        Some(value) => nodes(&value, report),
        None => Ok(vec![NodeConfig::default()]),
    };
    let store = match fields.filled("store", "{ timeout: 100ms }", report)? {
        Some(value) => store(&value, report),
        None => Ok(StoreConfig::default()),
    };
    let network = match fields.filled("network", "{ delay: 1ms }", report)? {
        Some(value) => network(&value, report),
        None => Ok(NetworkConfig { delay_ms: 1, ..NetworkConfig::default() }),
    };
    let rules = match fields.filled("rules", "rules.yaml", report)? {
        Some(value) => rules(text, &value, report),
        None => {
            let remedy = "name a rules file, like `rules: rules.yaml`, or write the rules below it";
            Err(fields.missing("rules", remedy, report))
        }
    };
    let traffic =
        match fields.filled("traffic", "[{ request: { user: ada }, rate: 9/s }]", report)? {
            Some(value) => traffic(&value, duration_ms, report),
            None => {
                let remedy = "add it, like `traffic: [{ request: { tenant: acme }, rate: 300/s }]`";
                Err(fields.missing("traffic", remedy, report))
            }
        };
    let events = match fields.filled("events", "[{ at: 5s, store: down }]", report)? {
        Some(value) => value.items().map(|item| event(text, &item, report)).collect(),
        None => Ok(Vec::<EventConfig>::new()),
    };
    fields.finish(report, |key| unknown(key, &KEYS))?;
    let scenario = ScenarioConfig {
        name: name?,
        seed: seed?,
        duration_ms: duration?,
        nodes: nodes?,
        store: store?,
        network: network?,
        rules: rules?,
        traffic: traffic?,
        events: events?,
    };
    check_numbers(root, &scenario, report)?;
    Ok(scenario)
}

fn duration(fields: &mut Fields<'_>, report: &mut Report) -> Result<u64, Reported> {
    match fields.required(&DURATION, report)? {
        0 => {
            let message = "must be longer than nothing, got `0s`; write it like `30s`";
            Err(fields.refuse("duration", report, message.to_owned()))
        }
        ms => Ok(ms),
    }
}

fn nodes(value: &Value<'_, '_>, report: &mut Report) -> Result<Vec<NodeConfig>, Reported> {
    let nodes = if value.is_list() {
        value.items().map(|item| node(&item, report)).collect::<Result<Vec<_>, _>>()?
    } else {
        let count = value.read("3", units::whole, report)?;
        vec![NodeConfig::default(); usize::try_from(count.min(NODES_MAX + 1)).unwrap_or(0)]
    };
    if nodes.is_empty() || nodes.len() as u64 > NODES_MAX {
        let got = value.node.described();
        let message = format!("must be between 1 and {NODES_MAX} nodes, got {got}; write `3`");
        return Err(value.refuse(report, message));
    }
    Ok(nodes)
}

fn node(value: &Value<'_, '_>, report: &mut Report) -> Result<NodeConfig, Reported> {
    let mut fields = value.fields("a node", "{ clock_offset: 50ms }", report)?;
    let offset = fields.optional(&OFFSET, report);
    let drift = fields.optional(&DRIFT, report);
    let network = match fields.filled("network", "{ delay: 40ms }", report)? {
        Some(value) => network(&value, report).map(Some),
        None => Ok(None),
    };
    fields.finish(report, |key| unknown(key, &["clock_offset", "clock_drift", "network"]))?;
    Ok(NodeConfig {
        clock_offset_ms: offset?.unwrap_or(0),
        clock_drift_ppm: drift?.unwrap_or(0),
        network: network?,
    })
}

fn store(value: &Value<'_, '_>, report: &mut Report) -> Result<StoreConfig, Reported> {
    let mut fields = value.fields("the store", "{ timeout: 100ms }", report)?;
    let timeout = fields.optional(&TIMEOUT, report);
    let shards = fields.optional(&SHARDS, report);
    let breaker = fields.optional(&BREAKER, report);
    let latency = match fields.filled("latency", "{ p50: 1ms, p99: 20ms }", report)? {
        Some(value) => latency(&value, report),
        None => Ok(Vec::new()),
    };
    let timeout_ms = timeout?.unwrap_or(100);
    if timeout_ms == 0 {
        let message = "must be longer than nothing, got `0s`; write it like `100ms`".to_owned();
        fields.refuse("timeout", report, message);
    }
    let shards = shards?.unwrap_or(1);
    if !(1..=SHARDS_MAX).contains(&shards) {
        let message = format!("must be between 1 and {SHARDS_MAX}, got `{shards}`; write `3`");
        fields.refuse("shards", report, message);
    }
    let known = ["timeout", "shards", "circuit_breaker", "latency"];
    fields.finish(report, |key| unknown(key, &known))?;
    Ok(StoreConfig {
        timeout_ms,
        latency: latency?,
        shards,
        circuit_breaker: breaker?.unwrap_or(true),
    })
}

/// Quantiles in thousandths, ascending.
fn latency(value: &Value<'_, '_>, report: &mut Report) -> Result<Vec<(u64, u64)>, Reported> {
    let mut fields = value.fields("a latency", "{ p50: 1ms, p99: 20ms }", report)?;
    let mut quantiles: Vec<(u64, u64)> = Vec::new();
    for (name, thousandths) in QUANTILES {
        let field = Field { name, example: "20ms", read: millis };
        let Some(ms) = fields.optional(&field, report)? else { continue };
        if quantiles.last().is_some_and(|(_, before)| *before > ms) {
            let message = format!("must not be below the quantile before it, got `{ms}ms`");
            return Err(fields.refuse(name, report, message));
        }
        quantiles.push((thousandths, ms));
    }
    fields.finish(report, |key| unknown(key, &QUANTILES.map(|(name, _)| name)))?;
    Ok(quantiles)
}

fn traffic(
    value: &Value<'_, '_>,
    duration_ms: u64,
    report: &mut Report,
) -> Result<Vec<StreamConfig>, Reported> {
    if !value.is_list() {
        let got = value.node.described();
        let message = format!(
            "must be a list of streams, got {got}; write it like \
             `[{{ request: {{ tenant: acme }}, rate: 300/s }}]`"
        );
        return Err(value.refuse(report, message));
    }
    let streams = value.items().map(|item| stream(&item, duration_ms, report));
    let streams = streams.collect::<Result<Vec<_>, _>>()?;
    let requests = |stream: &StreamConfig| {
        let (from, to) = stream.span_ms;
        u128::from(stream.rate_milli) * u128::from(to - from) / 1_000_000
    };
    let total: u128 = streams.iter().map(requests).sum();
    if total > u128::from(REQUESTS_MAX) {
        let message = format!(
            "must be at most {REQUESTS_MAX} requests, got `{total}`; lower a rate or the duration, \
             or use `simulate plan`"
        );
        return Err(value.refuse(report, message));
    }
    Ok(streams)
}

/// Numbers of nodes and primaries must exist.
fn check_numbers(
    root: &Value<'_, '_>,
    scenario: &ScenarioConfig,
    report: &mut Report,
) -> Result<(), Reported> {
    let joined = scenario.events.iter().map(|event| match event.action {
        ActionConfig::AddNodes(count) => count,
        _ => 0,
    });
    let nodes = scenario.nodes.len() as u64 + joined.fold(0, u64::saturating_add);
    if nodes > NODES_MAX {
        let message = format!("there may be at most {NODES_MAX} nodes, got `{nodes}`; add fewer");
        return Err(root.refuse(report, message));
    }
    let named = scenario.events.iter().flat_map(|event| match &event.action {
        ActionConfig::Partition(nodes) | ActionConfig::Heal(nodes) => nodes.clone(),
        ActionConfig::Crash(node)
        | ActionConfig::Stop(node)
        | ActionConfig::Start(node)
        | ActionConfig::Clock(node, _)
        | ActionConfig::Network(Some(node), _) => vec![*node],
        _ => Vec::new(),
    });
    let named = named.chain(scenario.traffic.iter().flat_map(|stream| stream.nodes.clone()));
    if let Some(node) = named.into_iter().find(|node| *node >= nodes) {
        let message =
            format!("there is no node `{node}`: the nodes are numbered from 0 to {}", nodes - 1);
        return Err(root.refuse(report, message));
    }
    let shards = scenario.events.iter().filter_map(|event| match event.action {
        ActionConfig::StoreDown(shard) => shard,
        _ => None,
    });
    if let Some(shard) = shards.into_iter().find(|shard| *shard >= scenario.store.shards) {
        let last = scenario.store.shards - 1;
        let message =
            format!("there is no primary `{shard}`: `shards` are numbered from 0 to {last}");
        return Err(root.refuse(report, message));
    }
    Ok(())
}

/// A drift in parts per million, which may be negative.
fn ppm(text: &str) -> Result<i64, UnitError> {
    let wrong = || {
        let got = quoted(text);
        UnitError::new(format!(
            "must be a drift up to 10_000ppm, got {got}; write it like `20ppm` or `-20ppm`"
        ))
    };
    let number = text.trim().strip_suffix("ppm").ok_or_else(wrong)?.trim_end();
    let (number, sign) = match number.strip_prefix('-') {
        Some(rest) => (rest, -1),
        None => (number, 1),
    };
    let ppm = units::whole(number).ok().and_then(|ppm| i64::try_from(ppm).ok());
    ppm.filter(|ppm| *ppm <= 10_000).map(|ppm| sign * ppm).ok_or_else(wrong)
}
