//! A candidate beside the enforced rules of the real binary.

use serde_json::{Value, json};
use sluicegate_testkit::until;

use crate::api::{Rules, files, limit, rules};
use crate::support::Folder;
use crate::support::service::Service;

/// Proposes a candidate; its number.
fn propose(api: &Rules<'_>, per_year: u64, note: &str) -> u64 {
    let base = &api.active()["revision"]["number"];
    let body = json!({
        "files": files(&limit(per_year)), "base": base, "note": note, "activate": "shadow",
    });
    let (status, body) = api.json("POST", "/revisions", &body);
    assert_eq!((status, &body["revision"]["state"]), (201, &json!("shadow")), "{body}");
    body["revision"]["number"].as_u64().unwrap()
}

fn candidate(api: &Rules<'_>) -> Value {
    let (status, body) = api.json("GET", "/candidate", &Value::Null);
    assert_eq!((status, &body["scope"]), (200, &json!("node")), "{body}");
    body
}

/// Waits until a candidate runs, or none for 0.
fn runs(api: &Rules<'_>, number: u64) {
    until(&format!("candidate {number} runs"), || {
        let now = candidate(api);
        let running =
            if now["state"] == "running" { now["revision"]["number"].as_u64() } else { None };
        (running.unwrap_or(0) == number).then_some(())
    });
}

#[test]
fn a_stricter_candidate_runs_beside_the_rules_until_it_is_activated() {
    let folder = Folder::new();
    let path = folder.file("rules.yaml", &limit(4));
    let service = Service::with(&["--rules", &path], &[]);
    let api = rules(&service);
    assert_eq!(candidate(&api)["state"], "none");
    assert!(service.admin("/metrics").body.contains("\nsluicegate_candidate_revision 0\n"));

    let number = propose(&api, 2, "half the rate");
    runs(&api, number);
    // The answers are those of the enforced rules.
    assert_eq!([(); 6].map(|()| service.check("shop", "alice")), [200, 200, 200, 200, 429, 429]);
    assert_eq!(service.check("shop", "bob"), 200);
    let now = candidate(&api);
    let due = json!({
        "both_allow": 3, "both_deny": 2, "only_enforced_denies": 0, "only_candidate_denies": 2, "total": 7,
    });
    assert_eq!(now["requests"], due);
    let newly = &now["newly_denied"][0];
    assert_eq!((&newly["descriptor"], &newly["requests"]), (&json!("user=alice"), &json!(2)));
    assert_eq!(now["newly_denied"].as_array().unwrap().len(), 1);
    assert_eq!(now["newly_allowed"], json!([]));
    let row = &now["rules"][0];
    assert_eq!(
        [
            &row["rule"],
            &row["total"]["hits"],
            &row["total"]["denied_hits"],
            &row["newly_denied_requests"]
        ],
        [&json!("shop/user"), &json!(7), &json!(4), &json!(2)]
    );
    assert_eq!(row["judgement"]["code"], "too_little_traffic");
    assert!(
        row["judgement"]["text"].as_str().unwrap().contains("since the candidate began"),
        "{row}"
    );
    let metrics = service.admin("/metrics").body;
    for line in [
        format!("sluicegate_candidate_revision {number}"),
        "sluicegate_candidate_requests_total{outcome=\"only_candidate_denies\"} 2".to_owned(),
        "sluicegate_candidate_requests_total{outcome=\"both_allow\"} 3".to_owned(),
    ] {
        assert!(metrics.contains(&format!("\n{line}\n")), "{line}");
    }

    // Another candidate starts anew.
    let looser = propose(&api, 9, "more for everybody");
    runs(&api, looser);
    assert_eq!(service.check("shop", "alice"), 429);
    let now = candidate(&api);
    assert_eq!(
        (&now["requests"]["total"], &now["requests"]["only_enforced_denies"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(now["newly_allowed"][0]["descriptor"], "user=alice");

    let (status, body) = api.json("POST", &format!("/revisions/{looser}/activate"), &Value::Null);
    assert_eq!((status, &body["enforced"]), (200, &json!(true)), "{body}");
    assert_eq!(service.check("shop", "alice"), 200);
    runs(&api, 0);
    assert_eq!(candidate(&api)["state"], "none");
}

#[test]
fn a_candidate_begins_again_with_the_node_and_ends_when_it_is_withdrawn() {
    let folder = Folder::new();
    let path = folder.file("rules.yaml", &limit(4));
    let service = Service::with(&["--rules", &path], &[]);
    let number = propose(&rules(&service), 1, "one is enough");
    runs(&rules(&service), number);
    service.check("shop", "alice");
    drop(service);

    let service = Service::with(&["--rules", &path], &[]);
    let api = rules(&service);
    runs(&api, number);
    assert_eq!(candidate(&api)["requests"]["total"], 0);
    let (status, body) = api.json("POST", &format!("/revisions/{number}/withdraw"), &Value::Null);
    assert_eq!(status, 200, "{body}");
    runs(&api, 0);
    assert_eq!([(); 5].map(|()| service.check("shop", "alice")), [200, 200, 200, 200, 429]);
}
