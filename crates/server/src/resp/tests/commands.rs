//! Commands and their replies.

use std::time::Duration;

use super::*;
use crate::telemetry::{Endpoint, Event, Fault};
use crate::unmatched::UnmatchedPolicy;

#[test]
fn a_bucket_is_emptied_and_filled_again() {
    let mut client = Client::new();
    for left in [2, 1, 0] {
        let numbers = client.numbers("CL.THROTTLE user:1 2 10 60");
        assert_eq!(numbers, [0, 3, left, -1, (3 - left) * 6]);
    }
    assert_eq!(client.numbers("cl.throttle user:1 2 10 60"), [1, 3, 0, 6, 18]);
    client.clock.advance(Duration::from_millis(5_999));
    assert_eq!(client.numbers("CL.THROTTLE user:1 2 10 60")[..4], [1, 3, 0, 1], "rounded up");
    client.clock.advance(Duration::from_millis(1));
    assert_eq!(client.numbers("CL.THROTTLE user:1 2 10 60")[..4], [0, 3, 0, -1]);
    assert_eq!(client.numbers("CL.THROTTLE user:2 2 10 60 4"), [1, 3, 3, -1, 0], "never");
    assert_eq!(client.numbers("CL.THROTTLE user:1 2 10 60 0")[..2], [0, 3], "nothing is wanted");
    assert_eq!(client.shared.app.telemetry().calls(Endpoint::Throttle), 8);
}

#[test]
fn what_is_no_limit_is_refused_with_its_argument() {
    let mut client = Client::new();
    for (line, part) in [
        ("CL.THROTTLE k -1 10 60", "max_burst"),
        ("CL.THROTTLE k 1 0 60", "count"),
        ("CL.THROTTLE k 1 10 0", "period"),
        ("CL.THROTTLE k 1 10 60 -1", "`quantity` must be 0 or more, got `-1`"),
        ("CL.THROTTLE k 1 ten 60", "`count` must be a 64-bit integer, got `ten`"),
        ("CL.THROTTLE k 9223372036854775808 10 60", "`max_burst` must be"),
        ("CL.THROTTLE k 1 10 60 1 1", "wrong number of arguments for 'cl.throttle' command"),
        ("CL.THROTTLE k 1 10", "wrong number of arguments for 'cl.throttle' command"),
    ] {
        let said = client.ask(line);
        assert!(said.starts_with("-ERR ") && said.contains(part), "{line}: {said}");
    }
    let failures = client.shared.app.telemetry().failures(Endpoint::Throttle, Fault::Invalid);
    assert_eq!(failures, 8);
}

#[test]
fn replies_keep_the_order_of_commands() {
    let mut client = Client::new();
    let bulk = |args: &[&str]| {
        let bulks = args.iter().map(|arg| format!("${}\r\n{arg}\r\n", arg.len()));
        format!("*{}\r\n{}", args.len(), bulks.collect::<String>())
    };
    let throttle = bulk(&["CL.THROTTLE", "k", "99", "1", "60"]);
    let pipeline = [
        throttle.repeat(40),
        bulk(&["PING"]),
        throttle.clone(),
        "CL.THROTTLE k 99 1 60\r\n".to_owned(),
        bulk(&["CL.THROTTLE", "k"]),
        throttle,
    ];
    let (said, _) = client.sends(pipeline.concat().as_bytes());
    let left: Vec<&str> = said
        .split("*5\r\n:0\r\n:100\r\n:")
        .map(|reply| reply.split("\r\n").next().unwrap())
        .collect();
    let expected: Vec<String> = (57..100).rev().map(|left| left.to_string()).collect();
    assert_eq!(left[1..], expected.iter().map(String::as_str).collect::<Vec<_>>());
    let place = |text: &str| said.find(text).unwrap();
    assert!(place(":60\r\n:-1") < place("+PONG") && place("+PONG") < place(":59\r\n:-1"));
    assert!(place(":58\r\n:-1") < place("-ERR wrong") && place("-ERR wrong") < place(":57\r\n:-1"));
}

