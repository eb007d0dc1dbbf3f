//! Loops on virtual time.

use std::cell::Cell;
use std::sync::mpsc::channel;

use tokio::task::LocalSet;

use super::*;
use crate::keys::{KeyOrder, KeySpace};
use crate::request::Answer;
use crate::schedule::{Arrivals, Rate, RateStep};
use crate::tally::Second;
use crate::wire::Received;

/// Takes a millisecond per request, and does not answer from second 1 to second 2.
struct Stalling {
    began: Instant,
    room: usize,
}

impl Slot for Stalling {
    fn capacity(&self) -> usize {
        self.room
    }

    async fn send(&mut self, keys: &[u64], out: &mut Vec<Received>) {
        sleep(Duration::from_millis(1)).await;
        let (from, to) = (self.began + Duration::from_secs(1), self.began + Duration::from_secs(2));
        if (from..to).contains(&Instant::now()) {
            sleep_until(to).await;
        }
        out.extend(keys.iter().map(|_| Received::now(Ok(Answer::Allowed))));
    }

    fn reconnects(&mut self) -> u64 {
        0
    }
}

fn keys() -> Keys {
    KeySpace { count: 100, order: KeyOrder::Uniform, seed: 1 }.of_thread(0, 1)
}

fn constant(per_second: f64) -> Option<Schedule> {
    let rate = Rate::per_second(per_second).unwrap();
    let steps = [RateStep { time: Duration::MAX, rate }];
    Some(Schedule::new(&steps, Arrivals::Constant, 1, 0, 1))
}

/// Ten seconds with a number of slots; all of it as one second.
async fn driven(schedule: Option<Schedule>, slots: usize, room: usize) -> (Second, Unsent) {
    let began = Instant::now();
    let (out, seconds) = channel();
    let phase = Phase {
        keys: keys(),
        schedule,
        ends: Some(began + Duration::from_secs(10)),
        count: u64::MAX,
        timer: Timer::Coarse,
        timeout: Duration::from_secs(30),
        request_timeout: None,
    };
    let slots: Vec<_> = (0..slots).map(|_| Stalling { began, room }).collect();
    let work = drive(slots, phase, Tally::new(0, began, 9, out));
    let (_, unsent) = LocalSet::new().run_until(work).await;
    let mut all = Second::new(0);
    seconds.iter().for_each(|second| all.merge(&second));
    (all, unsent)
}

fn millis(all: &Second, quantile: f64) -> u64 {
    all.took.value_at_quantile(quantile) / 1_000_000
}

#[tokio::test(start_paused = true)]
async fn a_stop_of_a_second_is_seen_by_all_who_would_have_come() {
    let (all, unsent) = driven(constant(1_000.0), 10, 1).await;
    assert_eq!((all.answered(), unsent), (10_000, Unsent(0)));
    assert!(millis(&all, 0.5) <= 2, "{}", millis(&all, 0.5));
    assert!((850..=1_000).contains(&millis(&all, 0.99)), "{}", millis(&all, 0.99));
    assert!(all.late > 900, "{}", all.late);
    assert!(all.latest > Duration::from_millis(900), "{:?}", all.latest);
}

#[tokio::test(start_paused = true)]
async fn a_closed_loop_hides_it() {
    let (all, _) = driven(None, 10, 1).await;
    assert!(all.answered() > 30_000, "{}", all.answered());
    assert!(millis(&all, 0.999) <= 2, "{}", millis(&all, 0.999));
    assert!(millis(&all, 1.0) >= 999);
    assert_eq!(all.late, 0);
}

