//! Keeps the certificates of some domains valid.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use instant_acme::{Account, AccountCredentials, Error, ExternalAccountKey, NewAccount};
use rustls::server::ClientHello;
use rustls::sign::CertifiedKey;
use sluicegate_config::gateway::listener::{AcmeConfig, ExternalAccount};
use sluicegate_server::tls::{CertificateSource, SourceMatch};
use tokio::sync::{Mutex, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, error, info, warn};

use super::certificate::Certificate;
use super::challenge::{ACME_TLS, Challenges};
use super::client::AcmeClient;
use super::order::{OrderError, order};
use super::schedule::{TimeWindow, backoff, is_urgent, now, renewal_time};
use super::shared::{OrderLock, SharedState};
use super::state::{ACCOUNT, StateFolder, authority_id};
use crate::upstream::{file_roots, system_roots};

/// Limit of one attempt; shorter than the lock of the store lasts.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(300);
/// Certificates that are ordered at the same time.
const ORDERS_MAX: usize = 2;
/// Longest sleep: the system's clock may change.
const SLEEP_MAX: Duration = Duration::from_secs(3_600);
/// Bounds of the time between two requests for renewal information (RFC 9773, section 4.3.2).
const INFO_MIN: Duration = Duration::from_secs(60);
const INFO_MAX: Duration = Duration::from_secs(24 * 3_600);
/// Interval of looks at the store while another node orders.
const LOCK_POLL: Duration = Duration::from_secs(1);

const NO_ROOTS: &str =
    "this system has no certificate authorities; name a file with `directory_ca`";

/// Certificates of one authority and account.
pub(crate) struct CertificateManager {
    config: AcmeConfig,
    authority: String,
    domains: Vec<Arc<Domain>>,
    by_name: HashMap<Box<str>, Arc<Domain>>,
    state: Arc<StateFolder>,
    client: AcmeClient,
    account: Mutex<Option<Account>>,
    external_account: Option<ExternalAccountKey>,
    orders: Semaphore,
    challenges: Arc<Challenges>,
    shared: Option<SharedState>,
}

/// A name with its certificate.
#[derive(Debug)]
pub(super) struct Domain {
    pub(super) name: Box<str>,
    certificate: ArcSwapOption<Certificate>,
    /// Whether a client without a certificate was reported.
    is_reported: AtomicBool,
    pub(super) failures: AtomicU64,
    /// When a certificate was last obtained, in milliseconds; 0 if never.
    pub(super) succeeded_at: AtomicI64,
}

/// Renewal information of a certificate.
struct RenewalInfo {
    /// End of the certificate that it is of.
    of: i64,
    window: Option<TimeWindow>,
    next_request: Instant,
    /// Random, to spread renewals.
    fraction: f64,
}

impl Domain {
    pub(super) fn certificate(&self) -> Option<Arc<Certificate>> {
        self.certificate.load_full()
    }
}

impl CertificateManager {
    /// Reads the state on disk.
    pub(super) fn new(
        config: &AcmeConfig,
        challenges: Arc<Challenges>,
        shared: Option<SharedState>,
    ) -> Result<Self, String> {
        let state = StateFolder::open(&config.state, &config.directory);
        let state = state.map_err(|error| {
            let path = config.state.display();
            format!("`{path}` cannot be used: {error}; name a directory that can be written")
        })?;
        let roots = match &config.directory_ca {
            Some(path) => file_roots(path)?,
            None => system_roots().map_err(|_| NO_ROOTS)?,
        };
        let domains = config.domains.iter().map(|name| Arc::new(stored(&state, name)));
        let domains: Vec<_> = domains.collect();
        let by_name = domains.iter().map(|domain| (domain.name.clone(), domain.clone())).collect();
        Ok(Self {
            authority: authority_id(&config.directory),
            config: config.clone(),
            domains,
            by_name,
            state: Arc::new(state),
            client: AcmeClient::new(roots)?,
            account: Mutex::default(),
            external_account: config.external_account.as_ref().map(external_key).transpose()?,
            orders: Semaphore::new(ORDERS_MAX),
            challenges,
            shared,
        })
    }

    pub(super) const fn config(&self) -> &AcmeConfig {
        &self.config
    }

    pub(super) fn domains(&self) -> &[Arc<Domain>] {
        &self.domains
    }

