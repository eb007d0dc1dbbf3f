//! A recommendation as a report, and as text for a terminal.

use sluicegate::explain::rule::text::{grouped, plainly};
use sluicegate_config::units::show_span;
use sluicegate_core::time::Span;

use super::findings::shown_time;
use super::goal::percent;
use super::plots::{peaks_plot, trade_off_plot};
use super::protect::{ProtectingLimit, ProtectionCost};
use super::shape::LimitShape;
use super::trade_off::{SHOWN_SHARES, TradeOffPoint};
use super::{Recommendation, TuneResult, Tuning};
use crate::arrival::Client;
use crate::report::{Column, Report, ReportPart, ReportTable, Section};

/// Horizons of the table of pairs.
const HORIZONS: [u64; 5] = [1, 10, 60, 3_600, 86_400];

impl Tuning {
    /// The report. `clients` are those of the arrivals, by number; `rules` is the rules file.
    ///
    /// # Errors
    /// When a plot cannot be drawn.
    pub fn report(
        &self,
        clients: &[Client],
        rules: Option<&str>,
        command: &str,
    ) -> Result<Report, String> {
        let mut sections = Vec::new();
        if !self.curve.is_empty() {
            sections.push(self.trade_off_section()?);
        }
        sections.push(self.clients_section()?);
        match &self.result {
            TuneResult::Limit(limit) => sections.push(self.denied_section(limit, clients)),
            TuneResult::Protection(found) => {
                let mut rows = Vec::new();
                if let Some(limit) = &found.per_client {
                    rows.extend(protection_rows("each client", limit));
                }
                rows.extend(protection_rows("all together", &found.overall));
                let columns = vec![
                    Column::text("limit of"),
                    Column::text("limit"),
                    Column::text("part"),
                    Column::number("requests"),
                    Column::number("denied"),
                    Column::number("denied clients"),
                    Column::number("peak in a window"),
                ];
                let caption = "Each limit alone.".to_owned();
                let table = ReportTable { caption, columns, rows };
                let title = "What would have been denied".to_owned();
                sections.push(Section { title, parts: vec![ReportPart::Table(table)] });
            }
            TuneResult::Shortage(_) => {}
        }
        if let Some(rules) = rules {
            let parts = vec![ReportPart::Code(rules.to_owned())];
            sections.push(Section { title: "Rules".to_owned(), parts });
        }
        Ok(Report {
            title: format!("Limits to {}", self.goal),
            subject: self.subject(),
            command: command.to_owned(),
            findings: self.findings(),
            sections,
        })
    }

    /// The recommendation for a terminal.
    #[must_use]
    pub fn to_text(&self, clients: &[Client]) -> String {
        let mut text = format!("{}\ngoal: {}\n\n", self.subject(), self.goal);
        let rule =
            |name: &str, shape: LimitShape, size| format!("  {name:<14}{}\n", shape.rule(size));
        match &self.result {
            TuneResult::Limit(limit) => {
                text += &rule("each client", limit.shape, limit.size);
                text.push('\n');
            }
            TuneResult::Protection(found) => {
                if let Some(limit) = &found.per_client {
                    text += &rule("each client", limit.shape, limit.size);
                }
                text += &rule("all together", found.overall.shape, found.overall.size);
                text.push('\n');
            }
            TuneResult::Shortage(_) => {}
        }
        for finding in self.findings() {
            text += &wrapped(&finding.replace('`', ""));
        }
        if let TuneResult::Limit(limit) = &self.result
            && !limit.outcome.worst.is_empty()
        {
            text += "\n  requests    denied      peak  client\n";
            for denied in limit.outcome.worst.iter().take(10) {
                text += &format!(
                    "{:>10}{:>10}{:>10}  {}\n",
                    grouped(denied.requests),
                    grouped(denied.denied),
                    grouped(denied.peak),
                    name_of(clients, denied.client)
                );
            }
        }
        text
    }

    fn trade_off_section(&self) -> Result<Section, String> {
        let is_bucket = self.is_bucket();
        let shares = SHOWN_SHARES.map(percent).join(", ");
        let (title, text) = match is_bucket {
            true => (
                "Rate and burst",
                format!(
                    "Each line has the pairs of rate and burst that deny the same share of the \
                     clients. Above a line fewer are denied. The recommended pair is the one of its \
                     line that admits least of a client in any `{}`.",
                    show_span(self.options.horizon)
                ),
            ),
            false => (
                "Window and number",
                "Each line has the windows and numbers that deny the same share of the clients."
                    .to_owned(),
            ),
        };
        let description = format!("sizes over rates or windows that deny {shares} of clients");
        let mut parts = vec![
            ReportPart::Text(text),
            ReportPart::Plot { svg: trade_off_plot(self)?, description },
        ];
        if is_bucket && self.has_promise() {
            parts.push(ReportPart::Table(self.horizons()));
        }
        Ok(Section { title: title.to_owned(), parts })
    }