#[test]
fn the_rules_are_asked() {
    let mut client = Client::new();
    for left in [2, 1, 0] {
        assert_eq!(client.numbers("SG.CHECK shop user=1")[..4], [0, 3, left, -1]);
    }
    let [limited, limit, left, retry_after, reset_after] =
        client.numbers("SG.CHECK shop user=1")[..]
    else {
        panic!("not five");
    };
    assert_eq!((limited, limit, left), (1, 3, 0));
    assert!(retry_after == reset_after && (1..=60).contains(&retry_after));
    assert_eq!(client.numbers("SG.PEEK shop user=1 COST 1")[0], 1);
    assert_eq!(client.numbers("SG.REFUND shop user=1 cost 2")[..4], [0, 3, 2, -1]);
    assert_eq!(client.numbers("SG.PEEK shop user=1")[..4], [0, 3, 2, -1]);
    assert_eq!(client.numbers("SG.CHECK shop user=1 COST 4")[..4], [1, 3, 2, -1], "never");
    let telemetry = client.shared.app.telemetry();
    let calls = [Endpoint::RespCheck, Endpoint::RespPeek, Endpoint::RespRefund]
        .map(|endpoint| telemetry.calls(endpoint));
    assert_eq!(calls, [5, 2, 1]);
}

#[test]
fn several_descriptors_are_decided_together() {
    let mut client = Client::new();
    // The one with the least left speaks, and a value may hold what it likes.
    assert_eq!(client.numbers("SG.CHECK shop user=a=b | all=1")[..3], [0, 3, 2]);
    assert_eq!(client.numbers("SG.CHECK shop all=1 | user=a=b COST 2")[..3], [0, 3, 0]);
    assert_eq!(client.numbers("SG.CHECK shop all=1 | user=a=b")[..3], [1, 3, 0]);
    // What was denied as a whole was charged to nobody.
    assert_eq!(client.numbers("SG.PEEK shop all=1")[..3], [0, 5, 2]);
}

#[test]
fn what_is_under_no_limit_passes_and_says_so() {
    let mut client = Client::new();
    for line in ["SG.CHECK shop nobody=1", "SG.CHECK shop free=1", "SG.CHECK elsewhere user=1"] {
        assert_eq!(client.numbers(line), [0, -1, -1, -1, 0], "{line}");
    }
    assert_eq!(client.numbers("SG.CHECK shop user=mallory"), [1, -1, -1, -1, 0], "on a list");
    let telemetry = client.shared.app.telemetry();
    assert_eq!(telemetry.count(Event::UnknownDomain), 1);
}

#[test]
fn a_policy_denies_or_fails_commands_that_no_rule_matches() {
    let with = |unmatched| {
        let options = Options { unmatched, ..Options::default() };
        Client::with(options, RespLimits::default(), None)
    };
    let mut client = with(UnmatchedPolicy::Deny);
    assert_eq!(client.numbers("SG.CHECK shop user=1 | usr=1"), [1, -1, -1, -1, 0]);
    assert_eq!(client.numbers("SG.PEEK shop user=1")[..3], [0, 3, 3], "nothing was charged");
    let mut client = with(UnmatchedPolicy::Error);
    for command in ["SG.CHECK", "SG.PEEK", "SG.RESERVE"] {
        let reply = client.ask(&format!("{command} shop user=1 | usr=1"));
        let due = "-ERR no rule of domain `shop` matches descriptors[1] (`usr=1`), did you mean the key `user`?";
        assert!(reply.starts_with(due), "{reply}");
    }
}

#[test]
fn in_shadow_mode_nobody_is_denied() {
    let options = Options { shadow_mode: true, ..Options::default() };
    let mut client = Client::with(options, RespLimits::default(), None);
    for line in ["SG.CHECK shop user=1", "CL.THROTTLE user:1 2 10 60"] {
        for _ in 0..4 {
            assert_eq!(client.numbers(line)[..2], [0, 3], "{line}");
        }
        assert_eq!(client.numbers(line)[2..4], [0, -1], "{line}");
    }
    let telemetry = client.shared.app.telemetry();
    assert_eq!(telemetry.count(Event::GlobalShadow), 4);
}

