//! What is reserved, settled, waited for and asked again.

use std::time::Duration;

use super::*;
use crate::telemetry::{Endpoint, Event, Fault};

/// The five numbers of an answer, and the sixth as it was written.
fn six(reply: &str) -> (Vec<i64>, String) {
    let mut parts =
        reply.strip_prefix("*6\r\n").unwrap_or_else(|| panic!("{reply}")).splitn(6, "\r\n");
    let number = |part: &str| part.strip_prefix(':').unwrap().parse().unwrap();
    let numbers = parts.by_ref().take(5).map(number).collect();
    (numbers, parts.next().unwrap().to_owned())
}

/// A token, as it was written in full.
fn token(bulk: &str) -> String {
    bulk.trim_end().split_once("\r\n").unwrap_or_else(|| panic!("no token: {bulk}")).1.to_owned()
}

#[test]
fn an_estimate_is_reserved_and_settled() {
    let mut client = Client::new();
    let (numbers, bulk) = six(&client.ask("SG.RESERVE shop all=1 COST 4 TTL 60000"));
    assert_eq!(numbers[..4], [0, 5, 1, -1]);
    assert_eq!(client.shared.app.reservations().pending(client.shared.app.engine().now()), 1);
    let token = token(&bulk);
    let (numbers, returned) = six(&client.ask(&format!("SG.COMMIT {token} 1")));
    assert_eq!((&numbers[..4], returned.as_str()), (&[0, 5, 4, -1][..], ":3\r\n"));
    let again = client.ask(&format!("SG.COMMIT {token} 1"));
    assert!(again.starts_with("-SETTLED the reservation was committed before"), "{again}");
    let again = client.ask(&format!("SG.CANCEL {token}"));
    assert!(again.starts_with("-SETTLED "), "{again}");
    let telemetry = client.shared.app.telemetry();
    let calls = [Endpoint::RespReserve, Endpoint::RespCommit, Endpoint::RespCancel];
    assert_eq!(calls.map(|endpoint| telemetry.calls(endpoint)), [1, 2, 1]);
    assert_eq!(telemetry.failures(Endpoint::RespCommit, Fault::Service), 1);
}

#[test]
fn what_is_cancelled_is_given_back() {
    for line in ["HELLO 2", "HELLO 3"] {
        let mut client = Client::new();
        client.ask(line);
        let reserved = token(&six(&client.ask("SG.RESERVE shop all=1 COST 5")).1);
        let (denied, null) = six(&client.ask("SG.RESERVE shop all=1"));
        assert_eq!(denied[..3], [1, 5, 0]);
        assert_eq!(null, if line == "HELLO 2" { "$-1\r\n" } else { "_\r\n" });
        let (numbers, returned) = six(&client.ask(&format!("SG.CANCEL {reserved}")));
        assert_eq!((&numbers[..3], returned.as_str()), (&[0, 5, 5][..], ":5\r\n"));
        // After its time it is given back by itself.
        client.ask("SG.RESERVE shop user=7 COST 3 TTL 1000");
        assert_eq!(client.numbers("SG.PEEK shop user=7")[0], 1);
        client.clock.advance(Duration::from_secs(1));
        assert_eq!(client.numbers("SG.PEEK shop user=7")[..3], [0, 3, 3]);
    }
}

#[test]
fn in_shadow_mode_nothing_is_held_of_what_would_be_denied() {
    let options = Options { shadow_mode: true, ..Options::default() };
    let mut client = Client::with(options, RespLimits::default(), None);
    client.ask("SG.RESERVE shop all=1 COST 5");
    let (numbers, bulk) = six(&client.ask("SG.RESERVE shop all=1 COST 5"));
    assert_eq!(numbers[..4], [0, 5, 0, -1]);
    let (_, returned) = six(&client.ask(&format!("SG.CANCEL {}", token(&bulk))));
    assert_eq!(returned, ":0\r\n");
    let telemetry = client.shared.app.telemetry();
    assert_eq!(telemetry.count(Event::GlobalShadow), 1);
}

