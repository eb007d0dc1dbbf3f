//! Rules in files: edited through the API and past it.

use serde_json::{Value, json};
use sluicegate_testkit::until;

use crate::api::{files, limit, rules};
use crate::support::service::Service;
use crate::support::{Folder, shell, sluicegate};

#[test]
fn an_edit_through_the_api_is_a_revision_and_is_enforced_at_once() {
    let folder = Folder::new();
    let path = folder.file("rules.yaml", &limit(1));
    let service = Service::with(&["--rules", &path], &[]);
    let api = rules(&service);
    let before = api.active();
    assert_eq!(before["revision"]["number"], 1);
    assert_eq!(before["revision"]["kind"], "import");
    assert_eq!((&before["backend"], &before["read_only"]), (&json!("files"), &Value::Null));
    assert_eq!([(); 2].map(|()| service.check("shop", "alice")), [200, 429]);

    let edited = api.edit(3, "more for users");
    assert_eq!((&edited["revision"]["number"], &edited["enforced"]), (&json!(2), &json!(true)));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), limit(3));
    assert_eq!([(); 4].map(|()| service.check("shop", "bob")), [200, 200, 200, 429]);
    let after = api.active();
    assert_eq!(after["revision"]["author"], "local");
    assert_eq!(after["revision"]["note"], "more for users");
    assert_eq!(after["revision"]["digest"], after["digest"]);
    let metrics = service.admin("/metrics").body;
    assert!(metrics.contains("\nsluicegate_rule_store_revision 2\n"), "{metrics}");

    let (_, shown) = api.json("GET", "/revisions/2", &Value::Null);
    assert_eq!(shown["against"], 1);
    let diff = shown["diff"].as_str().unwrap();
    assert!(
        diff.contains("requests_per_unit: 1 } }\n+") && diff.contains("+++ b/rules.yaml"),
        "{diff}"
    );

    let body = json!({ "note": "that was too much" });
    let (status, restored) = api.json("POST", "/revisions/1/rollback", &body);
    assert_eq!((status, &restored["revision"]["restores"]), (201, &json!(1)), "{restored}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), limit(1));
    assert_eq!(service.check("shop", "alice"), 429);
    let (_, page) = api.json("GET", "/revisions?limit=2", &Value::Null);
    let numbers: Vec<u64> = page["revisions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["number"].as_u64().unwrap())
        .collect();
    assert_eq!((numbers, &page["next_before"]), (vec![3, 2], &json!(2)));

    // History and numbers survive a restart.
    drop(service);
    let service = Service::with(&["--rules", &path], &[]);
    assert_eq!(rules(&service).active()["revision"]["number"], 3);
}

#[test]
fn what_is_wrong_with_a_change_is_reported_and_nothing_changes() {
    let folder = Folder::new();
    let path = folder.file("rules.yaml", &limit(1));
    let service = Service::with(&["--rules", &path], &[]);
    let api = rules(&service);
    let propose = |text: &str, base: u64, note: &str| {
        let body = json!({ "files": files(text), "base": base, "note": note });
        api.json("POST", "/revisions", &body)
    };
    let (status, invalid) = propose("domain: shop\ndescriptors: [{ kye: user }]\n", 1, "x");
    assert_eq!(status, 422);
    let problem = &invalid["error"]["problems"][0];
    assert_eq!(
        (&problem["file"], &problem["line"]),
        (&json!("rules.yaml"), &json!(2)),
        "{invalid}"
    );
    assert!(problem["message"].as_str().unwrap().contains("did you mean `key`?"), "{problem}");
    let (status, bad) = propose(&limit(2), 1, "  ");
    assert_eq!((status, &bad["error"]["code"]), (400, &json!("bad_request")), "no note: {bad}");

    api.edit(2, "the first editor");
    let (status, conflict) = propose(&limit(5), 1, "the second editor");
    assert_eq!((status, &conflict["error"]["code"]), (409, &json!("conflict")));
    let newer = &conflict["error"]["newer"];
    assert_eq!((&newer["number"], &newer["note"]), (&json!(2), &json!("the first editor")));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), limit(2));

    let body = json!({ "files": files("domain: [") });
    let (status, checked) = api.json("POST", "/check", &body);
    assert_eq!((status, &checked["valid"]), (200, &json!(false)));
    let (_, checked) = api.json("POST", "/check", &json!({ "files": files(&limit(9)) }));
    assert_eq!(checked["valid"], true);
    assert!(checked["changes_text"].as_str().unwrap().contains("shop"), "{checked}");
    for name in ["../x.yaml", "/etc/x", ".hidden", "a//b", "a\\b", ""] {
        let body = json!({ "files": [{ "name": name, "text": limit(1) }], "base": 2, "note": "x" });
        assert_eq!(api.json("POST", "/revisions", &body).0, 400, "{name}");
    }
    assert_eq!(api.send("POST", "/revisions", "{").status, 400);
    let (status, none) = api.json("GET", "/revisions/99", &Value::Null);
    assert_eq!((status, &none["error"]["code"]), (404, &json!("not_found")));
}

