//! What is wrong, each with the line that it is on.

use std::collections::HashMap;

use sluicegate_config::problem::Problem;

use crate::reading::Rules;

/// How much of a line is shown on either side of the place.
const AROUND_MAX: usize = 60;

/// Whether something is wrong, or only looks so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Problem,
    Warning,
}

/// All that is wrong with some rules, and all that looks so, in the order of the files.
pub(crate) fn shown(rules: &Rules) -> String {
    let mut all = String::new();
    for remark in &rules.remarks {
        all.push_str(&format!("warning: {remark}\n"));
    }
    let problems = rules.read.as_ref().err().into_iter().flatten();
    let problems = problems.map(|problem| (Kind::Problem, problem));
    let warnings = rules.warnings.iter().map(|problem| (Kind::Warning, problem));
    let mut both: Vec<(Kind, &Problem)> = problems.chain(warnings).collect();
    let places: HashMap<&str, usize> =
        rules.sources.iter().zip(0..).map(|(source, place)| (&*source.name, place)).collect();
    let place = |problem: &Problem| places.get(problem.source()).copied();
    both.sort_by_key(|(_, one)| (place(one), one.line(), one.column()));
    // Lines are looked for once in each file: there may be many, and many problems.
    let (mut read, mut lines) = (None, Vec::new());
    for (kind, problem) in both {
        if let Some(found) = place(problem).filter(|found| read != Some(*found)) {
            lines =
                rules.sources.get(found).map_or_else(Vec::new, |one| one.text.lines().collect());
            read = Some(found);
        }
        let number = problem.line().checked_sub(1);
        let line = number.and_then(|number| lines.get(number).copied());
        all.push_str(&one(kind, problem, line));
    }
    all
}

fn one(kind: Kind, problem: &Problem, text: Option<&str>) -> String {
    let (file, line, column) = (problem.source(), problem.line(), problem.column());
    let kind = if kind == Kind::Warning { "warning: " } else { "" };
    let place = match problem.path() {
        "" => String::new(),
        path => format!("{path}: "),
    };
    let excerpt = text.map(|text| excerpt(text, line, column)).unwrap_or_default();
    format!("{file}:{line}:{column}: {kind}{place}{}\n{excerpt}", problem.message())
}

/// A line, with a mark below the column.
fn excerpt(text: &str, line: usize, column: usize) -> String {
    let before = column.saturating_sub(1);
    let length = text.chars().count();
    let start = if length > 2 * AROUND_MAX { before.saturating_sub(AROUND_MAX) } else { 0 };
    let shown: String = text.chars().skip(start).take(2 * AROUND_MAX).map(plain).collect();
    let shown = shown.trim_end();
    if shown.is_empty() {
        return String::new();
    }
    let cut = if start > 0 { "…" } else { "" };
    let goes_on = if length > start + 2 * AROUND_MAX { "…" } else { "" };
    let number = format!("{line:>5}");
    let indent = " ".repeat(number.chars().count());
    let mark = " ".repeat(before - start + cut.chars().count());
    format!("{number} | {cut}{shown}{goes_on}\n{indent} | {mark}^\n")
}

/// A character that takes one place on a terminal and does nothing to it.
fn plain(letter: char) -> char {
    match letter {
        '\t' => ' ',
        letter if letter.is_control() => '\u{fffd}',
        letter => letter,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_stands_below_the_column() {
        assert_eq!(excerpt("unit: x", 3, 7), "    3 | unit: x\n      |       ^\n");
        assert_eq!(excerpt("\tä: \u{7}", 12, 3), "   12 |  ä: \u{fffd}\n      |   ^\n");
        assert_eq!(excerpt("", 3, 1), "", "there is nothing to see");
        assert_eq!(excerpt("ab", 3, 3), "    3 | ab\n      |   ^\n", "behind the end");
    }

    #[test]
    fn a_long_line_is_cut_around_the_column() {
        let text = format!("{}here{}", "x".repeat(500), "y".repeat(500));
        let shown = excerpt(&text, 1, 501);
        let (line, mark) = shown.split_once('\n').unwrap();
        assert!(line.chars().count() < 140, "{line}");
        let column = mark.chars().position(|c| c == '^').unwrap();
        assert_eq!(line.chars().nth(column), Some('h'), "{shown}");
    }
}
