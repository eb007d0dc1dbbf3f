//! The schedule: rounds, and in each round everybody once, one after the other.
//!
//! The machine's speed may change by a factor of two within minutes, so what is compared is measured side by side and within the
//! round. Who begins rotates. A reading that was disturbed is thrown away and made again.

use std::collections::BTreeMap;
use std::process::Stdio;

use anyhow::{Context as _, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::args::Args;
use crate::contestant::{self, Contestant, Door};
use crate::load::{self, Job};
use crate::peers::Programs;
use crate::process;
use crate::progress::Progress;
use crate::redis::Told;

/// What one reading says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Reading {
    /// CPU time of the server's processes per request.
    pub(crate) cpu_us: f64,
    pub(crate) rate: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// At the end, in bytes.
    pub(crate) resident: u64,
    /// How much of the time the server was at work, and the load.
    pub(crate) busy: f64,
    pub(crate) load_busy: f64,
    /// How much of the time the hypervisor gave to others.
    pub(crate) stolen: f64,
    /// How much of the time the server, or the load, was ready and had no CPU.
    pub(crate) waited: f64,
    /// What the service says of its Redis, if it has one and says so.
    pub(crate) store: Option<Told>,
    /// How much of the CPU time was that of the Redis behind the service, from its start on.
    pub(crate) store_share: Option<f64>,
}

/// Who, at which door.
pub(crate) type Key = (Door, &'static str);

/// Everything that was measured.
#[derive(Debug, Default)]
pub(crate) struct Results {
    pub(crate) rounds: u32,
    pub(crate) seconds: u32,
    pub(crate) keys: u64,
    /// By round.
    pub(crate) readings: BTreeMap<Key, BTreeMap<u32, Reading>>,
    /// The order of the tables.
    pub(crate) order: Vec<Key>,
    /// Who is not here, and why.
    pub(crate) absent: BTreeMap<Key, String>,
    /// Readings that were made again.
    pub(crate) thrown: u32,
    pub(crate) failures: Vec<String>,
    pub(crate) load_before: Option<f64>,
    pub(crate) load_after: Option<f64>,
}

/// How often a reading is made before a disturbed one has to do.
const TRIES: usize = 4;
/// More than this, stolen or waited, and a reading says more about the machine.
const DISTURBED: f64 = 0.05;

/// Measures all that is asked for. What fails is kept in words, and the rest goes on.
pub(crate) fn run(args: &Args) -> anyhow::Result<Results> {
    let programs = Programs::find(args)?;
    let asked: Vec<Contestant> =
        contestant::all().into_iter().filter(|one| args.asks_for(one)).collect();
    if asked.is_empty() {
        bail!("`--only` leaves nothing; try `--only rls`, `--only redis` or `--only 'resp 16'`");
    }
    let mut results = Results {
        rounds: args.rounds(),
        seconds: args.seconds(),
        keys: args.keys,
        order: asked.iter().map(|one| (one.door, one.name)).collect(),
        load_before: process::machine_load(),
        ..Results::default()
    };
    let (here, absent): (Vec<_>, Vec<_>) =
        asked.into_iter().partition(|one| programs.missing(one).is_none());
    for one in &absent {
        let why = programs.missing(one).unwrap_or_default();
        results.absent.insert((one.door, one.name), why);
    }
    let mut progress = Progress::new(here.len() * args.rounds() as usize);
    for round in 0..args.rounds() {
        for door in Door::ALL {
            let of_door: Vec<_> = here.iter().filter(|one| one.door == door).collect();
            let (head, tail) = of_door.split_at(round as usize % of_door.len().max(1));
            for one in tail.iter().chain(head) {
                progress.step(format_args!("{}, round {}/{}", one.id(), round + 1, args.rounds()));
                match undisturbed(one, args, &programs, &mut results.thrown) {
                    Ok(reading) => {
                        let readings = results.readings.entry((door, one.name)).or_default();
                        readings.insert(round, reading);
                    }
                    Err(error) => results.failures.push(format!("{}: {error:#}", one.id())),
                }
            }
        }
    }
    progress.done();
    results.load_after = process::machine_load();
    Ok(results)
}

/// The first reading that was not disturbed; the last one, if all were.
fn undisturbed(
    one: &Contestant,
    args: &Args,
    programs: &Programs,
    thrown: &mut u32,
) -> anyhow::Result<Reading> {
    let mut reading = read(one, args, programs)?;
    for _ in 1..TRIES {
        if !reading.is_disturbed() || args.quick {
            break;
        }
        *thrown += 1;
        reading = read(one, args, programs)?;
    }
    Ok(reading)
}

/// A fresh server, and load on it.
fn read(one: &Contestant, args: &Args, programs: &Programs) -> anyhow::Result<Reading> {
    let server = one.kind.start(programs, one.door)?;
    let job = Job {
        contestant: one.id(),
        address: server.address,
        processes: server.processes(),
        alone: server.alone(),
        keys: one.keys.unwrap_or(args.keys),
        seconds: args.seconds(),
    };
    let output = load::command(&job)?.stdin(Stdio::null()).output().context("cannot start load")?;
    if !output.status.success() {
        bail!("{}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let mut reading: Reading =
        serde_json::from_slice(&output.stdout).context("what the load says")?;
    reading.store_share = store_share(&server.processes());
    if let Some(admin) = server.admin {
        let told = Told::by(admin)?;
        // What is answered without the store costs less.
        ensure!(told.fallbacks == 0, "{} requests got no answer of the store", told.fallbacks);
        reading.store = Some(told);
    }
    Ok(reading)
}

/// The first is the service, the others are behind it.
fn store_share(processes: &[u32]) -> Option<f64> {
    let times = processes.iter().map(|one| process::times(*one).ok().map(|times| times.on_cpu));
    let times: Vec<f64> = times.collect::<Option<_>>()?;
    let behind: f64 = times.get(1..)?.iter().sum();
    (times.len() > 1).then(|| behind / times.iter().sum::<f64>())
}

// === impl Reading ===

impl Reading {
    /// Whether others were at work on the same cores.
    pub(crate) fn is_disturbed(&self) -> bool {
        self.stolen > DISTURBED || self.waited > DISTURBED
    }
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