    pub(super) fn spawn_on(self: &Arc<Self>, tasks: &mut JoinSet<()>) {
        for domain in &self.domains {
            let (manager, domain) = (self.clone(), domain.clone());
            tasks.spawn(async move { manager.maintain(&domain).await });
        }
    }

    /// Obtains and renews the certificate of a domain, forever.
    async fn maintain(&self, domain: &Domain) {
        if let Some(shared) = &self.shared {
            shared.connected().await;
        }
        let (mut failures, mut info) = (0_u32, None);
        loop {
            if let Some(certificate) = domain.certificate() {
                let due = self.renewal_of(&certificate, &mut info).await;
                let wait = u64::try_from(due - now()).unwrap_or(0);
                if wait > 0 {
                    sleep(Duration::from_millis(wait).min(SLEEP_MAX)).await;
                    continue;
                }
            }
            match self.obtain(domain).await {
                Ok(()) => {
                    failures = 0;
                    // Bounds the orders, should a certificate be due as soon as it is issued.
                    sleep(self.config.retry).await;
                }
                Err(error) => {
                    failures = failures.saturating_add(1);
                    sleep(self.report_failure(domain, failures, &error).await).await;
                }
            }
        }
    }

    /// Logs a failure; the pause until the next attempt.
    async fn report_failure(
        &self,
        domain: &Domain,
        failures: u32,
        failed: &OrderError,
    ) -> Duration {
        domain.failures.fetch_add(1, Relaxed);
        // The directory is read again, since its URLs may have changed.
        self.account.lock().await.take();
        if failed.is_account_unknown {
            self.forget_account().await;
        }
        let retry_after = self.client.take_retry_after();
        let pause = backoff(failures, self.config.retry, retry_after, fastrand::f64());
        let (name, reason, retry) = (&domain.name, &failed.reason, pause.as_secs());
        let directory = &self.config.directory;
        match domain.certificate() {
            None => {
                warn!(domain = %name, reason, directory, retry_s = retry, "certificate not obtained; TLS connections to this name fail");
            }
            Some(one) if is_urgent(one.validity, self.config.renew_after_percent, now()) => {
                let expires_in_s = (one.validity.end - now()) / 1_000;
                error!(domain = %name, reason, directory, retry_s = retry, expires_in_s, "certificate not renewed, and near its expiry");
            }
            Some(_) => {
                warn!(domain = %name, reason, directory, retry_s = retry, "certificate not renewed; the last one stays in use");
            }
        }
        pause
    }

    /// When a certificate is to be renewed; renewal information is requested if it is old.
    async fn renewal_of(&self, certificate: &Certificate, info: &mut Option<RenewalInfo>) -> i64 {
        let end = certificate.validity.end;
        let known = info.take().filter(|info| info.of == end);
        let info = match known {
            Some(known) if Instant::now() < known.next_request => info.insert(known),
            known => {
                let fraction = known.as_ref().map_or_else(fastrand::f64, |known| known.fraction);
                let requested = self.request_info(certificate).await;
                // Without an answer the last window stays.
                let (window, next) = match requested {
                    Some((window, next)) => (Some(window), next.clamp(INFO_MIN, INFO_MAX)),
                    None => (known.and_then(|known| known.window), SLEEP_MAX),
                };
                let next_request = Instant::now() + next;
                info.insert(RenewalInfo { of: end, window, next_request, fraction })
            }
        };
        let percent = self.config.renew_after_percent;
        renewal_time(certificate.validity, info.window, percent, info.fraction)
    }

    async fn request_info(&self, certificate: &Certificate) -> Option<(TimeWindow, Duration)> {
        let id = certificate.id()?;
        let account = self.account(false).await;
        let account = account
            .inspect_err(|error| debug!(error = error.reason, "no account for renewal information"))
            .ok()??;
        match account.renewal_info(&id).await {
            Ok((info, next)) => {
                let window = info.suggested_window;
                let millis = |seconds: i64| seconds.saturating_mul(1_000);
                let (start, end) = (window.start.unix_timestamp(), window.end.unix_timestamp());
                Some((TimeWindow { start: millis(start), end: millis(end) }, next))
            }
            Err(error) => {
                debug!(%error, "no renewal information");
                None
            }
        }
    }

