//! What a proxy asks: of which domain, and about which request.

use std::net::IpAddr;

use http::{HeaderMap, StatusCode};
use sluicegate::Snapshot;
use sluicegate::rules::forward_auth::ForwardAuth;
use sluicegate::rules::mapping::{Attributes, Headers};

use super::PATH;
use crate::http::error::Refusal;

/// The domain that is meant, and how it answers proxies.
pub(super) fn chosen<'r>(
    rules: &'r Snapshot<'_>,
    named: Option<&str>,
) -> Result<(&'r str, &'r ForwardAuth), Refusal> {
    /// The most domains that a message lists.
    const SHOWN: usize = 10;

    let rules = rules.rules();
    let found = match named {
        Some(domain) => rules.forward_auth(domain),
        None => {
            let mut all = rules.forward_auths();
            all.next().filter(|_| all.next().is_none())
        }
    };
    found.ok_or_else(|| {
        let routes: Vec<String> =
            rules.forward_auths().take(SHOWN).map(|(domain, _)| format!("{PATH}/{domain}")).collect();
        let message = match (routes.as_slice(), named) {
            ([], _) => "no domain of the rules has `forward_auth`, so it is not known who asks; add it to one, such as \
                        `forward_auth: { descriptors: [{ remote_address: client_ip }] }`"
                .to_owned(),
            (routes, Some(domain)) => {
                let domain: String = domain.chars().take(100).collect();
                format!("domain `{domain}` has no `forward_auth` in the rules; there are {}", routes.join(", "))
            }
            (routes, None) => {
                format!("several domains have `forward_auth`; ask one of them: {}", routes.join(", "))
            }
        };
        Refusal::invalid(message)
    })
}

pub(super) fn untrusted(peer: &str, domain: &str) -> Refusal {
    let message = format!(
        "a proxy at {peer} is not believed about its clients; if it is yours, add its network to `trusted_proxies` in \
         `forward_auth` of domain `{domain}`"
    );
    Refusal::new(StatusCode::FORBIDDEN, "untrusted_proxy", message)
}

// === what the proxy tells ===

/// Headers as rules look at them.
pub(super) struct Lines<'a>(pub(super) &'a HeaderMap);

impl Headers for Lines<'_> {
    fn each_line<'a>(&'a self, name: &str, each: &mut dyn FnMut(&'a [u8])) {
        self.0.get_all(name).iter().for_each(|value| each(value.as_bytes()));
    }
}

pub(super) fn attributes<'a>(
    lines: &'a Lines<'_>,
    auth: &ForwardAuth,
    peer: IpAddr,
) -> Result<Attributes<'a>, Refusal> {
    Ok(Attributes {
        client_ip: Some(auth.trusted_proxies.client_ip(peer, lines)),
        method: told(lines, &["X-Forwarded-Method", "X-Original-Method"])?,
        scheme: told(lines, &["X-Forwarded-Proto"])?,
        host: told(lines, &["X-Forwarded-Host"])?,
        uri: told(lines, &["X-Forwarded-Uri", "X-Original-URI"])?,
        headers: lines,
    })
}

/// What headers of one meaning say.
///
/// A proxy sets those that it knows, and hands on what a client made up of the others: if they differ, nobody can tell which is the proxy's.
fn told<'a>(lines: &'a Lines<'_>, names: &[&str]) -> Result<Option<&'a [u8]>, Refusal> {
    let mut said: Option<&[u8]> = None;
    let mut differ = false;
    for name in names {
        lines.each_line(name, &mut |line| {
            differ |= *said.get_or_insert(line) != line;
        });
    }
    if differ {
        let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
        let message = format!(
            "{} came more than once and not with one value, so it is not known which is the proxy's; have the proxy set one and remove the rest",
            names.join(" or ")
        );
        return Err(Refusal::new(StatusCode::BAD_REQUEST, "conflicting_headers", message));
    }
    Ok(said)
}
