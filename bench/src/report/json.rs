//! The same for programs, with every single reading.

use serde_json::{Value, json};

use super::bars;
use crate::machine::Machine;
use crate::results::{Results, SpeedKey, WALL};
use crate::roster::BASE;

/// One document.
pub(crate) fn render(results: &Results, machine: &Machine) -> anyhow::Result<String> {
    let document = json!({
        "machine": machine,
        "rounds": results.rounds,
        "cells": cells(results),
        "memory": memory(results),
        "bars": bars::outcomes(results),
        "failures": results.failures,
    });
    Ok(serde_json::to_string_pretty(&document)?)
}

fn cells(results: &Results) -> Vec<Value> {
    let cells = results.speed.iter().map(|(key, readings)| {
        let base = SpeedKey { contestant: BASE, ..*key };
        json!({
            "cell": key.cell,
            "contestant": key.contestant,
            "times_governor": results.ratio(base, *key, WALL).map(|ratio| ratio.spread.median),
            "readings": readings.values().collect::<Vec<_>>(),
        })
    });
    cells.collect()
}

fn memory(results: &Results) -> Vec<Value> {
    let fills = results.memory.iter();
    fills.map(|(key, growth)| json!({ "contestant": key.contestant, "growth": growth })).collect()
}