#[test]
fn what_cannot_be_held_says_why() {
    let mut client = Client::new();
    for (line, part) in [
        ("SG.RESERVE shop watched=1", "-ERR descriptor"),
        ("SG.RESERVE shop all=1 TTL 0", "-ERR TTL must be 1 to 86400000 milliseconds, got `0`"),
        ("SG.COMMIT what 1", "-NORESERVATION `what` is not a token; send the whole token"),
        ("SG.COMMIT what", "-ERR wrong number of arguments for 'sg.commit' command"),
        (
            "SG.COMMIT what 1 COST 1",
            "-ERR `COST` is not an option here; supported are PARTIAL, RETURNED, ID text",
        ),
        ("SG.CANCEL \"\\xff\"", "-NORESERVATION `\\xff` is not a token"),
        ("SG.CHECK shop all=1 ID \"\"", "-ERR ID has 0 bytes, and must have 1 to 255"),
        ("SG.PEEK shop all=1 ID 1", "-ERR `ID` is neither an entry nor an option"),
    ] {
        let reply = client.ask(line);
        assert!(reply.starts_with(part), "{line}: {reply}");
    }
    let reserved = token(&six(&client.ask("SG.RESERVE shop all=1")).1);
    let reply = client.ask(&format!("SG.COMMIT {reserved} many"));
    assert!(reply.starts_with("-ERR what was used must be a 64-bit integer"), "{reply}");
    assert_eq!(
        six(&client.ask(&format!("SG.COMMIT {reserved} 1"))).1,
        ":0\r\n",
        "it is still there"
    );
}

#[test]
fn who_asks_again_is_charged_once() {
    let mut client = Client::new();
    let first = client.ask("SG.CHECK shop all=1 COST 2 ID a");
    assert_eq!(client.ask("sg.check shop all=1 COST 2 ID a"), first);
    assert_eq!(client.numbers("SG.PEEK shop all=1")[2], 3);
    let other = client.ask("SG.CHECK shop all=1 COST 1 ID a");
    assert!(other.starts_with("-ERR this ID was used for another command"), "{other}");
    assert_eq!(client.numbers("SG.REFUND shop all=1 ID a")[2], 4, "each command by itself");
    // A reservation has one name over every protocol, and is settled
    // once.
    let reserved = client.ask("SG.RESERVE shop all=1 COST 2 ID b");
    client.ask("HELLO 3");
    assert_eq!(client.ask("SG.RESERVE shop all=1 COST 2 ID b"), reserved);
    let commit = format!("SG.COMMIT {} 1 ID c", token(&six(&reserved).1));
    assert_eq!(client.ask(&commit), client.ask(&commit));
    assert_eq!(client.numbers("SG.PEEK shop all=1")[2], 3);
    // Who was limited may ask again.
    assert_eq!(client.numbers("SG.CHECK shop all=1 COST 5 ID d")[0], 1);
    client.clock.advance(Duration::from_secs(2));
    assert_eq!(client.numbers("SG.CHECK shop all=1 COST 5 ID d")[0], 0);
}

#[test]
fn a_long_stream_renews_and_commits_in_parts() {
    let mut client = Client::new();
    let reserved = token(&six(&client.ask("SG.RESERVE shop user=1 COST 3 TTL 10000")).1);
    client.clock.advance(Duration::from_secs(9));
    assert_eq!(client.ask(&format!("SG.RENEW {reserved} 10000")), ":10000\r\n");
    client.clock.advance(Duration::from_secs(9));
    let (numbers, held) = six(&client.ask(&format!("SG.COMMIT {reserved} 1 PARTIAL")));
    assert_eq!((&numbers[..3], held.as_str()), (&[0, 3, 0][..], ":2\r\n"));
    let (numbers, returned) = six(&client.ask(&format!("SG.COMMIT {reserved} 1")));
    assert_eq!((&numbers[..3], returned.as_str()), (&[0, 3, 1][..], ":1\r\n"));
    for line in [format!("SG.RENEW {reserved} 1"), format!("SG.COMMIT {reserved} 1 PARTIAL")] {
        let reply = client.ask(&line);
        assert!(reply.starts_with("-SETTLED "), "{reply}");
    }
    for (line, due) in [
        (format!("SG.RENEW {reserved} 0"), "-ERR the lifetime must be 1 to 86400000 milliseconds"),
        (format!("SG.COMMIT {reserved} 1 PARTIAL PARTIAL"), "-ERR PARTIAL occurs twice"),
        ("SG.RENEW what 1".to_owned(), "-NORESERVATION `what` is not a token"),
        (format!("SG.RENEW {reserved}"), "-ERR wrong number of arguments"),
    ] {
        let reply = client.ask(&line);
        assert!(reply.starts_with(due), "{line}: {reply}");
    }
}

