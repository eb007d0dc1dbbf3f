//! A simulated API, and calls with random arrival times and latencies.

use std::time::Duration;

use http::{HeaderMap, StatusCode};
use proptest::prelude::*;
use tokio::time::Instant;

use super::{Pace, SendTime, SentCall, ServerHints, Window};

const SECOND: Duration = Duration::from_secs(1);

fn window(name: &str, remaining: u64, reset_after: Duration) -> Window {
    Window { name: name.to_owned(), quota: None, remaining, reset_after }
}

fn hints(windows: &[Window]) -> ServerHints {
    ServerHints { windows: windows.to_vec(), ..ServerHints::default() }
}

fn left(remaining: u64, reset_after: Duration) -> ServerHints {
    hints(&[window("", remaining, reset_after)])
}

fn denied(retry_after: Option<Duration>) -> ServerHints {
    ServerHints { denied: true, retry_after, ..ServerHints::default() }
}

/// Runs a future with a paused clock.
fn at_a_standstill(test: impl FnOnce(Instant)) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async { test(Instant::now()) });
}

/// Sends all permitted calls, up to a number.
fn send(pace: &mut Pace, now: Instant, max: usize) -> Vec<SentCall> {
    let mut sent = Vec::new();
    while sent.len() < max && pace.when(now) == SendTime::Now {
        sent.push(pace.sent(now));
    }
    sent
}

/// One call with an immediate response.
fn call(pace: &mut Pace, hints: &ServerHints, now: Instant) {
    let call = pace.sent(now);
    pace.answered(call, hints, now);
}

#[test]
fn no_more_than_is_left_and_one_first_after_the_reset() {
    at_a_standstill(|now| {
        let mut pace = Pace::new();
        let mut calls = send(&mut pace, now, 5);
        assert_eq!(calls.len(), 5, "nothing is known");
        // Four calls are in flight and may not be counted yet.
        pace.answered(calls.remove(2), &left(10, 60 * SECOND), now);
        calls.extend(send(&mut pace, now, 99));
        assert_eq!(calls.len(), 4 + 6);
        assert_eq!(pace.when(now), SendTime::At(now + 60 * SECOND));
        // An overtaken response only proves that its call was counted.
        pace.answered(calls.remove(0), &left(19, 60 * SECOND), now);
        calls.extend(send(&mut pace, now, 99));
        assert_eq!(calls.len(), 10);
        for call in calls {
            pace.answered(call, &left(0, 60 * SECOND), now);
        }
        let later = now + 60 * SECOND;
        let mut trial = send(&mut pace, later, 99);
        assert_eq!(trial.len(), 1);
        assert_eq!(
            pace.when(later),
            SendTime::At(later + SECOND),
            "one more, if it is not answered"
        );
        pace.answered(trial.remove(0), &ServerHints::default(), later);
        assert_eq!(send(&mut pace, later, 99).len(), 99, "nothing is known again");
    });
}

#[test]
fn a_known_quota_is_there_again_after_the_reset() {
    at_a_standstill(|now| {
        let mut pace = Pace::new();
        let of_three =
            |remaining| hints(&[Window { quota: Some(3), ..window("w", remaining, 10 * SECOND) }]);
        call(&mut pace, &of_three(0), now);
        assert_eq!(send(&mut pace, now, 9).len(), 0);
        let later = now + 10 * SECOND;
        let calls = send(&mut pace, later, 9);
        assert_eq!((calls.len(), pace.when(later)), (3, SendTime::At(later + SECOND)));
        calls.into_iter().for_each(|call| pace.lost(call, later));
        let mut tries = send(&mut pace, later, 9);
        assert_eq!(tries.len(), 1, "no call is left that could report: one is sent");
        pace.answered(tries.remove(0), &of_three(2), later);
        assert_eq!(send(&mut pace, later, 9).len(), 2);
    });
}

#[test]
fn calls_that_nothing_is_known_of_are_taken_off() {
    at_a_standstill(|now| {
        let mut pace = Pace::new();
        call(&mut pace, &left(5, 60 * SECOND), now);
        // Two calls are lost, and one response has no limit headers.
        send(&mut pace, now, 2).into_iter().for_each(|call| pace.lost(call, now));
        call(&mut pace, &ServerHints::default(), now);
        assert_eq!(send(&mut pace, now, 9).len(), 2);

        // A call lost near the end may belong to the next window.
        let mut pace = Pace::new();
        let window = Window { quota: Some(3), ..window("", 3, 10 * SECOND) };
        call(&mut pace, &hints(&[window]), now);
        let before = now + 10 * SECOND - SECOND / 2;
        send(&mut pace, before, 1).into_iter().for_each(|call| pace.lost(call, before));
        assert_eq!(send(&mut pace, now + 10 * SECOND, 9).len(), 2);
    });
}

