//! Rounds, readings and their comparison: the frame of every benchmark.
//!
//! The speed of a virtual machine may change by a factor of two within minutes, so rows are
//! compared side by side: a *batch* holds the rows that are compared, a *turn* of it is measured in
//! one go, the first turn rotates from round to round, and ratios are computed within a round. A
//! reading is *disturbed* when other processes or machines took its CPU; it is repeated where the
//! schedule allows that, and left out of all statistics unless a row has no other.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, IsTerminal as _, Write as _};

use serde::Serialize;
use serde_json::{Value, json};

use crate::bars::Outcome;
use crate::machine::{Machine, Snapshot};

/// One measurement of a row.
pub(crate) trait Reading: Serialize {
    /// Whether others were at work on the same CPUs.
    fn is_disturbed(&self) -> bool {
        false
    }
}

/// A contestant in a group, with its readings by round.
#[derive(Debug)]
pub(crate) struct Row<R> {
    pub(crate) group: String,
    pub(crate) name: String,
    /// Why the row cannot be measured.
    pub(crate) absent: Option<String>,
    batch: String,
    turn: String,
    readings: BTreeMap<u32, R>,
}

/// How often rows are measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Schedule {
    pub(crate) rounds: u32,
    /// Attempts at an undisturbed reading.
    pub(crate) attempts: u32,
}

/// All readings of a benchmark.
#[derive(Debug)]
pub(crate) struct Results<R> {
    pub(crate) rounds: u32,
    pub(crate) rows: Vec<Row<R>>,
    pub(crate) failures: Vec<String>,
    pub(crate) machine: Machine,
    /// Disturbed readings that were repeated.
    repeated: u32,
}

/// Output of a benchmark.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) text: String,
    pub(crate) json: Value,
    pub(crate) failures: Vec<String>,
}

/// Median, minimum and maximum.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Spread {
    /// Of an even number, the mean of the middle two.
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

/// A number, or the ratio of two, over the rounds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Statistic {
    pub(crate) spread: Spread,
    /// There was no undisturbed round.
    pub(crate) disturbed: bool,
}

/// Measures all rows. A failure is recorded and the rest goes on.
pub(crate) fn run<R: Reading>(
    mut rows: Vec<Row<R>>,
    schedule: Schedule,
    mut measure: impl FnMut(usize) -> anyhow::Result<R>,
) -> Results<R> {
    let before = Snapshot::take();
    if let Some(warning) = before.warning() {
        eprintln!("{warning}");
    }
    let batches = batches(&rows);
    let present = rows.iter().filter(|row| row.absent.is_none()).count();
    let mut progress = Progress::new(present * schedule.rounds as usize);
    let (mut failures, mut repeated) = (Vec::new(), 0);
    for round in 0..schedule.rounds {
        for turns in &batches {
            let (head, tail) = turns.split_at(round as usize % turns.len());
            for &index in tail.iter().chain(head).flatten() {
                let row = &mut rows[index];
                let (now, all) = (round + 1, schedule.rounds);
                progress.step(format_args!("{} {}, round {now}/{all}", row.group, row.name));
                let mut reading = measure(index);
                for _ in 1..schedule.attempts {
                    if !reading.as_ref().is_ok_and(Reading::is_disturbed) {
                        break;
                    }
                    repeated += 1;
                    reading = measure(index);
                }
                match reading {
                    Ok(reading) => _ = row.readings.insert(round, reading),
                    Err(error) => {
                        failures.push(format!("{} {}: {error:#}", row.group, row.name));
                    }
                }
            }
        }
    }
    progress.clear();
    let machine = before.until(&Snapshot::take());
    Results { rounds: schedule.rounds, rows, failures, machine, repeated }
}

/// Turns of rows by batch, in the order of the rows.
fn batches<R>(rows: &[Row<R>]) -> Vec<Vec<Vec<usize>>> {
    let mut batches: Vec<(&str, Vec<(&str, Vec<usize>)>)> = Vec::new();
    for (index, row) in rows.iter().enumerate().filter(|(_, row)| row.absent.is_none()) {
        let turns = entry(&mut batches, &row.batch);
        entry(turns, &row.turn).push(index);
    }
    let indices = |turns: Vec<(&str, Vec<usize>)>| turns.into_iter().map(|turn| turn.1).collect();
    batches.into_iter().map(|(_, turns)| indices(turns)).collect()
}

