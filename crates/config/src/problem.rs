//! Problems in user input, with their positions.
//!
//! Every message names the position, the value and the remedy, in lower case and without a full
//! stop. Reading continues after a problem, so that all problems are reported at once.

use std::collections::HashSet;
use std::fmt::{self, Display};

/// The maximum number of reported problems; a file with more has one cause, not many.
pub const PROBLEMS_MAX: usize = 1_000;

/// The maximum number of characters of a quoted value.
const QUOTED_CHARS_MAX: usize = 60;

/// A single problem.
///
/// ```
/// let text = "\nelastic: { up_to: 2x, below: 70%, above: high }";
/// let problems = sluicegate_config::mode::mode("--mode", text).unwrap_err();
/// let problem = problems.iter().next().unwrap();
/// assert_eq!((problem.source(), problem.line(), problem.column()), ("--mode", 2, 42));
/// assert_eq!(problem.path(), "elastic.above");
/// assert_eq!(problem.message(), "must be a whole percentage, got `high`; write it like `10%`");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    source: String,
    at: Position,
    path: String,
    message: String,
}

/// All problems in the order of the text; at least one.
///
/// ```
/// let text = "{ algorithm: token_bucket, rate: 10/x, bust: 5 }";
/// let problems = sluicegate_config::limit::limits("--limit", text).unwrap_err();
/// assert_eq!(problems.iter().count(), 2);
/// assert_eq!(problems.to_string().lines().count(), 2);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Problems(Vec<Problem>);

/// A place in a text, both counted from 1; the column in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

/// The problems and warnings found so far in one source.
#[derive(Debug)]
pub(crate) struct Report {
    source: String,
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
}

/// A problem was found and reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reported;

/// Quotes a user's value: in backticks, on one line, truncated if long.
pub(crate) fn quoted(text: &str) -> String {
    let mut shown = String::from("`");
    shown.push_str(&shortened(text));
    shown.push('`');
    shown
}

/// Text on one line, cut if long.
pub(crate) fn shortened(text: &str) -> String {
    match text.char_indices().nth(QUOTED_CHARS_MAX) {
        Some((end, _)) => on_one_line(text.get(..end).unwrap_or_default()) + "…",
        None => on_one_line(text),
    }
}

/// Text with everything escaped that would break a line or a terminal.
pub(crate) fn on_one_line(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_control() || matches!(letter, '\u{2028}' | '\u{2029}') {
            shown.extend(letter.escape_default());
        } else {
            shown.push(letter);
        }
    }
    shown
}

impl Problem {
    /// A problem of a source.
    #[must_use]
    pub fn new(source: &str, at: Position, path: String, message: String) -> Self {
        Self { source: source.to_owned(), at, path, message }
    }

    /// Where the text came from: a file, or the flag it was given with.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The line, from 1.
    #[must_use]
    pub const fn line(&self) -> usize {
        self.at.line
    }

    /// The column in characters, from 1.
    #[must_use]
    pub const fn column(&self) -> usize {
        self.at.column
    }

    /// The place inside the document, such as `limits[1].rate`; empty for the document itself.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The problem, the given value and the remedy.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Position { line, column } = self.at;
        write!(f, "{}:{line}:{column}: ", self.source)?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

impl Problems {
    /// Each problem, in the order of the text.
    ///
    /// ```
    /// let problems = sluicegate_config::mode::mode("--mode", "hrad").unwrap_err();
    /// for problem in problems.iter() {
    ///     eprintln!("{problem}");
    /// }
    /// ```
    pub fn iter(&self) -> std::slice::Iter<'_, Problem> {
        self.0.iter()
    }
}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self(vec![problem])
    }
}

impl<'a> IntoIterator for &'a Problems {
    type Item = &'a Problem;
    type IntoIter = std::slice::Iter<'a, Problem>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// One problem a line.
impl Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

impl Report {
    pub(crate) fn new(source: &str) -> Self {
        Self { source: source.to_owned(), problems: Vec::new(), warnings: Vec::new() }
    }

    /// Adds a problem; the first beyond the maximum only reports that there are more.
    pub(crate) fn add(&mut self, at: Position, path: impl Display, message: String) -> Reported {
        push(&mut self.problems, &self.source, at, path, message, MORE_PROBLEMS);
        Reported
    }

    /// Adds a problem of a later check, unless its place already has one.
    pub(crate) fn add_later(&mut self, problem: Problem) {
        if !self.problems.iter().any(|known| known.at == problem.at) {
            self.add(problem.at, problem.path, problem.message);
        }
    }

    /// Adds a warning.
    pub(crate) fn warn(&mut self, at: Position, path: impl Display, message: String) {
        push(&mut self.warnings, &self.source, at, path, message, MORE_WARNINGS);
    }

    /// Adds a warning of a later check.
    pub(crate) fn warn_later(&mut self, warning: Problem) {
        self.warn(warning.at, warning.path, warning.message);
    }

    /// The number of problems so far; bounded.
    pub(crate) const fn count(&self) -> usize {
        self.problems.len()
    }

