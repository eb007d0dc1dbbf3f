//! Forward auth: nginx, Caddy and Traefik check each request before they pass it on.

use crate::mapping::{Mapping, Proxies};

/// Forward auth settings of a domain.
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
    /// The proxies whose forwarding headers are trusted.
    pub trusted_proxies: Proxies,
    /// Maps a request to descriptors.
    pub mapping: Mapping,
    /// The status of a denial, if not the usual one.
    pub deny_status: Option<u16>,
}