fn entry<'a, 'b, T: Default>(list: &'b mut Vec<(&'a str, T)>, name: &'a str) -> &'b mut T {
    let index = list.iter().position(|(known, _)| *known == name).unwrap_or_else(|| {
        list.push((name, T::default()));
        list.len() - 1
    });
    &mut list[index].1
}

// === impl Row ===

impl<R: Reading> Row<R> {
    /// A row that is compared with the others of its group.
    pub(crate) fn new(group: impl Into<String>, name: impl Into<String>) -> Self {
        let (group, name) = (group.into(), name.into());
        let (batch, turn) = (group.clone(), name.clone());
        Self { group, name, absent: None, batch, turn, readings: BTreeMap::new() }
    }

    /// Measured together with the rows of the same batch and turn.
    pub(crate) fn scheduled(mut self, batch: impl Into<String>, turn: impl Into<String>) -> Self {
        (self.batch, self.turn) = (batch.into(), turn.into());
        self
    }

    /// A row that cannot be measured, if there is a reason.
    pub(crate) fn absent(mut self, reason: Option<String>) -> Self {
        self.absent = reason;
        self
    }

    pub(crate) fn readings(&self) -> impl Iterator<Item = &R> {
        self.readings.values()
    }

    /// A number of the readings, over the rounds.
    pub(crate) fn statistic(&self, number: impl Fn(&R) -> f64) -> Option<Statistic> {
        Statistic::of(self.readings().map(|one| (number(one), one.is_disturbed())))
    }

    pub(crate) fn median(&self, number: impl Fn(&R) -> f64) -> f64 {
        self.statistic(number).map_or(f64::NAN, |one| one.spread.median)
    }

    /// `median (min-max)`.
    pub(crate) fn shown(&self, places: usize, number: impl Fn(&R) -> f64) -> String {
        self.statistic(number).map_or("-".to_owned(), |one| one.spread.shown(places))
    }

    /// The number of this row over that of another, within each round that both have.
    pub(crate) fn ratio(&self, other: &Self, number: impl Fn(&R) -> f64) -> Option<Statistic> {
        let both =
            self.readings.iter().filter_map(|(round, a)| Some((a, other.readings.get(round)?)));
        Statistic::of(
            both.map(|(a, b)| (number(a) / number(b), a.is_disturbed() || b.is_disturbed())),
        )
    }

    /// Whether all readings were disturbed.
    pub(crate) fn is_disturbed(&self) -> bool {
        self.statistic(|_| 0.0).is_some_and(|one| one.disturbed)
    }
}

// === impl Results ===

impl<R: Reading> Results<R> {
    pub(crate) fn row(&self, group: &str, name: &str) -> Option<&Row<R>> {
        self.rows.iter().find(|row| row.group == group && row.name == name)
    }

    pub(crate) fn ratio(
        &self,
        (group, name): (&str, &str),
        (base_group, base): (&str, &str),
        number: impl Fn(&R) -> f64,
    ) -> Option<Statistic> {
        self.row(group, name)?.ratio(self.row(base_group, base)?, number)
    }

    /// The machine and the conditions of the run, in a line.
    pub(crate) fn heading(&self, settings: &str) -> String {
        let repeated = match self.repeated {
            0 => String::new(),
            count => format!("; {count} disturbed readings repeated"),
        };
        format!("{}; {} rounds{settings}{repeated}\n", self.machine, self.rounds)
    }

    /// Text and JSON of the whole benchmark.
    pub(crate) fn report(self, text: String, settings: Value, bars: &[Outcome]) -> Report {
        let row = |row: &Row<R>| {
            let readings: Vec<&R> = row.readings().collect();
            json!({ "group": row.group, "name": row.name, "readings": readings, "absent": row.absent })
        };
        let json = json!({
            "machine": self.machine,
            "rounds": self.rounds,
            "settings": settings,
            "repeated": self.repeated,
            "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
            "bars": bars,
            "failures": self.failures,
        });
        Report { text, json, failures: self.failures }
    }
}

// === impl Statistic ===

impl Statistic {
    /// Of numbers and whether their readings were disturbed.
    fn of(numbers: impl Iterator<Item = (f64, bool)>) -> Option<Self> {
        let (disturbed, quiet): (Vec<_>, Vec<_>) = numbers.partition(|(_, disturbed)| *disturbed);
        let (chosen, disturbed) = if quiet.is_empty() { (disturbed, true) } else { (quiet, false) };
        let spread = Spread::of(chosen.into_iter().map(|(number, _)| number).collect())?;
        Some(Self { spread, disturbed })
    }