    /// The pair that is strictest for each of several horizons.
    fn horizons(&self) -> ReportTable {
        let row = |seconds: u64| {
            let horizon = Span::from_secs(seconds);
            let best = super::trade_off::strictest(&self.curve, horizon)?;
            Some(vec![
                show_span(horizon),
                best.shape.words(best.size),
                grouped(best.shape.admitted_max(best.size, horizon)),
                grouped(best.shape.admitted_max(best.size, Span::from_secs(86_400))),
            ])
        };
        ReportTable {
            caption: "The strictest pair by horizon: all keep the same promise.".to_owned(),
            columns: vec![
                Column::text("horizon"),
                Column::text("limit"),
                Column::number("admitted in the horizon, at most"),
                Column::number("admitted in a day, at most"),
            ],
            rows: HORIZONS.into_iter().filter_map(row).collect(),
        }
    }

    fn clients_section(&self) -> Result<Section, String> {
        let horizon = show_span(self.options.horizon);
        let text = format!(
            "The peak of a client is the most that it sent in any `{horizon}`. The line shows which \
             share of clients has a higher peak."
        );
        let description = format!("share of clients with a higher peak in {horizon}");
        let plot = ReportPart::Plot { svg: peaks_plot(self)?, description };
        let parts = vec![ReportPart::Text(text), plot];
        Ok(Section { title: "Clients".to_owned(), parts })
    }

    fn denied_section(&self, limit: &Recommendation, clients: &[Client]) -> Section {
        let outcome = &limit.outcome;
        let parts = [("chosen from", &outcome.training), ("held out", &outcome.held_out)];
        let rows = parts.map(|(name, part)| {
            vec![
                name.to_owned(),
                grouped(part.clients as u64),
                grouped(part.denied_clients as u64),
                percent(part.denied_clients as f64 / part.clients.max(1) as f64),
                grouped(part.requests),
                grouped(part.denied_requests),
                percent(part.request_share()),
            ]
        });
        let decided = ReportTable {
            caption: format!("Held out is what came from {} on.", shown_time(self.facts.split)),
            columns: vec![
                Column::text("part"),
                Column::number("clients"),
                Column::number("denied"),
                Column::number("share"),
                Column::number("requests"),
                Column::number("denied"),
                Column::number("share"),
            ],
            rows: rows.into(),
        };
        let mut parts = vec![ReportPart::Table(decided)];
        if outcome.worst.is_empty() {
            parts.push(ReportPart::Text("No request would have been denied.".to_owned()));
        } else {
            parts.push(ReportPart::Table(self.worst(limit, clients)));
        }
        Section { title: "What would have been denied".to_owned(), parts }
    }

    fn worst(&self, limit: &Recommendation, clients: &[Client]) -> ReportTable {
        let rows = limit.outcome.worst.iter().map(|denied| {
            let mut row = vec![
                name_of(clients, denied.client),
                grouped(denied.requests),
                grouped(denied.denied),
                percent(denied.denied as f64 / denied.requests.max(1) as f64),
                grouped(denied.peak),
            ];
            if self.good.is_some() {
                row.push(if denied.is_extreme { "abuser" } else { "good" }.to_owned());
            }
            row
        });
        let mut columns = vec![
            Column::text("client"),
            Column::number("requests"),
            Column::number("denied"),
            Column::number("share"),
            Column::number(&format!("peak in {}", show_span(self.options.horizon))),
        ];
        if self.good.is_some() {
            columns.push(Column::text("kind"));
        }
        let caption = "Clients with the most denied requests, in both parts.".to_owned();
        ReportTable { caption, columns, rows: rows.collect() }
    }

    pub(super) fn is_bucket(&self) -> bool {
        let shape = self.curve.first().map(|point: &TradeOffPoint| point.shape);
        matches!(shape, Some(LimitShape::TokenBucket(_)))
    }

    /// Whether the sizes of the curve are those of a promise.
    pub(super) fn has_promise(&self) -> bool {
        self.goal.denied_share().is_some() && matches!(self.result, TuneResult::Limit(_))
    }
}

fn protection_rows(name: &str, limit: &ProtectingLimit) -> [Vec<String>; 2] {
    let row = |part: &str, cost: &ProtectionCost| {
        vec![
            name.to_owned(),
            limit.shape.words(limit.size),
            part.to_owned(),
            grouped(cost.requests),
            grouped(cost.denied_requests),
            grouped(cost.denied_clients as u64),
            grouped(cost.peak),
        ]
    };
    [row("chosen from", &limit.training), row("held out", &limit.held_out)]
}

fn name_of(clients: &[Client], number: u32) -> String {
    let name = clients.get(number as usize).map(|client| plainly(&client.name));
    name.unwrap_or_else(|| format!("client {number}"))
}

/// An item of a list, wrapped for a terminal.
fn wrapped(text: &str) -> String {
    let (mut lines, mut line) = (String::new(), "-".to_owned());
    for word in text.split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > 100 {
            lines += &format!("{line}\n");
            line = " ".to_owned();
        }
        line += &format!(" {word}");
    }
    lines + &line + "\n"
}
