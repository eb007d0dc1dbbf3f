//! Sends a limit to a node as a candidate.
//!
//! A candidate is a whole set of rules. It is the active set with the limits of one rule replaced,
//! or with a file of its own if no file has the domain; so it differs from the enforced rules in
//! nothing else.

use std::fmt::{self, Display};

use anyhow::{Context, bail};
use serde_json::{Value, json};
use sluicegate_config::rule_limits::{RuleLimits, set_limits};
use sluicegate_config::rules::{Options, Source, load};

use crate::admin_client::AdminClient;

/// The answer to a proposal.
#[derive(Debug)]
pub(super) enum Proposed {
    /// The number of the candidate, and the file that it changes.
    Candidate { number: u64, file: String, url: String },
    /// It was refused.
    Refused { message: String },
}

impl Proposed {
    pub(super) fn is_refused(&self) -> bool {
        matches!(self, Self::Refused { .. })
    }

    pub(super) fn to_json(&self) -> Value {
        match self {
            Self::Candidate { number, file, .. } => json!({ "revision": number, "file": file }),
            Self::Refused { message } => json!({ "error": message }),
        }
    }
}

impl Display for Proposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Candidate { number, file, url } => write!(
                f,
                "candidate {number} changes {file} and runs beside the enforced rules; enforce it with\n  \
                 sluicegate rules activate {number} --admin {url}"
            ),
            Self::Refused { message } => write!(f, "the candidate is refused: {message}"),
        }
    }
}

/// Proposes limits in a domain.
pub(super) fn propose(
    url: &str,
    domain: &str,
    limits: &[RuleLimits],
    note: &str,
) -> anyhow::Result<Proposed> {
    let token = std::env::var("SLUICEGATE_ADMIN_TOKEN").ok().filter(|token| !token.is_empty());
    let client = AdminClient::new(url, token).context("--propose")?;
    let active = client.send("GET", "/api/v1/rules")?;
    if active.status != 200 {
        let message = active.body["error"]["message"].as_str().unwrap_or("no message");
        bail!("--propose: `{url}` answers {}: {message}", active.status);
    }
    let files: Vec<Source> =
        active.body["files"].as_array().into_iter().flatten().map(source).collect();
    let (files, file) = with_limits(files, domain, limits)?;
    let files: Vec<Value> =
        files.iter().map(|file| json!({ "name": file.name, "text": file.text })).collect();
    let base = &active.body["revision"]["number"];
    let body = json!({ "files": files, "base": base, "note": note, "activate": "shadow" });
    let reply = client.send_body("POST", "/api/v1/rules/revisions", &body.to_string())?;
    let message = reply.body["error"]["message"].as_str().unwrap_or("no message");
    match (reply.status, reply.body["revision"]["number"].as_u64()) {
        (201, Some(number)) => Ok(Proposed::Candidate { number, file, url: url.to_owned() }),
        (400 | 403 | 404 | 409 | 422, _) => Ok(Proposed::Refused { message: message.to_owned() }),
        (status, _) => bail!("--propose: `{url}` answers {status}: {message}"),
    }
}

fn source(file: &Value) -> Source {
    let text = |key: &str| file[key].as_str().unwrap_or_default().to_owned();
    Source { name: text("name"), text: text("text") }
}

/// The files with the limits, and the name of the changed file.
fn with_limits(
    mut files: Vec<Source>,
    domain: &str,
    limits: &[RuleLimits],
) -> anyhow::Result<(Vec<Source>, String)> {
    let has_domain = |file: &&mut Source| {
        let alone = Source { name: file.name.clone(), text: file.text.clone() };
        let loaded = load(&[alone], &Options::default());
        loaded.is_ok_and(|loaded| loaded.domains.iter().any(|found| found.name == domain))
    };
    let edit = |text: String, name: &str| {
        limits.iter().try_fold(text, |text, limits| {
            set_limits(&text, limits).with_context(|| format!("--propose: `{name}`"))
        })
    };
    if let Some(file) = files.iter_mut().find(has_domain) {
        file.text = edit(std::mem::take(&mut file.text), &file.name)?;
        let name = file.name.clone();
        return Ok((files, name));
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    let plain: String = domain.chars().map(|c| if is_plain(c) { c } else { '-' }).collect();
    let name = format!("{plain}.yaml");
    if files.iter().any(|file| file.name == name) {
        bail!(
            "--propose: the file `{name}` has another domain than `{domain}`; choose another --domain"
        );
    }
    let text = edit(format!("domain: {}\n", json!(domain)), &name)?;
    files.push(Source { name: name.clone(), text });
    Ok((files, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> Vec<Source> {
        let file = |name: &str, text: &str| Source { name: name.to_owned(), text: text.to_owned() };
        vec![
            file(
                "a.yaml",
                "domain: a\ndescriptors:\n  - key: user\n    rate_limit: { unit: day, requests_per_unit: 3 }\n",
            ),
            file("b.yaml", "domain: b # theirs\n"),
        ]
    }

    fn limits() -> [RuleLimits; 1] {
        let limits = "{ algorithm: token_bucket, rate: 2/m, burst: 9 }".to_owned();
        [RuleLimits { key: "user".to_owned(), value: None, limits }]
    }

    #[test]
    fn a_candidate_is_the_active_set_with_the_limits_of_one_rule() {
        let (edited, name) = with_limits(files(), "a", &limits()).unwrap();
        assert_eq!(name, "a.yaml");
        assert_eq!(
            edited[0].text,
            "domain: a\ndescriptors:\n  - key: user\n    limits: { algorithm: token_bucket, rate: 2/m, burst: 9 }\n"
        );
        assert_eq!(edited[1], files()[1]);
        let (edited, name) = with_limits(files(), "c d", &limits()).unwrap();
        assert_eq!((name.as_str(), &edited[..2]), ("c-d.yaml", &files()[..]));
        assert!(load(&edited, &Options::default()).is_ok(), "{edited:?}");
        let mut taken = files();
        taken[1].name = "c.yaml".to_owned();
        let error = with_limits(taken, "c", &limits()).unwrap_err().to_string();
        assert!(error.contains("`c.yaml`"), "{error}");
    }
}
