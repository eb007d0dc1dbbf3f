//! From a logged request to its descriptors, by the mapping that the service applies to the
//! requests of a proxy.
//!
//! The address is that of the log, which knows nothing of trusted proxies. The authenticated user
//! of a line is the header `Remote-User`, unless the log has a header of this name.

use sluicegate_accesslog::Record;
use sluicegate_rules::domain::ForwardAuth;
use sluicegate_rules::mapping::{Attributes, DescriptorMapping, Headers, Mapping, Part};
use sluicegate_rules::set::RuleSet;

/// Header with the authenticated user.
const USER: &str = "remote-user";

/// Maps logged requests to descriptors of a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogMapping {
    /// The domain.
    pub domain: String,
    /// The descriptors, and the cost.
    pub mapping: Mapping,
}

impl LogMapping {
    /// The mapping of `forward_auth` in the rules, as a proxy uses it; of this domain, or of the
    /// only one that has it.
    ///
    /// # Errors
    /// When no domain has one, or it is unknown which.
    pub fn of_rules(rules: &RuleSet, domain: Option<&str>) -> Result<Self, String> {
        let of = |(domain, auth): (&str, &ForwardAuth)| Self {
            domain: domain.to_owned(),
            mapping: auth.mapping.clone(),
        };
        let all: Vec<_> = rules.forward_auths().collect();
        let domains = || -> String {
            let names: Vec<_> = all.iter().map(|(name, _)| format!("`{name}`")).collect();
            names.join(", ")
        };
        match (domain, all.as_slice()) {
            (_, []) => Err("no domain of the rules has `forward_auth`, which maps requests to \
                descriptors; add it, or name descriptors like `--descriptor '{ remote_address: client_ip }'`"
                .to_owned()),
            (None, [only]) => Ok(of(*only)),
            (None, _) => Err(format!(
                "several domains have `forward_auth`: {}; name one of them with `--domain`",
                domains()
            )),
            (Some(domain), _) => rules.forward_auth(domain).map(of).ok_or_else(|| {
                format!(
                    "domain `{domain}` has no `forward_auth`; those that have it: {}, or name descriptors with \
                     `--descriptor`",
                    domains()
                )
            }),
        }
    }

    /// These descriptors of a domain of the rules: the named one, or the only one.
    ///
    /// # Errors
    /// When the domain has no rules, or it is unknown which.
    pub fn with_descriptors(
        rules: &RuleSet,
        domain: Option<&str>,
        descriptors: Vec<DescriptorMapping>,
    ) -> Result<Self, String> {
        let all: Vec<&str> = rules.domains().collect();
        let names = || -> String {
            let names: Vec<_> = all.iter().map(|name| format!("`{name}`")).collect();
            names.join(", ")
        };
        let domain = match (domain, all.as_slice()) {
            (None, [only]) => *only,
            (None, []) => return Err("the rules have no domain; add one".to_owned()),
            (None, _) => {
                return Err(format!(
                    "the rules have several domains: {}; name one of them with `--domain`",
                    names()
                ));
            }
            (Some(domain), _) if all.contains(&domain) => domain,
            (Some(domain), _) => {
                return Err(format!(
                    "domain `{domain}` has no rules; those that have: {}",
                    names()
                ));
            }
        };
        let mapping = Mapping { descriptors, hits: None };
        Ok(Self { domain: domain.to_owned(), mapping })
    }

    /// One part of a request, for what needs clients only.
    #[must_use]
    pub fn of_part(part: Part) -> Self {
        let descriptor = DescriptorMapping::from(vec![("client".into(), part)]);
        let mapping = Mapping { descriptors: vec![descriptor], hits: None };
        Self { domain: String::new(), mapping }
    }

    /// The same with this part as the cost of a request, in place of the log's own.
    #[must_use]
    pub fn with_hits(mut self, hits: Part) -> Self {
        self.mapping.hits = Some(hits);
        self
    }
}

/// The headers of a logged request.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecordHeaders<'r, 'a>(pub(super) &'r Record<'a>);

impl Headers for RecordHeaders<'_, '_> {
    fn each_line<'a>(&'a self, name: &str, each: &mut dyn FnMut(&'a [u8])) {
        let mut is_found = false;
        for (key, value) in self.0.headers.iter() {
            if key.eq_ignore_ascii_case(name) {
                is_found = true;
                each(value);
            }
        }
        if !is_found && name.eq_ignore_ascii_case(USER) {
            self.0.user.iter().for_each(|user| each(user));
        }
    }
}

/// What a line states of its request.
pub(super) fn attributes<'r>(headers: &'r RecordHeaders<'r, '_>) -> Attributes<'r> {
    let record = headers.0;
    Attributes {
        client_ip: record.client_ip,
        method: record.method,
        scheme: record.scheme,
        host: record.host,
        uri: record.uri,
        headers,
        identity: None,
    }
}

#[cfg(test)]
mod tests {
    use sluicegate::rules_of;

    use super::*;

    const TWO: &str = "domain: a\nforward_auth: { descriptors: [{ ip: client_ip }] }\n\
        descriptors: [{ key: ip, rate_limit: { unit: day, requests_per_unit: 1 } }]\n";

    #[test]
    fn a_mapping_is_that_of_the_only_domain_that_has_one() {
        let rules = rules_of(TWO).unwrap();
        let mapping = LogMapping::of_rules(&rules, None).unwrap();
        assert_eq!((mapping.domain.as_str(), mapping.mapping.descriptors.len()), ("a", 1));
        assert_eq!(LogMapping::of_rules(&rules, Some("a")), Ok(mapping));
        let unknown = LogMapping::of_rules(&rules, Some("b")).unwrap_err();
        assert!(unknown.contains("domain `b` has no `forward_auth`; those that have it: `a`"));
        let bare = rules_of("domain: a").unwrap();
        assert!(LogMapping::of_rules(&bare, None).unwrap_err().contains("--descriptor"));
    }

    #[test]
    fn descriptors_need_a_domain_of_the_rules() {
        let rules = rules_of("domain: a").unwrap();
        let mapping = |domain| LogMapping::with_descriptors(&rules, domain, Vec::new());
        assert_eq!(mapping(None).unwrap().domain, "a");
        assert!(mapping(Some("b")).unwrap_err().contains("domain `b` has no rules"));
    }

    #[test]
    fn a_user_is_a_header_unless_the_log_has_one() {
        let user = |headers: &[(&'static str, &'static [u8])]| {
            let headers = headers.iter().copied().collect();
            let record = Record { user: Some(b"alice"), headers, ..Record::default() };
            let mut found = Vec::new();
            RecordHeaders(&record).each_line("Remote-User", &mut |line| found.push(line.to_vec()));
            found
        };
        assert_eq!(user(&[]), [b"alice"]);
        assert_eq!(user(&[("remote-user", b"bob")]), [b"bob"]);
    }
}
