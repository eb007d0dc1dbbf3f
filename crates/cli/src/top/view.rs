//! The screen of `sluicegate top`, and the same figures as text.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Paragraph, Row, Sparkline, Table};
use serde_json::Value;

use super::{TopData, TopSort};

/// What is shown.
#[derive(Debug, Clone)]
pub(crate) struct View {
    pub(crate) data: TopData,
    pub(crate) sort: TopSort,
    /// Why the figures are old.
    pub(crate) error: Option<String>,
}

const RULE_COLUMNS: [&str; 8] =
    ["RULE", "MODE", "HITS", "DENIED", "SHARE", "SHADOW", "IDENTITIES", "JUDGEMENT"];
const LIMITED_COLUMNS: [&str; 3] = ["LIMITED NOW", "DENIED HITS", "RULES"];

/// Height of the series of denied requests.
const SERIES_HEIGHT: u16 = 4;

/// Draws the screen.
pub(crate) fn draw(frame: &mut Frame<'_>, view: &View) {
    let lines = summary(view);
    let height = lines.len() as u16;
    let areas = Layout::vertical([
        Constraint::Length(height),
        Constraint::Length(SERIES_HEIGHT),
        Constraint::Fill(2),
        Constraint::Fill(1),
    ])
    .split(frame.area());
    let lines: Vec<Line<'_>> = lines.into_iter().map(Line::from).collect();
    frame.render_widget(Paragraph::new(lines), areas[0]);
    draw_series(frame, areas[1], &view.data.overview);
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let rows = rule_rows(&view.data.rules).into_iter().map(Row::new);
    let widths = [
        Constraint::Fill(2),
        Constraint::Length(7),
        Constraint::Length(10),
        Constraint::Length(10),
        Constraint::Length(7),
        Constraint::Length(8),
        Constraint::Length(12),
        Constraint::Fill(3),
    ];
    let rules = Table::new(rows, widths).header(Row::new(RULE_COLUMNS).style(bold));
    frame.render_widget(rules, areas[2]);
    let rows = limited_rows(&view.data.limited).into_iter().map(Row::new);
    let widths = [Constraint::Fill(2), Constraint::Length(16), Constraint::Fill(2)];
    let limited = Table::new(rows, widths).header(Row::new(LIMITED_COLUMNS).style(bold));
    frame.render_widget(limited, areas[3]);
}

/// Denied requests of the last seconds, the newest at the right.
fn draw_series(frame: &mut Frame<'_>, area: Rect, overview: &Value) {
    let denied = overview["series"]["seconds"]["denied"].as_array();
    let denied: Vec<u64> = denied.into_iter().flatten().filter_map(Value::as_u64).collect();
    let last = &denied[denied.len().saturating_sub(area.width.into())..];
    let most = last.iter().copied().max().unwrap_or(0);
    let title = format!("denied per second, the last {} s, at most {most}", last.len());
    let series = Sparkline::default().block(Block::new().title(title)).data(last);
    frame.render_widget(series, area);
}

/// The figures as text.
pub(crate) fn to_text(view: &View) -> String {
    let mut text = summary(view).join("\n");
    text.push_str("\n\n");
    text.push_str(&columns(&RULE_COLUMNS, &rule_rows(&view.data.rules)));
    text.push('\n');
    text.push_str(&columns(&LIMITED_COLUMNS, &limited_rows(&view.data.limited)));
    text
}

