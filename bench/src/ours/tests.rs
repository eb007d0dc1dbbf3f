//! Our rows do what they say, on cells small enough for a test.

use crate::cell::{CELLS, Cell, MANY, SCARCE};
use crate::contestant::Contestant;
use crate::ids::{self, Picks};

use super::{Batch16, Headline, TwoLimits, entries};

#[test]
fn every_row_answers_as_its_cells_mean() {
    for entry in entries() {
        for cell in CELLS.iter().filter(|cell| entry.runs_in(cell)) {
            // The warm-up picks fewer than a thousand times each.
            let small = Cell { ids: cell.ids.min(1_000), ..*cell };
            if let Err(wrong) = (entry.speed)(&small, 1_000) {
                panic!("{} {}: {wrong}", cell.name, entry.name);
            }
        }
    }
}

#[test]
fn admits_the_burst_of_each_id_and_no_more() {
    fn answers<C: Contestant>() -> Vec<bool> {
        let contestant = C::new(SCARCE, 1);
        (0..4).map(|_| contestant.check(&ids::build(1)[0])).collect()
    }
    let meant = [true, true, false, false];
    assert_eq!(answers::<Headline>(), meant);
    assert_eq!(answers::<Batch16>(), meant);
    assert_eq!(answers::<TwoLimits>(), meant);
}

#[test]
fn a_batch_that_is_not_full_asks_no_more_than_it_was_told() {
    let ids = ids::build(3);
    let contestant = Batch16::new(MANY, ids.len());
    assert_eq!(contestant.run(&mut Picks::new(&ids, 1, crate::cell::Order::Random), 37), 37);
}
