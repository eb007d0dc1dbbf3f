//! The memory store gives the core's answers, whatever is asked, in whatever order.
//!
//! Time goes on here. When it steps back, the answers may differ, and both be right: what has run out may be dropped at any
//! time or may not, and a clock that is set back then makes it count again, or does not.
//!
//! The specification scripts say what the answers are; here two ways to them are compared: the core's accounts, kept
//! as they are, and the engine with its short way, its packed states and its lanes that are used again.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use sluicegate_config::limit::limits;
use sluicegate_config::mode::mode;
use sluicegate_core::time::NOW_MAX;
use sluicegate_lab::line::Line;
use sluicegate_lab::memory::MemoryTrial;
use sluicegate_lab::trial::Trial;

const LIMITS: [&str; 37] = [
    "{ algorithm: token_bucket, rate: 5/s, burst: 2 }",
    "{ algorithm: token_bucket, rate: 3/s, burst: 9 }",
    "{ algorithm: token_bucket, rate: 7/m }",
    "{ algorithm: token_bucket, rate: 1234567/day, burst: 40 }",
    "{ algorithm: token_bucket, rate: 3000000/s, burst: 10 }",
    "{ algorithm: token_bucket, rate: 1000000000000/1day, burst: 1000000000000 }",
    "{ algorithm: token_bucket, rate: 5/s, burst: 10, initial: 3 }",
    "{ algorithm: token_bucket, rate: 4 per 10s, burst: 9, refill: interval }",
    "{ algorithm: token_bucket, rate: 4 per 10s, burst: 4, refill: interval }",
    "{ algorithm: token_bucket, rate: 4 per 10s, burst: 4, refill: aligned }",
    "{ algorithm: leaky_bucket, rate: 10/s, queue: 3 }",
    "{ algorithm: leaky_bucket, rate: 3/s, queue: 0 }",
    "{ algorithm: fixed_window, rate: 5 per 10s }",
    "{ algorithm: fixed_window, rate: 100000 per 1500us }",
    "{ algorithm: fixed_window, rate: 20000000000/day }",
    "{ algorithm: fixed_window, rate: 5 per 10s, align: first_hit }",
    "{ algorithm: fixed_window, rate: 20000 per 10s, align: first_hit }",
    "{ algorithm: fixed_window, rate: 5/day, align: calendar, zone: Europe/Berlin }",
    "{ algorithm: fixed_window, rate: 5 per 1month, align: calendar, zone: America/Sao_Paulo }",
    "{ algorithm: sliding_log, rate: 5 per 10s }",
    "{ algorithm: sliding_log, rates: [10/m, 2 per 3s], min_gap: 200ms }",
    "{ algorithm: sliding_log, rate: 3 per 10s, count_denied: true }",
    "{ algorithm: sliding_window, rate: 7/m }",
    "{ algorithm: sliding_window, rate: 7 per 1500us, rounding: up }",
    "{ algorithm: sliding_window, rate: 500000/m }",
    "{ algorithm: sliding_window, rate: 5 per 10s, slices: 5 }",
    "{ algorithm: sliding_window, rate: 70000/s, slices: 7 }",
    "{ algorithm: smooth_bursty, rate: 5/s }",
    "{ algorithm: warm_up, rate: 5/s, warm_up: 4s }",
    "{ algorithm: cycle, permits: 5, period: 10s }",
    "{ algorithm: concurrency, max: 3, lease: 10s }",
    "{ algorithm: unlimited }",
    TALLIES[0],
    TALLIES[1],
    TALLIES[2],
    TALLIES[3],
    TALLIES[4],
];

const TALLIES: [&str; 5] = [
    "{ algorithm: tally, rate: 5 per 10s }",
    "{ algorithm: tally, rate: 3/m }",
    "{ algorithm: tally, rate: 0/m }",
    "{ algorithm: tally, rate: 100000 per 1500us }",
    "{ algorithm: tally, rate: 9007199254740991/day }",
];

const MODES: [&str; 6] = [
    "hard",
    "hard",
    "hard",
    "{ soft: 50% }",
    "shadow",
    "{ elastic: { up_to: 2x, below: 70%, above: 85% } }",
];

/// The same cases every time, unless others are asked for: a failure belongs to a change.
fn config() -> ProptestConfig {
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    let fixed = ProptestConfig { cases: 1_200, rng_seed: RngSeed::Fixed(1), ..Default::default() };
    let config = if asked { ProptestConfig::default() } else { fixed };
    ProptestConfig { failure_persistence: None, ..config }
}

