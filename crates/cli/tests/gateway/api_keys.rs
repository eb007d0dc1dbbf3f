//! API keys: `hash-key`, the file and its reload, and what an upstream sees.

use axum::extract::Request;

use crate::gateway::Gateway;
use crate::support::http::get;
use crate::support::upstream::Upstream;
use crate::support::{Folder, sluicegate};

const RULES: &str = "domain: api\ndescriptors:\n  - key: plan\n    value: free\n    descriptors:\n      - { key: client, limits: { algorithm: fixed_window, rate: 1/year } }\n  - key: plan\n    value: paid\n    descriptors:\n      - { key: client, limits: { algorithm: fixed_window, rate: 3/year } }\n";

/// A gateway that requires keys below `/required`, before a server that answers with URI and key.
fn start(folder: &Folder, options: &str) -> (Gateway, Upstream) {
    let app = Upstream::answering(|request: Request| async move {
        let key = request.headers().get("x-api-key").cloned();
        format!("{} {}", request.uri(), key.map_or("-".into(), |key| format!("{key:?}")))
    });
    folder.file("rules.yaml", RULES);
    let address = &app.address;
    let text = format!(
        "rules: rules.yaml
identity: {{ api_keys: {{ file: keys.yaml{options} }} }}
upstreams: {{ app: http://{address} }}
routes:
  - {{ path: /required, upstream: app, require: api_key }}
  - {{ path: /*, upstream: app, limit: {{ domain: api, descriptors: [{{ plan: api_key plan or free, client: api_key }}] }} }}
"
    );
    (Gateway::start(&["--config", &folder.file("gateway.yaml", &text)]), app)
}

/// The line of `hash-key` for this key.
fn line(name: &str, key: &str) -> String {
    let run = sluicegate(&["gateway", "hash-key", name], &format!("{key}\n"));
    assert_eq!(run.code, 0, "{}", run.stderr);
    run.stdout
}

fn with_plan(line: &str, plan: &str) -> String {
    line.replace(" }\n", &format!(", plan: {plan} }}\n"))
}

#[test]
fn hash_key_prints_lines_that_the_gateway_accepts() {
    let folder = Folder::new();
    let own = line("acme", "a key of twenty letters");
    let run = sluicegate(&["gateway", "hash-key", "#2: \"shop\"", "--generate"], "");
    assert_eq!(run.code, 0, "{}", run.stderr);
    let key = run.stderr.trim_end().rsplit(' ').next().unwrap();
    assert_eq!(key.len(), 40, "{}", run.stderr);
    assert!(!run.stdout.contains(key));
    folder.file("keys.yaml", &format!("{own}{}", run.stdout));
    let (gateway, _app) = start(&folder, "");
    for (key, status) in [("a key of twenty letters", 200), (key, 200), ("other", 401)] {
        let answer = get(&gateway.address, "/required", &[("x-api-key", key.as_bytes())]);
        assert_eq!(answer.status, status, "{key}");
    }
    let other = sluicegate(&["gateway", "hash-key", "a", "--generate"], "");
    assert!(!other.stderr.contains(key), "each key is new");
}

#[test]
fn hash_key_refuses_what_no_request_can_carry() {
    let long = "x".repeat(4_097);
    for (name, key, expected) in [
        ("acme", "", "standard input: no key; write one to it, or use `--generate`"),
        ("acme", &long, "a key has at most 4096 bytes"),
        ("acme", "schlüssel", "must consist of visible ASCII characters"),
        ("", "key", "NAME: must not be empty"),
    ] {
        let run = sluicegate(&["gateway", "hash-key", name], key);
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{key}");
        assert!(run.stderr.contains(expected), "{}", run.stderr);
        assert!(!run.stderr.contains("schl"), "a secret is not repeated");
    }
    let weak = sluicegate(&["gateway", "hash-key", "acme"], "short\n");
    assert!(
        weak.code == 0 && weak.stderr.contains("5 characters can be guessed"),
        "{}",
        weak.stderr
    );
    let mixed = sluicegate(&["gateway", "--limit", "1/s", "hash-key", "acme"], "key");
    assert_eq!(mixed.code, 2, "{}", mixed.stderr);
    let help = sluicegate(&["gateway", "hash-key", "--help"], "").stdout;
    assert!(help.contains("sluicegate gateway hash-key acme --generate >> keys.yaml"), "{help}");
}

#[test]
fn plans_of_keys_are_limited_and_their_file_is_followed() {
    let folder = Folder::new();
    let (acme, shop) =
        (line("acme", "acme's key, of some length"), line("shop", "the shop's key, longer"));
    folder.file("keys.yaml", &format!("{}{shop}", with_plan(&acme, "paid")));
    let (mut gateway, _app) = start(&folder, "");
    let status = |gateway: &Gateway, key: &str| {
        get(&gateway.address, "/", &[("x-api-key", key.as_bytes())]).status
    };
    let statuses = |gateway: &Gateway, key: &str| [(); 4].map(|()| status(gateway, key));
    assert_eq!(statuses(&gateway, "acme's key, of some length"), [200, 200, 200, 429]);
    assert_eq!(statuses(&gateway, "the shop's key, longer"), [200, 429, 429, 429]);
    // Without a key the limit cannot be evaded, although the route does not require one.
    let none = gateway.get("/");
    assert_eq!((none.status, none.header("www-authenticate")), (401, Some("ApiKey")));
    assert_eq!(status(&gateway, "unknown"), 401);
    // A mistake changes nothing; a change applies, and a removed key is refused.
    folder.file("keys.yaml", "- { name: shop }\n");
    gateway.process.says("API keys not loaded; the last good one stays in force");
    assert_eq!(status(&gateway, "the shop's key, longer"), 429);
    folder.file("keys.yaml", &with_plan(&shop, "paid"));
    gateway.process.says("API keys reloaded");
    assert_eq!(statuses(&gateway, "the shop's key, longer"), [200, 200, 200, 429]);
    assert_eq!(status(&gateway, "acme's key, of some length"), 401);
}

#[test]
fn upstreams_get_no_key_unless_it_is_forwarded() {
    let folder = Folder::new();
    let key = "acme-key-of-some-length";
    folder.file("keys.yaml", &with_plan(&line("acme", key), "paid"));
    let (gateway, _app) = start(&folder, ", query: key");
    let path = format!("/a?x=1&k%65y={key}&y=2&key=again");
    assert_eq!(gateway.get(&path).body, "/a?x=1&y=2 -");
    let (gateway, _app) = start(&folder, ", header: X-API-Key, query: key");
    let header: &[(&str, &[u8])] = &[("x-api-key", key.as_bytes())];
    assert_eq!(get(&gateway.address, "/a?key=b", header).body, "/a -");
    assert_eq!(gateway.get(&path).body, "/a?x=1&y=2 -");
    let (gateway, _app) = start(&folder, ", forward: true");
    assert_eq!(get(&gateway.address, "/a", header).body, format!("/a {key:?}"));
}
