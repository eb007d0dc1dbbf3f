//! Adaptive limits in front of simulated servers.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::*;

/// A server on virtual time: `workers` requests at a time, each for `service`; beyond `knee` in
/// flight everything gets slower, as with too many threads.
struct Server {
    workers: usize,
    service: f64,
    knee: f64,
    /// Time at which each worker is free.
    free: BinaryHeap<Reverse<u64>>,
}

/// What happened.
#[derive(Debug, Default)]
struct Load {
    completed: u64,
    limits: Vec<usize>,
}

impl Server {
    fn new(workers: usize, millis: f64, knee: f64) -> Self {
        let free = (0..workers).map(|_| Reverse(0)).collect();
        Self { workers, service: millis * 1_000.0, knee, free }
    }

    /// Requests per second that it can serve.
    fn capacity(&self) -> f64 {
        self.workers as f64 / self.service * 1e6
    }

    /// When a request is complete that arrives now.
    fn serve(&mut self, now: u64, in_flight: usize) -> u64 {
        let crowd = (in_flight as f64 / self.knee).max(1.0);
        let Reverse(free) = self.free.pop().unwrap();
        let done = free.max(now) + (self.service * crowd) as u64;
        self.free.push(Reverse(done));
        done
    }
}

/// Offers requests at a rate for a time, within the limit. Those beyond it are rejected.
fn run(
    limit: &mut AdaptiveLimit,
    server: &mut Server,
    start: u64,
    rate: f64,
    seconds: u64,
) -> Load {
    let (mut now, mut load) = (start as f64, Load::default());
    let mut flying: VecDeque<(u64, u64, usize)> = VecDeque::new();
    let mut random = fastrand::Rng::with_seed(7);
    let end = start as f64 + seconds as f64 * 1e6;
    while now < end {
        now += -(1.0 - random.f64()).ln() / rate * 1e6;
        while let Some((done, began, in_flight)) = flying.front().copied()
            && (done as f64) <= now
        {
            flying.pop_front();
            let latency = Span::from_micros(done - began);
            let sample = AdaptiveSample { latency, in_flight, is_failure: false };
            if limit.record(Timestamp::from_micros(done), sample) {
                load.limits.push(limit.limit());
            }
            load.completed += 1;
        }
        if flying.len() < limit.limit() {
            let in_flight = flying.len() + 1;
            let done = server.serve(now as u64, in_flight);
            let at = flying.partition_point(|(other, ..)| *other <= done);
            flying.insert(at, (done, now as u64, in_flight));
        }
    }
    load
}

fn limit(start: usize) -> AdaptiveLimit {
    let signal = AdaptiveSignal::Latency;
    AdaptiveLimit::new(AdaptiveOptions { min: 2, max: 1_000, start, signal })
}

const MINUTE: u64 = 60_000_000;

#[test]
fn twice_the_load_leaves_the_goodput_at_the_capacity() {
    for start in [5, 20, 500] {
        // Slower and slower beyond 40 in flight: without a limit it collapses.
        let (mut limit, mut server) = (limit(start), Server::new(20, 20.0, 40.0));
        let capacity = server.capacity();
        run(&mut limit, &mut server, 0, capacity * 0.5, 60);
        let warm = run(&mut limit, &mut server, MINUTE, capacity * 2.0, 60);
        let load = run(&mut limit, &mut server, 2 * MINUTE, capacity * 2.0, 120);
        let goodput = load.completed as f64 / 120.0 / capacity;
        assert!(goodput >= 0.9, "{goodput} from {start}: {:?} {:?}", warm.limits, load.limits);
    }
}

#[test]
fn a_mild_overload_for_hours_does_not_raise_the_limit() {
    let (mut limit, mut server) = (limit(20), Server::new(20, 20.0, f64::INFINITY));
    let capacity = server.capacity();
    run(&mut limit, &mut server, 0, capacity * 0.5, 60);
    let baseline = limit.baseline().unwrap();
    let load = run(&mut limit, &mut server, MINUTE, capacity * 1.1, 4 * 3_600);
    let most = load.limits.iter().skip(60).max().unwrap();
    assert!(*most <= 60, "twenty work, and a short queue: {most}");
    let later = limit.baseline().unwrap();
    assert!(later.as_micros() < baseline.as_micros() * 2, "{baseline:?} {later:?}");
}

#[test]
fn a_server_that_becomes_slower_for_good_keeps_its_throughput() {
    let (mut limit, mut server) = (limit(20), Server::new(20, 20.0, f64::INFINITY));
    let capacity = server.capacity();
    run(&mut limit, &mut server, 0, capacity * 0.9, 120);
    server.service *= 3.0;
    run(&mut limit, &mut server, 2 * MINUTE, capacity, 240);
    let load = run(&mut limit, &mut server, 6 * MINUTE, capacity, 240);
    let goodput = load.completed as f64 / 240.0 / server.capacity();
    assert!(goodput >= 0.9, "{goodput}: {:?}", load.limits);
}

#[test]
fn an_unused_limit_does_not_grow() {
    let (mut limit, mut server) = (limit(20), Server::new(100, 20.0, f64::INFINITY));
    run(&mut limit, &mut server, 0, 100.0, 600);
    assert!(limit.limit() <= 50, "two to ten are in flight: {}", limit.limit());
}

#[test]
fn failures_lower_the_limit_and_use_raises_it() {
    let options = AdaptiveOptions { min: 4, max: 100, start: 50, signal: AdaptiveSignal::Failures };
    let mut limit = AdaptiveLimit::new(options);
    let mut now = Timestamp::EPOCH;
    let mut run = |limit: &mut AdaptiveLimit, is_failure: bool, seconds: u64| {
        for _ in 0..seconds * 100 {
            now = now.after(Span::from_millis(10));
            let in_flight = limit.limit();
            limit
                .record(now, AdaptiveSample { latency: Span::from_secs(9), in_flight, is_failure });
        }
    };
    run(&mut limit, true, 10);
    assert!(limit.limit() < 25, "{}", limit.limit());
    run(&mut limit, true, 60);
    assert_eq!(limit.limit(), 4);
    run(&mut limit, false, 600);
    assert_eq!(limit.limit(), 100);
}

#[test]
fn requests_that_clients_abandon_are_slow_ones() {
    let mut limit = limit(20);
    let mut now = Timestamp::EPOCH;
    let mut run = |limit: &mut AdaptiveLimit, seconds: u64, fast: u64, abandoned: u64| {
        for _ in 0..seconds * 100 {
            now = now.after(Span::from_millis(10));
            let in_flight = limit.limit();
            let sample = |millis| AdaptiveSample {
                latency: Span::from_millis(millis),
                in_flight,
                is_failure: false,
            };
            (0..fast).for_each(|_| _ = limit.record(now, sample(10)));
            (0..abandoned).for_each(|_| _ = limit.record_abandoned(now, sample(1_000)));
            // Clients that leave at once say nothing.
            limit.record_abandoned(now, sample(1));
        }
    };
    run(&mut limit, 5, 2, 0);
    let before = limit.limit();
    assert!(before >= 20);
    run(&mut limit, 20, 1, 1);
    assert!(limit.limit() < before / 2, "{before} {}", limit.limit());
}