#[test]
fn what_is_no_question_says_what_to_write() {
    let mut client = Client::new();
    let long = format!("SG.CHECK shop user={}", "a".repeat(4_097));
    for (line, part) in [
        ("SG.CHECK shop", "wrong number of arguments for 'sg.check' command"),
        ("SG.CHECK \"\" user=1", "the domain is empty"),
        ("SG.CHECK shop user", "`user` is neither an entry nor an option; send key=value"),
        ("SG.CHECK shop =1", "`=1` is neither"),
        ("SG.CHECK shop user=1 |", "a descriptor has no entries"),
        ("SG.CHECK shop | user=1", "a descriptor has no entries"),
        ("SG.CHECK shop COST 1", "a descriptor has no entries"),
        ("SG.CHECK shop user=1 COST", "COST needs a value"),
        ("SG.CHECK shop user=1 COST x", "COST must be a 64-bit integer, got `x`"),
        ("SG.CHECK shop user=1 COST -1", "got `-1`"),
        ("SG.CHECK shop user=1 COST 1 COST 1", "COST occurs twice"),
        ("SG.CHECK shop \"user=\\xff\"", "a value is not UTF-8, got `\\xff`"),
        (&long, "a value has 4097 bytes; send at most 4096"),
    ] {
        let said = client.ask(line);
        assert!(said.starts_with("-ERR ") && said.contains(part), "{line}: {said}");
    }
    assert_eq!(client.numbers("SG.CHECK shop user=1 COST 18446744073709551615")[0], 1);
}

#[test]
fn clients_begin_as_with_redis() {
    let mut client = Client::new();
    assert_eq!(client.ask("PING"), "+PONG\r\n");
    assert_eq!(client.ask("ping hello"), "$5\r\nhello\r\n");
    assert_eq!(client.ask("ECHO hi"), "$2\r\nhi\r\n");
    assert_eq!(client.ask("CLIENT SETINFO LIB-NAME me"), "+OK\r\n");
    assert_eq!(client.ask("CLIENT GETNAME"), "$-1\r\n");
    assert_eq!(client.ask("CLIENT SETNAME me"), "+OK\r\n");
    assert_eq!(client.ask("CLIENT GETNAME"), "$2\r\nme\r\n");
    assert_eq!(client.ask("CLIENT ID"), ":1\r\n");
    assert_eq!(client.ask("SELECT 0"), "+OK\r\n");
    assert!(client.ask("SELECT 1").starts_with("-ERR DB index is out of range"));
    assert!(client.ask("HELLO").starts_with("*14\r\n$6\r\nserver\r\n$10\r\nsluicegate\r\n"));
    assert!(client.ask("HELLO 3 SETNAME you").contains("%7\r\n"));
    assert_eq!(client.ask("CLIENT GETNAME"), "$3\r\nyou\r\n");
    assert!(client.ask("INFO stats").starts_with("=") && client.ask("INFO").contains("entries:0"));
    assert_eq!(client.ask("RESET"), "+RESET\r\n");
    assert_eq!(client.ask("CLIENT GETNAME"), "$-1\r\n");
    assert!(client.ask("HELLO 4").starts_with("-NOPROTO "));
    assert!(client.ask("HELLO x").starts_with("-ERR Protocol version is not an integer"));
    assert!(client.ask("HELLO 3 NONSENSE").starts_with("-ERR Syntax error in HELLO option"));
    assert_eq!(client.ask("CLIENT GETNAME"), "$-1\r\n", "a wrong HELLO changes nothing");
    assert_eq!(client.ask("CONFIG GET save"), "*2\r\n$4\r\nsave\r\n$0\r\n\r\n");
    assert_eq!(client.sends(b"QUIT\r\nPING\r\n"), ("+OK\r\n".to_owned(), Next::Close));
}

#[test]
fn what_is_no_command_is_told_as_redis_tells_it() {
    let mut client = Client::new();
    let unknown = "-ERR unknown command 'GET', with args beginning with: 'a' 'b' \r\n";
    assert_eq!(client.ask("GET a b"), unknown);
    let arity = "-ERR wrong number of arguments for 'echo' command\r\n";
    assert_eq!(client.ask("ECHO"), arity);
    assert!(client.ask("CLIENT KILL").starts_with("-ERR unknown subcommand 'KILL'. Try CLIENT "));
    assert!(client.ask("MULTI").contains("pipeline(transaction=False)"));
    let (said, next) = client.sends(b"*1\r\n:1\r\n");
    assert_eq!(
        (said.as_str(), next),
        ("-ERR Protocol error: expected '$', got ':'\r\n", Next::Close)
    );
}

