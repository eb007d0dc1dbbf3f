//! Loading a hundred thousand rules from YAML: how long it takes, and how much memory the rules keep.

use std::fmt::Write as _;
use std::process::{Command, ExitCode};
use std::time::Instant;

use sluicegate_config::rules::{Options, Source, load};
use sluicegate_rules::set::RuleSet;

use crate::resident;
use crate::stats::Spread;
use crate::thread_time::ThreadTime;

const RULES: usize = 100_000;
const TIMES: usize = 5;

/// Several times, each in a fresh process, so that nobody inherits memory.
pub(crate) fn report() -> ExitCode {
    let this = std::env::current_exe().expect("this program's own path");
    println!("\n| load {RULES} rules | median | least | most |\n|---|---|---|---|");
    let mut readings: [Vec<f64>; 6] = Default::default();
    for _ in 0..TIMES {
        let output = Command::new(&this).args(["load-once", &RULES.to_string()]).output();
        let output = output.expect("this program anew");
        let text = String::from_utf8_lossy(&output.stdout);
        let numbers: Vec<f64> = text.split_whitespace().filter_map(|n| n.parse().ok()).collect();
        if !output.status.success() || numbers.len() != readings.len() {
            eprintln!("rules: load-once: {}", String::from_utf8_lossy(&output.stderr));
            return ExitCode::FAILURE;
        }
        readings.iter_mut().zip(numbers).for_each(|(all, number)| all.push(number));
    }
    let names = [
        "YAML, MB",
        "load, CPU ms",
        "compile, CPU ms",
        "both, wall ms",
        "resident with the rules alone, MB",
        "resident at the worst, MB",
    ];
    for (name, readings) in names.into_iter().zip(readings) {
        let Some(spread) = Spread::of(readings) else { continue };
        println!("| {name} | {:.1} | {:.1} | {:.1} |", spread.median, spread.min, spread.max);
    }
    ExitCode::SUCCESS
}

/// The child's side: six numbers.
pub(crate) fn once(count: &str) -> ExitCode {
    let count = count.parse().unwrap_or(RULES);
    let text = written(count);
    let megabytes = text.len() as f64 / 1e6;
    let before = resident::now().unwrap_or(0);
    let sources = [Source { name: "rules.yaml".to_owned(), text }];

    let (began, start) = (Instant::now(), ThreadTime::read());
    let loaded = match load(&sources, &Options::default()) {
        Ok(loaded) => loaded,
        Err(invalid) => {
            eprintln!("{invalid}");
            return ExitCode::FAILURE;
        }
    };
    let read = ThreadTime::read();
    let set = RuleSet::new(loaded.domains).expect("what loads can be compiled");
    let (wall, end) = (began.elapsed(), ThreadTime::read());

    // The text was there before, so what is left beside the rules is what the allocator did not give back.
    drop(loaded.warnings);
    let after = resident::now().unwrap_or(0);
    let peak = resident::peak().unwrap_or(0);
    let ms = |time: std::time::Duration| time.as_secs_f64() * 1e3;
    let mb = |bytes: u64| bytes.saturating_sub(before) as f64 / 1e6;
    assert_eq!(set.rules().len(), count);
    println!(
        "{megabytes} {} {} {} {} {}",
        ms(read.since(start).on_cpu),
        ms(end.since(read).on_cpu),
        ms(wall),
        mb(after),
        mb(peak)
    );
    ExitCode::SUCCESS
}

/// Rules in Envoy's form, as somebody's program would write them: a hundred users for each tenant.
fn written(count: usize) -> String {
    let mut text = String::from("domain: shop\ndescriptors:\n");
    for number in 0..count {
        if number % 100 == 0 {
            // Writing to a String cannot fail.
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
