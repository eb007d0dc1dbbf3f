//! The URL of a database, without its secrets when it is shown.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use tokio_postgres::Config;
use tokio_postgres::config::SslMode;

/// Time to connect to one address.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// URL of a database: `postgres://USER@HOST:PORT/DB?sslmode=verify-full`.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresUrl {
    pub(crate) config: Config,
    pub(crate) tls: TlsMode,
    shown: String,
}

/// How connections are encrypted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TlsMode {
    /// Never.
    Disable,
    /// If the server supports it; its certificate is not verified.
    Prefer,
    /// Always, with a certificate for this host by the system's authorities or those of a file.
    Verify(Option<PathBuf>),
}

/// Why a URL is invalid; without the URL, which may have a password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UrlError(String);

const EXAMPLE: &str =
    "write it like `postgres://sluicegate@db.example:5432/rules?sslmode=verify-full`";

impl PostgresUrl {
    /// Parses a URL. A password in the URL has precedence over the given one.
    ///
    /// ```
    /// use sluicegate_rulestore::PostgresUrl;
    ///
    /// let url = PostgresUrl::parse("postgres://me:secret@db:5433/rules?sslmode=require", None)?;
    /// assert_eq!(url.to_string(), "postgres://me@db:5433/rules");
    /// assert!(!format!("{url:?}").contains("secret"));
    /// assert!(PostgresUrl::parse("postgres://db/rules?sslmode=mabye", None).is_err());
    /// # Ok::<(), sluicegate_rulestore::UrlError>(())
    /// ```
    ///
    /// # Errors
    /// When it is not such a URL, or has an unknown parameter.
    pub fn parse(text: &str, password: Option<&str>) -> Result<Self, UrlError> {
        let (base, query) = text.split_once('?').unwrap_or((text, ""));
        let (mut mode, mut authorities, mut others) = ("prefer".to_owned(), None, Vec::new());
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decoded = || percent_decode_str(value).decode_utf8_lossy().into_owned();
            match key {
                "sslmode" => mode = decoded(),
                "sslrootcert" => authorities = Some(PathBuf::from(decoded())),
                _ => others.push(pair),
            }
        }
        let tls = match mode.as_str() {
            "disable" => TlsMode::Disable,
            "prefer" if authorities.is_none() => TlsMode::Prefer,
            "prefer" | "require" | "verify-ca" | "verify-full" => TlsMode::Verify(authorities),
            _ => {
                return Err(UrlError(
                    "`sslmode` must be `disable`, `prefer`, `require` or `verify-full`".to_owned(),
                ));
            }
        };
        let plain = if others.is_empty() {
            base.to_owned()
        } else {
            format!("{base}?{}", others.join("&"))
        };
        // The error of the parser may quote the URL.
        let parsed = plain.parse::<Config>();
        let mut config =
            parsed.map_err(|_| UrlError(format!("is no valid URL of a database; {EXAMPLE}")))?;
        if config.get_hosts().is_empty() || config.get_dbname().is_none() {
            return Err(UrlError(format!(
                "must have a host and the name of a database; {EXAMPLE}"
            )));
        }
        if let (None, Some(password)) = (config.get_password(), password) {
            config.password(password);
        }
        if config.get_user().is_none() {
            config.user("sluicegate");
        }
        config
            .application_name("sluicegate")
            .ssl_mode(match tls {
                TlsMode::Disable => SslMode::Disable,
                TlsMode::Prefer => SslMode::Prefer,
                TlsMode::Verify(_) => SslMode::Require,
            })
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_user_timeout(Duration::from_secs(10));
        Ok(Self { config, tls, shown: without_password(base) })
    }
}

/// The URL up to its parameters, without a password.
fn without_password(base: &str) -> String {
    let Some((scheme, rest)) = base.split_once("://") else { return "postgres://".to_owned() };
    let Some((login, host)) = rest.rsplit_once('@') else { return base.to_owned() };
    let user = login.split(':').next().unwrap_or_default();
    format!("{scheme}://{user}@{host}")
}

impl fmt::Display for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PostgresUrl({}, {:?})", self.shown, self.tls)
    }
}

impl fmt::Display for UrlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UrlError {}
