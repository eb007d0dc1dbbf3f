//! Stores that let not everybody in.

use sluicegate_testkit::redis::{Options, Single, Tls, User};
use sluicegate_testkit::until;

use crate::fleet::{Fleet, PATIENT};
use crate::hammer::ask_times;
use crate::support::Folder;

/// One of each kind that takes another way through the store.
const RULES: &str = "
  - key: window
    limits: { algorithm: fixed_window, rate: 20/year }
    on_store_failure: error
  - key: log
    limits: { algorithm: sliding_log, rate: 20/day }
    on_store_failure: error
  - key: slots
    limits: { algorithm: concurrency, max: 20, lease: 1h }
    on_store_failure: error
";

/// Two services share what they are asked for.
fn assert_shared(fleet: &Fleet) {
    let asked = ["window", "log", "slots"].map(|key| format!(r#"{{"{key}":"ada"}}"#));
    for counts in ask_times(&fleet.services, &asked.each_ref().map(String::as_str), 4) {
        assert_eq!((counts.allowed, counts.denied), (20, 12), "{counts:?}");
    }
    fleet.trusts_its_store();
}

#[test]
fn a_unix_socket() {
    let server = Single::with(Options { unix_socket: true, ..Options::default() });
    assert_shared(&Fleet::start(2, server.url(), RULES));
}

#[test]
fn certificates_on_both_sides() {
    let server = Single::with(Options { tls: Some(Tls::Mutual), ..Options::default() });
    let files = server.tls_files();
    let [ca, cert, key] = [&files.ca, &files.client_certificate, &files.client_key]
        .map(|path| path.to_str().unwrap());
    let files = [
        ("SLUICEGATE_STORE_CA", ca),
        ("SLUICEGATE_STORE_CERT", cert),
        ("SLUICEGATE_STORE_KEY", key),
    ];
    let environment = [&[PATIENT], &files[..]].concat();
    assert_shared(&Fleet::with(2, server.url(), RULES, &environment));
    // Who shows nothing is sent away, and that is told.
    let mut stranger = Fleet::unready(1, server.url(), RULES, &[PATIENT, files[0]]);
    stranger.services[0].has_said("the store cannot be reached");
    assert_eq!(stranger.services[0].admin("/ready").status, 503);
}

/// What a user of the access control list has to be allowed at least.
const RIGHTS: &str = "~sg:* +ping +info +role +client|setname +eval +evalsha +time +get +set +del +pexpire \
     +zadd +zcard +zcount +zrange +zremrangebyscore +zscore +pttl +hgetall +hmget +hset +hdel";

/// Those that services decide by themselves, and tell the store of in their own ways.
const LEVELS: &str = "
  - key: bought
    consistency: leased
    limits: { algorithm: fixed_window, rate: 10000/year }
    on_store_failure: error
  - key: told
    consistency: eventual
    limits: { algorithm: fixed_window, rate: 10000/year }
    on_store_failure: error
";

#[test]
fn a_user_with_no_more_rights_than_needed() {
    let user = User { name: "gate".into(), password: "s e:c@ret".into(), rules: RIGHTS.into() };
    let server = Single::with(Options { users: vec![user], ..Options::default() });
    let fleet = Fleet::start(2, server.url(), &[RULES, LEVELS].concat());
    assert_shared(&fleet);
    let asked = [r#"{"bought":"ada"}"#, r#"{"told":"ada"}"#];
    for counts in ask_times(&fleet.services, &asked, 50) {
        assert_eq!(counts.allowed, 2 * 4 * 50, "{counts:?}");
    }
    let rule = |name: &str, rule: &str, level: &str| {
        fleet.metric(&format!("sluicegate_{name}{{rule=\"shop/{rule}\",level=\"{level}\"}}"))
    };
    until("leases were bought and counts told", || {
        let bought = rule("lease_calls_total", "bought", "leased");
        let told = rule("sync_pushes_total", "told", "eventual");
        (bought > 0 && told > 0).then_some(())
    });
    assert_eq!(rule("sync_push_failures_total", "told", "eventual"), 0);
    let denied = server.cli(&["ACL", "LOG"]);
    assert_eq!(denied, "", "it has not asked for more");
}

#[test]
fn a_password_that_changes_while_the_service_runs() {
    let server = Single::with(Options { password: Some("old".into()), ..Options::default() });
    let folder = Folder::new();
    let file = folder.file("password", "old\n");
    let environment = [PATIENT, ("SLUICEGATE_STORE_PASSWORD_FILE", &file)];
    let url = format!("redis://127.0.0.1:{}", server.port());
    let fleet = Fleet::with(2, &url, RULES, &environment);
    // As it is done: both are good for a while.
    assert_eq!(server.cli(&["ACL", "SETUSER", "default", ">new"]), "OK");
    let next = folder.file(".next", "new\n");
    std::fs::rename(next, &file).unwrap();
    let await_connections = |count| {
        until("connections are made with the new one", || {
            (fleet.metric("sluicegate_redis_reconnects_total") >= count).then_some(())
        });
    };
    // Two of each service.
    await_connections(4);
    assert_eq!(server.cli(&["ACL", "SETUSER", "default", "<old"]), "OK");
    let closed = server.cli(&["CLIENT", "KILL", "TYPE", "NORMAL"]);
    assert!(closed.parse::<u64>().is_ok_and(|closed| closed >= 4), "{closed}");
    await_connections(8);
    assert_shared(&fleet);
}