#[test]
fn a_check_returns_the_slot_that_it_takes() {
    let mut client = Client::new();
    let (numbers, slot) = six(&client.ask("SG.CHECK shop slots=1"));
    assert_eq!(numbers[..3], [0, 1, 0]);
    let (denied, null) = six(&client.ask("SG.CHECK shop slots=1"));
    assert_eq!((denied[0], denied[3], null.as_str()), (1, 3_600, "$-1\r\n"));
    let reply = client.ask("SG.REFUND shop user=1 | slots=1");
    assert!(reply.starts_with("-ERR descriptor 2 is under a concurrency limit"), "{reply}");
    client.clock.advance(Duration::from_secs(7));
    let (_, freed) = six(&client.ask(&format!("SG.CANCEL {}", token(&slot))));
    assert_eq!(freed, ":1\r\n");
    assert_eq!(six(&client.ask("SG.CHECK shop slots=1")).0[0], 0);
    // Estimated by what was observed.
    assert_eq!(six(&client.ask("SG.CHECK shop slots=1")).0[3], 7);
    assert_eq!(client.numbers("SG.CHECK shop user=1").len(), 5, "nothing to release");
}

#[test]
fn a_descriptor_has_its_own_cost() {
    let mut client = Client::new();
    let (numbers, _) = six(&client.ask("SG.CHECK shop all=1 | slots=1 HITS 1 COST 4"));
    assert_eq!(numbers[0], 0);
    assert_eq!(client.numbers("SG.PEEK shop all=1 COST 0")[2], 1);
    assert_eq!(client.numbers("SG.CHECK shop user=1 HITS 2 | free=1")[2], 1);
    assert_eq!(client.numbers("SG.REFUND shop user=1 HITS 2 COST 9")[2], 3);
    for (line, due) in [
        ("SG.CHECK shop user=1 HITS 1 HITS 2", "-ERR HITS occurs twice in a descriptor"),
        ("SG.CHECK shop user=1 HITS", "-ERR HITS needs a value"),
        ("SG.CHECK shop user=1 HITS x", "-ERR HITS must be a 64-bit integer, got `x`"),
    ] {
        let reply = client.ask(line);
        assert!(reply.starts_with(due), "{line}: {reply}");
    }
}

#[test]
fn what_each_limit_got_back_is_listed_on_request() {
    let line = |limit: &str, hits: u64| {
        let limit = format!("${}\r\n{limit}\r\n", limit.len());
        format!("*4\r\n:1\r\n$8\r\nshop/all\r\n{limit}:{hits}\r\n")
    };
    let mut client = Client::new();
    for (settle, hits) in [("SG.COMMIT {} 1 RETURNED", 3), ("SG.CANCEL {} RETURNED ID x", 4)] {
        let reserved = token(&six(&client.ask("SG.RESERVE shop all=1 COST 4")).1);
        let reply = client.ask(&settle.replace("{}", &reserved));
        let ends = format!(":{hits}\r\n*1\r\n{}", line("token_bucket", hits));
        assert!(reply.starts_with("*7\r\n:0\r\n"), "{reply}");
        assert!(reply.ends_with(&ends), "{reply} should end with {ends}");
    }
    client.ask("SG.CHECK shop all=1 COST 2");
    let (_, listed) = six(&client.ask("SG.REFUND shop all=1 COST 9 RETURNED"));
    assert_eq!(listed, format!("*1\r\n{}", line("token_bucket", 3)), "at most until it is full");
}
