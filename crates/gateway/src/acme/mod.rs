//! Automatic certificates (ACME, RFC 8555).
//!
//! ```text
//!   handshake ── manager: certificate of the name ◄── state on disk
//!                   │ due: ARI window, or share of the lifetime       ▲
//!                   └ lock in the store ── order ── verify ───────────┘
//!                                             │
//!   request of the authority ── challenges ◄──┘ pending tokens, of all nodes
//! ```
//!
//! - A certificate stays in use until another one was verified; failures do not end it.
//! - `schedule` decides when to renew and to retry, `order` talks to the authority.
//! - `state` is the disk, `shared` the store: on Redis one node orders, and the others take the
//!   certificate and can answer HTTP-01 for it.

mod certificate;
mod challenge;
mod client;
mod manager;
mod order;
mod schedule;
mod shared;
mod state;

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use sluicegate_config::gateway::listener::AcmeConfig;
use sluicegate_server::app::App;
use sluicegate_server::metrics::{Labels, MetricsSource, Page};
use sluicegate_server::tls::CertificateSource;
use tokio::task::JoinSet;

pub(crate) use self::challenge::{ACME_TLS, Challenges, PATH};
use self::manager::CertificateManager;
use self::shared::SharedState;

/// Automatic certificates of all listeners.
#[derive(Debug)]
pub(crate) struct Acme {
    managed: Mutex<Vec<Weak<ManagedCertificates>>>,
    challenges: Arc<Challenges>,
    shared: Option<SharedState>,
}

/// Certificates that are obtained and renewed as long as this value exists.
#[derive(Debug)]
pub(crate) struct ManagedCertificates {
    manager: Arc<CertificateManager>,
    tasks: Mutex<JoinSet<()>>,
}

impl Acme {
    pub(crate) fn new(challenges: Arc<Challenges>, app: &App) -> Arc<Self> {
        let shared = app.redis().map(|engine| SharedState::new(engine.backend().store().clone()));
        let acme = Arc::new(Self { managed: Mutex::default(), challenges, shared });
        app.add_metrics(acme.clone());
        acme
    }

    /// Reads the state of certificates. Listeners with equal options share them.
    ///
    /// # Errors
    /// A reason, if the state or the authority's own certificate cannot be used.
    pub(crate) fn manage(&self, config: &AcmeConfig) -> Result<Arc<ManagedCertificates>, String> {
        let mut all = self.managed.lock();
        all.retain(|managed| managed.strong_count() > 0);
        let mut known = all.iter().filter_map(Weak::upgrade);
        if let Some(known) = known.find(|managed| managed.manager.config() == config) {
            return Ok(known);
        }
        self.challenges.enable(self.shared.as_ref());
        let manager =
            CertificateManager::new(config, self.challenges.clone(), self.shared.clone())?;
        let managed = ManagedCertificates { manager: Arc::new(manager), tasks: Mutex::default() };
        let managed = Arc::new(managed);
        all.push(Arc::downgrade(&managed));
        Ok(managed)
    }
}

impl ManagedCertificates {
    /// The certificates, for handshakes.
    pub(crate) fn source(&self) -> Arc<dyn CertificateSource> {
        self.manager.clone()
    }

    /// Begins to obtain and renew them. Must be called within a Tokio runtime.
    pub(crate) fn start(&self) {
        let mut tasks = self.tasks.lock();
        if tasks.is_empty() {
            self.manager.spawn_on(&mut tasks);
        }
    }
}

impl MetricsSource for Acme {
    fn put(&self, page: &mut Page) {
        let managed: Vec<_> = self.managed.lock().iter().filter_map(Weak::upgrade).collect();
        let domains: Vec<_> = managed.iter().flat_map(|one| one.manager.domains()).collect();
        if domains.is_empty() {
            return;
        }
        let labels = |name: &str| Labels::new("domain", name);
        let help =
            "Unix time at which the automatic certificate of a domain expires; 0 without one.";
        let mut family =
            page.gauge("sluicegate_gateway_certificate_expiry_timestamp_seconds", help);
        for domain in &domains {
            let end = domain.certificate().map_or(0, |one| one.validity.end / 1_000);
            family.labeled(&labels(&domain.name), end);
        }
        let help = "Unix time at which this process last obtained the certificate of a domain; 0 if never.";
        let mut family =
            page.gauge("sluicegate_gateway_certificate_last_success_timestamp_seconds", help);
        for domain in &domains {
            family.labeled(&labels(&domain.name), domain.succeeded_at.load(Relaxed) / 1_000);
        }
        let help = "Failed attempts to obtain the certificate of a domain.";
        let mut family = page.counter("sluicegate_gateway_certificate_failures_total", help);
        for domain in &domains {
            family.labeled(&labels(&domain.name), domain.failures.load(Relaxed));
        }
    }
}
