//! The limits in the guide to the service are those of the code.

use std::time::Duration;

use sluicegate_server::memory::MemoryBudget;
use sluicegate_server::rls::request;
use sluicegate_server::{grpc, http, tls};

/// 10000 as a person reads it.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|group| str::from_utf8(group).ok()).collect();
    groups.join(",")
}

fn seconds(time: Duration) -> String {
    format!("{} s", time.as_secs())
}

#[test]
fn every_error_code_has_its_line_in_the_guide_and_every_line_its_code() {
    let guide = include_str!("../../../docs/guide/service.md");
    let (_, section) = guide.split_once("\n### Error codes\n").expect("a section of error codes");
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let rows: Vec<(&str, &str)> =
        rows.map(|(code, rest)| (code, rest.split(' ').next().unwrap_or_default())).collect();
    let due = http::ErrorCode::ALL.map(|code| (code.name(), code.status()));
    let due: Vec<(&str, &str)> =
        due.iter().map(|(name, status)| (*name, status.as_str())).collect();
    assert_eq!(rows, due);
}

#[test]
fn the_table_has_the_numbers_of_the_code() {
    let guide = include_str!("../../../docs/guide/service.md");
    let (of_grpc, of_http) = (grpc::GrpcLimits::default(), http::HttpLimits::default());
    let (asked, checked) = (request::RequestLimits::default(), http::BodyLimits::default());
    let mib = |bytes: usize| format!("{} MiB", bytes >> 20);
    let kib = |bytes: usize| format!("{} KiB", bytes >> 10);
    let rows = [
        ("connections,", vec![grouped(of_grpc.connections), grouped(of_http.connections)]),
        ("requests at a time, over", vec![grouped(of_grpc.in_flight), grouped(of_http.in_flight)]),
        ("calls at a time on one gRPC", vec![grouped(of_grpc.calls as usize)]),
        ("a message (gRPC), a body", vec![mib(of_grpc.message_bytes), mib(http::BODY_BYTES_MAX)]),
        ("memory of all clients", vec![mib(MemoryBudget::default().bytes_max())]),
        ("the headers", vec![kib(of_grpc.header_bytes as usize), kib(of_http.header_bytes)]),
        ("descriptors", vec![grouped(asked.descriptors), grouped(checked.descriptors)]),
        ("entries", vec![grouped(asked.entries), grouped(checked.entries)]),
        ("a domain, key or value", vec![grouped(checked.text_bytes)]),
        ("checks", vec![grouped(checked.checks)]),
        ("watches", vec![grouped(of_grpc.watches)]),
        ("for the first bytes", vec![seconds(of_grpc.timeout), seconds(of_http.body_timeout)]),
        ("a quiet connection", vec![seconds(of_grpc.idle), seconds(of_http.idle)]),
        ("identities", vec![grouped(sluicegate::ENTRIES_MAX)]),
    ];
    for (row, numbers) in rows {
        let line = guide.lines().find(|line| line.starts_with(&format!("| {row}")));
        for number in numbers {
            let told = line.is_some_and(|line| line.contains(&number));
            assert!(told, "`{row}` should tell `{number}`: {line:?}");
        }
    }
    assert_eq!(tls::CHECK_EVERY, Duration::from_secs(5), "the guide says every five seconds");
}
