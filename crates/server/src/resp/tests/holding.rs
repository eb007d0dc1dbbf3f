//! What is reserved, settled, waited for and asked again.

use std::time::Duration;

use super::*;
use crate::telemetry::{Endpoint, Event, Fault};

/// The five numbers of an answer, and the sixth as it was written.
fn six(said: &str) -> (Vec<i64>, String) {
    let mut parts =
        said.strip_prefix("*6\r\n").unwrap_or_else(|| panic!("{said}")).splitn(6, "\r\n");
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
    assert!(again.starts_with("-NORESERVATION nothing is held under this id"), "{again}");
    let again = client.ask(&format!("SG.CANCEL {token}"));
    assert!(again.starts_with("-NORESERVATION "), "{again}");
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
        ("SG.RESERVE shop all=1 TIMEOUT 1", "-ERR `TIMEOUT` is neither an entry nor an option"),
        ("SG.COMMIT what 1", "-ERR `what` is not a token; send the whole token"),
        ("SG.COMMIT what", "-ERR wrong number of arguments for 'sg.commit' command"),
        ("SG.COMMIT what 1 COST 1", "-ERR `COST` is not an option here; supported are ID text"),
        ("SG.CANCEL \"\\xff\"", "-ERR `\\xff` is not a token"),
        ("SG.CHECK shop all=1 ID \"\"", "-ERR ID has 0 bytes, and must have 1 to 255"),
        ("SG.PEEK shop all=1 ID 1", "-ERR `ID` is neither an entry nor an option"),
    ] {
        let said = client.ask(line);
        assert!(said.starts_with(part), "{line}: {said}");
    }
    let reserved = token(&six(&client.ask("SG.RESERVE shop all=1")).1);
    let said = client.ask(&format!("SG.COMMIT {reserved} many"));
    assert!(said.starts_with("-ERR what was used must be a 64-bit integer"), "{said}");
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
    // A reservation has one name, whoever asks for it and by whichever protocol; and is settled
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
