//! Two nodes on one PostgreSQL.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sluicegate_testkit::postgres::Postgres;
use sluicegate_testkit::until;

use crate::api::{Rules, files, limit, rules};
use crate::support::Folder;
use crate::support::service::Service;

/// A node with a copy of the rules in the folder.
fn node(url: &str, cache: &str) -> Service {
    Service::with(&["--rules", url, "--rules-cache", cache], &[])
}

/// Fills an empty database.
fn seed(api: &Rules<'_>, per_year: u64) {
    let body = json!({ "files": files(&limit(per_year)), "note": "the first rules" });
    let (status, body) = api.json("POST", "/revisions", &body);
    assert_eq!(status, 201, "{body}");
}

fn metric(service: &Service, name: &str) -> String {
    let page = service.admin("/metrics").body;
    let line = page.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
    line.unwrap_or_else(|| panic!("no {name} in {page}")).to_owned()
}

/// Waits until a node enforces a revision.
fn enforces(service: &Service, revision: u64) {
    until(&format!("revision {revision} is enforced"), || {
        (metric(service, "sluicegate_rule_store_revision") == revision.to_string()).then_some(())
    });
}

fn is_connected(service: &Service) -> bool {
    metric(service, "sluicegate_rule_store_connected") == "1"
}

#[expect(
    clippy::disallowed_methods,
    reason = "the propagation of real processes is what is measured"
)]
#[test]
fn an_edit_on_one_node_is_enforced_on_the_other() {
    let (server, folder) = (Postgres::start(), Folder::new());
    let cache = |name: &str| format!("{}/{name}", folder.path());
    let url = server.url();
    let (mut one, two) = (node(&url, &cache("one")), node(&url, &cache("two")));
    one.has_said("the rule store is empty and nothing is limited");
    assert_eq!(one.check("shop", "x"), 200, "nothing is limited");
    seed(&rules(&one), 1);
    enforces(&two, 1);
    assert_eq!([(); 2].map(|()| two.check("shop", "x")), [200, 429]);

    let mut times = Vec::new();
    for edit in 0..20_u64 {
        let (from, to) = if edit % 2 == 0 { (&one, &two) } else { (&two, &one) };
        let begun = Instant::now();
        let edited = rules(from).edit(edit + 2, "measured");
        assert_eq!(edited["enforced"], true, "{edited}");
        enforces(to, edit + 2);
        times.push(begun.elapsed());
        assert_eq!(rules(to).active()["digest"], edited["revision"]["digest"]);
    }
    times.sort();
    let (median, longest) = (times[times.len() / 2], times[times.len() - 1]);
    eprintln!(
        "from the edit until the other node enforces it: median {median:?}, longest {longest:?}"
    );
    assert!(median < Duration::from_secs(1), "{times:?}");

    // Two editors: the second one is refused wherever it is.
    let body = json!({ "files": files(&limit(99)), "base": 20, "note": "late" });
    let (status, conflict) = rules(&two).json("POST", "/revisions", &body);
    assert_eq!((status, &conflict["error"]["newer"]["number"]), (409, &json!(21)), "{conflict}");

    let (_, nodes) = rules(&one).json("GET", "/nodes", &Value::Null);
    let nodes = nodes["nodes"].as_array().unwrap().clone();
    assert_eq!(nodes.len(), 2, "{nodes:?}");
    let config = one.admin("/config").body;
    let shown = [config, one.admin("/metrics").body, rules(&one).active().to_string()];
    assert!(shown.iter().all(|text| !text.contains("postgres-secret")), "{shown:?}");
    assert!(shown[0].contains("postgres://sluicegate@127.0.0.1"), "{}", shown[0]);
    assert!(server.sql("SELECT count(*) FROM sluicegate_rules_revisions") == "21");
}

#[test]
fn revisions_in_the_database_are_append_only() {
    let (server, folder) = (Postgres::start(), Folder::new());
    let one = node(&server.url(), &format!("{}/one", folder.path()));
    seed(&rules(&one), 1);
    let change = "DO $$ BEGIN UPDATE sluicegate_rules_revisions SET note = 'x';
        EXCEPTION WHEN raise_exception THEN CREATE TABLE refused (); END $$;
        SELECT to_regclass('refused')";
    assert_eq!(server.sql(change), "refused");
}

#[test]
fn a_cut_listener_and_a_lost_hint_lose_nothing() {
    let (server, folder) = (Postgres::start(), Folder::new());
    let cache = |name: &str| format!("{}/{name}", folder.path());
    let (one, two) = (node(&server.url(), &cache("one")), node(&server.url(), &cache("two")));
    seed(&rules(&one), 1);
    enforces(&two, 1);
    // A commit without its hint, as by a node that ends between both, after which the back ends of
    // the listeners are killed: in one transaction, so that nothing comes between.
    server.sql(
        "BEGIN;
         INSERT INTO sluicegate_rules_revisions SELECT 2, 1, author, now(), 'by hand', kind, digest, NULL,
             replace(sources::text, 'requests_per_unit: 1', 'requests_per_unit: 7')::json
             FROM sluicegate_rules_revisions;
         UPDATE sluicegate_rules_states SET state = 'superseded' WHERE number = 1;
         INSERT INTO sluicegate_rules_states VALUES (2, 'active', NULL, now());
         UPDATE sluicegate_rules_head SET version = version + 1, active = 2;
         COMMIT;
         SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
             WHERE application_name = 'sluicegate'",
    );
    enforces(&one, 2);
    enforces(&two, 2);
    assert_eq!(two.check("shop", "fresh"), 200);
    // Listening again: the next edit takes the usual course.
    rules(&one).edit(3, "after the cut");
    enforces(&two, 3);
}

