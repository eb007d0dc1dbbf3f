//! What is printed at the end.

use std::thread;

use serde_json::{Value, json};

use crate::contestant::{Door, OURS};
use crate::grid;
use crate::process;
use crate::redis::Told;
use crate::rounds::{Key, Reading, Results};
use crate::stats::Spread;

/// A table for each door.
pub(crate) fn markdown(results: &Results) -> String {
    let mut text = heading(results);
    for door in Door::ALL {
        let keys: Vec<Key> = results.order.iter().copied().filter(|key| key.0 == door).collect();
        if !keys.is_empty() {
            text.push_str(&format!("\n{}\n\n{}", door.about(), table(results, &keys)));
            text.push_str(&about_stores(results, &keys));
        }
    }
    text
}

/// Everything, one by one.
pub(crate) fn json(results: &Results) -> anyhow::Result<String> {
    let rows: Vec<Value> = results
        .order
        .iter()
        .map(|key| {
            let readings: Vec<&Reading> = results.readings.get(key).into_iter().flat_map(|all| all.values()).collect();
            json!({ "door": key.0.name(), "server": key.1, "readings": readings, "not_here": results.absent.get(key) })
        })
        .collect();
    let whole = json!({
        "cpu": process::cpu(),
        "load_before": results.load_before,
        "load_after": results.load_after,
        "rounds": results.rounds,
        "seconds": results.seconds,
        "keys": results.keys,
        "thrown_away": results.thrown,
        "rows": rows,
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

fn table(results: &Results, keys: &[Key]) -> String {
    let head = [
        "server",
        "CPU µs/request",
        "x ours",
        "requests/s",
        "x ours",
        "p50/p99 µs",
        "busy, load",
        "MB",
    ];
    let rows: Vec<Vec<String>> = keys.iter().map(|key| row(results, *key)).collect();
    grid::render(&head, 1, &rows)
}

fn row(results: &Results, key: Key) -> Vec<String> {
    if let Some(why) = results.absent.get(&key) {
        return absent(&format!("{}: not here: {why}", key.1));
    }
    if !results.readings.contains_key(&key) {
        return absent(&format!("{}: failed", key.1));
    }
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
        let ratios = results.ratios(key, (key.0, OURS), number);
        Spread::of(ratios).map_or("-".to_owned(), |spread| format!("{:.2}", spread.median))
    };
    let cpu: fn(&Reading) -> f64 = |reading| reading.cpu_us;
    let rate: fn(&Reading) -> f64 = |reading| reading.rate;
    let mark = if results.is_disturbed(key) { "~" } else { "" };
    vec![
        format!("{mark}{}", key.1),
        spread(cpu, 2),
        ratio(cpu),
        spread(rate, 0),
        ratio(rate),
        format!("{:.0}/{:.0}", median(|reading| reading.p50_us), median(|reading| reading.p99_us)),
        format!(
            "{:.0} %, {:.0} %",
            100.0 * median(|reading| reading.busy),
            100.0 * median(|reading| reading.load_busy)
        ),
        format!("{:.0}", median(|reading| reading.resident as f64 / 1e6)),
    ]
}

/// What there is to say of the Redis behind each of them; filling and warming up are in it.
fn about_stores(results: &Results, keys: &[Key]) -> String {
    let lines: String = keys.iter().filter_map(|key| about_store(results, *key)).collect();
    if lines.is_empty() { lines } else { format!("\n{lines}") }
}

fn about_store(results: &Results, key: Key) -> Option<String> {
    let readings: Vec<&Reading> = results.readings.get(&key)?.values().collect();
    let shares = readings.iter().filter_map(|reading| reading.store_share).collect();
    let mut text = format!(
        "- {}: Redis had {:.0} % of the CPU time",
        key.1,
        100.0 * Spread::of(shares)?.median
    );
    let told: Vec<&Told> = readings.iter().filter_map(|reading| reading.store.as_ref()).collect();
    let sum = |number: fn(&Told) -> u64| told.iter().map(|told| number(told)).sum::<u64>() as f64;
    let (asked, known, calls) =
        (sum(|told| told.asked), sum(|told| told.known), sum(|told| told.calls));
    if asked > 0.0 && calls > 0.0 {
        let known = 100.0 * known / (asked + known);
        if key.0 == Door::Levels {
            let answered = sum(|told| told.answered);
            text.push_str(&format!("; {:.5} calls of Redis for each decision", calls / answered));
        } else {
            text.push_str(&format!(
                "; {:.1} requests in a call; {known:.0} % denied without asking",
                asked / calls
            ));
        }
    }
    text.push('\n');
    Some(text)
}

fn absent(words: &str) -> Vec<String> {
    let mut row = vec![words.to_owned()];
    row.resize(8, "-".to_owned());
    row
}
