//! Loading of rule files.

mod envoy;
mod forward_auth;
mod lints;
mod merged;
mod native;
mod plans;
mod random;
mod removed;
mod twice;

use super::*;
use sluicegate_rules::domain::DescriptorConfig;
use sluicegate_rules::rule::RuleConfig;

fn source(name: &str, text: &str) -> Source {
    Source { name: name.to_owned(), text: text.to_owned() }
}

/// The problems of a file, without its name.
fn told(text: &str) -> Vec<String> {
    match load(&[source("x", text)], &Options::default()) {
        Ok(_) => Vec::new(),
        Err(invalid) => invalid.problems.iter().map(without_name).collect(),
    }
}

/// The warnings of a file, without its name.
fn warned(text: &str) -> Vec<String> {
    match load(&[source("x", text)], &Options::default()) {
        Ok(loaded) => loaded.warnings.iter().map(without_name).collect(),
        Err(invalid) => panic!("{text}\n{invalid}"),
    }
}

fn without_name(problem: &Problem) -> String {
    let line = problem.to_string();
    line.strip_prefix("x:").unwrap_or(&line).to_owned()
}

/// The one domain of a file.
fn domain(text: &str) -> Domain {
    match load(&[source("x", text)], &Options::default()) {
        Ok(mut loaded) => loaded.domains.remove(0),
        Err(invalid) => panic!("{text}\n{invalid}"),
    }
}

/// The one descriptor of a domain, from its fields.
fn node(fields: &str) -> DescriptorConfig {
    domain(&one(fields)).descriptors.remove(0)
}

fn rule(fields: &str) -> RuleConfig {
    node(fields).rule.unwrap()
}

/// A file with one descriptor of these fields.
fn one(fields: &str) -> String {
    format!("domain: d\ndescriptors:\n- {{ {fields} }}\n")
}

/// The single problem of a descriptor with these fields, without its position.
fn wrong(fields: &str) -> String {
    let told = told(&one(fields));
    assert_eq!(told.len(), 1, "{fields}: {told:?}");
    let (_, message) = told[0].split_once(": descriptors[0]").unwrap();
    message.strip_prefix('.').unwrap_or(message).to_owned()
}