    /// Whether further problems are discarded, so that callers need not format them.
    pub(crate) const fn is_full(&self) -> bool {
        self.problems.len() > PROBLEMS_MAX
    }

    /// Whether further warnings are discarded.
    pub(crate) const fn is_full_of_warnings(&self) -> bool {
        self.warnings.len() > PROBLEMS_MAX
    }

    /// The name of the source.
    pub(crate) fn source(&self) -> &str {
        &self.source
    }

    /// Returns the value if there are no problems.
    pub(crate) fn finish<T>(self, read: Result<T, Reported>) -> Result<T, Problems> {
        let mut problems = self.problems;
        match read {
            Ok(value) if problems.is_empty() => Ok(value),
            _ => {
                sort(&mut problems);
                Err(Problems(problems))
            }
        }
    }
}

/// The problems and the warnings of several sources, in their order; no problems, no `Problems`.
pub(crate) fn gathered(reports: Vec<Report>) -> (Option<Problems>, Vec<Problem>) {
    let (mut problems, mut warnings) = (Vec::new(), Vec::new());
    for mut report in reports {
        sort(&mut report.problems);
        sort(&mut report.warnings);
        problems.extend(report.problems);
        warnings.extend(report.warnings);
    }
    cut(&mut problems, MORE_PROBLEMS);
    cut(&mut warnings, MORE_WARNINGS);
    let found = !problems.is_empty();
    (found.then_some(Problems(problems)), warnings)
}

const MORE_PROBLEMS: &str = "problems; solve those above first";
const MORE_WARNINGS: &str = "warnings; look into those above first";

fn cut(list: &mut Vec<Problem>, more: &str) {
    if let Some(first_left_out) = list.get(PROBLEMS_MAX) {
        let message = format!("more than {PROBLEMS_MAX} {more}");
        let remark = Problem { path: String::new(), message, ..first_left_out.clone() };
        list.truncate(PROBLEMS_MAX);
        list.push(remark);
    }
}

fn push(
    list: &mut Vec<Problem>,
    source: &str,
    at: Position,
    path: impl Display,
    message: String,
    more: &str,
) {
    let (path, message) = match list.len() {
        ..PROBLEMS_MAX => (path.to_string(), message),
        PROBLEMS_MAX => (String::new(), format!("more than {PROBLEMS_MAX} {more}")),
        _ => return,
    };
    list.push(Problem { source: source.to_owned(), at, path, message });
}

/// In the order of the text. Stable: problems of one place stay in the order they were found. The
/// remark that there are more stays last.
fn sort(problems: &mut Vec<Problem>) {
    let reported = problems.len().min(PROBLEMS_MAX);
    if let Some(reported) = problems.get_mut(..reported) {
        reported.sort_by_key(|problem| problem.at);
    }
    // An aliased node is read once per alias, but its problems have one position.
    let mut reported = HashSet::new();
    problems.retain(|problem| reported.insert((problem.at, problem.message.clone())));
}

/// A problem with the line that it is about, and a mark under the place.
///
/// ```
/// use sluicegate_config::problem::with_source;
///
/// let text = "elastic: { up_to: 2x, below: 70%, above: high }";
/// let problems = sluicegate_config::mode::mode("--mode", text).unwrap_err();
/// let shown = with_source(problems.iter().next().unwrap(), text);
/// let lines: Vec<&str> = shown.lines().skip(1).collect();
/// assert_eq!(lines[0], "    1 | elastic: { up_to: 2x, below: 70%, above: high }");
/// assert_eq!(lines[1], "      |                                          ^");
/// ```
#[must_use]
pub fn with_source(problem: &Problem, text: &str) -> String {
    let line = text.lines().nth(problem.at.line.saturating_sub(1)).unwrap_or_default();
    format!("{problem}\n{}", excerpt(problem, line))
}

/// The line of a problem, with a mark below the position; empty if the line has no visible text.
///
/// For callers that report many problems of one text and have already split it into lines.
///
/// ```
/// let problems = sluicegate_config::mode::mode("--mode", "hrad").unwrap_err();
/// let shown = sluicegate_config::problem::excerpt(problems.iter().next().unwrap(), "hrad");
/// assert_eq!(shown, "    1 | hrad\n      | ^\n");
/// ```
#[must_use]
pub fn excerpt(problem: &Problem, line: &str) -> String {
    let before = problem.at.column.saturating_sub(1);
    let length = line.chars().count();
    // Of a long line the part around the place.
    let start = if length > 2 * AROUND_MAX { before.saturating_sub(AROUND_MAX) } else { 0 };
    let part: String = line.chars().skip(start).take(2 * AROUND_MAX).map(plain).collect();
    let part = part.trim_end();
    if part.is_empty() {
        return String::new();
    }
    let cut = if start > 0 { "…" } else { "" };
    let goes_on = if length > start.saturating_add(2 * AROUND_MAX) { "…" } else { "" };
    let number = format!("{:>5}", problem.at.line);
    let margin = " ".repeat(number.len());
    let indent = " ".repeat(before.saturating_sub(start).saturating_add(cut.chars().count()));
    format!("{number} | {cut}{part}{goes_on}\n{margin} | {indent}^\n")
}

/// How much of a line is shown on either side of the place.
const AROUND_MAX: usize = 60;

/// Replaces characters that are not exactly one column wide or that control the terminal. Tabs
/// become visible, since they are often the error.
const fn plain(letter: char) -> char {
    match letter {
        '\t' => '→',
        '\0'..='\x1f' | '\x7f'..='\u{9f}' => '\u{fffd}',
        letter => letter,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(line: usize, column: usize) -> Position {
        Position { line, column }
    }

    #[test]
    fn a_problem_says_where_and_what() {
        let mut report = Report::new("rules.yaml");
        report.add(at(3, 9), "limits[1].rate", "is wrong".to_owned());
        let reported = report.add(at(1, 1), "", "is empty".to_owned());
        let problems = report.finish::<()>(Err(reported)).unwrap_err();
        assert_eq!(
            problems.to_string(),
            "rules.yaml:1:1: is empty\nrules.yaml:3:9: limits[1].rate: is wrong"
        );
    }

    #[test]
    fn a_value_that_was_read_is_dropped_when_there_are_problems() {
        let mut report = Report::new("x");
        assert_eq!(Report::new("x").finish(Ok(5)), Ok(5));
        report.add(at(1, 1), "", "bad".to_owned());
        assert!(report.finish(Ok(5)).is_err());
    }

    #[test]
    fn there_is_an_end_to_problems() {
        let mut report = Report::new("x");
        for line in 0..5_000 {
            report.add(at(5_000 - line, 1), "a", "bad".to_owned());
        }
        let problems = report.finish(Ok(())).unwrap_err();
        assert_eq!(problems.iter().count(), PROBLEMS_MAX + 1);
        let last = problems.iter().last().unwrap();
        assert_eq!(last.to_string(), "x:4000:1: more than 1000 problems; solve those above first");
    }

    #[test]
    fn sources_are_told_in_their_order_and_equal_problems_once() {
        let mut first = Report::new("a");
        first.add(at(2, 1), "x", "bad".to_owned());
        first.add(at(1, 1), "x", "worse".to_owned());
        first.add(at(2, 1), "y", "bad".to_owned());
        first.warn(at(9, 9), "x", "odd".to_owned());
        let mut second = Report::new("b");
        second.add(at(1, 1), "", "bad".to_owned());
        let (problems, warnings) = gathered(vec![first, second]);
        assert_eq!(problems.unwrap().to_string(), "a:1:1: x: worse\na:2:1: x: bad\nb:1:1: bad");
        assert_eq!(warnings.len(), 1);
        assert_eq!(gathered(vec![Report::new("a")]), (None, Vec::new()));
        let many = |source: &str| {
            let mut report = Report::new(source);
            for line in 1..=700 {
                report.add(at(line, 1), "", "bad".to_owned());
            }
            report
        };
        let (problems, _) = gathered(vec![many("a"), many("b")]);
        assert_eq!(problems.unwrap().iter().count(), PROBLEMS_MAX + 1);
    }

    fn shown(line: usize, column: usize, text: &str) -> String {
        let mut report = Report::new("x");
        report.add(at(line, column), "", "bad".to_owned());
        let problems = report.finish(Ok(())).unwrap_err();
        with_source(problems.iter().next().unwrap(), text)
    }

    #[test]
    fn the_line_is_shown_with_a_mark() {
        let reported = shown(2, 3, "a\n\tb: c \u{7}");
        assert_eq!(reported, "x:2:3: bad\n    2 | →b: c \u{fffd}\n      |   ^\n");
        let behind = shown(1, 3, "ab");
        assert_eq!(behind, "x:1:3: bad\n    1 | ab\n      |   ^\n", "behind the end");
        assert_eq!(shown(9, 3, "a"), "x:9:3: bad\n", "there is no such line");
        assert_eq!(shown(2, 1, "a\n\nb"), "x:2:1: bad\n", "there is nothing to see");
    }

    #[test]
    fn a_long_line_is_cut_around_the_place() {
        let reported = shown(1, 501, &format!("{}here{}", "x".repeat(500), "y".repeat(500)));
        let mut lines = reported.lines().skip(1);
        let (line, mark) = (lines.next().unwrap(), lines.next().unwrap());
        assert!(line.chars().count() < 140, "{line}");
        let column = mark.chars().position(|letter| letter == '^').unwrap();
        assert_eq!(line.chars().nth(column), Some('h'), "{reported}");
    }

    #[test]
    fn values_are_quoted_on_one_line_and_cut() {
        assert_eq!(quoted("10/x"), "`10/x`");
        assert_eq!(quoted("a\nb\u{2028}\0"), "`a\\nb\\u{2028}\\u{0}`");
        assert_eq!(quoted(&"ä".repeat(60)), format!("`{}`", "ä".repeat(60)));
        assert_eq!(quoted(&"ä".repeat(61)), format!("`{}…`", "ä".repeat(60)));
    }
}
