//! A recommendation as JSON, for programs. Names are stable.

use serde_json::{Value, json};
use sluicegate_rules::zone::show_moment;

use super::outcome::PartOutcome;
use super::protect::{ProtectingLimit, ProtectionCost};
use super::shape::LimitShape;
use super::trade_off::{SHOWN_SHARES, TradeOffPoint};
use super::{Basis, TuneResult, Tuning};
use crate::arrival::Client;

impl Tuning {
    /// The recommendation; `clients` are those of the arrivals, by number.
    #[must_use]
    pub fn to_json(&self, clients: &[Client]) -> Value {
        let facts = &self.facts;
        let mut json = json!({
            "goal": self.goal.to_string(),
            "confidence": self.options.confidence,
            "horizon_us": self.options.horizon.as_micros(),
            "traffic": {
                "requests": facts.requests,
                "clients": facts.clients,
                "single_request_clients": facts.single_request_clients,
                "busiest_client_share": facts.busiest_share,
                "effective_clients": facts.effective_clients,
                "first": show_moment(facts.first),
                "held_out_from": show_moment(facts.split),
                "last": show_moment(facts.last),
                "time_unit_us": facts.resolution.as_micros(),
            },
            "findings": self.findings(),
            "trade_off": self.curve.iter().map(trade_off).collect::<Vec<_>>(),
            "limit": null,
        });
        let mut set = |key: &str, value: Value| json[key] = value;
        if let Some(good) = self.good {
            let value = json!({
                "peak_max": good.peak_max, "p75": good.p75, "p95": good.p95,
                "good": good.good, "abusers": good.abusers,
            });
            set("good_clients", value);
        }
        match &self.result {
            TuneResult::Limit(found) => {
                let mut value = limit(found.shape, found.size);
                value["admitted_in_horizon_max"] = found.admitted_max.into();
                set("limit", value);
                set("basis", basis(&found.basis));
                set("training", part(&found.outcome.training));
                set("held_out", part(&found.outcome.held_out));
                let denied = found.outcome.worst.iter().map(|one| {
                    let name = clients.get(one.client as usize).map(|client| client.name.as_str());
                    json!({
                        "client": name, "requests": one.requests, "denied": one.denied,
                        "peak": one.peak, "is_extreme": one.is_extreme,
                    })
                });
                set("denied_clients", denied.collect());
            }
            TuneResult::Protection(found) => {
                let per_client = found.per_client.as_ref().map_or(Value::Null, protecting);
                set("limit", per_client);
                set("overall_limit", protecting(&found.overall));
                let [training, held_out] = found.overall_denied;
                let beside = json!({ "training": training, "held_out": held_out });
                set("overall_limit_denied_beside", beside);
                let peak = json!({
                    "admitted": found.peak, "at": show_moment(found.peak_at),
                    "clients": found.peak_clients,
                });
                set("peak_without_limits", peak);
            }
            TuneResult::Shortage(shortage) => {
                let value = json!({
                    "clients": shortage.sample, "clients_needed": shortage.needed,
                    "attainable_share": shortage.attainable,
                });
                set("too_few_clients", value);
            }
        }
        json
    }
}

/// A limit with its numbers, and as it is written in rules.
fn limit(shape: LimitShape, size: u64) -> Value {
    let rule = shape.rule(size);
    match shape {
        LimitShape::TokenBucket(rate) => json!({
            "rule": rule, "algorithm": "token_bucket", "count": rate.count(),
            "period_us": rate.period().as_micros(), "burst": size,
        }),
        LimitShape::SlidingLog(window) => windowed(rule, "sliding_log", size, window.as_micros()),
        LimitShape::SlidingWindow(window) => {
            windowed(rule, "sliding_window", size, window.as_micros())
        }
        LimitShape::FixedWindow(window) => windowed(rule, "fixed_window", size, window.as_micros()),
    }
}

fn windowed(rule: String, algorithm: &str, size: u64, window_us: u64) -> Value {
    json!({ "rule": rule, "algorithm": algorithm, "count": size, "period_us": window_us })
}

fn trade_off(point: &TradeOffPoint) -> Value {
    let mut value = limit(point.shape, point.size);
    let shares = SHOWN_SHARES.iter().zip(point.shown);
    value["size_by_share_denied"] =
        shares.map(|(share, size)| json!({ "share": share, "size": size })).collect();
    value
}

fn basis(basis: &Basis) -> Value {
    match basis {
        Basis::Clients { sample, tolerated, interval, estimate, predicted_held_out, stability } => {
            let stability = stability.map(|stability| {
                json!({
                    "slowest": limit(stability.rates[0].0, stability.rates[0].1),
                    "fastest": limit(stability.rates[1].0, stability.rates[1].1),
                    "admitted_in_horizon_max": stability.admitted,
                })
            });
            json!({
                "clients": sample, "clients_denied_max": tolerated, "size_estimate": estimate,
                "size_interval": interval, "held_out_denied_clients_max": predicted_held_out,
                "resampled": stability,
            })
        }
        Basis::Requests(share) => json!({
            "denied_share": share.estimate, "denied_share_interval": share.interval,
        }),
    }
}

fn part(part: &PartOutcome) -> Value {
    json!({
        "clients": part.clients, "denied_clients": part.denied_clients,
        "counted_clients": part.counted_clients,
        "denied_counted_clients": part.denied_counted_clients,
        "requests": part.requests, "denied_requests": part.denied_requests,
    })
}

fn protecting(found: &ProtectingLimit) -> Value {
    let cost = |cost: &ProtectionCost| {
        json!({
            "requests": cost.requests, "denied_requests": cost.denied_requests,
            "denied_clients": cost.denied_clients, "peak": cost.peak,
        })
    };
    let mut value = limit(found.shape, found.size);
    value["training"] = cost(&found.training);
    value["held_out"] = cost(&found.held_out);
    value
}
