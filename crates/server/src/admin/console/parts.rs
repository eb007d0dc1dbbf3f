//! Parts that several pages share.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use serde_json::Value;
use sluicegate::Timestamp;
use sluicegate::explain::rule::text::grouped;

use super::chart::ago;
use super::layout::ConsolePage;
use crate::admin::AdminInner;
use crate::admin::rules::{Preview, PreviewProblem};

/// A figure with its name.
#[derive(Debug, Clone)]
pub(super) struct Tile<'a> {
    pub(super) name: &'a str,
    pub(super) value: String,
    pub(super) more: String,
}

/// Figures side by side.
pub(super) fn tiles(all: &[Tile<'_>]) -> Markup {
    html! {
        ul.tiles {
            @for Tile { name, value, more } in all {
                li {
                    span.name { (name) }
                    span.value { (value) }
                    @if !more.is_empty() { span.more { (more) } }
                }
            }
        }
    }
}

/// Head of a column.
#[derive(Debug, Clone, Copy)]
pub(super) enum Column<'a> {
    Text(&'a str),
    Number(&'a str),
}

/// A table that scrolls by itself where it is wider than the window, also with the keyboard.
pub(super) fn table(
    label: &str,
    caption: Option<&Markup>,
    columns: &[Column<'_>],
    rows: &Markup,
) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(label) {
            table {
                @if let Some(caption) = caption { caption { (caption) } }
                thead {
                    tr {
                        @for column in columns {
                            @match column {
                                Column::Text(name) => { th scope="col" { (name) } }
                                Column::Number(name) => { th.number scope="col" { (name) } }
                            }
                        }
                    }
                }
                tbody { (rows) }
            }
        }
    }
}

/// What is wrong with the rules that were loaded last.
pub(super) fn load_problems(admin: &AdminInner) -> Markup {
    let (health, now) = (admin.app.health(), admin.app.engine().now());
    html! {
        @if let Some(rejected) = health.rejected() {
            p.problem role="alert" {
                "The last change of the rules was rejected " (since(rejected.at, now))
                ", and the rules before it are in force: " (rejected.error)
            }
        }
        @for domain in health.withheld() { p.warning { (domain) } }
    }
}

/// In place of a table without rows.
pub(super) fn empty(text: &str) -> Markup {
    html! { p.empty { (text) } }
}

/// A page about an error.
pub(super) fn failed(page: ConsolePage<'_>, status: StatusCode, message: &str) -> Response {
    (status, page.render(&html! { p.problem role="alert" { (message) } })).into_response()
}

/// How long ago a moment was.
pub(super) fn since(at: Timestamp, now: Timestamp) -> String {
    format!("{} ago", ago(now.since(at).as_micros() / 1_000_000))
}

/// A moment in UTC.
pub(super) fn when(at: jiff::Timestamp) -> Markup {
    let text = at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string();
    html! { time datetime=(at) { (text) } }
}

/// A unified diff.
pub(super) fn diff(text: &str) -> Markup {
    if text.is_empty() {
        return empty("No difference.");
    }
    html! {
        pre.diff tabindex="0" aria-label="Changed lines" {
            @for line in text.lines() {
                @match line.as_bytes().first() {
                    Some(b'+') => { ins.added { (line) } }
                    Some(b'-') => { del.removed { (line) } }
                    _ => { span { (line) } }
                }
                "\n"
            }
        }
    }
}

/// Items of the list of problems and warnings.
pub(super) fn problems(preview: &Preview) -> Markup {
    let item = |one: &PreviewProblem| {
        html! { (one.file) ", line " (one.line) ": " @if !one.path.is_empty() { (one.path) ": " } (one.message) }
    };
    html! {
        @for one in &preview.problems { li.problem { (item(one)) } }
        @for one in &preview.warnings { li.warning { (item(one)) } }
        @if preview.problems.is_empty() && preview.warnings.is_empty() { li.good { "Valid." } }
    }
}

/// Estimated hits of an identity: between two figures, or exact.
#[derive(Debug, Clone, Copy)]
pub(super) struct HitsRange {
    least: u64,
    most: u64,
}

impl HitsRange {
    /// The range of a row of statistics.
    pub(super) fn of(row: &Value, field: &str) -> Self {
        let most = row[field].as_u64().unwrap_or_default();
        let over = row["over_estimate_max"].as_u64().unwrap_or_default();
        Self { least: most.saturating_sub(over), most }
    }

    /// Whether the figure says more than that there may be hits.
    pub(super) const fn is_significant(self) -> bool {
        self.least >= self.most.div_ceil(2)
    }

    pub(super) fn text(self) -> String {
        match self.least == self.most {
            true => grouped(self.most),
            false => format!("{} to {}", grouped(self.least), grouped(self.most)),
        }
    }
}

/// Below a list of identities: those whose figures say too little to be listed.
pub(super) fn others(count: usize) -> Markup {
    html! {
        @if count > 0 {
            p.hint {
                (count) " further identities are not listed: each has so few hits that the sketch of a bounded size \
                 cannot rank them."
            }
        }
    }
}

/// A share in percent.
pub(super) fn percent(part: u64, whole: u64) -> String {
    match whole {
        0 => "–".to_owned(),
        whole => {
            let share = part as f64 * 100.0 / whole as f64;
            let digits = if share > 0.0 && share < 9.95 { 1 } else { 0 };
            format!("{share:.digits$} %")
        }
    }
}
