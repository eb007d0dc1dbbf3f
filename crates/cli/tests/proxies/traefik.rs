//! Traefik, as `docs/guide/traefik.md` has it: what Traefik would send is sent, to where the page
//! tells it to.

use crate::bed::{Bed, assert_seconds, error, expected, told};
use crate::client::HERE;
use crate::page::{Page, replaced};
use crate::support::http::Answer;

/// What `forwardAuth` makes of a request for a page: a GET without a body, with the headers of the
/// request, and these in place of any of their names.
fn as_traefik(bed: &Bed, address: &str, client: &str, uri: &str) -> Answer {
    let path = address.strip_prefix(&format!("http://{}", bed.service.http)).unwrap();
    let headers = [
        ("User-Agent", "curl/8.5.0"),
        ("Accept", "*/*"),
        ("Accept-Encoding", "gzip"),
        ("X-Forwarded-For", client),
        ("X-Forwarded-Host", "shop.example"),
        ("X-Forwarded-Method", "POST"),
        ("X-Forwarded-Proto", "https"),
        ("X-Forwarded-Port", "443"),
        ("X-Forwarded-Server", "edge-1"),
        ("X-Forwarded-Uri", uri),
        ("X-Real-Ip", client),
    ];
    HERE.get(&bed.service.http, path, &headers)
}

/// The `address` of the page.
fn address(page: &Page, bed: &Bed) -> String {
    let config = page.block("yaml", "http:\n");
    let config = replaced(config, &[("127.0.0.1:8080", bed.service.http.clone())]);
    let line = config.lines().find_map(|line| line.trim().strip_prefix("address: "));
    line.unwrap().to_owned()
}

#[test]
fn three_pass_and_the_fourth_is_told_when() {
    let page = Page::read("traefik");
    let bed = Bed::start(page.rules());
    let address = address(&page, &bed);
    for left in [2, 1, 0] {
        let answer = as_traefik(&bed, &address, "203.0.113.9", "/a?b=c");
        assert_eq!((answer.status, answer.body.as_str()), (200, ""));
        assert_eq!(told(&answer), expected("per-address", 3, left));
    }
    let answer = as_traefik(&bed, &address, "203.0.113.9", "/");
    assert_eq!((answer.status, told(&answer)), (429, expected("per-address", 3, 0)));
    assert_seconds(&answer, "retry-after", 1..=1200);
    assert_eq!(error(&answer)["code"], "rate_limited");
    let login = || as_traefik(&bed, &address, "203.0.113.10", "/login").status;
    assert_eq!([login(), login()], [200, 429]);
}
