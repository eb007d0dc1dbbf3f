//! Events: a time, a duration where the event ends by itself, and one action.

use super::inline::rules;
use super::network::{millis, network, signed_millis};
use super::traffic::node_list;
use super::{ActionConfig, EventConfig};
use crate::fields::{Field, Fields, Value, unknown};
use crate::problem::{Report, Reported};
use crate::units;

const AT: Field<u64> = Field { name: "at", example: "5s", read: millis };
const FOR: Field<u64> = Field { name: "for", example: "5s", read: millis };
const NODE: Field<u64> = Field { name: "node", example: "0", read: units::whole };
const SHARD: Field<u64> = Field { name: "shard", example: "0", read: units::whole };
const BY: Field<i64> = Field { name: "by", example: "-3s", read: signed_millis };
const LOST: Field<u64> = Field { name: "lost", example: "500ms", read: millis };
const DOWN: Field<u64> = Field { name: "down", example: "2s", read: millis };
/// Longest loss of a failover: the store remembers replaced values that long.
const LOST_MAX_MS: u64 = 2_000;

/// The actions, each the only one of its event.
const ACTIONS: [&str; 13] = [
    "store",
    "stall",
    "failover",
    "data_loss",
    "store_clock",
    "partition",
    "network",
    "crash",
    "stop",
    "start",
    "clock",
    "add_nodes",
    "remove_nodes",
];
const RELOAD: &str = "rules";
const EXAMPLE: &str = "{ at: 5s, for: 5s, store: down }";

/// Reads an event.
pub(super) fn event(
    text: &str,
    value: &Value<'_, '_>,
    report: &mut Report,
) -> Result<EventConfig, Reported> {
    let mut fields = value.fields("an event", EXAMPLE, report)?;
    let at = fields.required(&AT, report);
    let length = fields.optional(&FOR, report);
    let given = ACTIONS.into_iter().chain([RELOAD]);
    let given = given.filter_map(|name| fields.value(name).map(|value| (name, value)));
    let mut given = given.collect::<Vec<_>>().into_iter();
    let action = match (given.next(), given.next()) {
        (Some((name, value)), None) => action(text, name, &value, &mut fields, report),
        (None, _) => {
            let message = format!(
                "has no action; the actions are `{}` and `{RELOAD}`, like `{EXAMPLE}`",
                ACTIONS.join("`, `")
            );
            Err(value.refuse(report, message))
        }
        (Some((one, _)), Some((other, _))) => {
            let message =
                format!("has two actions, `{one}` and `{other}`; make two events of them");
            Err(value.refuse(report, message))
        }
    };
    let known: Vec<&str> = ["at", "for"].into_iter().chain(ACTIONS).chain([RELOAD]).collect();
    fields.finish(report, |key| unknown(key, &known))?;
    Ok(EventConfig { at_ms: at?, for_ms: length?, action: action? })
}

fn action(
    text: &str,
    name: &str,
    value: &Value<'_, '_>,
    event: &mut Fields<'_>,
    report: &mut Report,
) -> Result<ActionConfig, Reported> {
    let number = |report: &mut Report| value.read("0", units::whole, report);
    Ok(match name {
        "store" => match value.text("down", report)? {
            "down" => ActionConfig::StoreDown(event.optional(&SHARD, report)?),
            "up" => ActionConfig::StoreUp,
            other => {
                let message = format!("must be `down` or `up`, got `{other}`; write one of these");
                return Err(value.refuse(report, message));
            }
        },
        "stall" => ActionConfig::Stall(value.read("500ms", millis, report)?),
        "failover" => {
            let (lost_ms, down_ms) = outage(value, report)?;
            if lost_ms > LOST_MAX_MS {
                let message = format!(
                    "must lose at most {LOST_MAX_MS} ms of writes, got `{lost_ms}ms`; use \
                     `data_loss` for more"
                );
                return Err(value.refuse(report, message));
            }
            ActionConfig::Failover { lost_ms, down_ms }
        }
        "data_loss" => {
            let mut fields = value.fields("a loss of data", "{ down: 2s }", report)?;
            let down = fields.optional(&DOWN, report);
            fields.finish(report, |key| unknown(key, &["down"]))?;
            ActionConfig::DataLoss { down_ms: down?.unwrap_or(0) }
        }
        "store_clock" => ActionConfig::StoreClock(value.read("-3s", signed_millis, report)?),
        "partition" => match value.node.described().as_str() {
            "`heal`" => ActionConfig::Heal(Vec::new()),
            _ => ActionConfig::Partition(node_list(value, report)?),
        },
        "network" => {
            let node = event.optional(&NODE, report)?;
            ActionConfig::Network(node, network(value, report)?)
        }
        "crash" => ActionConfig::Crash(number(report)?),
        "stop" => ActionConfig::Stop(number(report)?),
        "start" => ActionConfig::Start(number(report)?),
        "clock" => {
            let mut fields = value.fields("a step", "{ node: 0, by: -3s }", report)?;
            let (node, by) = (fields.required(&NODE, report), fields.required(&BY, report));
            fields.finish(report, |key| unknown(key, &["node", "by"]))?;
            ActionConfig::Clock(node?, by?)
        }
        "add_nodes" => ActionConfig::AddNodes(number(report)?),
        "remove_nodes" => ActionConfig::RemoveNodes(number(report)?),
        _ => ActionConfig::Reload(rules(text, value, report)?),
    })
}

fn outage(value: &Value<'_, '_>, report: &mut Report) -> Result<(u64, u64), Reported> {
    let mut fields = value.fields("a failover", "{ lost: 500ms, down: 2s }", report)?;
    let (lost, down) = (fields.optional(&LOST, report), fields.optional(&DOWN, report));
    fields.finish(report, |key| unknown(key, &["lost", "down"]))?;
    Ok((lost?.unwrap_or(0), down?.unwrap_or(0)))
}
