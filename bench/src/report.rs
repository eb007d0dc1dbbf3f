//! What is printed at the end.

pub(crate) mod bars;
mod grid;
pub(crate) mod json;
mod memory;
mod speed;

use std::fmt::Write as _;

use crate::machine::Machine;
use crate::results::Results;

/// The tables and the bars.
pub(crate) fn markdown(results: &Results, machine: &Machine) -> String {
    let mut text = heading(results, machine);
    for part in [speed::table(results), memory::table(results), bars::list(results)] {
        if !part.is_empty() {
            let _ = write!(text, "\n{part}");
        }
    }
    text
}

fn heading(results: &Results, machine: &Machine) -> String {
    let peers: Vec<String> =
        machine.peers.iter().map(|(name, version)| format!("{name} {version}")).collect();
    let number = |number: Option<f64>| number.map_or("?".to_owned(), |n| format!("{n:.2}"));
    format!(
        "{cpus} x {cpu}; load {before} before, {after} after; {stolen} % of the time stolen; \
         huge pages: {huge}; rounds: {rounds}, in {seconds:.0} s; {peers}\n",
        cpus = machine.cpus,
        cpu = machine.cpu,
        before = number(machine.load_before),
        after = number(machine.load_after),
        stolen = number(machine.stolen_percent),
        huge = machine.huge_pages,
        rounds = results.rounds,
        seconds = machine.seconds,
        peers = peers.join(", "),
    )
}