#[test]
fn what_refills_bit_by_bit_does_not_stop() {
    at_a_standstill(|start| {
        // Half of a bucket of ten per second remains: calls at the refill rate do not wait.
        let mut pace = Pace::new();
        for tenth in 0..1_000 {
            let now = start + tenth * SECOND / 10;
            assert_eq!(pace.when(now), SendTime::Now, "at {tenth}");
            call(&mut pace, &left(25, 3 * SECOND), now);
        }
    });
}

#[test]
fn denials_without_a_word_make_it_wait_longer_each_time() {
    at_a_standstill(|mut now| {
        let mut pace = Pace::new();
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert_eq!(pace.when(now), SendTime::Now);
            call(&mut pace, &denied(None), now);
            assert_eq!(pace.when(now), SendTime::At(now + seconds * SECOND));
            now += seconds * SECOND;
        }
        let mut trial = send(&mut pace, now, 9);
        assert_eq!(trial.len(), 1);
        pace.answered(trial.remove(0), &ServerHints::default(), now);
        call(&mut pace, &denied(None), now);
        assert_eq!(pace.when(now), SendTime::At(now + SECOND));
    });
}

#[test]
fn limits_with_names_hold_apart() {
    at_a_standstill(|now| {
        let mut pace = Pace::new();
        let first = [window("burst", 0, SECOND), window("daily", 5, 9_000 * SECOND)];
        call(&mut pace, &hints(&first), now);
        assert_eq!(pace.when(now), SendTime::At(now + SECOND));
        let mut trial = send(&mut pace, now + SECOND, 9);
        assert_eq!(trial.len(), 1);
        let second = [window("burst", 9, SECOND), window("daily", 0, 8_999 * SECOND)];
        pace.answered(trial.remove(0), &hints(&second), now + SECOND);
        assert_eq!(pace.when(now + SECOND), SendTime::At(now + 9_000 * SECOND));
        for name in 0..1_000 {
            call(&mut pace, &hints(&[window(&name.to_string(), 1, 10 * SECOND)]), now + SECOND);
        }
        assert!(!pace.is_idle(now + SECOND) && pace.is_idle(now + 86_400 * SECOND));
    });
}

#[test]
fn what_is_left_is_spread_if_that_is_wanted() {
    at_a_standstill(|start| {
        let mut pace = Pace::spreading_below(100);
        let first = pace.sent(start);
        pace.answered(first, &left(9, 10 * SECOND), start);
        let (mut now, mut sent) = (start, Vec::new());
        while now < start + 10 * SECOND {
            match pace.when(now) {
                SendTime::Now => sent.push((now, pace.sent(now))),
                SendTime::At(at) => now = at,
            }
        }
        let seconds: Vec<_> = sent.iter().map(|(at, _)| (*at - start).as_millis()).collect();
        assert_eq!(seconds, (1..10).map(|second| second * 1_000).collect::<Vec<_>>());
    });
}

/// A fixed window, counting from the beginning.
struct Api {
    quota: u64,
    window: Duration,
    start: Instant,
    used: (u32, u64),
    denied: u64,
    tells_quota: bool,
}

impl Api {
    fn call(&mut self, now: Instant) -> ServerHints {
        let number = (now - self.start).as_millis() / self.window.as_millis();
        let number = u32::try_from(number).unwrap();
        if self.used.0 != number {
            self.used = (number, 0);
        }
        let end = self.start + self.window * (number + 1);
        // Whole seconds, rounded up, as they are written.
        let reset_after = Duration::from_secs((end - now).as_secs_f64().ceil() as u64);
        let denied = self.used.1 >= self.quota;
        self.used.1 += u64::from(!denied);
        self.denied += u64::from(denied);
        let quota = Some(self.quota).filter(|_| self.tells_quota);
        let remaining = self.quota - self.used.1;
        let window = Window { name: String::new(), quota, remaining, reset_after };
        ServerHints { denied, retry_after: denied.then_some(reset_after), windows: vec![window] }
    }
}