    /// Orders a certificate, or takes the one that another node has ordered.
    async fn obtain(&self, domain: &Domain) -> Result<(), OrderError> {
        let Ok(_permit) = self.orders.acquire().await else { return Ok(()) };
        let lock = match &self.shared {
            Some(shared) => match self.lock_or_take(shared, domain).await? {
                Some(lock) => Some(lock),
                None => return Ok(()),
            },
            None => None,
        };
        let ordered = timeout(ATTEMPT_TIMEOUT, self.order(domain)).await;
        let ordered = ordered.unwrap_or_else(|_| Err("no certificate in time".to_owned().into()));
        let adopted = match ordered {
            Ok(pem) => self.adopt(domain, pem, true).await.map_err(OrderError::from),
            Err(error) => Err(error),
        };
        if let Some(lock) = lock {
            lock.release().await;
        }
        adopted
    }

    /// Waits for the right to order; `None` if another node's certificate was taken.
    async fn lock_or_take(
        &self,
        shared: &SharedState,
        domain: &Domain,
    ) -> Result<Option<OrderLock>, OrderError> {
        let failed = |error| format!("the store is away: {error}");
        loop {
            let lock = shared.lock(&self.authority, &domain.name).await.map_err(failed)?;
            let stored = shared.read(&self.authority, &domain.name).await.map_err(failed)?;
            let is_taken = match stored {
                Some(pem) if self.is_newer(domain, &pem) => {
                    self.adopt(domain, pem, false).await.is_ok()
                }
                _ => false,
            };
            match lock {
                Some(lock) if is_taken => lock.release().await,
                Some(lock) => return Ok(Some(lock)),
                None => {}
            }
            if is_taken {
                return Ok(None);
            }
            sleep(LOCK_POLL).await;
        }
    }

    /// Whether a certificate replaces the one in use, and is not due itself.
    fn is_newer(&self, domain: &Domain, pem: &str) -> bool {
        let Ok(stored) = Certificate::parse(pem.to_owned(), &domain.name) else { return false };
        let due = renewal_time(stored.validity, None, self.config.renew_after_percent, 0.0);
        let end = domain.certificate().map_or(i64::MIN, |one| one.validity.end);
        stored.validity.end > end && due > now()
    }

    async fn order(&self, domain: &Domain) -> Result<String, OrderError> {
        info!(domain = %domain.name, directory = self.config.directory, "ordering a certificate");
        self.client.take_retry_after();
        let account = self.account(true).await?;
        let account = account.ok_or_else(|| "there is no account".to_owned())?;
        let replaces = domain.certificate().and_then(|certificate| certificate.id());
        order(&account, &self.config, &domain.name, replaces, &self.challenges).await
    }

    /// Uses a certificate, and stores it.
    async fn adopt(&self, domain: &Domain, pem: String, is_own: bool) -> Result<(), String> {
        let certificate = Certificate::parse(pem, &domain.name)?;
        if certificate.validity.end <= now() {
            return Err("the new certificate has expired already; check the system's clock".into());
        }
        let certificate = Arc::new(certificate);
        domain.certificate.store(Some(certificate.clone()));
        domain.succeeded_at.store(now(), Relaxed);
        self.save(&format!("{}.pem", domain.name), &certificate.pem).await;
        if let Some(shared) = self.shared.as_ref().filter(|_| is_own) {
            let written = shared.write(&self.authority, &domain.name, &certificate.pem).await;
            if let Err(error) = written {
                warn!(domain = %domain.name, %error, "other nodes cannot take the certificate");
            }
        }
        let valid_s = (certificate.validity.end - now()) / 1_000;
        let from = if is_own { "the authority" } else { "another node" };
        info!(domain = %domain.name, valid_s, from, "certificate obtained");
        Ok(())
    }

    /// The account; without one, `None` or a new one.
    async fn account(&self, is_created: bool) -> Result<Option<Account>, OrderError> {
        let mut cached = self.account.lock().await;
        if let Some(account) = &*cached {
            return Ok(Some(account.clone()));
        }
        let builder = || Account::builder_with_http(Box::new(self.client.clone()));
        if let Some(credentials) = self.stored_account().await {
            let account = builder().from_credentials(credentials).await?;
            return Ok(Some(cached.insert(account).clone()));
        }
        if !is_created {
            return Ok(None);
        }
        let contact = self.config.email.as_ref().map(|email| format!("mailto:{email}"));
        let contact: Vec<&str> = contact.iter().map(String::as_str).collect();
        let new = NewAccount {
            contact: &contact,
            terms_of_service_agreed: true,
            only_return_existing: false,
        };
        let directory = self.config.directory.clone();
        let created = builder().create(&new, directory, self.external_account.as_ref()).await;
        let (account, credentials) = created?;
        let text = serde_json::to_string(&credentials).map_err(Error::from)?;
        self.save(ACCOUNT, &text).await;
        if let Some(shared) = &self.shared {
            // Otherwise other nodes create their own.
            let _ = shared.write(&self.authority, ACCOUNT, &text).await;
        }
        info!(directory = self.config.directory, "account created");
        Ok(Some(cached.insert(account).clone()))
    }

