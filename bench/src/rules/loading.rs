//! Loading rules from YAML: time and memory, each reading in a fresh process.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::ensure;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sluicegate_config::rules::{Options, Source, load};
use sluicegate_rules::set::RuleSet;

use crate::frame::{self, Reading, Report, Row, Schedule};
use crate::machine::{ThreadTime, resident, resident_peak};
use crate::{Common, child, table};

const RULES: usize = 100_000;
const ROUNDS: u32 = 5;

#[derive(Debug, Serialize, Deserialize)]
struct Loading {
    yaml_mb: f64,
    load_cpu_ms: f64,
    compile_cpu_ms: f64,
    wall_ms: f64,
    resident_mb: f64,
    peak_mb: f64,
}

impl Reading for Loading {}

pub(super) fn run(common: &Common) -> Report {
    let rounds = common.rounds.unwrap_or(ROUNDS).min(ROUNDS);
    let rows = vec![Row::new("load", RULES.to_string())];
    let results = frame::run(rows, Schedule { rounds, attempts: 1 }, |_| {
        child::run::<Loading>(&["load-rules", &RULES.to_string()])
    });
    let numbers: [(&str, fn(&Loading) -> f64); 6] = [
        ("YAML, MB", |one| one.yaml_mb),
        ("load, CPU ms", |one| one.load_cpu_ms),
        ("compile, CPU ms", |one| one.compile_cpu_ms),
        ("both, wall ms", |one| one.wall_ms),
        ("resident with the rules alone, MB", |one| one.resident_mb),
        ("resident at the peak, MB", |one| one.peak_mb),
    ];
    let rows =
        numbers.map(|(name, number)| vec![name.to_owned(), results.rows[0].shown(1, number)]);
    let text = table::render(&[&format!("load {RULES} rules"), "median (min-max)"], 1, &rows);
    results.report(text, json!({}), &[])
}

/// The child's side.
pub(crate) fn measure(count: usize) -> anyhow::Result<()> {
    let text = yaml(count);
    let yaml_mb = text.len() as f64 / 1e6;
    let pid = std::process::id();
    let before = resident(pid)?;
    let sources = [Source { name: "rules.yaml".to_owned(), text }];

    let (began, start) = (Instant::now(), ThreadTime::read());
    let loaded = load(&sources, &Options::default())?;
    let read = ThreadTime::read();
    let set = RuleSet::new(loaded.domains)?;
    let (wall, end) = (began.elapsed(), ThreadTime::read());
    ensure!(set.rules().len() == count, "{} of {count} rules were loaded", set.rules().len());

    // The text is counted in `before`; the rest is the rules and what the allocator retains.
    drop(loaded.warnings);
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let mb = |bytes: u64| bytes.saturating_sub(before) as f64 / 1e6;
    child::print(&Loading {
        yaml_mb,
        load_cpu_ms: ms(read.since(start).on_cpu),
        compile_cpu_ms: ms(end.since(read).on_cpu),
        wall_ms: ms(wall),
        resident_mb: mb(resident(pid)?),
        peak_mb: mb(resident_peak()?),
    })
}

/// Rules in Envoy's form: a hundred users per tenant.
fn yaml(count: usize) -> String {
    let mut text = String::from("domain: shop\ndescriptors:\n");
    for number in 0..count {
        if number % 100 == 0 {
            let _ = write!(text, "  - key: tenant\n    value: t{number}\n    descriptors:\n");
        }
        let _ = write!(
            text,
            "      - key: user_id\n        value: u{number}\n        rate_limit:\n          unit: minute\n          requests_per_unit: {}\n",
            number % 1_000 + 1,
        );
    }
    text
}
