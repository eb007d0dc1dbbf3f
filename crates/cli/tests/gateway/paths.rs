//! Spellings of a path: the route, the limit and the upstream are of the same one.

use crate::gateway::Gateway;
use crate::support::Folder;
use crate::wire::{Recorder, exchange, statuses};

const RULES: &str = "domain: api
descriptors:
  - { key: route, limits: { algorithm: fixed_window, rate: 0/year } }
  - { key: path, limits: { algorithm: fixed_window, rate: 1/year } }
";

/// Denies `/login` and everything below `/admin`; limits the paths of `limited.test`; everything
/// else reaches the recorder.
fn started(folder: &Folder) -> (Gateway, Recorder) {
    let recorder = Recorder::start();
    folder.file("rules.yaml", RULES);
    let denied = "upstream: app, limit: { domain: api, descriptors: [{ route: path_template }] }";
    let limited = "upstream: app, limit: { domain: api, descriptors: [{ path: path }] }";
    let config = format!(
        "rules: rules.yaml\nupstreams: {{ app: \"http://{}\" }}\nroutes:
  - {{ path: /login, {denied} }}
  - {{ path: /admin/*, {denied} }}
  - {{ path: \"/users/@me\", {denied} }}
  - {{ path: /*, upstream: app }}
  - {{ host: limited.test, path: /*, {limited} }}\n",
        recorder.address
    );
    (Gateway::start(&["--config", &folder.file("gateway.yaml", &config)]), recorder)
}

fn status(gateway: &Gateway, host: &str, target: &str) -> u16 {
    let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let answer = exchange(&gateway.address, request.as_bytes());
    let statuses = statuses(&answer);
    assert_eq!(statuses.len(), 1, "{target}: {answer}");
    statuses[0]
}

#[test]
fn no_spelling_evades_the_limit_of_a_route() {
    let folder = Folder::new();
    let (gateway, recorder) = started(&folder);
    for target in [
        "/login",
        "/login?x",
        "/login?/../x",
        "/login#x",
        "//login",
        "///login",
        "/./login",
        "/%6Cogin",
        "/%6c%6f%67%69%6e",
        "/x/../login",
        "/x/%2e%2e/login",
        "/x/.%2E/login",
        "/../login",
        "/%2e/login",
        "http://a/login",
        "http://a//login",
        "/admin",
        "/admin/",
        "/admin//x",
        "/admin/a;x=1/b",
        "/admin/a%2Fb",
        "/x/..//admin/y",
        "/users/%40me",
        "/users/%40%6De",
    ] {
        assert_eq!(status(&gateway, "a", target), 429, "{target}");
    }
    // Some servers take them for `/login` or `/admin`, and others do not.
    for target in [
        "/login;x",
        "/login;",
        "/;x/login",
        "/%2Flogin",
        "/%5clogin",
        "/\\login",
        "/admin%2Fx",
        "/admin%5Cx",
        "/admin;x/y",
        "/x/..;/login",
        "/x/..%2flogin",
        "/x%2f..%2flogin",
        "/x/..%5clogin",
        "/x\\..\\login",
        "/login%00",
        "/login%0",
        "/%c0%afadmin/x",
        "/x/%c0%ae%c0%ae/login",
        "/%u002e/login",
    ] {
        assert_eq!(status(&gateway, "a", target), 400, "{target}");
    }
    for target in ["*", "login", "a:80"] {
        assert_eq!(status(&gateway, "a", target), 404, "{target}");
    }
    drop(gateway);
    assert_eq!(recorder.finish(), []);
}

#[test]
fn the_upstream_gets_the_path_that_was_matched() {
    let folder = Folder::new();
    let (gateway, recorder) = started(&folder);
    let cases = [
        ("/", "/"),
        ("http://a", "/"),
        ("/a/../../b?x=/../y", "/b?x=/../y"),
        ("//a//b//", "/a/b/"),
        ("/%7Euser/%41?%2e", "/~user/A?%2e"),
        ("/a%2fb;x=1/%3bc", "/a%2Fb;x=1/%3Bc"),
        ("/a\\b|c", "/a%5Cb%7Cc"),
        ("/caf\u{e9}", "/caf%C3%A9"),
        ("/%252e%252e/login", "/%252e%252e/login"),
        // Others than `/login` to the gateway: a prefix covers the first, and nothing the second.
        ("/login/", "/login/"),
        ("/LOGIN", "/LOGIN"),
    ];
    for (target, _) in &cases {
        assert_eq!(status(&gateway, "a", target), 200, "{target}");
    }
    let requests = recorder.requests();
    assert_eq!(requests.len(), cases.len());
    for (request, (target, path)) in requests.iter().zip(cases) {
        assert_eq!(request.head, format!("GET {path} HTTP/1.1|host: a"), "{target}");
    }
}

#[test]
fn the_limit_of_a_path_counts_all_its_spellings() {
    let folder = Folder::new();
    let (gateway, recorder) = started(&folder);
    for spellings in [
        ["/a", "/a;1", "/a;2?x", "/%61"],
        ["/b/c", "/b%2Fc", "/b%5cc", "/b;x/c;y"],
        ["/@d", "/%40d", "//@d", "/;x/@d"],
    ] {
        let statuses = spellings.map(|target| status(&gateway, "limited.test", target));
        assert_eq!(statuses, [200, 429, 429, 429], "{spellings:?}");
    }
    // The host has several spellings too.
    for host in ["LIMITED.test", "limited.test.", "limited.test:80", "limited.test.:80"] {
        assert_eq!(status(&gateway, host, "/a"), 429, "{host}");
    }
    assert_eq!(recorder.requests().len(), 3);
}