#[test]
fn commands_tell_of_themselves() {
    let mut client = Client::new();
    let count: usize = client.ask("COMMAND COUNT")[1..].trim().parse().unwrap();
    assert_eq!(client.ask("COMMAND").matches("*10\r\n").count(), count);
    assert_eq!(client.ask("COMMAND DOCS").matches("$7\r\nsummary\r\n").count(), count);
    let info = client.ask("COMMAND INFO cl.throttle get");
    assert!(info.starts_with(
        "*2\r\n*10\r\n$11\r\ncl.throttle\r\n:-5\r\n*2\r\n+write\r\n+fast\r\n:1\r\n:1\r\n:1\r\n"
    ));
    assert!(info.ends_with("$-1\r\n"), "{info}");
}

#[test]
fn without_the_password_there_is_nothing_to_hear() {
    let mut client = Client::with(Options::default(), RespLimits::default(), Some("open sesame"));
    for line in ["PING", "CL.THROTTLE k 1 1 1", "SG.CHECK shop user=1", "INFO", "GET a"] {
        assert_eq!(client.ask(line), "-NOAUTH Authentication required.\r\n", "{line}");
    }
    assert!(client.ask("HELLO 3").starts_with("-NOAUTH "));
    for line in ["AUTH sesame", "AUTH other \"open sesame\"", "HELLO 3 AUTH default sesame"] {
        assert!(client.ask(line).starts_with("-WRONGPASS "), "{line}");
    }
    // Nor is there room for more than it takes to say it.
    let (said, next) = client.sends(b"*2\r\n$4\r\nAUTH\r\n$65536\r\n");
    assert_eq!(
        (said.as_str(), next),
        ("-ERR Protocol error: invalid bulk length\r\n", Next::Close)
    );
    for line in ["AUTH \"open sesame\"", "AUTH default \"open sesame\""] {
        let mut client =
            Client::with(Options::default(), RespLimits::default(), Some("open sesame"));
        assert_eq!(client.ask(line), "+OK\r\n");
        assert_eq!(client.numbers("CL.THROTTLE k 0 1 1"), [0, 1, 0, -1, 1]);
        assert_eq!(client.ask("RESET"), "+RESET\r\n");
        assert_eq!(client.ask("PING"), "-NOAUTH Authentication required.\r\n");
    }
    let mut client = Client::with(Options::default(), RespLimits::default(), Some("open sesame"));
    assert!(client.ask("HELLO 3 AUTH default \"open sesame\"").starts_with("%7\r\n"));
    assert_eq!(client.ask("PING"), "+PONG\r\n");
    assert!(Client::new().ask("AUTH x").contains("without any password configured"));
}

#[test]
fn a_web_page_is_no_client() {
    let mut client = Client::new();
    let (said, next) = client.sends(b"POST / HTTP/1.1\r\nHost: a\r\n\r\nCL.THROTTLE k 0 1 1\r\n");
    assert_eq!((said.as_str(), next), ("-ERR this is not HTTP\r\n", Next::Close));
    let (said, next) = client.sends(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nPING\r\n");
    assert_eq!(next, Next::Close);
    assert!(said.ends_with("-ERR this is not HTTP\r\n"));
}

#[test]
fn without_rules_only_the_rules_are_missing() {
    let mut client = Client::new();
    let app = App::builder(client.shared.app.engine().clone()).health(Health::default()).build();
    let shared = Arc::new(shared(app, RespLimits::default(), None));
    client.talk = Dispatcher::new(shared, None);
    assert!(client.ask("SG.CHECK shop user=1").starts_with("-ERR no rules are loaded"));
    assert_eq!(client.numbers("CL.THROTTLE k 0 1 1")[0], 0);
}

/// However much is asked for at once, no more is held than a bound and one reply.
#[test]
fn replies_do_not_pile_up() {
    let mut client = Client::new();
    let (_, next) = client.sends("COMMAND\r\n".repeat(1_000).as_bytes());
    assert_eq!(next, Next::Read);
}
