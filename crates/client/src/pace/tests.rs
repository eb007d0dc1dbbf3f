//! An API that counts, and calls that come and take their time as chance has it.

use std::time::Duration;

use http::{HeaderMap, StatusCode};
use proptest::prelude::*;
use tokio::time::Instant;

use super::{Pace, Told, When, Window};

const SECOND: Duration = Duration::from_secs(1);

fn told(remaining: u64, reset_after: Duration) -> Told {
    let window = Window { name: String::new(), quota: None, remaining, reset_after };
    Told { windows: vec![window], ..Told::default() }
}

fn denied(retry_after: Option<Duration>) -> Told {
    Told { denied: true, retry_after, ..Told::default() }
}

/// Runs what needs a clock that stands still.
fn at_a_standstill(test: impl FnOnce(Instant)) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async { test(Instant::now()) });
}

/// Sends as many as may go now, up to a number.
fn send(pace: &mut Pace, now: Instant, most: u64) -> u64 {
    let mut sent = 0;
    while sent < most && pace.when(now) == When::Now {
        pace.sent(now);
        sent += 1;
    }
    sent
}

#[test]
fn no_more_than_is_left_and_one_first_after_the_reset() {
    at_a_standstill(|now| {
        let mut pace = Pace::new();
        assert_eq!(send(&mut pace, now, 5), 5, "nothing is known");
        // Four are under way, and may not be counted yet.
        pace.answered(&told(10, 60 * SECOND), now);
        assert_eq!(send(&mut pace, now, 99), 6);
        assert_eq!(pace.when(now), When::At(now + 60 * SECOND));
        // An answer that was overtaken says nothing new.
        pace.answered(&told(12, 60 * SECOND), now);
        assert_eq!(pace.when(now), When::At(now + 60 * SECOND));
        let later = now + 60 * SECOND;
        assert_eq!(send(&mut pace, later, 99), 1);
        assert_eq!(pace.when(later), When::At(later + SECOND), "one more, if it is not answered");
        pace.answered(&Told::default(), later);
        assert_eq!(send(&mut pace, later, 99), 99, "nothing is known again");
    });
}

#[test]
fn a_known_quota_is_there_again_after_the_reset() {
    at_a_standstill(|now| {
        let mut pace = Pace::new();
        pace.sent(now);
        let window = |remaining, reset_after| Window {
            name: "w".into(),
            quota: Some(3),
            remaining,
            reset_after,
        };
        let told = |remaining| Told { windows: vec![window(remaining, SECOND)], ..Told::default() };
        pace.answered(&told(0), now);
        assert_eq!(send(&mut pace, now, 9), 0);
        let later = now + SECOND;
        assert_eq!(send(&mut pace, later, 9), 3);
        assert_eq!(pace.when(later), When::Answered);
        pace.lost();
        pace.lost();
        pace.lost();
        assert_eq!(send(&mut pace, later, 9), 1, "nobody is left who could tell: one tries");
        pace.answered(&told(2), later);
        assert_eq!(send(&mut pace, later, 9), 2);
    });
}

#[test]
fn what_refills_bit_by_bit_does_not_stop() {
    at_a_standstill(|start| {
        // A bucket of 50 at ten a second, of which half are left: as fast as it refills, nobody waits.
        let mut pace = Pace::new();
        for tenth in 0..1_000 {
            let now = start + tenth * SECOND / 10;
            assert_eq!(pace.when(now), When::Now, "at {tenth}");
            pace.sent(now);
            pace.answered(&told(25, 3 * SECOND), now);
        }
    });
}

#[test]
fn denials_without_a_word_make_it_wait_longer_each_time() {
    at_a_standstill(|mut now| {
        let mut pace = Pace::new();
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert_eq!(send(&mut pace, now, 1), 1);
            pace.answered(&denied(None), now);
            assert_eq!(pace.when(now), When::At(now + seconds * SECOND));
            now += seconds * SECOND;
        }
        assert_eq!(send(&mut pace, now, 9), 1);
        pace.answered(&Told::default(), now);
        pace.sent(now);
        pace.answered(&denied(None), now);
        assert_eq!(pace.when(now), When::At(now + SECOND));
    });
}

#[test]
fn limits_with_names_hold_apart() {
    at_a_standstill(|now| {
        let window = |name: &str, remaining, seconds| Window {
            name: name.to_owned(),
            quota: None,
            remaining,
            reset_after: seconds * SECOND,
        };
        let told = |windows: &[Window]| Told { windows: windows.to_vec(), ..Told::default() };
        let mut pace = Pace::new();
        pace.sent(now);
        pace.answered(&told(&[window("burst", 0, 1), window("daily", 5, 9_000)]), now);
        assert_eq!(pace.when(now), When::At(now + SECOND));
        assert_eq!(send(&mut pace, now + SECOND, 9), 1);
        pace.answered(&told(&[window("burst", 9, 1), window("daily", 0, 8_999)]), now + SECOND);
        assert_eq!(pace.when(now + SECOND), When::At(now + 9_000 * SECOND));
        for name in 0..1_000 {
            pace.answered(&told(&[window(&name.to_string(), 1, 10)]), now + SECOND);
        }
        assert!(!pace.is_idle(now + SECOND) && pace.is_idle(now + 86_400 * SECOND));
    });
}

