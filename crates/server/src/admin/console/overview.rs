//! The overview: traffic of this node, live.

use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use serde_json::Value;

use super::candidate;
use super::chart::{Chart, Series, number};
use super::layout::ConsolePage;
use super::parts::{Column, Tile, empty, percent, table, tiles};
use super::rules::link;
use crate::admin::traffic::{Sort, rules as rule_pages, summary};
use crate::admin::{AdminInner, Caller, wants_html};
use crate::traffic::series::{Outcomes, Point};
use crate::traffic::{Traffic, TrafficSeries};
use sluicegate::explain::rule::text::grouped;

/// Rules of the overview.
const RULES_MAX: usize = 8;

/// `/`: the console for a browser, a list of paths for programs.
pub(in crate::admin) async fn index(
    State(admin): State<Arc<AdminInner>>,
    caller: Caller,
    headers: HeaderMap,
) -> Response {
    if !wants_html(&headers) {
        return admin.paths_page();
    }
    let page = ConsolePage { title: "Overview", path: "/", caller: &caller };
    let content = html! {
        section #overview data-fragment="" {
            @match admin.app.traffic() {
                Some(traffic) => { (live(&admin, traffic)) }
                None => {
                    (empty("Traffic statistics are off: remove SLUICEGATE_TRAFFIC_STATISTICS=false to have them."))
                }
            }
        }
        details {
            summary { "Pages for programs" }
            ul { @for (path, about) in admin.paths() { li { a href=(path) { (path) } ": " (about) } } }
        }
    };
    super::secured(page.render(&content).into_response())
}

fn live(admin: &AdminInner, traffic: &Traffic) -> Markup {
    let now = summary(&admin.app, traffic);
    let points = traffic.read(|TrafficSeries { process, .. }| {
        process.seconds.iter().copied().collect::<Vec<Point>>()
    });
    html! {
        @if let Some(reason) = now["unready_reason"].as_str() {
            p.problem role="alert" { "This node is not ready: " (reason) "." }
        }
        (super::parts::load_problems(admin))
        @if now["shadow_mode"] == true {
            p.warning { "Shadow mode: every request is allowed, and denials are only counted." }
        }
        (candidate::note(&admin.app))
        (tiles(&figures(&now)))
        @if points.len() < 2 {
            (empty("The plot begins with the second second of this node."))
        } @else {
            (requests(&points).render())
        }
        h2 { "Rules that deny the most, in the last hour" }
        (rules(admin, traffic))
    }
}

fn figures(now: &Value) -> [Tile<'static>; 6] {
    let total = |name: &str| now["totals"][name].as_u64().unwrap_or_default();
    let rate = |name: &str| match now["now"][name].as_f64() {
        Some(rate) => format!("{}/s", number(rate)),
        None => "not yet known".to_owned(),
    };
    let requests = total("requests");
    let outcome = |name: &'static str, field: &str, of_now: &str| Tile {
        name,
        value: grouped(total(field)),
        more: format!("{} of all, now {}", percent(total(field), requests), rate(of_now)),
    };
    let store = &now["store"];
    let latency = &now["latency"];
    let micros = |name: &str| match latency[name].as_u64() {
        Some(micros) => format!("≤ {} µs", grouped(micros)),
        None => "–".to_owned(),
    };
    [
        Tile {
            name: "Requests",
            value: grouped(requests),
            more: format!("now {}", rate("requests_per_second")),
        },
        outcome("Allowed", "allowed", "allowed_per_second"),
        outcome("Denied", "denied", "denied_per_second"),
        outcome("Denied in shadow", "shadow_denied", "shadow_denied_per_second"),
        Tile {
            name: "Response time, p99",
            value: micros("p99_us_max"),
            more: format!("p50 {}, last minute", micros("p50_us_max")),
        },
        Tile {
            name: "Store",
            value: store["kind"].as_str().unwrap_or_default().to_owned(),
            more: store["state"].as_str().unwrap_or_default().to_owned(),
        },
    ]
}

fn requests(points: &[Point]) -> Chart<'static> {
    let column = |of: fn(&Outcomes) -> u64| {
        let rate = |point: &Point| {
            let seconds = point.to.since(point.from).as_micros() as f64 / 1e6;
            (seconds > 0.0).then(|| of(&point.outcomes) as f64 / seconds)
        };
        points.iter().map(rate).collect()
    };
    Chart {
        title: "Requests",
        unit: "requests/s",
        series: vec![
            Series { name: "allowed", class: "allowed", values: column(|one| one.allowed) },
            Series { name: "denied", class: "denied", values: column(|one| one.denied) },
            Series {
                name: "denied in shadow",
                class: "shadow",
                values: column(|one| one.shadow_denied),
            },
        ],
        step_s: 1,
    }
}

fn rules(admin: &AdminInner, traffic: &Traffic) -> Markup {
    let page = rule_pages::page(&admin.app, traffic, Sort::Denied, 0, RULES_MAX);
    let rows = page["rules"].as_array().map(Vec::as_slice).unwrap_or_default();
    let denying = rows.iter().filter(|row| row["denied_hits"].as_u64().unwrap_or_default() > 0);
    let denying: Vec<&Value> = denying.take(RULES_MAX).collect();
    if denying.is_empty() {
        return empty("No rule has denied a request in the last hour.");
    }
    html! {
        (table("Rules that deny the most", None, &[Column::Text("Rule"), Column::Number("Hits"), Column::Number("Denied"), Column::Text("Judgement")], &html! {
                    @for row in denying {
                        @let id = row["rule"].as_str().unwrap_or_default();
                        tr {
                            th scope="row" { a href=(link(id)) { code { (id) } } }
                            td.number { (grouped(row["hits"].as_u64().unwrap_or_default())) }
                            td.number { (grouped(row["denied_hits"].as_u64().unwrap_or_default())) }
                            td { (row["judgement"]["text"].as_str().unwrap_or("not judged yet")) }
                        }
                    }
                }))
    }
}
