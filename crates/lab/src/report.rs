//! Reports: one HTML file with findings, plots and tables, which needs nothing from elsewhere.

use maud::{DOCTYPE, Markup, PreEscaped, html};

/// A report.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Title.
    pub title: String,
    /// What was examined: files, number of requests, time span.
    pub subject: String,
    /// The command that makes the same report again.
    pub command: String,
    /// Findings in plain words, the most important first.
    pub findings: Vec<String>,
    /// Details.
    pub sections: Vec<Section>,
}

/// A section of a report.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Section {
    /// Heading.
    pub title: String,
    /// Contents, in their order.
    pub parts: Vec<ReportPart>,
}

/// A part of a section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReportPart {
    /// A paragraph.
    Text(String),
    /// A plot, with its description for those who do not see it.
    Plot {
        /// The SVG, of `sluicegate_plot`.
        svg: String,
        /// What it shows.
        description: String,
    },
    /// A table.
    Table(ReportTable),
    /// Text in a fixed-width font, such as a rules file.
    Code(String),
}

/// A table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReportTable {
    /// What it lists.
    pub caption: String,
    /// Columns.
    pub columns: Vec<Column>,
    /// Rows, with a cell for each column.
    pub rows: Vec<Vec<String>>,
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Heading, with the unit.
    pub name: String,
    /// Whether its cells are numbers, which are aligned to the right.
    pub is_number: bool,
}

const STYLE: &str = include_str!("report.css");

impl Report {
    /// The report as an HTML file.
    ///
    /// ```
    /// use sluicegate_lab::report::{Report, ReportPart, Section};
    ///
    /// let report = Report {
    ///     title: "Replay of access.log".to_owned(),
    ///     findings: vec!["`api/user` denies 3 % of requests.".to_owned()],
    ///     sections: vec![Section {
    ///         title: "Rules".to_owned(),
    ///         parts: vec![ReportPart::Text("a < b".to_owned())],
    ///     }],
    ///     ..Report::default()
    /// };
    /// let html = report.html();
    /// assert!(html.contains("<code>api/user</code> denies 3 %") && html.contains("a &lt; b"));
    /// ```
    #[must_use]
    pub fn html(&self) -> String {
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    title { (self.title) }
                    style { (PreEscaped(STYLE)) }
                }
                body {
                    main {
                        h1 { (self.title) }
                        @if !self.subject.is_empty() { p.subject { (words(&self.subject)) } }
                        @if !self.findings.is_empty() {
                            h2 { "Findings" }
                            ul { @for finding in &self.findings { li { (words(finding)) } } }
                        }
                        @for section in &self.sections { (section.render()) }
                        @if !self.command.is_empty() {
                            h2 { "Command" }
                            pre { (self.command) }
                        }
                    }
                }
            }
        };
        page.into_string()
    }
}

impl Section {
    fn render(&self) -> Markup {
        html! {
            section {
                h2 { (self.title) }
                @for part in &self.parts { (part.render()) }
            }
        }
    }
}

impl ReportPart {
    fn render(&self) -> Markup {
        html! {
            @match self {
                Self::Text(text) => p { (words(text)) }
                Self::Code(text) => pre { (text) }
                Self::Plot { svg, description } => {
                    figure role="img" aria-label=(description) { (PreEscaped(svg)) }
                }
                Self::Table(table) => (table.render()),
            }
        }
    }
}

impl ReportTable {
    fn render(&self) -> Markup {
        html! {
            div.scroll {
                table {
                    @if !self.caption.is_empty() { caption { (words(&self.caption)) } }
                    thead {
                        tr {
                            @for column in &self.columns {
                                th scope="col" .number[column.is_number] { (column.name) }
                            }
                        }
                    }
                    tbody {
                        @for row in &self.rows {
                            tr {
                                @for (cell, column) in row.iter().zip(&self.columns) {
                                    td .number[column.is_number] { (words(cell)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

impl Column {
    /// A column of texts.
    #[must_use]
    pub fn text(name: &str) -> Self {
        Self { name: name.to_owned(), is_number: false }
    }

    /// A column of numbers.
    #[must_use]
    pub fn number(name: &str) -> Self {
        Self { name: name.to_owned(), is_number: true }
    }
}

/// Text in which `backticks` mark code.
fn words(text: &str) -> Markup {
    html! {
        @for (index, part) in text.split('`').enumerate() {
            @if index % 2 == 1 { code { (part) } } @else { (part) }
        }
    }
}
