//! For how long a node knows enough, and what it says of what it does not know.

use super::*;
use crate::backend::eventual::book::{Book, Seen};
use crate::sync::{SyncOp, SyncReply};

const INTERVAL: Span = Span::from_millis(100);
/// Ten seconds, of which one begins here.
const WINDOW: Span = Span::from_secs(10);
const START: u64 = 1_794_770_800_000_000;
/// What this node's ticks are behind.
const BEHIND: u64 = 1_000_000_000_000_000;

fn tick(ms: u64) -> Timestamp {
    at(START - BEHIND + 1_000 * ms)
}

/// So many milliseconds into the window others have so many.
fn heard(ms: u64, others: i64) -> SyncReply {
    let name = WINDOW.as_micros().to_string().into();
    let others = vec![(name, at(START), others)];
    SyncReply { at: at(START + 1_000 * ms), epoch: 0, own: Vec::new(), others }
}

fn hear(book: &mut Book, ms: u64, others: i64) -> Seen {
    book.hears(&heard(ms, others), 0, (tick(ms), tick(ms)))
}

#[test]
fn what_was_heard_is_good_for_an_interval() {
    let rule = rule(vec![fixed(100, WINDOW)]);
    let mut book = Book::new(&rule);
    assert_eq!(book.hit(&rule, 1, INTERVAL, tick(5_000)), None, "never heard");
    hear(&mut book, 5_000, 7);
    assert_eq!(book.hit(&rule, 1, INTERVAL, tick(5_100)).unwrap().remaining, Some(92));
    assert_eq!(book.hit(&rule, 1, INTERVAL, tick(5_101)), None);
    assert_eq!(book.hit(&rule, 1, WINDOW, tick(5_101)).unwrap().remaining, Some(91));
    // A new window: there was nothing to hear before it.
    assert_eq!(book.hit(&rule, 1, INTERVAL, tick(10_010)).unwrap().remaining, Some(99));
    assert_eq!(book.hit(&rule, 1, INTERVAL, tick(10_150)), None);
}

#[test]
fn a_sliding_window_looks_back_so_its_being_new_is_no_excuse() {
    let rule = rule(vec![fixed(100, WINDOW), sliding(100, WINDOW, Rounding::Up)]);
    let mut book = Book::new(&rule);
    hear(&mut book, 5_000, 7);
    assert!(book.hit(&rule, 1, INTERVAL, tick(5_100)).is_some());
    assert_eq!(book.hit(&rule, 1, INTERVAL, tick(10_010)), None);
}

#[test]
fn a_clock_that_steps_back_a_little_stands_still_and_far_begins_anew() {
    let rule = rule(vec![fixed(10, WINDOW)]);
    let mut book = Book::new(&rule);
    hear(&mut book, 10, 0);
    assert!(book.hit(&rule, 8, INTERVAL, tick(10)).unwrap().is_allowed());
    // Another server answers, ten milliseconds before the window began.
    let back = |ago: Span| SyncReply { at: at(START).before(ago), ..heard(0, 0) };
    book.hears(&back(Span::from_millis(10)), 0, (tick(20), tick(20)));
    assert_eq!(book.peek(&rule, 1, INTERVAL, tick(20)).unwrap().remaining, Some(2));
    book.hears(&back(Span::from_secs(3_600)), 0, (tick(30), tick(30)));
    assert_eq!(book.peek(&rule, 1, INTERVAL, tick(30)).unwrap().remaining, Some(10));
}

#[test]
fn what_others_admitted_unheard_while_this_node_admitted_is_what_may_be_over() {
    let rule = rule(vec![fixed(100, WINDOW)]);
    let mut book = Book::new(&rule);
    let hit = |book: &mut Book, ms| book.hit(&rule, 1, INTERVAL, tick(ms)).unwrap();
    assert_eq!(hear(&mut book, 1_000, 20).bound, 0, "known before anything was decided");
    assert_eq!(hear(&mut book, 1_050, 40).bound, 0, "nothing was decided meanwhile");
    assert!(hit(&mut book, 1_060).is_allowed());
    assert_eq!(hear(&mut book, 1_100, 55), Seen { bound: 15, over: 0 });
    assert_eq!(hear(&mut book, 1_150, 60), Seen { bound: 20, over: 0 });
    assert_eq!(book.over(), 20);
    assert!(hit(&mut book, 1_160).is_allowed());
    // The others reach what they think is the end.
    assert_eq!(hear(&mut book, 1_200, 99), Seen { bound: 59, over: 1 });
    assert!(!hit(&mut book, 1_210).is_allowed());
    assert_eq!(hear(&mut book, 1_250, 100), Seen { bound: 60, over: 2 });
    assert_eq!(hear(&mut book, 1_300, 100), Seen { bound: 45, over: 0 }, "nothing new");
    for ms in [1_350, 1_400, 1_450] {
        hear(&mut book, ms, 100);
    }
    assert_eq!(book.over(), 0, "nothing was decided lately");
}

#[test]
fn what_the_store_forgot_is_not_forgotten_here() {
    let rule = rule(vec![fixed(100, WINDOW)]);
    let mut book = Book::new(&rule);
    hear(&mut book, 1_000, 20);
    let forgot = SyncReply { others: Vec::new(), ..heard(1_050, 0) };
    book.hears(&forgot, 0, (tick(1_050), tick(1_050)));
    assert_eq!(book.peek(&rule, 1, INTERVAL, tick(1_060)).unwrap().remaining, Some(80));
}

#[test]
fn who_has_counted_nothing_only_looks_and_who_has_is_untold_until_it_is_heard() {
    let rule = rule(vec![fixed(100, WINDOW)]);
    let mut book = Book::new(&rule);
    assert_eq!(book.tells(tick(0)).op, SyncOp::PullAll);
    hear(&mut book, 0, 0);
    assert_eq!(book.tells(tick(0)).op, SyncOp::Pull);
    book.hit(&rule, 3, INTERVAL, tick(10)).unwrap();
    assert!(book.is_untold(tick(10)));
    let telling = book.tells(tick(10));
    assert_eq!((telling.op, telling.counted[0].current.admitted), (SyncOp::Push, 3));
    book.hit(&rule, 1, INTERVAL, tick(11)).unwrap();
    book.hears(&heard(20, 0), telling.version, (tick(10), tick(20)));
    assert!(book.is_untold(tick(20)), "of the last it has not heard");
    let version = book.tells(tick(20)).version;
    book.hears(&heard(30, 0), version, (tick(20), tick(30)));
    assert!(!book.is_untold(tick(30)));
    book.hit(&rule, 1, INTERVAL, tick(31)).unwrap();
    assert!(!book.is_untold(tick(20_100)), "nobody needs to hear of it any more");
}