    pub(crate) fn map(self, by: impl Fn(f64) -> f64) -> Self {
        Self { spread: self.spread.map(by), ..self }
    }
}

// === impl Spread ===

impl Spread {
    pub(crate) fn of(mut numbers: Vec<f64>) -> Option<Self> {
        numbers.sort_by(f64::total_cmp);
        let (&min, &max) = (numbers.first()?, numbers.last()?);
        let (below, above) = ((numbers.len() - 1) / 2, numbers.len() / 2);
        Some(Self { median: f64::midpoint(numbers[below], numbers[above]), min, max })
    }

    /// Through a monotonic function.
    fn map(self, by: impl Fn(f64) -> f64) -> Self {
        let (one, other) = (by(self.min), by(self.max));
        Self { median: by(self.median), min: one.min(other), max: one.max(other) }
    }

    /// `median (min-max)`, without brackets if they are the same.
    pub(crate) fn shown(&self, places: usize) -> String {
        let Self { median, min, max } = self;
        match max > min {
            true => format!("{median:.places$} ({min:.places$}-{max:.places$})"),
            false => format!("{median:.places$}"),
        }
    }
}

/// A status line on standard error, if that is a terminal.
struct Progress {
    steps: usize,
    done: usize,
    is_terminal: bool,
}

// === impl Progress ===

impl Progress {
    fn new(steps: usize) -> Self {
        Self { steps, done: 0, is_terminal: io::stderr().is_terminal() }
    }

    fn step(&mut self, step: fmt::Arguments<'_>) {
        self.done += 1;
        if self.is_terminal {
            eprint!("\r\x1b[K[{}/{}] {step}", self.done, self.steps);
            let _ = io::stderr().flush();
        }
    }

    fn clear(&self) {
        if self.is_terminal {
            eprint!("\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Timed(f64, bool);

    impl Reading for Timed {
        fn is_disturbed(&self) -> bool {
            self.1
        }
    }

    fn row(readings: &[(f64, bool)]) -> Row<Timed> {
        let readings = readings.iter().map(|(number, disturbed)| Timed(*number, *disturbed));
        Row { readings: (0..).zip(readings).collect(), ..Row::new("group", "name") }
    }

    #[test]
    fn median_of_odd_and_even_counts() {
        assert_eq!(Spread::of(vec![]), None);
        let odd = Spread::of(vec![3.0, 1.0, 2.0]).unwrap();
        assert_eq!((odd.median, odd.min, odd.max), (2.0, 1.0, 3.0));
        assert_eq!(Spread::of(vec![1.0, 4.0]).unwrap().median, 2.5);
        let falling = Spread::of(vec![1.0, 2.0, 4.0]).unwrap().map(|x| 1.0 / x);
        assert_eq!((falling.min, falling.max), (0.25, 1.0));
    }

    #[test]
    fn disturbed_readings_are_left_out_unless_there_is_no_other() {
        let some = row(&[(1.0, false), (9.0, true), (3.0, false)]);
        assert_eq!(some.shown(0, |one| one.0), "2 (1-3)");
        let all = row(&[(4.0, true), (4.0, true)]);
        assert!(all.is_disturbed() && !some.is_disturbed());
        let ratio = all.ratio(&some, |one| one.0).unwrap();
        assert!(ratio.disturbed);
    }

    #[test]
    fn turns_rotate_and_stay_together() {
        let row =
            |name: &str, turn: &str| Row::<Timed>::new("group", name).scheduled("batch", turn);
        let rows = vec![row("a/1", "a"), row("b/1", "b"), row("a/2", "a")];
        let mut order = Vec::new();
        let schedule = Schedule { rounds: 2, attempts: 1 };
        let results = run(rows, schedule, |index| {
            order.push(index);
            if index == 1 { anyhow::bail!("broken") } else { Ok(Timed(1.0, false)) }
        });
        assert_eq!(order, [0, 2, 1, 1, 0, 2]);
        assert_eq!(results.failures, ["group b/1: broken", "group b/1: broken"]);
    }

    #[test]
    fn disturbed_readings_are_repeated() {
        let mut calls = 0;
        let schedule = Schedule { rounds: 1, attempts: 4 };
        let results = run(vec![Row::new("group", "name")], schedule, |_| {
            calls += 1;
            Ok(Timed(1.0, calls < 3))
        });
        assert_eq!((calls, results.repeated), (3, 2));
    }
}
