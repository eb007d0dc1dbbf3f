//! The memory budget of `sluicegate serve`, on the process itself.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.
#![cfg(target_os = "linux")] // Elsewhere the system does not say what a process takes.

mod support;

use std::io::Write;
use std::net::TcpStream;

use sluicegate_testkit::until;
use support::service::Service;

const MIB: usize = 1 << 20;
const BUDGET: usize = 32 * MIB;

fn resident_bytes(service: &Service) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", service.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<usize>().unwrap() * 1024
}

/// A client whose body never ends.
fn unfinished(address: &str) -> TcpStream {
    let mut client = TcpStream::connect(address).unwrap();
    let head = b"POST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n";
    let _ = client.write_all(head).and_then(|()| client.write_all(&vec![b' '; 900_000]));
    client
}

#[test]
fn unfinished_bodies_take_no_more_than_the_budget_and_it_is_returned() {
    let service = Service::with(&["--memory-budget", "32MiB"], &[]);
    assert_eq!(service.check("example", "before"), 200);
    let before = resident_bytes(&service);
    // Without a budget 180 MB.
    let clients: Vec<TcpStream> = (0..200).map(|_| unfinished(&service.http)).collect();
    let during = resident_bytes(&service);
    // Bodies that were refused are freed, and not returned to the system at once.
    assert!(during <= before + 2 * BUDGET, "{} MiB more", (during - before) / MIB);
    assert_eq!(service.check("example", "meanwhile"), 200);
    let metrics = service.admin("/metrics").body;
    assert!(metrics.contains("sluicegate_memory_budget_bytes 33554432\n"), "{metrics}");
    assert!(!metrics.contains("sluicegate_memory_refusals_total 0\n"), "{metrics}");
    assert_eq!(service.admin("/ready").status, 200);
    drop(clients);
    until("freed memory is returned to the system", || {
        (resident_bytes(&service) <= before + 8 * MIB).then_some(())
    });
}