#[tokio::test(start_paused = true)]
async fn with_room_for_several_the_backlog_goes_out_at_once() {
    let (all, unsent) = driven(constant(1_000.0), 1, 2_000).await;
    assert_eq!((all.answered(), unsent), (10_000, Unsent(0)));
    assert!(millis(&all, 0.99) > 850, "{}", millis(&all, 0.99));
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_sent_is_said() {
    // One slot, a millisecond each: not more than 9,000 in nine seconds.
    let (all, Unsent(unsent)) = driven(constant(2_000.0), 1, 1).await;
    assert_eq!(all.answered() + unsent, 20_000);
    assert!(unsent > 10_000, "{unsent}");
    assert!(all.late > all.answered() / 2);
}

/// Never answers.
struct Silent;

impl Slot for Silent {
    fn capacity(&self) -> usize {
        3
    }

    async fn send(&mut self, _: &[u64], _: &mut Vec<Received>) {
        std::future::pending().await
    }

    fn reconnects(&mut self) -> u64 {
        0
    }
}

#[tokio::test(start_paused = true)]
async fn who_never_answers_is_given_up() {
    let began = Instant::now();
    let (out, seconds) = channel();
    let phase = Phase {
        keys: keys(),
        schedule: None,
        ends: None,
        count: 100,
        timer: Timer::Exact,
        timeout: Duration::from_secs(5),
        request_timeout: None,
    };
    let work = drive(vec![Silent, Silent], phase, Tally::new(0, began, 0, out));
    let (slots, _) = LocalSet::new().run_until(work).await;
    assert!(slots.is_empty());
    assert!(began.elapsed() <= Duration::from_secs(10));
    let failures = seconds.iter().next().unwrap().failures;
    assert_eq!(
        failures.0.into_iter().collect::<Vec<_>>(),
        [("no answer within 5 s".to_owned(), 6)]
    );
}

/// Always fails.
struct Broken(Rc<Cell<u64>>);

impl Slot for Broken {
    fn capacity(&self) -> usize {
        1
    }

    async fn send(&mut self, keys: &[u64], out: &mut Vec<Received>) {
        self.0.set(self.0.get() + 1);
        out.extend(keys.iter().map(|_| Received::now(Err("refused".to_owned()))));
    }

    fn reconnects(&mut self) -> u64 {
        1
    }
}

#[tokio::test(start_paused = true)]
async fn failures_and_nothing_else_end_it() {
    let (out, seconds) = channel();
    let phase = Phase {
        keys: keys(),
        schedule: None,
        ends: None,
        count: u64::MAX,
        timer: Timer::Exact,
        timeout: Duration::from_secs(5),
        request_timeout: None,
    };
    let asked = Rc::new(Cell::new(0));
    let work = drive(vec![Broken(asked.clone())], phase, Tally::new(0, Instant::now(), 0, out));
    LocalSet::new().run_until(work).await;
    assert_eq!(asked.get(), 1_000);
    assert_eq!(seconds.iter().next().unwrap().failures.count(), 1_000);
}

/// Answers after the time of its key in seconds; the connection ends with an abandoned request.
struct Slow;

impl Slot for Slow {
    fn capacity(&self) -> usize {
        1
    }

    async fn send(&mut self, keys: &[u64], out: &mut Vec<Received>) {
        sleep(Duration::from_secs(keys[0])).await;
        out.push(Received::now(Ok(Answer::Allowed)));
    }

    fn reconnects(&mut self) -> u64 {
        0
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_response_in_time_is_abandoned() {
    let (out, seconds) = channel();
    let keys = KeySpace { count: 4, order: KeyOrder::Sequential, seed: 1 }.each(0, 1);
    let phase = Phase {
        keys,
        schedule: None,
        ends: None,
        count: u64::MAX,
        timer: Timer::Coarse,
        timeout: Duration::from_secs(30),
        request_timeout: Some(Duration::from_millis(1_500)),
    };
    let work = drive(vec![Slow], phase, Tally::new(0, Instant::now(), 99, out));
    LocalSet::new().run_until(work).await;
    let failed: Vec<_> = seconds.iter().map(|one| (one.index, one.failures.count())).collect();
    // Answered after 0 and 1 s; abandoned at 2.5 and 4 s.
    assert_eq!(failed, [(0, 0), (1, 0), (2, 1), (4, 1)]);
}