#[test]
fn what_is_left_is_spread_if_that_is_wanted() {
    at_a_standstill(|start| {
        let mut pace = Pace::spreading_below(100);
        pace.sent(start);
        pace.answered(&told(10, 10 * SECOND), start);
        let (mut now, mut sent) = (start, Vec::new());
        while now < start + 10 * SECOND {
            match pace.when(now) {
                When::Now => {
                    sent.push((now - start).as_millis());
                    pace.sent(now);
                }
                When::At(at) => now = at,
                When::Answered => panic!("everything is known"),
            }
        }
        assert_eq!(sent, (0..10).map(|second| second * 1_000).collect::<Vec<_>>());
    });
}

/// A call that is under way.
#[derive(Debug)]
struct Call {
    returns: Instant,
    answer: Told,
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
    fn call(&mut self, now: Instant) -> Told {
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
        Told { denied, retry_after: denied.then_some(reset_after), windows: vec![window] }
    }
}

proptest! {
    /// Calls reach the API at once and are answered after a while: once it has answered, it turns nobody away.
    #[test]
    fn who_is_alone_with_an_api_is_never_turned_away(
        quota in 1_u64..20,
        window_s in 1_u32..5,
        tells_quota: bool,
        spread in proptest::option::of(0_u32..=100),
        delays_ms in proptest::collection::vec(0_u64..700, 1..200),
    ) {
        at_a_standstill(|start| {
            let mut pace = spread.map_or_else(Pace::new, Pace::spreading_below);
            let window = window_s * SECOND;
            let mut api = Api { quota, window, start, used: (0, 0), denied: 0, tells_quota };
            pace.sent(start);
            let first = api.call(start);
            pace.answered(&first, start);
            let (mut now, mut under_way) = (start, Vec::<Call>::new());
            let mut wakes_max = 20_000;
            for delay in delays_ms {
                loop {
                    wakes_max -= 1;
                    assert!(wakes_max > 0, "it never goes");
                    let next = under_way.iter().map(|call| call.returns).min();
                    match pace.when(now) {
                        When::Now => break,
                        When::At(at) if next.is_none_or(|next| at <= next) => now = at,
                        _ => now = next.expect("somebody has to be under way"),
                    }
                    under_way.sort_by_key(|call| call.returns);
                    while under_way.first().is_some_and(|call| call.returns <= now) {
                        let call = under_way.remove(0);
                        pace.answered(&call.answer, now);
                    }
                }
                pace.sent(now);
                let returns = now + Duration::from_millis(delay);
                under_way.push(Call { returns, answer: api.call(now) });
                assert_eq!(api.denied, 0, "after {:?}", now - start);
            }
        });
    }

    /// Whatever is told, in whatever order: not before the time, and not more than is left.
    #[test]
    fn never_before_the_time_and_never_more_than_is_left(
        steps in proptest::collection::vec((0_u8..4, 0_u64..5, 0_u64..30, 0_u64..3_000), 1..300),
    ) {
        at_a_standstill(|start| {
            let (mut pace, mut now) = (Pace::new(), start);
            let mut held_until = start;
            // What was told last of the window, and how many went since then.
            let mut window: Option<(u64, Instant)> = None;
            for (kind, remaining, seconds, step_ms) in steps {
                now += Duration::from_millis(step_ms);
                let end = now + Duration::from_secs(seconds);
                match kind {
                    0 => {
                        pace.sent(now);
                        pace.answered(&denied(Some(end - now)), now);
                        held_until = held_until.max(end);
                    }
                    1 => {
                        // One that was sent in time, and is answered now.
                        pace.sent(now);
                        pace.answered(&told(remaining, end - now), now);
                        window = match window.filter(|(_, known)| *known > now) {
                            Some((left, known)) if end <= known => Some((left.min(remaining), known)),
                            _ => Some((remaining, end)),
                        };
                    }
                    2 => {
                        let went = send(&mut pace, now, remaining);
                        assert!(went == 0 || now >= held_until, "before the time");
                        if let Some((left, end)) = &mut window && now < *end {
                            assert!(went <= *left, "{went} of {left}");
                            *left -= went;
                        }
                        (0..went).for_each(|_| pace.lost());
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
        let told = Told::of(StatusCode::from_u16(status).unwrap(), &headers);
        at_a_standstill(|now| {
            let mut pace = Pace::new();
            pace.sent(now);
            pace.answered(&told, now);
            let _ = pace.when(now);
        });
    }
}
