//! What there is.

use axum::http::HeaderMap;
use axum::response::{Html, IntoResponse, Response};

use super::answer::{prefers, text};

/// The paths that can be asked for, and what each of them says.
pub const PATHS: [(&str, &str); 8] = [
    ("/", "what there is"),
    ("/config", "how the service was configured, without its secrets"),
    ("/leases", "what this node holds of limits that it shares, the busiest keys first"),
    ("/live", "whether the process runs; needs no token"),
    ("/metrics", "what is counted, for Prometheus"),
    ("/ready", "whether it can answer, and if not, why; needs no token"),
    ("/rlconfig", "the rules that are enforced"),
    ("/stats", "what is counted, for people"),
];

/// Text, or links for a browser.
pub(super) async fn page(headers: HeaderMap) -> Response {
    if prefers(&headers, "text/html") {
        let link = |(path, says)| format!("<li><a href=\"{path}\">{path}</a>: {says}</li>\n");
        let links: String = PATHS.into_iter().map(link).collect();
        let title = "<!doctype html>\n<html lang=\"en\"><title>Sluicegate</title>";
        return Html(format!("{title}\n<ul>\n{links}</ul>\n</html>\n")).into_response();
    }
    text(PATHS.map(|(path, says)| format!("{path}: {says}\n")).concat())
}
