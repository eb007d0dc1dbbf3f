//! The schedule: rounds, and in each round everybody once, one after the other.
//!
//! The machine's speed may change by a factor of two within minutes, so what is compared is measured side by side and within the
//! round. Who begins rotates. A reading that was disturbed is thrown away and made again.

use std::collections::BTreeMap;
use std::process::Stdio;

use anyhow::{Context as _, bail};

use crate::args::Args;
use crate::contestant::{self, Case, Contestant};
use crate::load::{self, Job, Work};
use crate::process;
use crate::programs;
use crate::progress::Progress;
use crate::reading::Reading;
use crate::running::Start;

/// The rules that ours have: everybody may always go, and hits are remembered for longer than a reading takes. One key is for trying
/// whether there is a limit at all.
pub(crate) const RULES: &str = "\
domain: bench
descriptors:
  - key: user_id
    rate_limit: { unit: hour, requests_per_unit: 1000000 }
  - key: user_id
    value: user_9999999
    rate_limit: { unit: year, requests_per_unit: 3 }
";

/// How often a disturbed reading is made again before it has to do.
const TRIES: usize = 4;

/// Everything that was measured.
#[derive(Debug, Default)]
pub(crate) struct Results {
    pub(crate) rounds: u32,
    pub(crate) seconds: u32,
    pub(crate) keys: u64,
    pub(crate) rate: u32,
    /// By round.
    pub(crate) readings: BTreeMap<Key, BTreeMap<u32, Reading>>,
    /// The order of the table.
    pub(crate) order: Vec<Key>,
    /// Readings that were made again.
    pub(crate) thrown: u32,
    pub(crate) failures: Vec<String>,
    /// Who is left out, and why.
    pub(crate) notes: Vec<String>,
    pub(crate) load_before: Option<f64>,
    pub(crate) load_after: Option<f64>,
}

/// Who, in which case.
pub(crate) type Key = (Case, &'static str);

/// Measures all that is asked for. What fails is kept in words, and the rest goes on.
pub(crate) fn run(args: &Args) -> anyhow::Result<Results> {
    let (programs, notes) = programs::find(args, RULES)?;
    let all = contestant::all(&programs);
    let asked: Vec<Contestant> = all
        .into_iter()
        .filter(|one| args.asks_for(&format!("{} {}", one.case.name(), one.name)))
        .collect();
    if asked.is_empty() {
        bail!("`--only` leaves nothing; try `--only rls` or `--only http`");
    }
    let mut results = Results {
        rounds: args.rounds(),
        seconds: args.seconds(),
        keys: args.keys,
        rate: args.rate,
        order: asked.iter().map(|one| (one.case, one.name)).collect(),
        notes,
        load_before: process::machine_load(),
        ..Results::default()
    };
    let mut progress = Progress::new(asked.len() * args.rounds() as usize);
    for round in 0..args.rounds() {
        for case in Case::ALL {
            let of_case: Vec<_> = asked.iter().filter(|one| one.case == case).collect();
            let (head, tail) = of_case.split_at(round as usize % of_case.len().max(1));
            for one in tail.iter().chain(head) {
                let (now, all) = (round + 1, args.rounds());
                progress.step(format_args!("{} {}, round {now}/{all}", case.name(), one.name));
                match undisturbed(one, args, &mut results.thrown) {
                    Ok(reading) => {
                        let readings = results.readings.entry((case, one.name)).or_default();
                        readings.insert(round, reading);
                    }
                    Err(error) => {
                        let failure = format!("{} {}: {error:#}", case.name(), one.name);
                        results.failures.push(failure);
                    }
                }
            }
        }
    }
    progress.done();
    results.load_after = process::machine_load();
    Ok(results)
}

/// The first reading that was not disturbed; the last one, if all were.
fn undisturbed(one: &Contestant, args: &Args, thrown: &mut u32) -> anyhow::Result<Reading> {
    let mut reading = read(one, args)?;
    for _ in 1..TRIES {
        if !reading.is_disturbed() {
            break;
        }
        *thrown += 1;
        reading = read(one, args)?;
    }
    Ok(reading)
}

/// A fresh server, and load on it.
fn read(one: &Contestant, args: &Args) -> anyhow::Result<Reading> {
    let server = one.start.start()?;
    let (connections, streams) = one.case.connections();
    // These two say yes to everything.
    let probe = !matches!(one.start, Start::Own("stub" | "hello"));
    let work = Work::Measure { keys: args.keys, seconds: args.seconds(), rate: args.rate, probe };
    let (wire, address, pid) = (one.wire, server.address(one.case)?, server.pid());
    let job = Job { wire, address, pid, connections, streams, work };
    let output = load::command(&job)?.stdin(Stdio::null()).output().context("cannot start load")?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    serde_json::from_slice(&output.stdout).context("what the load says")
}

// === impl Results ===

impl Results {
    /// A number of each round.
    pub(crate) fn numbers(&self, key: Key, number: impl Fn(&Reading) -> f64) -> Vec<f64> {
        self.readings.get(&key).into_iter().flat_map(BTreeMap::values).map(number).collect()
    }

    /// The number of one over that of another, worked out within each round that both have.
    pub(crate) fn ratios(
        &self,
        one: Key,
        other: Key,
        number: impl Fn(&Reading) -> f64,
    ) -> Vec<f64> {
        let (Some(one), Some(other)) = (self.readings.get(&one), self.readings.get(&other)) else {
            return Vec::new();
        };
        let both = one.iter().filter_map(|(round, reading)| Some((reading, other.get(round)?)));
        both.map(|(one, other)| number(one) / number(other)).collect()
    }

    /// Whether one of its readings had to do although it was disturbed.
    pub(crate) fn is_disturbed(&self, key: Key) -> bool {
        self.readings.get(&key).is_some_and(|all| all.values().any(Reading::is_disturbed))
    }
}
