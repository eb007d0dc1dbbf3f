//! CPU time of matching: our rule set and nested maps.

use std::hint::black_box;

use serde::Serialize;
use sluicegate_rules::set::{MatchPath, RuleSet};

use super::nested::Nested;
use super::shapes::{Probe, Shape};
use crate::frame::{Reading, Results};
use crate::machine::ThreadTime;
use crate::table;

const LOOKUPS: usize = 200_000;
const WARM_UP: usize = 400_000;
/// Fewer for the peer, which is slow with many globs.
const NESTED_LOOKUPS: usize = 20_000;

/// A shape with a number of rules.
pub(super) struct Case {
    pub(super) shape: Shape,
    pub(super) count: usize,
    set: RuleSet,
    nested: Option<Nested>,
}

/// Nanoseconds per lookup.
#[derive(Debug, Serialize)]
pub(super) struct Matching {
    ours_ns: f64,
    /// When a lookup cannot begin before the last one has ended.
    dependent_ns: f64,
    nested_ns: Option<f64>,
}

impl Reading for Matching {}

// === impl Case ===

impl Case {
    /// Compiles the rules and checks that every descriptor leads to a rule.
    pub(super) fn new(shape: &Shape, count: usize) -> Self {
        let domain = (shape.domain)(count);
        let nested = Nested::new(&domain);
        let set = RuleSet::new(vec![domain]).expect("rules that can be compiled");
        let mut probe = Probe::default();
        for number in 0..count {
            (shape.probe)(number, count, &mut probe);
            let entries = probe.entries();
            assert!(set.find("shop", &entries).is_some(), "{} {entries:?}", shape.name);
            if number % 97 == 0 {
                assert!(nested.as_ref().is_none_or(|nested| nested.find(&entries).is_some()));
            }
        }
        Self { shape: *shape, count, set, nested }
    }

    pub(super) fn id(&self) -> String {
        format!("{} {}", self.shape.name, self.count)
    }

    pub(super) fn measure(&self) -> Matching {
        let domain = self.set.domain("shop").expect("the domain");
        let mut path = MatchPath::default();
        let mut find = |probe: &Probe| {
            let found = self.set.find_in(domain, &probe.entries(), &mut path);
            black_box(found).map_or(0, |no| no.index())
        };
        let empty = |probe: &Probe| black_box(probe.entries()).len();
        self.timed(WARM_UP, Next::Independent, &mut find);
        let base = self.timed(LOOKUPS, Next::Independent, empty);
        let ours_ns = self.timed(LOOKUPS, Next::Independent, &mut find) - base;
        let dependent_base = self.timed(LOOKUPS, Next::Dependent, empty);
        let dependent_ns = self.timed(LOOKUPS, Next::Dependent, &mut find) - dependent_base;
        let nested_ns = self.nested.as_ref().map(|nested| {
            let mut find = |probe: &Probe| {
                black_box(nested.find(&probe.entries())).map_or(0, |rule| rule as usize)
            };
            self.timed(NESTED_LOOKUPS, Next::Independent, &mut find);
            self.timed(NESTED_LOOKUPS, Next::Independent, &mut find) - base
        });
        Matching { ours_ns, dependent_ns, nested_ns }
    }

    /// Nanoseconds of CPU time per lookup.
    fn timed(&self, lookups: usize, next: Next, mut find: impl FnMut(&Probe) -> usize) -> f64 {
        let mut probe = Probe::default();
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let before = ThreadTime::read();
        for _ in 0..lookups {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let number = ((u128::from(state) * self.count as u128) >> 64) as usize;
            (self.shape.probe)(number, self.count, &mut probe);
            let found = find(&probe);
            if next == Next::Dependent {
                // Hardly changes the state, but has to be known.
                state = state.wrapping_add(found as u64 & 1);
            }
        }
        ThreadTime::read().since(before).on_cpu.as_nanos() as f64 / lookups as f64
    }
}

/// Whether the next lookup depends on the result of the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Independent,
    Dependent,
}

pub(super) fn table(results: &Results<Matching>, cases: &[Case]) -> String {
    const HEAD: [&str; 7] = [
        "shape",
        "rules",
        "ns per match",
        "in turn",
        "x 10 rules",
        "nested maps, ns",
        "bytes per rule",
    ];
    let rows = results.rows.iter().zip(cases).map(|(row, case)| {
        let ten = results.row(&row.group, "10");
        let ratio = ten.and_then(|ten| row.ratio(ten, |one| one.ours_ns));
        let nested = match case.nested {
            Some(_) => row.shown(0, |one| one.nested_ns.unwrap_or(f64::NAN)),
            None => "-".to_owned(),
        };
        vec![
            row.group.clone(),
            row.name.clone(),
            row.shown(0, |one| one.ours_ns),
            row.shown(0, |one| one.dependent_ns),
            ratio.map_or("-".to_owned(), |ratio| ratio.spread.shown(2)),
            nested,
            (case.set.bytes() / case.count).to_string(),
        ]
    });
    table::render(&HEAD, 1, &rows.collect::<Vec<_>>())
}