/// Columns of equal width, two blanks apart.
fn columns(names: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([names[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..names.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded = cells.zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    let mut text = line(&mut names.iter().copied());
    for row in rows {
        text.push_str(&line(&mut row.iter().map(String::as_str)));
    }
    text
}

fn summary(view: &View) -> Vec<String> {
    let overview = &view.data.overview;
    let now = &overview["now"];
    let totals = &overview["totals"];
    let latency = &overview["latency"];
    let state = match overview["ready"].as_bool() {
        Some(true) => "ready".to_owned(),
        _ => format!("not ready: {}", text(&overview["unready_reason"])),
    };
    let shadow =
        if overview["shadow_mode"] == true { ", shadow mode: nothing is enforced" } else { "" };
    let store = &overview["store"];
    let mut lines = vec![
        format!(
            "this node: {state}{shadow}   store {} {}   rules {} ({})   since {}",
            text(&store["kind"]),
            text(&store["state"]),
            text(&overview["rules"]["count"]),
            text(&overview["rules"]["hash"]),
            text(&overview["observed_since"]),
        ),
        format!(
            "requests/s {}   denied/s {}   shadow-denied/s {}   p50 <= {}   p99 <= {}",
            text(&now["requests_per_second"]),
            text(&now["denied_per_second"]),
            text(&now["shadow_denied_per_second"]),
            micros(&latency["p50_us_max"]),
            micros(&latency["p99_us_max"]),
        ),
        format!(
            "total {}   allowed {}   denied {}   shadow-denied {}   sorted by {} (d s h r), q quits",
            text(&totals["requests"]),
            text(&totals["allowed"]),
            text(&totals["denied"]),
            text(&totals["shadow_denied"]),
            view.sort.name(),
        ),
    ];
    lines.extend(view.error.as_ref().map(|error| format!("old figures: {error}")));
    lines
}

/// A row of cells for each rule.
fn rule_rows(rules: &Value) -> Vec<Vec<String>> {
    let row = |rule: &Value| {
        let share = rule["denied_share"].as_f64();
        let identities = [&rule["denied_identities"], &rule["identities"]].map(text);
        vec![
            text(&rule["rule"]),
            text(&rule["mode"]),
            text(&rule["hits"]),
            text(&rule["denied_hits"]),
            share.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0)),
            text(&rule["shadow_denied_hits"]),
            identities.join(" of "),
            text(&rule["judgement"]["text"]),
        ]
    };
    rules["rules"].as_array().into_iter().flatten().map(row).collect()
}

fn limited_rows(limited: &Value) -> Vec<Vec<String>> {
    let row = |identity: &Value| {
        let rules = identity["rules"].as_array().into_iter().flatten().map(text);
        let over = identity["over_estimate_max"].as_u64().filter(|over| *over > 0);
        let over = over.map_or_else(String::new, |over| format!(" (-{over})"));
        vec![
            text(&identity["descriptor"]),
            text(&identity["denied_hits"]) + &over,
            rules.collect::<Vec<_>>().join(", "),
        ]
    };
    limited["identities"].as_array().into_iter().flatten().map(row).collect()
}

/// A value without control characters, which a client may have sent; `-` for an unknown one.
fn text(value: &Value) -> String {
    let text = match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    text.chars()
        .map(|character| if character.is_control() { '\u{fffd}' } else { character })
        .collect()
}

fn micros(value: &Value) -> String {
    match value.as_u64() {
        None => "-".to_owned(),
        Some(micros) if micros < 1_000 => format!("{micros} us"),
        Some(micros) => format!("{} ms", micros as f64 / 1_000.0),
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use serde_json::json;

    use super::*;

    fn view() -> View {
        let overview = json!({
            "ready": true,
            "store": { "kind": "memory", "state": "up" },
            "rules": { "count": 2, "hash": "00ff" },
            "observed_since": "2026-11-19T12:00:00Z",
            "now": { "requests_per_second": 12.5, "denied_per_second": 2.0, "shadow_denied_per_second": 0.0 },
            "totals": { "requests": 900, "allowed": 800, "denied": 100, "shadow_denied": 3 },
            "latency": { "p50_us_max": 25, "p99_us_max": 2500 },
            "series": { "seconds": { "denied": [0, 1, 8, 4] } },
        });
        let rule = json!({
            "rule": "shop/user", "mode": "hard", "hits": 400, "denied_hits": 100, "denied_share": 0.25,
            "shadow_denied_hits": 0, "identities": 40, "denied_identities": 1,
            "judgement": { "text": "denies 25 % of hits" },
        });
        let unknown = json!({ "rule": "shop/x\u{1b}[2J", "denied_share": null });
        let limited = json!({ "identities": [
            { "descriptor": "user=alice", "denied_hits": 100, "over_estimate_max": 7, "rules": ["shop/user"] },
        ] });
        let data = TopData { overview, rules: json!({ "rules": [rule, unknown] }), limited };
        View { data, sort: TopSort::Denied, error: None }
    }

    fn screen(view: &View) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(130, 20)).unwrap();
        terminal.draw(|frame| draw(frame, view)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let rows = buffer.content().chunks(130);
        let row = |cells: &[ratatui::buffer::Cell]| {
            cells.iter().map(|cell| cell.symbol()).collect::<String>()
        };
        rows.map(|cells| row(cells).trim_end().to_owned()).collect()
    }

    #[test]
    fn the_screen_has_all_figures() {
        let screen = screen(&view());
        assert_eq!(
            screen[0],
            "this node: ready   store memory up   rules 2 (00ff)   since 2026-11-19T12:00:00Z"
        );
        assert_eq!(
            screen[1],
            "requests/s 12.5   denied/s 2.0   shadow-denied/s 0.0   p50 <= 25 us   p99 <= 2.5 ms"
        );
        assert_eq!(screen[3], "denied per second, the last 4 s, at most 8");
        let line = |start: &str| screen.iter().find(|line| line.starts_with(start)).unwrap();
        let cells: Vec<&str> =
            line("shop/user").split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
        assert_eq!(
            cells,
            ["shop/user", "hard", "400", "100", "25.0 %", "0", "1 of 40", "denies 25 % of hits"]
        );
        assert!(line("user=alice").contains("100 (-7)"), "{screen:#?}");
    }

    #[test]
    fn a_node_that_is_away_leaves_the_last_figures() {
        let view = View { error: Some("no answer".to_owned()), ..view() };
        let screen = screen(&view);
        assert_eq!(screen[3], "old figures: no answer");
        assert!(screen.iter().any(|line| line.starts_with("shop/user")));
    }

    #[test]
    fn text_has_columns_and_no_control_characters() {
        let text = to_text(&view());
        assert!(
            text.contains(
                "RULE        MODE  HITS  DENIED  SHARE   SHADOW  IDENTITIES  JUDGEMENT\n"
            ),
            "{text}"
        );
        assert!(text.contains("shop/x\u{fffd}[2J"), "{text}");
        assert!(!text.contains('\u{1b}'));
    }
}