#[test]
fn an_edit_from_outside_is_a_revision_too() {
    let folder = Folder::new();
    let path = folder.file("rules.yaml", &limit(1));
    let service = Service::with(&["--rules", folder.path()], &[]);
    let api = rules(&service);
    folder.file("rules.yaml", &limit(2));
    let seen = until("the edit is a revision", || {
        let active = api.active();
        (active["revision"]["number"] == 2).then_some(active)
    });
    assert_eq!(seen["revision"]["kind"], "outside");
    let note = seen["revision"]["note"].as_str().unwrap();
    assert_eq!(note, "edited outside of the store: rules.yaml");
    let body = json!({ "files": files(&limit(3)), "base": 1, "note": "based on the old file" });
    assert_eq!(api.json("POST", "/revisions", &body).0, 409);

    // An invalid edit is never overwritten: its author corrects it.
    folder.file("rules.yaml", "domain: [");
    let body = json!({ "files": files(&limit(3)), "base": 2, "note": "beside an editor" });
    let (status, refused) = api.json("POST", "/revisions", &body);
    assert_eq!((status, &refused["error"]["code"]), (409, &json!("not_allowed")), "{refused}");
    assert_eq!(std::fs::read_to_string(path).unwrap(), "domain: [");
}

#[test]
fn a_store_that_is_read_only_names_the_reason() {
    let folder = Folder::new();
    let path = folder.file("rules.yaml", &limit(1));
    let reason = |args: &[&str], text: &str| {
        let service = Service::with(args, &[]);
        let api = rules(&service);
        let active = api.active();
        let body = json!({ "files": files(&limit(2)), "base": 1, "note": "x" });
        let (status, refused) = api.json("POST", "/revisions", &body);
        assert_eq!((status, &refused["error"]["code"]), (403, &json!("read_only")), "{refused}");
        assert_eq!(active["read_only"]["code"], refused["error"]["reason"]);
        assert!(active["files"][0]["text"].as_str().unwrap().contains(text), "{active}");
        active["read_only"]["code"].as_str().unwrap().to_owned()
    };
    assert_eq!(reason(&["--rules", &path, "--rules-read-only"], "shop"), "configured");
    assert_eq!(reason(&[], "domain: example"), "example");
    std::fs::create_dir(format!("{}/.git", folder.path())).unwrap();
    assert_eq!(reason(&["--rules", &path], "shop"), "git");
    assert!(!std::path::Path::new(&format!("{}/.sluicegate", folder.path())).exists());

    let mount = Folder::new();
    let data = format!("{}/..2026", mount.path());
    std::fs::create_dir(&data).unwrap();
    std::fs::write(format!("{data}/shop.yaml"), limit(1)).unwrap();
    std::os::unix::fs::symlink("..2026", format!("{}/..data", mount.path())).unwrap();
    std::os::unix::fs::symlink("..data/shop.yaml", format!("{}/shop.yaml", mount.path())).unwrap();
    assert_eq!(reason(&["--rules", mount.path()], "shop"), "config_map");
}

