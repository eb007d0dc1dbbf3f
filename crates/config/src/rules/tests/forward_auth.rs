//! `forward_auth`: parsing, and merging of several files. `tests/mistakes` covers its problems.

use super::*;
use sluicegate_rules::domain::ForwardAuth;
use sluicegate_rules::domain::Joint;
use sluicegate_rules::mapping::Proxies;

const RULES: &str =
    "descriptors:\n- { key: user, rate_limit: { unit: day, requests_per_unit: 5 } }\n";

fn file(forward_auth: &str) -> String {
    format!("domain: web\nforward_auth: {forward_auth}\n{RULES}")
}

fn read(forward_auth: &str) -> ForwardAuth {
    domain(&file(forward_auth)).forward_auth.unwrap()
}

/// Each descriptor as one text.
fn shown(auth: &ForwardAuth) -> Vec<String> {
    let shown = |text: String| text.replace(": ", "=").replace(", ", ",");
    auth.mapping.descriptors.iter().map(|one| shown(one.to_string())).collect()
}

#[test]
fn what_is_left_out_is_as_a_machine_by_itself_needs_it() {
    let auth = read("{ descriptors: [{ user: header X-User }] }");
    assert_eq!(auth.trusted_proxies, Proxies::default());
    assert_eq!((auth.deny_status, &auth.mapping.hits), (None, &None));
    assert_eq!(shown(&auth), ["user=header X-User"]);
}

#[test]
fn everything_is_read_in_its_order() {
    let auth = read(
        "{ trusted_proxies: [10.0.0.0/8, '::1'], deny_status: 403, hits: header X-Cost or 2, descriptors: [{ user: bearer, a: \
         path or / }, { user: query key }] }",
    );
    let networks: Vec<String> =
        auth.trusted_proxies.networks().iter().map(ToString::to_string).collect();
    assert_eq!(networks, ["10.0.0.0/8", "::1/128"]);
    assert_eq!(auth.deny_status, Some(403));
    assert_eq!(auth.mapping.hits.as_ref().unwrap().to_string(), "header X-Cost or 2");
    assert_eq!(shown(&auth), ["user=bearer,a=path or /", "user=query key"]);
    let one = read("{ trusted_proxies: 192.0.2.7, descriptors: [{ user: bearer }] }");
    assert_eq!(one.trusted_proxies.networks()[0].to_string(), "192.0.2.7/32");
}

#[test]
fn parts_of_the_gateway_are_refused() {
    for part in ["jwt plan", "api_key", "json user.id", "ja4", "route or none"] {
        let messages = told(&file(&format!("{{ descriptors: [{{ user: {part} }}] }}")));
        assert_eq!(messages.len(), 1, "{messages:?}");
        assert!(messages[0].contains("only `sluicegate gateway` knows this part"), "{messages:?}");
        assert!(messages[0].contains(&format!("got `{part}`; ")), "{messages:?}");
    }
    let messages = told(&file("{ hits: json cost or 1, descriptors: [{ user: bearer }] }"));
    assert!(messages[0].contains("only `sluicegate gateway` knows this part"), "{messages:?}");
}

#[test]
fn the_key_makes_a_file_one_of_our_own_form() {
    let with = domain(&file("{ descriptors: [{ user: bearer }] }"));
    let without = domain(&format!("domain: web\n{RULES}"));
    assert_eq!((with.joint, without.joint), (Joint::Apart, Joint::Joined));
    assert!(without.forward_auth.is_none());
}

#[test]
fn one_of_several_files_may_have_it() {
    let options = Options { merge_domains: true, ..Options::default() };
    let with = source("a.yaml", &file("{ descriptors: [{ user: bearer }] }"));
    let without = source(
        "b.yaml",
        "domain: web\ndescriptors: [{ key: path, rate_limit: { unit: day, requests_per_unit: 5 } }]",
    );
    for files in [[with.clone(), without.clone()], [without, with.clone()]] {
        let loaded = load(&files, &options).unwrap();
        assert!(loaded.domains[0].forward_auth.is_some());
        assert_eq!(loaded.warnings, []);
    }
    let again = source("c.yaml", "domain: web\nforward_auth: { descriptors: [{ user: path }] }");
    let invalid = load(&[with, again], &options).unwrap_err();
    assert_eq!(
        invalid.to_string(),
        "c.yaml:2:15: forward_auth: is given twice, first in `a.yaml` on line 2; remove one"
    );
}
