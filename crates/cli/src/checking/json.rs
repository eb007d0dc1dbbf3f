//! What was checked, for a program.

use serde_json::{Value, json};
use sluicegate_config::problem::Problem;
use sluicegate_rules::domain::{Domain, Listed};

use super::summary::Totals;
use crate::reading::Rules;
use crate::rule::json::rule;
use crate::rule::place::{contents, written};

/// Everything, in one object.
pub(crate) fn checked(rules: &Rules, valid: bool) -> String {
    let (domains, problems) = match &rules.read {
        Ok(good) => (good.loaded.domains.as_slice(), [].as_slice()),
        Err(problems) => ([].as_slice(), problems.as_slice()),
    };
    let totals = Totals::of(domains);
    let remarks = rules.remarks.iter().map(|remark| json!({ "message": remark }));
    let warnings = rules.warnings.iter().map(problem);
    let all = json!({
        "valid": valid,
        "files": rules.sources.iter().map(|source| &source.name).collect::<Vec<_>>(),
        "problems": problems.iter().map(problem).collect::<Value>(),
        "warnings": remarks.chain(warnings).collect::<Value>(),
        "totals": { "domains": totals.domains, "rules": totals.rules, "limits": totals.limits },
        "domains": domains.iter().map(domain).collect::<Value>(),
    });
    format!("{all}\n")
}

fn problem(problem: &Problem) -> Value {
    json!({
        "file": problem.source(),
        "line": problem.line(),
        "column": problem.column(),
        "path": problem.path(),
        "message": problem.message(),
    })
}

fn domain(domain: &Domain) -> Value {
    let contents = contents(domain);
    json!({
        "domain": domain.name,
        "rules": contents.rules.iter().map(rule).collect::<Value>(),
        "exempt": contents.exempt,
        "allow": listed(&domain.allow),
        "deny": listed(&domain.deny),
    })
}

fn listed(list: &[Listed]) -> Vec<String> {
    list.iter().map(|one| written(&one.key, &one.value)).collect()
}
