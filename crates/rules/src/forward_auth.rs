//! Asking for a proxy that stands before somebody else's server: nginx, Caddy, Traefik.

use crate::mapping::{Mapping, Proxies};

/// How a domain answers proxies that ask about the requests they hold.
///
/// ```
/// use sluicegate_rules::forward_auth::ForwardAuth;
/// use sluicegate_rules::mapping::{Mapping, Proxies};
///
/// let client_ip = ("remote_address".into(), "client_ip".parse()?);
/// let mapping = Mapping { descriptors: vec![vec![client_ip]], hits: None };
/// let auth = ForwardAuth { trusted_proxies: Proxies::default(), mapping, deny_status: Some(403) };
/// assert!(auth.trusted_proxies.trust("127.0.0.1".parse()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForwardAuth {
    /// Who may say for whom it asks.
    pub trusted_proxies: Proxies,
    /// What is made of a request.
    pub mapping: Mapping,
    /// The status of a denial, if not the usual one.
    pub deny_status: Option<u16>,
}
