//! Rows of the table: who finds how many rules of which shape, and how long it takes.

use std::fmt::Write as _;
use std::hint::black_box;

use sluicegate_rules::set::{MatchPath, RuleSet};

use crate::nested::Nested;
use crate::shapes::{Asked, Shape};
use crate::stats::Spread;
use crate::thread_time::ThreadTime;

const LOOKS: usize = 200_000;
const WARM_UP: usize = 400_000;
/// The peer takes so long with many globs that fewer looks have to do.
const NESTED_LOOKS: usize = 20_000;

/// One shape with so many rules.
pub(crate) struct Row {
    shape: Shape,
    count: usize,
    set: RuleSet,
    nested: Option<Nested>,
    /// Nanoseconds, in each round.
    ours: Vec<f64>,
    in_turn: Vec<f64>,
    theirs: Vec<f64>,
}

impl Row {
    /// Compiles the rules, and checks that each descriptor leads to one.
    pub(crate) fn new(shape: &Shape, count: usize) -> Self {
        let domain = (shape.domain)(count);
        let nested = Nested::new(&domain);
        let set = RuleSet::new(vec![domain]).expect("rules that can be compiled");
        let mut asked = Asked::default();
        for number in 0..count {
            (shape.ask)(number, count, &mut asked);
            let entries = asked.entries();
            assert!(set.find("shop", &entries).is_some(), "{} {entries:?}", shape.name);
            if number % 97 == 0 {
                assert!(nested.as_ref().is_none_or(|nested| nested.find(&entries).is_some()));
            }
        }
        let (ours, in_turn, theirs) = (Vec::new(), Vec::new(), Vec::new());
        Self { shape: *shape, count, set, nested, ours, in_turn, theirs }
    }

    /// One round.
    pub(crate) fn measure(&mut self) {
        let Self { shape, count, set, .. } = &*self;
        let (shape, count) = (*shape, *count);
        let domain = set.domain("shop").expect("the domain");
        let mut way = MatchPath::default();
        let mut find = |asked: &Asked| {
            black_box(set.find_in(domain, &asked.entries(), &mut way)).map_or(0, |no| no.index())
        };
        timed(shape, count, WARM_UP, Next::Free, &mut find);
        let base = timed(shape, count, LOOKS, Next::Free, |asked| black_box(asked.entries()).len());
        let ours = timed(shape, count, LOOKS, Next::Free, &mut find) - base;
        let base =
            timed(shape, count, LOOKS, Next::InTurn, |asked| black_box(asked.entries()).len());
        let in_turn = timed(shape, count, LOOKS, Next::InTurn, &mut find) - base;
        let theirs = self.nested.as_ref().map(|nested| {
            let mut find = |asked: &Asked| {
                black_box(nested.find(&asked.entries())).map_or(0, |rule| rule as usize)
            };
            let base = timed(shape, count, LOOKS, Next::Free, |a| black_box(a.entries()).len());
            timed(shape, count, NESTED_LOOKS, Next::Free, &mut find);
            timed(shape, count, NESTED_LOOKS, Next::Free, &mut find) - base
        });
        self.ours.push(ours);
        self.in_turn.push(in_turn);
        self.theirs.extend(theirs);
    }

    /// How much longer it takes than another row, in each round.
    fn ratio(&self, other: &Self) -> Option<Spread> {
        Spread::of(self.ours.iter().zip(&other.ours).map(|(this, that)| this / that).collect())
    }
}

/// Whether the next look may begin before the last one has ended, as far as the processor can see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Free,
    InTurn,
}

/// Nanoseconds of CPU time for one look.
fn timed(
    shape: Shape,
    count: usize,
    looks: usize,
    next: Next,
    mut look: impl FnMut(&Asked) -> usize,
) -> f64 {
    let mut asked = Asked::default();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let before = ThreadTime::read();
    for _ in 0..looks {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let number = ((u128::from(state) * count as u128) >> 64) as usize;
        (shape.ask)(number, count, &mut asked);
        let found = look(&asked);
        if next == Next::InTurn {
            // It changes hardly anything, but it has to be known.
            state = state.wrapping_add(found as u64 & 1);
        }
    }
    ThreadTime::read().since(before).on_cpu.as_nanos() as f64 / looks as f64
}

/// All rows, as Markdown.
pub(crate) fn table(rows: &[Row]) -> String {
    let mut text = String::from(
        "| rules | shape | ns per match | in turn | x 10 rules | nested maps, ns | bytes per rule |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let shown = |readings: &[f64]| match Spread::of(readings.to_vec()) {
            Some(spread) => format!("{:.0} ({:.0}-{:.0})", spread.median, spread.min, spread.max),
            None => "-".to_owned(),
        };
        let ten = rows.iter().find(|other| other.shape.name == row.shape.name && other.count == 10);
        let ratio = ten.and_then(|ten| row.ratio(ten));
        let ratio = ratio
            .map_or("-".to_owned(), |r| format!("{:.2} ({:.2}-{:.2})", r.median, r.min, r.max));
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {ratio} | {} | {} |",
            row.count,
            row.shape.name,
            shown(&row.ours),
            shown(&row.in_turn),
            shown(&row.theirs),
            row.set.bytes() / row.count,
        );
    }
    text
}
