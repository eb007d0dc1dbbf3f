//! What is wrong with what a person typed, and where.
//!
//! Every message names the place, the value and the remedy, in lower case and without a full stop.
//! Reading goes on after a problem, so that all of them are told at once.

use std::fmt::{self, Display};

/// The most problems that are told at once; a file with more has one cause, not many.
///
/// ```
/// assert_eq!(sluicegate_config::problem::PROBLEMS_MAX, 1_000);
/// ```
pub const PROBLEMS_MAX: usize = 1_000;

/// The most characters of somebody's value that a message repeats.
const QUOTED_CHARS_MAX: usize = 60;

/// One thing that is wrong.
///
/// ```
/// let problems = sluicegate_config::mode::mode("rules.yaml", "sfot: 10%").unwrap_err();
/// let problem = problems.iter().next().unwrap();
/// assert_eq!((problem.source(), problem.line(), problem.column()), ("rules.yaml", 1, 1));
/// assert_eq!(problem.path(), "sfot");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    source: String,
    at: Position,
    path: String,
    message: String,
}

/// Everything that is wrong, in the order of the text; at least one thing.
///
/// ```
/// let text = "{ algorithm: token_bucket, rate: 10/x, bust: 5 }";
/// let problems = sluicegate_config::limit::limits("--limit", text).unwrap_err();
/// assert_eq!(problems.iter().count(), 2);
/// assert_eq!(problems.to_string().lines().count(), 2);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

/// A place in a text, both counted from 1; the column in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

/// The problems found so far in one source.
#[derive(Debug)]
pub(crate) struct Report {
    source: String,
    problems: Vec<Problem>,
}

/// Proof that a problem was reported: only [`Report::add`] makes one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reported(());

/// Somebody's value as a message repeats it: in backticks, on one line, cut if long.
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

// === impl Problem ===

impl Problem {
    /// Where the text came from: a file, or the flag it was given with.
    ///
    /// ```
    /// let problems = sluicegate_config::mode::mode("--mode", "hrad").unwrap_err();
    /// assert!(problems.iter().all(|problem| problem.source() == "--mode"));
    /// ```
    #[must_use]
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The line, from 1.
    ///
    /// ```
    /// let problems = sluicegate_config::mode::mode("--mode", "\n\nhrad").unwrap_err();
    /// assert!(problems.iter().all(|problem| problem.line() == 3));
    /// ```
    #[must_use]
    pub const fn line(&self) -> usize {
        self.at.line
    }

    /// The column in characters, from 1.
    ///
    /// ```
    /// let problems = sluicegate_config::mode::mode("--mode", "soft: ten").unwrap_err();
    /// assert!(problems.iter().all(|problem| problem.column() == 7));
    /// ```
    #[must_use]
    pub const fn column(&self) -> usize {
        self.at.column
    }

    /// The place inside the document, such as `limits[1].rate`; empty for the document itself.
    ///
    /// ```
    /// let text = "elastic: { up_to: 2x, below: 70%, above: high }";
    /// let problems = sluicegate_config::mode::mode("--mode", text).unwrap_err();
    /// assert!(problems.iter().all(|problem| problem.path() == "elastic.above"));
    /// ```
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// What is wrong, with what was given, and what to do about it.
    ///
    /// ```
    /// let problems = sluicegate_config::mode::mode("--mode", "soft: ten").unwrap_err();
    /// let problem = problems.iter().next().unwrap();
    /// assert_eq!(problem.message(), "must be a whole percentage, got `ten`; write it like `10%`");
    /// ```
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

// === impl Problems ===

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

// === impl Report ===

impl Report {
    pub(crate) fn new(source: &str) -> Self {
        Self { source: source.to_owned(), problems: Vec::new() }
    }

    /// Adds a problem; the one after the most that are told says only that there are more.
    pub(crate) fn add(&mut self, at: Position, path: impl Display, message: String) -> Reported {
        let problem = |path: String, message: String| Problem {
            source: self.source.clone(),
            at,
            path,
            message,
        };
        let count = self.problems.len();
        if count < PROBLEMS_MAX {
            self.problems.push(problem(path.to_string(), message));
        } else if count == PROBLEMS_MAX {
            let more = format!("more than {PROBLEMS_MAX} problems; solve those above first");
            self.problems.push(problem(String::new(), more));
        }
        Reported(())
    }

    /// What was read, if nothing was wrong with it.
    pub(crate) fn finish<T>(self, read: Result<T, Reported>) -> Result<T, Problems> {
        let mut problems = self.problems;
        match read {
            Ok(value) if problems.is_empty() => Ok(value),
            _ => {
                // Stable: problems of one place stay in the order they were found. The remark that
                // there are more stays last.
                let told = problems.len().min(PROBLEMS_MAX);
                if let Some(told) = problems.get_mut(..told) {
                    told.sort_by_key(|problem| problem.at);
                }
                Err(Problems(problems))
            }
        }
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
    fn values_are_quoted_on_one_line_and_cut() {
        assert_eq!(quoted("10/x"), "`10/x`");
        assert_eq!(quoted("a\nb\u{2028}\0"), "`a\\nb\\u{2028}\\u{0}`");
        assert_eq!(quoted(&"ä".repeat(60)), format!("`{}`", "ä".repeat(60)));
        assert_eq!(quoted(&"ä".repeat(61)), format!("`{}…`", "ä".repeat(60)));
    }
}
