//! The order of requests, against a naive model; logs in files, against each other.

use std::io::Write;
use std::path::PathBuf;

use proptest::prelude::*;
use sluicegate_accesslog::Record;
use sluicegate_core::time::{Span, Timestamp};

use super::arrivals::ClientParts;
use super::batch::Batch;
use super::mapping::LogMapping;
use super::order::TimeOrder;
use super::*;

fn seconds(seconds: u64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

/// A batch of requests at these times.
fn batch(times: &[u64]) -> Batch {
    let mapping = [LogMapping::of_part("client_ip or nobody".parse().unwrap())];
    let mut batch = Batch::default();
    for (line, at) in times.iter().enumerate() {
        let record = Record { at: seconds(*at), ..Record::default() };
        batch.push((&mapping, None), &record, (line as u32, b""));
    }
    batch.lines = times.len() as u64;
    batch
}

/// Time, log and line of each request, in the order in which they are decided.
fn ordered(logs: &[Vec<u64>], tolerance: u64, block: usize) -> Vec<(u64, usize, u64)> {
    let mut order = TimeOrder::new(logs.len(), Span::from_secs(tolerance));
    let mut blocks: Vec<_> = logs.iter().map(|log| log.chunks(block)).collect();
    let mut all = Vec::new();
    while let Some(log) = order.furthest_behind() {
        match blocks[log].next() {
            Some(times) => order.push(log, batch(times)),
            None => order.end(log),
        }
        while let Some(requests) = order.next() {
            all.extend(
                requests.iter().map(|one| (one.at.as_micros() / 1_000_000, one.log, one.line)),
            );
        }
    }
    assert_eq!(order.counts.requests, all.len() as u64);
    all
}

/// Each time not before the second latest one so far less the tolerance; then sorted.
fn naive(logs: &[Vec<u64>], tolerance: u64) -> Vec<(u64, usize, u64)> {
    let mut all = Vec::new();
    for (log, times) in logs.iter().enumerate() {
        for (index, at) in times.iter().enumerate() {
            let mut before = times[..index].to_vec();
            before.sort_unstable();
            let second = before.len().checked_sub(2).map_or(0, |second| before[second]);
            all.push(((*at).max(second.saturating_sub(tolerance)), log, index as u64 + 1));
        }
    }
    all.sort_unstable();
    all
}

fn logs() -> impl Strategy<Value = Vec<Vec<u64>>> {
    // Mostly forwards, at times back.
    let step = prop_oneof![8 => 0i64..4, 2 => -9i64..0, 1 => 50i64..60];
    let log = (0u64..100, prop::collection::vec(step, 0..60)).prop_map(|(start, steps)| {
        let mut at = start as i64;
        let mut next = |step: i64| {
            at = (at + step).max(0);
            at as u64
        };
        steps.into_iter().map(&mut next).collect::<Vec<_>>()
    });
    prop::collection::vec(log, 1..4)
}

proptest! {
    #[test]
    fn the_order_is_that_of_a_naive_sort_whatever_the_blocks(
        logs in logs(),
        tolerance in 0u64..8,
        block in 1usize..20,
    ) {
        prop_assert_eq!(ordered(&logs, tolerance, block), naive(&logs, tolerance));
    }
}

#[test]
fn a_time_far_in_the_future_does_not_make_the_others_late() {
    let mut order = TimeOrder::new(1, Span::from_secs(5));
    order.push(0, batch(&[10, 11, 4_000_000_000, 12, 13, 14]));
    order.end(0);
    let mut times = Vec::new();
    while let Some(requests) = order.next() {
        times.extend(requests.iter().map(|one| one.at));
    }
    assert_eq!(times, [10, 11, 12, 13, 14, 4_000_000_000].map(seconds));
    assert_eq!((order.counts.late, order.counts.reordered), (0, 0));
}

#[test]
fn late_requests_are_counted_and_decided_at_the_time_that_is_reached() {
    let mut order = TimeOrder::new(1, Span::from_secs(5));
    order.push(0, batch(&[100, 101, 102, 99, 90]));
    order.end(0);
    let mut times = Vec::new();
    while let Some(requests) = order.next() {
        times.extend(requests.iter().map(|one| (one.at, one.line)));
    }
    let due = [(96, 5), (99, 4), (100, 1), (101, 2), (102, 3)];
    assert_eq!(times, due.map(|(at, line)| (seconds(at), line)));
    let counts = &order.counts;
    assert_eq!((counts.reordered, counts.late, counts.late_max), (1, 1, Span::from_secs(6)));
    assert_eq!((counts.first, counts.last), (Some(seconds(96)), Some(seconds(102))));
}

#[test]
fn requests_that_wait_are_bounded() {
    let mut order = TimeOrder::new(1, Span::from_secs(1_000_000)).with_waiting_max(100);
    let mut merged = 0;
    for block in 0..50 {
        let times: Vec<u64> = (0..20).map(|second| block * 20 + second).collect();
        order.push(0, batch(&times));
        while let Some(requests) = order.next() {
            merged += requests.len();
        }
    }
    assert!(merged >= 50 * 20 - 120, "{merged}");
}

struct Files(PathBuf);

impl Files {
    fn new(name: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("sluicegate-lab-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    /// A log in the combined format: seconds and the last octet of each client's address.
    fn log(&self, name: &str, lines: impl Iterator<Item = (u64, u64)>) -> PathBuf {
        let path = self.0.join(name);
        let mut file = io::BufWriter::new(std::fs::File::create(&path).unwrap());
        for (second, client) in lines {
            let (hour, minute) = (second / 3_600, second / 60 % 60);
            let second = second % 60;
            writeln!(
                file,
                "192.0.2.{client} - - [16/Nov/2026:{hour:02}:{minute:02}:{second:02} +0000] \
                 \"GET /items/{client}?page=1 HTTP/1.1\" 200 512 \"-\" \"curl/8\""
            )
            .unwrap();
        }
        file.flush().unwrap();
        path
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn several_threads_read_several_logs_as_one_thread_does() {
    let files = Files::new("threads");
    // More than one block each; the second begins while the first goes on.
    let one = files.log("one", (0..30_000).map(|line| (line / 10, line % 7)));
    let two = files.log("two", (0..20_000).map(|line| (1_500 + line / 10, 7 + line % 3)));
    let later = files.log("later", (0..10).map(|line| (20_000 + line, 1)));
    let parts = ClientParts { client: "client_ip".parse().unwrap(), hits: None };
    let read = |parsers, logs: &[&PathBuf]| {
        let input = LogInput { parsers, ..LogInput::new(logs.iter().copied()) };
        let mut progress = Vec::new();
        let traffic = input.traffic(&parts, |at| progress.push(at)).unwrap();
        let last = progress.last().unwrap();
        assert_eq!((last.lines, Some(last.bytes)), (50_010, last.bytes_total));
        assert!(traffic.arrivals.is_sorted_by_key(|arrival| arrival.at));
        traffic
    };
    let alone = read(0, &[&one, &two, &later]);
    assert_eq!((alone.arrivals.len(), alone.clients.len()), (50_010, 10));
    assert_eq!(alone.clients[0].name, "192.0.2.0");
    assert_eq!(alone.lines.span(), Span::from_secs(20_009));
    assert_eq!(read(1, &[&one, &two, &later]), alone);
    assert_eq!(read(3, &[&one, &two, &later]), alone);
    // Rotated logs may be named in any order: clients are numbered as they come.
    let rotated = read(2, &[&later, &one, &two]);
    assert_eq!(rotated.clients, alone.clients);
    assert_eq!(rotated.arrivals.last(), alone.arrivals.last());
}

#[test]
fn lines_that_cannot_be_used_are_counted_with_examples() {
    let files = Files::new("malformed");
    let path = files.log("log", (0..20).map(|line| (line, line)));
    let mut log = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
    log.write_all(b"no request\n192.0.2.9 - - [16/Nov/2026:00:00:30 +0000] \"GET /?page=%zz HTTP/1.1\" 200 1 \"-\" \"-\"\n")
        .unwrap();
    let parts = ClientParts { client: "query page".parse().unwrap(), hits: None };
    let lines = LogInput::new([&path]).traffic(&parts, |_| {}).unwrap().lines;
    assert_eq!((lines.read, lines.requests), (22, 20));
    let malformed = &lines.malformed;
    assert_eq!((malformed.count, malformed.examples[0].line), (1, 21));
    assert_eq!(malformed.examples[0].text, "no request");
    assert_eq!((lines.invalid.count, lines.invalid.examples[0].line), (1, 22));
    assert!(lines.invalid.examples[0].reason.contains("`query page`"), "{lines:?}");
}

#[test]
fn a_log_that_cannot_be_read_is_named() {
    let parts = ClientParts { client: "client_ip".parse().unwrap(), hits: None };
    let error = LogInput::new(["/nonexistent.log"]).traffic(&parts, |_| {}).unwrap_err();
    assert!(error.to_string().contains("`/nonexistent.log`"), "{error}");
}
