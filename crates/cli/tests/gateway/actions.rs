//! Routes without an upstream: redirects, files and fixed responses; changes to headers.

use axum::extract::Request;

use crate::gateway::Gateway;
use crate::support::http::{Answer, asked_on, get, post};
use crate::support::upstream::Upstream;
use crate::support::{Folder, sluicegate};

fn started(folder: &Folder, routes: &str) -> Gateway {
    let text = format!("request_id: X-Request-Id\nroutes:\n{routes}");
    Gateway::start(&["--config", &folder.file("gateway.yaml", &text)])
}

#[test]
fn redirects_and_fixed_responses() {
    let routes = "  - { path: /old/*, redirect: \"https://new.example{path}{query}\" }
  - { path: /moved, redirect: { to: /new, status: 302 } }
  - { path: /same/*, redirect: { to: \"{path}/\", status: 307 } }
  - { path: /health, respond: { status: 200, body: fine } }
  - { path: /empty, respond: { status: 204 } }\n";
    let folder = Folder::new();
    let gateway = started(&folder, routes);
    let location = |path: &str| {
        let answer = gateway.get(path);
        (answer.status, answer.header("location").map(str::to_owned))
    };
    assert_eq!(location("/old/a?b=1"), (308, Some("https://new.example/old/a?b=1".to_owned())));
    assert_eq!(location("/moved"), (302, Some("/new".to_owned())));
    assert_eq!(location("/same/..//evil.example"), (404, None), "normalized before it is matched");
    assert_eq!(location("//same//\\evil.example").1.unwrap(), "/same/%5Cevil.example/");
    let health = gateway.get("/health");
    assert_eq!((health.status, health.body.as_str()), (200, "fine"));
    assert_eq!(health.header("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(gateway.get("/empty").status, 204);
    assert_eq!(health.header("x-request-id").unwrap().len(), 32);
}

#[test]
fn files_of_a_directory_and_nothing_else() {
    let folder = Folder::new();
    folder.file("secret.txt", "secret");
    folder.file("public/index.html", "<h1>home</h1>");
    folder.file("public/a b.txt", "0123456789");
    folder.file("public/docs/index.html", "docs");
    folder.file("public/.env", "secret");
    let link = |from: &str, to: &str| {
        std::os::unix::fs::symlink(to, format!("{}/public/{from}", folder.path())).unwrap();
    };
    link("inside.txt", "a b.txt");
    link("outside.txt", "../secret.txt");
    let routes = "  - { path: /static/*, files: { root: public, index: index.html } }
  - { path: /plain/*, files: public }\n";
    let gateway = started(&folder, routes);
    let file = gateway.get("/static/a%20b.txt");
    assert_eq!((file.status, file.body.as_str()), (200, "0123456789"));
    assert_eq!(file.header("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(file.header("content-length"), Some("10"));
    assert_eq!(gateway.get("/static/inside.txt").body, "0123456789");
    assert_eq!(gateway.get("/static/").body, "<h1>home</h1>");
    assert_eq!(gateway.get("/static/docs/").body, "docs");
    assert_eq!(gateway.get("/static/docs").header("location"), Some("/static/docs/"));
    for path in [
        "/static/outside.txt",
        "/static/.env",
        "/static/none",
        "/static/a%20b.txt/",
        "/plain/",
        "/plain/docs",
    ] {
        let answer = gateway.get(path);
        assert_eq!(answer.status, 404, "{path}");
        assert!(!answer.body.contains("secret"), "{path}");
    }
    assert_eq!(gateway.get("/static/../secret.txt").status, 404);
    for path in ["/static/%2e%2e%2fsecret.txt", "/static/..%2fsecret.txt"] {
        assert_eq!(gateway.get(path).status, 400, "{path}");
    }
    let refused = post(&gateway.address, "/static/docs/", "x");
    assert_eq!((refused.status, refused.header("allow")), (405, Some("GET, HEAD")));

    let with = |name: &str, value: &str| -> Answer {
        get(&gateway.address, "/static/a%20b.txt", &[(name, value.as_bytes())])
    };
    let client = std::net::TcpStream::connect(&gateway.address).unwrap();
    let request = b"HEAD /static/a%20b.txt HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    let head = asked_on(client, request);
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    assert_eq!(head.header("content-length"), Some("10"));
    let part = with("range", "bytes=2-4");
    assert_eq!((part.status, part.body.as_str()), (206, "234"));
    assert_eq!(part.header("content-range"), Some("bytes 2-4/10"));
    assert_eq!(with("range", "bytes=20-").status, 416);
    let unchanged = with("if-none-match", file.header("etag").unwrap());
    assert_eq!((unchanged.status, unchanged.body.as_str()), (304, ""));
    assert_eq!(with("if-modified-since", file.header("last-modified").unwrap()).status, 304);
}

#[test]
fn headers_are_set_and_removed_with_placeholders() {
    let app = Upstream::answering(|request: Request| async move {
        let name = |name: &str| {
            let value = request.headers().get(name);
            value.map_or("none", |value| value.to_str().unwrap()).to_owned()
        };
        let parts = ["x-real-ip", "x-secret", "x-request-id"].map(name);
        ([("server", "app"), ("x-powered-by", "php")], parts.join(" "))
    });
    let folder = Folder::new();
    let text = format!(
        "request_id: X-Request-Id\nupstreams: {{ app: \"http://{}\" }}\nroutes:\n  - path: /*\n    upstream: app\n    request_headers: {{ set: {{ X-Real-IP: \"{{client_ip}}\" }}, remove: [X-Secret] }}\n    response_headers: {{ set: {{ X-Served-By: \"gate of {{host}}\" }}, remove: [X-Powered-By] }}\n",
        app.address
    );
    let gateway = Gateway::start(&["--config", &folder.file("gateway.yaml", &text)]);
    let sent: [(&str, &[u8]); 3] =
        [("x-real-ip", b"192.0.2.9"), ("x-secret", b"1"), ("x-request-id", b"forged")];
    let answer = get(&gateway.address, "/", &sent);
    let id = answer.header("x-request-id").unwrap();
    assert_eq!(answer.body, format!("127.0.0.1 none {id}"));
    assert_ne!(id, "forged", "the client is no trusted proxy");
    assert_eq!(answer.header("x-served-by"), Some("gate of test"));
    assert_eq!(answer.header("x-powered-by"), None);
    assert_eq!(answer.header("server"), Some("app"));
    drop(app);
    let failed = gateway.get("/");
    assert_eq!(failed.status, 502);
    assert_eq!(failed.header("x-served-by"), Some("gate of test"), "errors have them too");
}

#[test]
fn check_reports_actions_that_cannot_be_executed() {
    let folder = Folder::new();
    for (route, expected) in [
        ("{ path: /a, redirect: \"https://{path}\" }", "would let a request choose the host"),
        (
            "{ path: /a, respond: { status: 200 }, response_headers: { set: { Content-Length: 1 } } }",
            "`Content-Length` cannot be changed: it frames messages; remove it",
        ),
    ] {
        let path = folder.file("gateway.yaml", &format!("routes:\n  - {route}\n"));
        let run = sluicegate(&["check", &path], "");
        assert_eq!(run.code, 1, "{}", run.stdout);
        let printed = format!("{}{}", run.stdout, run.stderr);
        assert!(printed.contains("gateway.yaml:2:") && printed.contains(expected), "{printed}");
    }
}
