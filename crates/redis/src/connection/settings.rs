//! What all connections of a link begin with.

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::ClientConfig;
use tokio::sync::watch;

use super::address::{Address, Host};
use super::options::{LinkError, LinkOptions};
use super::secret::Secret;
use super::tls;

/// The options, and what was made of them.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) options: LinkOptions,
    username: Option<Box<str>>,
    password: Option<Secret>,
    database: u16,
    tls: Option<ArcSwap<ClientConfig>>,
    /// Raised when the password is another.
    pub(super) renewed: watch::Sender<u64>,
}

/// Where a connection leads.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Target {
    Host(Host),
    Unix(PathBuf),
}

/// As whom.
#[derive(Debug, Default)]
pub(super) struct Login {
    pub(super) username: Option<Box<str>>,
    pub(super) password: Option<Secret>,
    pub(super) database: u16,
}

impl Settings {
    pub(super) fn new(address: &Address, options: LinkOptions) -> Result<Self, LinkError> {
        options.check()?;
        let tls = if address.tls { Some(tls::config(&options.tls)?.into()) } else { None };
        let settings = Self {
            username: options.username.clone().or_else(|| address.username.clone()),
            password: options.password.clone().or_else(|| address.password.clone()),
            database: address.database,
            options,
            tls,
            renewed: watch::Sender::new(0),
        };
        settings.login()?;
        Ok(settings)
    }

    /// Of a way without connections.
    pub(super) fn of_a_wire() -> Self {
        Self {
            options: LinkOptions::default(),
            username: None,
            password: None,
            database: 0,
            tls: None,
            renewed: watch::Sender::new(0),
        }
    }

    /// What to begin with at the store, with the password as it is now.
    pub(super) fn login(&self) -> Result<Login, LinkError> {
        let password = match &self.options.password_file {
            None => self.password.clone(),
            Some(path) => {
                let text = std::fs::read_to_string(path).map_err(|error| LinkError::File {
                    path: path.clone(),
                    why: error.to_string().into(),
                })?;
                let text = text.trim_end_matches(['\n', '\r']);
                (!text.is_empty()).then(|| Secret::new(text))
            }
        };
        Ok(Login { username: self.username.clone(), password, database: self.database })
    }

    /// What to begin with at a Sentinel.
    pub(super) fn sentinel_login(&self) -> Login {
        Login {
            username: self.options.sentinel_username.clone(),
            password: self.options.sentinel_password.clone(),
            database: 0,
        }
    }

    /// TLS as the files are now; as they were, if they cannot be read while they are exchanged.
    pub(super) fn tls(&self) -> Option<Arc<ClientConfig>> {
        let known = self.tls.as_ref()?;
        let files = &self.options.tls;
        let named = files.ca.is_some() || files.client_cert.is_some();
        if named && let Ok(config) = tls::config(files) {
            known.store(config);
        }
        Some(known.load_full())
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Host(host) => host.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}
