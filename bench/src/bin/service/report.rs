//! What is printed at the end.

use std::thread;

use serde_json::{Value, json};

use crate::bars;
use crate::contestant::{Case, HELLO, STUB};
use crate::grid;
use crate::process;
use crate::reading::{Part, Reading};
use crate::rounds::{Key, Results};
use crate::stats::Spread;

/// The tables and the bars.
pub(crate) fn markdown(results: &Results) -> String {
    let mut text = heading(results);
    for case in Case::ALL {
        let keys: Vec<Key> = results.order.iter().copied().filter(|key| key.0 == case).collect();
        if keys.iter().any(|key| results.readings.contains_key(key)) {
            text.push_str(&format!("\n{}\n{}", about(case, results), table(results, &keys)));
        }
    }
    let bars = bars::list(results);
    if !bars.is_empty() {
        text.push_str(&format!("\n{bars}"));
    }
    for note in &results.notes {
        text.push_str(&format!("\nNote: {note}.\n"));
    }
    text
}

/// Everything, one by one.
pub(crate) fn json(results: &Results) -> anyhow::Result<String> {
    let contestants: Vec<Value> = results
        .order
        .iter()
        .filter_map(|key| {
            let readings: Vec<&Reading> = results.readings.get(key)?.values().collect();
            Some(json!({ "case": key.0, "contestant": key.1, "readings": readings }))
        })
        .collect();
    let whole = json!({
        "cpu": process::cpu(),
        "load_before": results.load_before,
        "load_after": results.load_after,
        "rounds": results.rounds,
        "seconds": results.seconds,
        "keys": results.keys,
        "rate": results.rate,
        "thrown_away": results.thrown,
        "contestants": contestants,
        "bars": bars::outcomes(results),
        "notes": results.notes,
        "failures": results.failures,
    });
    Ok(serde_json::to_string_pretty(&whole)?)
}

fn heading(results: &Results) -> String {
    let number = |number: Option<f64>| number.map_or("?".to_owned(), |n| format!("{n:.2}"));
    format!(
        "{cpus} x {cpu}; load {before} before, {after} after; {rounds} rounds of {seconds} s, {keys} live keys; \
         {thrown} readings were disturbed and made again\n",
        cpus = thread::available_parallelism().map_or(1, usize::from),
        cpu = process::cpu(),
        before = number(results.load_before),
        after = number(results.load_after),
        rounds = results.rounds,
        seconds = results.seconds,
        keys = results.keys,
        thrown = results.thrown,
    )
}

fn about(case: Case, results: &Results) -> String {
    let (connections, streams) = case.connections();
    let how = match case {
        Case::Rls => {
            format!("**RLS over gRPC**: {connections} connections with {streams} calls each")
        }
        Case::Http => format!("**A check over HTTP**: {connections} connections"),
    };
    format!("{how}; then at {} requests/s\n", results.rate)
}

fn table(results: &Results, keys: &[Key]) -> String {
    let base = keys.iter().copied().find(|key| key.1 == STUB || key.1 == HELLO);
    let base_name = base.map_or("first", |key| key.1);
    let head = [
        "server".to_owned(),
        "CPU µs/request".to_owned(),
        format!("x {base_name}"),
        "requests/s".to_owned(),
        format!("x {base_name}"),
        "p50/p99 µs".to_owned(),
        "busy, load".to_owned(),
        "paced: p50 µs".to_owned(),
        "p99 µs".to_owned(),
        "p99.9 µs".to_owned(),
        "CPU µs".to_owned(),
        "MB".to_owned(),
    ];
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let rows: Vec<Vec<String>> = keys
        .iter()
        .filter(|key| results.readings.contains_key(key))
        .map(|key| row(results, *key, base))
        .collect();
    grid::render(&head, 1, &rows)
}

fn row(results: &Results, key: Key, base: Option<Key>) -> Vec<String> {
    let median = |number: fn(&Reading) -> f64| {
        Spread::of(results.numbers(key, number)).map_or(f64::NAN, |spread| spread.median)
    };
    let spread = |number: fn(&Reading) -> f64, places: usize| {
        let Some(Spread { median, min, max }) = Spread::of(results.numbers(key, number)) else {
            return "-".to_owned();
        };
        format!("{median:.places$} ({min:.places$}-{max:.places$})")
    };
    let ratio = |number: fn(&Reading) -> f64| {
        let ratios = base.map(|base| results.ratios(key, base, number)).unwrap_or_default();
        Spread::of(ratios).map_or("-".to_owned(), |spread| format!("{:.2}", spread.median))
    };
    let cpu: fn(&Reading) -> f64 = |reading| reading.full.cpu_us;
    let rate: fn(&Reading) -> f64 = |reading| reading.full.rate();
    let mark = if results.is_disturbed(key) { "~" } else { "" };
    vec![
        format!("{mark}{}", key.1),
        spread(cpu, 2),
        ratio(cpu),
        spread(rate, 0),
        ratio(rate),
        format!(
            "{:.0}/{:.0}",
            median(|reading| reading.full.p50_us),
            median(|reading| reading.full.p99_us)
        ),
        format!(
            "{:.0} %, {:.0} %",
            100.0 * median(|reading| reading.full.busy),
            100.0 * median(|reading| reading.full.load_busy)
        ),
        format!("{:.0}", median(|reading| paced(reading, |part| part.p50_us))),
        spread(|reading| paced(reading, |part| part.p99_us), 0),
        format!("{:.0}", median(|reading| paced(reading, |part| part.p999_us))),
        format!("{:.1}", median(|reading| paced(reading, |part| part.cpu_us))),
        format!("{:.0}", median(|reading| reading.resident as f64 / 1e6)),
    ]
}

fn paced(reading: &Reading, number: fn(&Part) -> f64) -> f64 {
    reading.paced.as_ref().map_or(f64::NAN, number)
}
