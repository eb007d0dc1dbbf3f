//! What is wrong, each with the line that it is on.

use std::collections::HashMap;

use sluicegate_config::problem::{Problem, excerpt};

use crate::rules::Rules;

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
    let excerpt = text.map(|text| excerpt(problem, text)).unwrap_or_default();
    format!("{file}:{line}:{column}: {kind}{place}{}\n{excerpt}", problem.message())
}