#[test]
fn a_second_person_approves_and_a_candidate_is_not_enforced() {
    let folder = Folder::new();
    let path = folder.file("rules.yaml", &limit(1));
    let tokens = folder.file(
        "tokens",
        &format!(
            "{}\n{}\n{}\n",
            token("alice", "edit", "alice-secret"),
            token("bob", "edit", "bob-secret"),
            token("eve", "read", "eve-secret"),
        ),
    );
    let service =
        Service::with(&["--rules", &path, "--rules-approval", "--admin-tokens", &tokens], &[]);
    let of = |secret| crate::api::Rules { address: &service.admin, token: Some(secret) };
    let (alice, bob, eve) = (of("alice-secret"), of("bob-secret"), of("eve-secret"));
    assert_eq!(eve.active()["revision"]["number"], 1);
    let body = json!({ "files": files(&limit(3)), "base": 1, "note": "more" });
    assert_eq!(eve.json("POST", "/revisions", &body).0, 403);
    let (_, pending) = alice.json("POST", "/revisions", &body);
    assert_eq!(pending["revision"]["state"], "pending");
    assert_eq!(service.check("shop", "x"), 200);
    assert_eq!(service.check("shop", "x"), 429, "not yet");
    let (status, own) = alice.json("POST", "/revisions/2/approve", &Value::Null);
    assert_eq!((status, &own["error"]["code"]), (409, &json!("not_allowed")));
    let (status, approved) = bob.json("POST", "/revisions/2/approve", &Value::Null);
    assert_eq!((status, &approved["revision"]["approved_by"]), (200, &json!("bob")), "{approved}");
    assert_eq!(service.check("shop", "x"), 200);

    let body =
        json!({ "files": files(&limit(9)), "base": 2, "note": "try it", "activate": "shadow" });
    let (_, candidate) = alice.json("POST", "/revisions", &body);
    assert_eq!(candidate["revision"]["state"], "shadow");
    assert_eq!(alice.active()["candidate"]["number"], 3);
    let (_, withdrawn) = alice.json("POST", "/revisions/3/withdraw", &Value::Null);
    assert_eq!(withdrawn["revision"]["state"], "withdrawn");
    assert_eq!(alice.active()["candidate"], Value::Null);
}

#[test]
fn a_set_is_exported_and_imported_as_yaml() {
    let folder = Folder::new();
    folder.file("a.yaml", &limit(1));
    folder.file("b.yaml", "domain: web\n");
    let service = Service::with(&["--rules", folder.path()], &[]);
    let api = rules(&service);
    let stream = api.send("GET", "/export", "").body;
    assert_eq!(
        stream,
        format!("--- # file: a.yaml\n{}--- # file: b.yaml\ndomain: web\n", limit(1))
    );
    let changed =
        stream.replace("requests_per_unit: 1", "requests_per_unit: 4").replace("web", "site");
    let imported = api.send("POST", "/import?note=from%20staging", &changed);
    assert_eq!(imported.status, 201, "{imported:?}");
    let active = api.active();
    assert_eq!(
        (&active["revision"]["kind"], &active["revision"]["note"]),
        (&json!("import"), &json!("from staging"))
    );
    assert_eq!(
        std::fs::read_to_string(format!("{}/b.yaml", folder.path())).unwrap(),
        "domain: site\n"
    );
}

/// An entry of a file of tokens.
fn token(name: &str, role: &str, secret: &str) -> String {
    let hash = shell(&format!("printf %s {secret} | sha256sum"), &std::env::temp_dir()).stdout;
    let hash = hash.split(' ').next().unwrap();
    format!("- {{ name: {name}, role: {role}, sha256: {hash} }}")
}

#[test]
fn the_command_line_has_history_import_and_rollback() {
    let (folder, stricter) = (Folder::new(), Folder::new());
    folder.file("rules.yaml", &limit(2));
    stricter.file("rules.yaml", &limit(1));
    let service = Service::with(&["--rules", folder.path()], &[]);
    let run = |args: &[&str]| {
        let args = [&["rules", "--admin", &service.admin], args].concat();
        sluicegate(&args, "")
    };
    let imported = run(&["import", stricter.path(), "--note", "half the rate & less"]);
    assert_eq!(imported.code, 0, "{}", imported.stderr);
    assert!(
        imported.stdout.contains("active      import    local: half the rate & less"),
        "{}",
        imported.stdout
    );
    assert_eq!([(); 2].map(|()| service.check("shop", "x")), [200, 429]);
    let shown = run(&["show", "2"]).stdout;
    assert!(
        shown.contains("+  - { key: user, rate_limit: { unit: year, requests_per_unit: 1 } }"),
        "{shown}"
    );
    let restored = run(&["rollback", "1", "--note", "too strict"]).stdout;
    assert!(restored.contains("local: too strict (restores 1)"), "{restored}");
    assert_eq!(run(&["history"]).stdout.lines().count(), 3);
    let exported = run(&["export"]).stdout;
    assert_eq!(exported, format!("--- # file: rules.yaml\n{}", limit(2)));
    stricter.file("rules.yaml", "domain: [");
    let refused = run(&["import", stricter.path(), "--note", "broken"]);
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains("rules.yaml:1:"), "{}", refused.stderr);
    assert_eq!(run(&["approve", "2"]).code, 1);
}
