//! Passwords that are guessed, and refunds that nobody has a right to.

use std::time::Duration;

use super::*;
use crate::rls::RefundPolicy;
use crate::telemetry::Event;

// === passwords ===

#[test]
fn a_connection_that_guesses_is_closed() {
    let mut client = Client::with(Options::default(), RespLimits::default(), Some("open sesame"));
    let (reply, next) = client.sends(&b"AUTH sesame\r\n".repeat(1_000));
    assert_eq!(next, Next::Close);
    assert_eq!(reply.lines().count(), 5, "{reply}");
    assert!(reply.lines().all(|line| line.starts_with("-WRONGPASS ")), "{reply}");
}

#[test]
fn an_address_that_guesses_is_bounded_over_all_its_connections() {
    let first = Client::with(Options::default(), RespLimits::default(), Some("open sesame"));
    let guess = |peer: [u8; 4], guesses: &[u8]| first.beside(peer).sends(guesses).0;
    for _ in 0..2 {
        let reply = guess([192, 0, 2, 1], &b"HELLO 3 AUTH default no\r\n".repeat(5));
        assert_eq!(reply.matches("-WRONGPASS ").count(), 5, "{reply}");
    }
    // The eleventh is not compared, right or wrong, and nothing behind it is looked at.
    let mut next = first.beside([192, 0, 2, 1]);
    let (reply, end) = next.sends(b"AUTH \"open sesame\"\r\nPING\r\n");
    assert!(reply.starts_with("-ERR too many wrong passwords") && end == Next::Close, "{reply}");
    assert!(!reply.contains("PONG"), "{reply}");
    assert_eq!(guess([192, 0, 2, 2], b"AUTH \"open sesame\"\r\n"), "+OK\r\n", "another address");
    first.clock.advance(Duration::from_secs(1));
    assert_eq!(guess([192, 0, 2, 1], b"AUTH \"open sesame\"\r\n"), "+OK\r\n");
    let telemetry = first.shared.app.telemetry();
    assert_eq!(telemetry.count(Event::RespAuthFailed), 11);
}

// === refunds ===

/// A client of an address that others reach, under this policy.
fn remote(refunds: RefundPolicy) -> Client {
    let (app, clock) = app(Options { refunds, ..Options::default() });
    let throttle = Throttle::new(app.engine().memory());
    let shared = Arc::new(RespServer::new(app, throttle, super::super::Options::default()));
    Client { talk: Dispatcher::new(shared.clone(), None), clock, shared }
}

fn left(client: &mut Client) -> i64 {
    client.numbers("SG.PEEK shop user=1")[2]
}

#[test]
fn a_refund_needs_the_id_of_a_check_that_was_charged() {
    let mut client = remote(RefundPolicy::Proven);
    client.numbers("SG.CHECK shop user=1 COST 2");
    for line in [
        "SG.REFUND shop user=1 COST 9007199254740992",
        "SG.REFUND shop user=1 COST 2 ID a",
        "SG.REFUND shop user=1",
    ] {
        assert!(client.ask(line).starts_with("-NOPERM no charged check"), "{line}");
    }
    assert_eq!(left(&mut client), 1);
}

#[test]
fn a_charge_is_given_back_once() {
    let mut client = remote(RefundPolicy::Proven);
    client.numbers("SG.CHECK shop user=1 COST 2");
    client.numbers("SG.CHECK shop user=1 ID a");
    assert_eq!(left(&mut client), 0);
    assert!(client.ask("SG.REFUND shop user=1 COST 3 ID a").starts_with("-NOPERM "));
    for _ in 0..2 {
        assert_eq!(client.numbers("SG.REFUND shop user=1 ID a")[..3], [0, 3, 1]);
        assert_eq!(left(&mut client), 1, "sent again, it is given back once");
    }
    // Target the same id it is charged again, and that can be given back too.
    client.numbers("SG.CHECK shop user=1 ID a");
    assert_eq!(left(&mut client), 0);
}

#[test]
fn a_check_that_charged_nothing_gives_nothing_back() {
    let mut client = remote(RefundPolicy::Proven);
    client.numbers("SG.CHECK shop user=2 COST 3");
    assert_eq!(client.numbers("SG.CHECK shop user=2 ID c")[0], 1);
    assert!(client.ask("SG.REFUND shop user=2 ID c").starts_with("-NOPERM "));
}

#[test]
fn the_policy_says_who_may_give_back() {
    let mut client = remote(RefundPolicy::Operators);
    client.numbers("SG.CHECK shop user=1 ID a");
    assert!(client.ask("SG.REFUND shop user=1 ID a").starts_with("-NOPERM "));
    let mut client = remote(RefundPolicy::Open);
    client.numbers("SG.CHECK shop user=1");
    assert_eq!(client.numbers("SG.REFUND shop user=1")[..3], [0, 3, 3]);
}

// === operators ===

/// A client of an address that others reach, with a token for operators.
fn guarded(token: Option<&str>) -> Client {
    let (app, clock) = app(Options::default());
    let throttle = Throttle::new(app.engine().memory());
    let operator_token = token.map(|token| Token::new(token).unwrap());
    let options = super::super::Options { operator_token, ..super::super::Options::default() };
    let shared = Arc::new(RespServer::new(app, throttle, options));
    Client { talk: Dispatcher::new(shared.clone(), None), clock, shared }
}

#[test]
fn operators_inspect_and_explain() {
    let mut client = Client::new();
    client.numbers("SG.CHECK shop user=1 COST 2");
    let reply = client.ask("SG.INSPECT shop user=1");
    let json: serde_json::Value = serde_json::from_str(reply.lines().nth(1).unwrap()).unwrap();
    assert_eq!(json["keys"][0]["limits"][0]["remaining"], 1);
    let reply = client.ask("SG.EXPLAIN shop user=1 HITS 2 | all=1");
    let json: serde_json::Value = serde_json::from_str(reply.lines().nth(1).unwrap()).unwrap();
    assert_eq!(
        (&json["allowed"], json["descriptors"].as_array().unwrap().len()),
        (&false.into(), 2)
    );
    assert_eq!(client.numbers("SG.PEEK shop user=1")[2], 1, "nothing is charged");
    let many = format!("SG.EXPLAIN shop {} user=1", "user=1 | ".repeat(32));
    assert!(client.ask(&many).starts_with("-ERR at most 32 descriptors"));
}

#[test]
fn others_do_not() {
    for command in ["SG.INSPECT", "SG.EXPLAIN"] {
        let reply = guarded(None).ask(&format!("{command} shop user=1 TOKEN sesame"));
        assert!(reply.starts_with("-NOPERM operator commands are off"), "{reply}");
        let mut client = guarded(Some("sesame"));
        for line in [format!("{command} shop user=1"), format!("{command} shop user=1 TOKEN no")] {
            let reply = client.ask(&line);
            assert!(reply.starts_with("-NOPERM this command is for operators"), "{reply}");
        }
        let reply = client.ask(&format!("{command} shop user=1 TOKEN sesame"));
        assert!(reply.starts_with('$'), "{reply}");
        for _ in 0..10 {
            client.ask(&format!("{command} shop user=1 TOKEN no"));
        }
        let reply = client.ask(&format!("{command} shop user=1 TOKEN sesame"));
        assert!(reply.starts_with("-ERR too many wrong tokens"), "{reply}");
    }
}