/// A call in transit, to the API or back.
enum OnItsWay {
    There(SentCall, u64),
    Back(SentCall, ServerHints),
}

proptest! {
    /// Calls have latency and overtake each other: after its first response the API rejects none.
    #[test]
    fn who_is_alone_with_an_api_is_never_turned_away(
        quota in 1_u64..20,
        window_s in 3_u32..8,
        tells_quota: bool,
        spread in proptest::option::of(0_u32..=100),
        delays_ms in proptest::collection::vec((0_u64..400, 0_u64..400), 1..200),
    ) {
        at_a_standstill(|start| {
            let mut pace = spread.map_or_else(Pace::new, Pace::spreading_below);
            let window = window_s * SECOND;
            let mut api = Api { quota, window, start, used: (0, 0), denied: 0, tells_quota };
            let first = pace.sent(start);
            pace.answered(first, &api.call(start), start);
            let (mut now, mut on_their_way) = (start, Vec::<(Instant, OnItsWay)>::new());
            for (there, back) in delays_ms {
                loop {
                    let next = on_their_way.iter().map(|(at, _)| *at).min();
                    let when = pace.when(now);
                    match (when, next) {
                        (SendTime::Now, _) => break,
                        (SendTime::At(at), Some(next)) => now = at.min(next),
                        (SendTime::At(at), None) => now = at,
                    }
                    while let Some(place) = on_their_way.iter().position(|(at, _)| *at <= now) {
                        match on_their_way.remove(place).1 {
                            OnItsWay::There(call, back) => {
                                let (hints, at) = (api.call(now), now + Duration::from_millis(back));
                                assert_eq!(api.denied, 0, "after {:?}", now - start);
                                on_their_way.push((at, OnItsWay::Back(call, hints)));
                            }
                            OnItsWay::Back(call, hints) => pace.answered(call, &hints, now),
                        }
                    }
                }
                let at = now + Duration::from_millis(there);
                on_their_way.push((at, OnItsWay::There(pace.sent(now), back)));
            }
        });
    }

    /// For all hints: never before the announced time, and never more than the remaining quota.
    #[test]
    fn never_before_the_time_and_never_more_than_is_left(
        steps in proptest::collection::vec((0_u8..4, 0_usize..5, 0_u64..30, 0_u64..3_000), 1..300),
    ) {
        at_a_standstill(|start| {
            let (mut pace, mut now) = (Pace::new(), start);
            let mut held_until = start;
            let mut window: Option<(usize, Instant)> = None;
            for (kind, number, seconds, step_ms) in steps {
                now += Duration::from_millis(step_ms);
                let end = now + Duration::from_secs(seconds);
                match kind {
                    0 => {
                        call(&mut pace, &denied(Some(end - now)), now);
                        held_until = held_until.max(end);
                    }
                    1 => {
                        call(&mut pace, &left(number as u64, end - now), now);
                        window = Some((number, end));
                    }
                    2 => {
                        let went = send(&mut pace, now, number);
                        assert!(went.is_empty() || now >= held_until, "before the time");
                        if let Some((left, _)) = window.as_mut().filter(|(_, end)| now < *end) {
                            assert!(went.len() <= *left, "{} of {left}", went.len());
                            *left -= went.len();
                        }
                        went.into_iter().for_each(|call| pace.lost(call, now));
                    }
                    _ => {}
                }
            }
        });
    }

    #[test]
    fn any_header_is_read(name in 0_usize..9, value in "[ -~]{0,60}", status in 200_u16..600) {
        let names = [
            "ratelimit", "ratelimit-policy", "ratelimit-remaining", "ratelimit-reset", "x-ratelimit-remaining",
            "x-ratelimit-reset", "x-ratelimit-limit", "retry-after", "date",
        ];
        let mut headers = HeaderMap::new();
        headers.insert("x-ratelimit-remaining", "1".parse().unwrap());
        headers.insert("x-ratelimit-reset", "1700000000".parse().unwrap());
        headers.insert("date", "Sun, 06 Nov 1994 08:49:37 GMT".parse().unwrap());
        headers.insert(names[name], value.parse().unwrap());
        let hints = ServerHints::of(StatusCode::from_u16(status).unwrap(), &headers);
        at_a_standstill(|now| {
            let mut pace = Pace::new();
            call(&mut pace, &hints, now);
            let _ = pace.when(now);
        });
    }
}