#[test]
fn rules_outlive_the_database() {
    let (server, folder) = (Postgres::start(), Folder::new());
    let cache = |name: &str| format!("{}/{name}", folder.path());
    let (one, mut two) = (node(&server.url(), &cache("one")), node(&server.url(), &cache("two")));
    seed(&rules(&one), 1);
    enforces(&two, 1);
    until("the copy is written", || {
        std::fs::read_to_string(cache("two"))
            .is_ok_and(|text| text.contains("\"number\":1"))
            .then_some(())
    });
    server.stop();
    until("the outage is noticed", || (!is_connected(&one) && !is_connected(&two)).then_some(()));
    assert_eq!(
        [(); 2].map(|()| one.check("shop", "x")),
        [200, 429],
        "the last rules stay in force"
    );
    let body = json!({ "files": files(&limit(5)), "base": 1, "note": "during the outage" });
    let (status, refused) = rules(&one).json("POST", "/revisions", &body);
    assert_eq!((status, &refused["error"]["code"]), (503, &json!("unavailable")), "{refused}");

    // A start from the copy on disk, while the database is down.
    two.kill();
    let mut two = node(&server.url(), &cache("two"));
    two.has_said("rules are served from the copy on disk");
    assert_eq!([(); 2].map(|()| two.check("shop", "x")), [200, 429]);
    assert_eq!(metric(&two, "sluicegate_rule_store_from_cache"), "1");
    assert_eq!(rules(&two).active()["served_from_cache"], true);

    server.restart();
    until("both are connected again", || (is_connected(&one) && is_connected(&two)).then_some(()));
    assert_eq!(metric(&two, "sluicegate_rule_store_from_cache"), "0");
    rules(&one).edit(3, "after the restart");
    enforces(&two, 2);
    assert_eq!([(); 4].map(|()| two.check("shop", "y")), [200, 200, 200, 429]);
}

#[test]
fn a_stale_copy_is_replaced_by_the_database_and_a_damaged_one_is_not_used() {
    let (server, folder) = (Postgres::start(), Folder::new());
    let cache = |name: &str| format!("{}/{name}", folder.path());
    let (one, mut two) = (node(&server.url(), &cache("one")), node(&server.url(), &cache("two")));
    seed(&rules(&one), 1);
    enforces(&two, 1);
    until("the copy is written", || std::fs::metadata(cache("two")).ok());
    two.kill();
    let edited = rules(&one).edit(4, "while the other node is down");
    server.stop();
    let mut two = node(&server.url(), &cache("two"));
    two.has_said("rules are served from the copy on disk");
    assert_eq!(metric(&two, "sluicegate_rule_store_revision"), "1", "stale");
    server.restart();
    enforces(&two, 2);
    assert_eq!(rules(&two).active()["digest"], edited["revision"]["digest"]);

    server.stop();
    two.kill();
    folder.file("two", "sluicegate-rules-cache 1 sha256 0\n{}");
    let run = crate::support::sluicegate(
        &[
            "serve",
            "--rules",
            &server.url(),
            "--rules-cache",
            &cache("two"),
            "--http",
            "127.0.0.1:0",
            "--grpc",
            "127.0.0.1:0",
            "--admin",
            "127.0.0.1:0",
        ],
        "",
    );
    assert_eq!(run.code, 2, "{}", run.stderr);
    assert!(run.stderr.contains("the rules cannot be read"), "{}", run.stderr);
    assert!(
        run.stdout.contains("is damaged") || run.stderr.contains("is damaged"),
        "{}",
        run.stderr
    );
    assert!(!run.stderr.contains("postgres-secret"), "{}", run.stderr);
}

#[test]
fn a_scheduled_activation_happens_once_whichever_node_is_there() {
    let (server, folder) = (Postgres::start(), Folder::new());
    let cache = |name: &str| format!("{}/{name}", folder.path());
    let (one, two) = (node(&server.url(), &cache("one")), node(&server.url(), &cache("two")));
    seed(&rules(&one), 1);
    enforces(&two, 1);
    let at = server.sql(
        "SELECT to_char((now() + interval '2 s') AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')",
    );
    for per_year in [2, 3] {
        let body =
            json!({ "files": files(&limit(per_year)), "base": 1, "note": "later", "activate": at });
        let (status, scheduled) = rules(&one).json("POST", "/revisions", &body);
        assert_eq!(
            (status, &scheduled["revision"]["state"]),
            (201, &json!("scheduled")),
            "{scheduled}"
        );
    }
    enforces(&one, 2);
    enforces(&two, 2);
    let suspended = until("the other one is suspended", || {
        let scheduled = rules(&two).active()["scheduled"].clone();
        (scheduled[0]["state"] == "suspended").then_some(scheduled)
    });
    assert!(
        suspended[0]["suspended_because"].as_str().unwrap().contains("revision 2"),
        "{suspended}"
    );
    let active = "SELECT count(*) FROM sluicegate_rules_states WHERE activated_at IS NOT NULL";
    assert_eq!(server.sql(active), "2");
}