    async fn stored_account(&self) -> Option<AccountCredentials> {
        let text = self.state.read(ACCOUNT).unwrap_or_else(|error| {
            warn!(path = %self.state.path().join(ACCOUNT).display(), %error, "account not read");
            None
        });
        let text = match (text, &self.shared) {
            (Some(text), _) => text,
            (None, Some(shared)) => shared.read(&self.authority, ACCOUNT).await.ok()??,
            (None, None) => return None,
        };
        // An empty text is an account that was forgotten.
        serde_json::from_str(&text).ok()
    }

    /// The next order creates another account.
    async fn forget_account(&self) {
        self.save(ACCOUNT, "").await;
        if let Some(shared) = &self.shared {
            let _ = shared.write(&self.authority, ACCOUNT, "").await;
        }
    }

    /// Writes a file of the state. A failure is reported: the certificate is used all the same.
    async fn save(&self, name: &str, text: &str) {
        let (state, owned, text) = (self.state.clone(), name.to_owned(), text.to_owned());
        let written = tokio::task::spawn_blocking(move || state.write(&owned, &text)).await;
        if let Ok(Err(error)) = written {
            let path = self.state.path().join(name);
            error!(path = %path.display(), %error, "state not written; a restart will order again");
        }
    }
}

impl CertificateSource for CertificateManager {
    fn find(&self, hello: &ClientHello<'_>) -> SourceMatch {
        let name = hello.server_name().map(str::to_ascii_lowercase).unwrap_or_default();
        if hello.alpn().is_some_and(|mut protocols| protocols.any(|one| one == ACME_TLS)) {
            let found = self.challenges.certificate(&name);
            return found.map_or(SourceMatch::Refused, SourceMatch::Found);
        }
        let Some(domain) = self.by_name.get(&*name) else { return SourceMatch::None };
        match &*domain.certificate.load() {
            Some(certificate) => SourceMatch::Found(certificate.key.clone()),
            None => {
                if !domain.is_reported.swap(true, Relaxed) {
                    warn!(domain = name, "a client requests a name that has no certificate yet");
                }
                SourceMatch::None
            }
        }
    }

    fn default_certificate(&self) -> Option<Arc<CertifiedKey>> {
        let mut certificates = self.domains.iter().filter_map(|domain| domain.certificate());
        certificates.next().map(|certificate| certificate.key.clone())
    }
}

impl fmt::Debug for CertificateManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let domains = &self.config.domains;
        f.debug_struct("CertificateManager").field("domains", domains).finish_non_exhaustive()
    }
}

/// A domain with its certificate on disk, even if that has expired.
fn stored(state: &StateFolder, name: &str) -> Domain {
    let file = format!("{name}.pem");
    let read = state.read(&file).map_err(|error| error.to_string());
    let read = read.and_then(|pem| pem.map(|pem| Certificate::parse(pem, name)).transpose());
    let certificate = read.unwrap_or_else(|reason| {
        let path = state.path().join(&file);
        warn!(path = %path.display(), reason, "stored certificate not used; another is ordered");
        None
    });
    Domain {
        name: name.into(),
        certificate: ArcSwapOption::new(certificate.map(Arc::new)),
        is_reported: AtomicBool::new(false),
        failures: AtomicU64::new(0),
        succeeded_at: AtomicI64::new(0),
    }
}

fn external_key(account: &ExternalAccount) -> Result<ExternalAccountKey, String> {
    let unusable = |error: &dyn fmt::Display| {
        let path = account.key.display();
        format!("the key in `{path}` cannot be used: {error}; write it in base64url")
    };
    let text = fs::read_to_string(&account.key).map_err(|error| unusable(&error))?;
    let key = URL_SAFE_NO_PAD.decode(text.trim().trim_end_matches('='));
    let key = key.map_err(|error| unusable(&error))?;
    Ok(ExternalAccountKey::new(account.id.clone(), &key))
}