/// A line, less its time.
fn ask() -> impl Strategy<Value = String> {
    let cost = prop_oneof![6 => Just(1u64), 3 => 0..12u64, 1 => 0..1u64 << 53];
    let op = prop_oneof![
        20 => Just("hit"),
        2 => Just("peek"),
        2 => Just("take"),
        1 => Just("charge"),
        2 => Just("refund"),
        1 => Just("add"),
        1 => Just("drain"),
        1 => Just("reset"),
        2 => Just("acquire"),
        2 => Just("reserve"),
        2 => Just("commit"),
        2 => Just("cancel"),
    ];
    (op, cost, 0..3u8, 0..3u8, 0..1_000u64, any::<bool>()).prop_map(
        |(op, cost, key, id, load, flag)| {
            let mut line =
                format!(r#""op":"{op}","key":"{key}","load":{}.{:03}"#, load / 1_000, load % 1_000);
            match op {
                "drain" | "reset" => {}
                "cancel" => line += &format!(r#","id":"{id}""#),
                "reserve" | "commit" => line += &format!(r#","cost":{cost},"id":"{id}""#),
                "acquire" if flag => {
                    line +=
                        &format!(r#","cost":{cost},"timeout_us":{}"#, cost.min(1_000_000_000) * 100)
                }
                "acquire" => line += &format!(r#","cost":{cost},"id":"{id}""#),
                "hit" if flag && id == 0 => line += &format!(r#","cost":{cost},"id":"{id}""#),
                "add" => line += &format!(r#","cost":{cost},"force":{flag}"#),
                _ => line += &format!(r#","cost":{cost}"#),
            }
            line
        },
    )
}

/// How time goes on.
fn on() -> impl Strategy<Value = i64> {
    prop_oneof![
        4 => Just(0i64),
        6 => 0..200_000i64,
        6 => 0..20_000_000i64,
        2 => 0..200_000_000_000i64,
        1 => 0..4_000_000_000_000i64,
    ]
}

/// The same, or years at once: the clock was set.
fn on_or_far() -> impl Strategy<Value = i64> {
    prop_oneof![20 => on(), 1 => 0..400_000_000_000_000i64]
}

/// Any limits; in half of all cases with a tally among them that is soon used up by what the others deny.
fn some_limits() -> impl Strategy<Value = Vec<&'static str>> {
    let limits = |count| prop::collection::vec(prop::sample::select(&LIMITS[..]), count);
    let with_tally = (limits(1..3), prop::sample::select(&TALLIES[..2]), any::<bool>());
    let with_tally = with_tally.prop_map(|(mut limits, tally, first)| {
        limits.insert(if first { 0 } else { limits.len() }, tally);
        limits
    });
    prop_oneof![limits(1..4), with_tally]
}

fn some_mode() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&MODES[..])
}

fn a_start() -> impl Strategy<Value = u64> {
    prop_oneof![0..20_000_000u64, 1_790_000_000_000_000..1_800_000_000_000_000u64]
}

/// A change of the limit at some point: when, to what, and what to keep.
fn a_change() -> impl Strategy<Value = (usize, &'static str, &'static str)> {
    let keep = prop::sample::select(&["used", "remaining", "proportion", "nothing"][..]);
    (0..60usize, prop::sample::select(&LIMITS[..]), keep)
}

/// Whether both ways must agree on it to the letter.
///
/// A debt that takes several windows of a calendar to be paid may be told paid a window later by who knows only the
/// windows around `now`, and forgotten in time by who noted the day.
fn is_settled(line: &str, limits: &str) -> bool {
    let in_debt = ["charge", "acquire", "commit"].iter().any(|op| line.contains(op));
    let calendar = limits.contains("calendar") || line.contains("calendar");
    !(in_debt && calendar || line.contains("set_limit") && line.contains("calendar"))
}

/// Both ways side by side.
fn compare(
    limit_texts: &[&str],
    mode_text: &str,
    lines: impl IntoIterator<Item = String>,
) -> Result<(), TestCaseError> {
    let text = format!("[{}]", limit_texts.join(", "));
    let limits = limits("limits", &text).unwrap();
    let mode = mode("mode", mode_text).unwrap();
    let Ok(mut core) = Trial::new(limits.clone(), mode) else { return Ok(()) };
    let mut memory = MemoryTrial::new(limits, mode).unwrap();
    for line in lines.into_iter().filter(|line| is_settled(line, &text)) {
        let parsed = Line::parse(&line).unwrap();
        prop_assert_eq!(memory.run(&parsed), core.run(&parsed), "{} under {}", line, text);
    }
    Ok(())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn memory_answers_as_the_core_does(
        start in a_start(),
        limits in some_limits(),
        mode in some_mode(),
        lines in prop::collection::vec((on_or_far(), ask()), 1..60),
        (changed, limit, keep) in a_change(),
    ) {
        let mut now = start as i64;
        let lines = lines.iter().enumerate().flat_map(|(place, (step, asked))| {
            now = (now + step).min(NOW_MAX.as_micros() as i64);
            let change = format!(
                r#"{{"at_us":{now},"op":"set_limit","limit":"{limit}","keep":"{keep}"}}"#
            );
            let line = format!(r#"{{"at_us":{now},{asked}}}"#);
            std::iter::once(line).chain((place == changed).then_some(change))
        });
        compare(&limits, mode, lines)?;
    }
}
