//! Streams of requests.

use super::network::{millis, rate_milli, share};
use super::{CLIENTS_MAX, PatternConfig, StreamConfig};
use crate::fields::{Field, Value, unknown};
use crate::problem::{Report, Reported, quoted};
use crate::units;
use crate::yaml::Content;

const NAME: Field<String> = Field { name: "name", example: "shop", read: |text| Ok(text.into()) };
const DOMAIN: Field<String> =
    Field { name: "domain", example: "shop", read: |text| Ok(text.into()) };
const RATE: Field<u64> = Field { name: "rate", example: "300/s", read: rate_milli };
const CLIENTS: Field<u64> = Field { name: "clients", example: "100", read: units::whole };
const COST: Field<u64> = Field { name: "cost", example: "1", read: units::whole };
const FROM: Field<u64> = Field { name: "from", example: "5s", read: millis };
const TO: Field<u64> = Field { name: "to", example: "10s", read: millis };
const REFUND: Field<u64> = Field { name: "refund", example: "5%", read: share };
const RESERVE: Field<bool> = Field { name: "reserve", example: "true", read: units::truth };
const EVERY: Field<u64> = Field { name: "bursts_every", example: "1s", read: millis };
const ON: Field<u64> = Field { name: "on", example: "2s", read: millis };
const OFF: Field<u64> = Field { name: "off", example: "3s", read: millis };

const KEYS: [&str; 14] = [
    "name",
    "domain",
    "request",
    "requests",
    "rate",
    "clients",
    "nodes",
    "cost",
    "from",
    "to",
    "refund",
    "reserve",
    "bursts_every",
    "phases",
];
const EXAMPLE: &str = "{ request: { tenant: acme }, rate: 300/s }";
const COST_MAX: u64 = 1_000_000;

/// Reads a stream.
pub(super) fn stream(
    value: &Value<'_, '_>,
    duration_ms: u64,
    report: &mut Report,
) -> Result<StreamConfig, Reported> {
    let mut fields = value.fields("a stream of traffic", EXAMPLE, report)?;
    let name = fields.optional(&NAME, report);
    let domain = fields.optional(&DOMAIN, report);
    let rate = fields.required(&RATE, report);
    let clients = fields.optional(&CLIENTS, report);
    let cost = fields.optional(&COST, report);
    let (from, to) = (fields.optional(&FROM, report), fields.optional(&TO, report));
    let refunds = fields.optional(&REFUND, report);
    let is_reserved = fields.optional(&RESERVE, report);
    let every = fields.optional(&EVERY, report);
    let nodes = match fields.filled("nodes", "[0, 1]", report)? {
        Some(value) => node_list(&value, report),
        None => Ok(Vec::new()),
    };
    let phases = match fields.filled("phases", "{ on: 2s, off: 3s }", report)? {
        Some(value) => phases(&value, report).map(Some),
        None => Ok(None),
    };
    let (one, several) = (fields.value("request"), fields.value("requests"));
    let descriptors = match (&one, &several) {
        (Some(one), None) => entries(one, report).map(|entries| vec![entries]),
        (None, Some(several)) => several.items().map(|item| entries(&item, report)).collect(),
        _ => {
            let remedy = "write one of `request: { tenant: acme }` and, for several descriptors, \
                          `requests: [{ tenant: acme }, { user: ada }]`";
            Err(fields.missing("request", remedy, report))
        }
    };
    let at = one.or(several).map_or(value.at(), |value| value.at());
    let clients = clients?.unwrap_or(1);
    if !(1..=CLIENTS_MAX).contains(&clients) {
        let message = format!("must be between 1 and {CLIENTS_MAX}, got `{clients}`; write `100`");
        fields.refuse("clients", report, message);
    }
    let cost = cost?.unwrap_or(1);
    if cost > COST_MAX {
        fields.refuse("cost", report, format!("must be at most {COST_MAX}, got `{cost}`"));
    }
    let span_ms = (from?.unwrap_or(0), to?.unwrap_or(duration_ms).min(duration_ms));
    if span_ms.0 >= span_ms.1 {
        let (from, to) = span_ms;
        let message = format!("must be before its end, got `{from}ms` of `{to}ms`; begin earlier");
        fields.refuse("from", report, message);
    }
    let pattern = match (every?, phases?) {
        (None, None) => PatternConfig::Steady,
        (Some(0), _) => {
            let message = "must be longer than nothing, got `0s`; write at least `1ms`".to_owned();
            return Err(fields.refuse("bursts_every", report, message));
        }
        (Some(every_ms), None) => PatternConfig::Bursts { every_ms },
        (None, Some((on_ms, off_ms))) => PatternConfig::Phases { on_ms, off_ms },
        (Some(_), Some(_)) => {
            let message = "cannot be given with `phases`; remove one of them".to_owned();
            return Err(fields.refuse("bursts_every", report, message));
        }
    };
    fields.finish(report, |key| unknown(key, &KEYS))?;
    Ok(StreamConfig {
        name: name?,
        domain: domain?,
        descriptors: descriptors?,
        at,
        rate_milli: rate?,
        pattern,
        clients,
        nodes: nodes?,
        cost,
        span_ms,
        refunds: refunds?.unwrap_or(0),
        is_reserved: is_reserved?.unwrap_or(false),
    })
}

/// Reads a list of nodes, or one; `all` is the empty list.
pub(super) fn node_list(value: &Value<'_, '_>, report: &mut Report) -> Result<Vec<u64>, Reported> {
    if value.is_list() {
        return value.items().map(|item| item.read("0", units::whole, report)).collect();
    }
    match value.text("all", report)? {
        "all" => Ok(Vec::new()),
        _ => Ok(vec![value.read("0", units::whole, report)?]),
    }
}

fn phases(value: &Value<'_, '_>, report: &mut Report) -> Result<(u64, u64), Reported> {
    let mut fields = value.fields("phases", "{ on: 2s, off: 3s }", report)?;
    let (on, off) = (fields.required(&ON, report), fields.required(&OFF, report));
    fields.finish(report, |key| unknown(key, &["on", "off"]))?;
    let (on, off) = (on?, off?);
    if on == 0 {
        let message = "must have time on, got `on: 0s`; write at least `1ms`".to_owned();
        return Err(value.refuse(report, message));
    }
    Ok((on, off))
}

/// The entries of a descriptor.
fn entries(value: &Value<'_, '_>, report: &mut Report) -> Result<Vec<(String, String)>, Reported> {
    let Content::Mapping(_) = &value.node.content else {
        let got = value.node.described();
        let message = format!(
            "a descriptor must be a mapping of its entries, got {got}; write it like \
             `{{ tenant: acme }}`"
        );
        return Err(value.refuse(report, message));
    };
    let mut fields = value.fields("a descriptor", "{ tenant: acme }", report)?;
    let all = fields.all().into_iter();
    let read: Result<Vec<_>, _> = all
        .map(|(key, value)| Ok((key.to_owned(), value.text("acme", report)?.to_owned())))
        .collect();
    match read {
        Ok(entries) if entries.is_empty() => {
            let message = format!("needs an entry, got {}", quoted("{}"));
            Err(value.refuse(report, message))
        }
        read => read,
    }
}
