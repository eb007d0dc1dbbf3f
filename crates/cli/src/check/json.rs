//! JSON output.

use serde_json::{Value, json};
use sluicegate::explain::rule::contents;
use sluicegate::explain::rule::json::rule;
use sluicegate::explain::rule::timing::override_entry;
use sluicegate_config::gateway::GatewayConfig;
use sluicegate_config::problem::Problem;
use sluicegate_rules::domain::ForwardAuth;
use sluicegate_rules::domain::{Domain, ListEntry};
use sluicegate_rules::mapping::DescriptorMapping;
use sluicegate_rules::set::RuleSet;

use super::summary::Totals;
use crate::rules::LoadResult;

/// The whole result as one object.
pub(crate) fn checked(rules: &LoadResult, gateway: Option<&GatewayConfig>, valid: bool) -> String {
    let (good, problems) = match &rules.read {
        Ok(good) => (Some(good), [].as_slice()),
        Err(problems) => (None, problems.as_slice()),
    };
    let totals = good.map(Totals::of).unwrap_or_default();
    let domains = good.into_iter().flat_map(|good| {
        let all = good.loaded.domains.iter();
        all.map(|one| domain(&good.set, one))
    });
    let mut all = json!({
        "valid": valid,
        "files": rules.sources.iter().map(|source| &source.name).collect::<Vec<_>>(),
        "problems": problems.iter().map(problem).collect::<Value>(),
        "warnings": rules.warnings.iter().map(problem).collect::<Value>(),
        "notes": rules.notes,
        "totals": { "domains": totals.domains, "rules": totals.rules, "limits": totals.limits },
        "domains": domains.collect::<Value>(),
        "removed": good.map(|good| &good.loaded.removed[..]).unwrap_or_default(),
    });
    if let Some(config) = gateway {
        all["gateway"] = super::gateway::json(config);
    }
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

fn domain(set: &RuleSet, domain: &Domain) -> Value {
    let contents = contents(set, &domain.name);
    json!({
        "domain": domain.name,
        "rules": contents.rules.iter().map(rule).collect::<Value>(),
        "exempt": contents.exempt,
        "allow": listed(&domain.allow),
        "deny": listed(&domain.deny),
        "overrides": domain.overrides.iter().map(override_entry).collect::<Value>(),
        "forward_auth": domain.forward_auth.as_ref().map(forward_auth),
    })
}

fn forward_auth(auth: &ForwardAuth) -> Value {
    let networks = auth.trusted_proxies.networks().iter().map(ToString::to_string);
    let descriptor = |one: &DescriptorMapping| -> Value {
        let entries =
            one.entries.iter().map(|(key, part)| (key.to_string(), json!(part.to_string())));
        Value::Object(entries.collect())
    };
    json!({
        "trusted_proxies": networks.collect::<Vec<_>>(),
        "descriptors": auth.mapping.descriptors.iter().map(descriptor).collect::<Value>(),
        "hits": auth.mapping.hits.as_ref().map(ToString::to_string),
        "deny_status": auth.deny_status,
    })
}

fn listed(list: &[ListEntry]) -> Vec<String> {
    list.iter().map(ToString::to_string).collect()
}
