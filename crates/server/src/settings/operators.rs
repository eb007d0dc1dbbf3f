//! Settings for operators: the token, the endpoint of metrics alone, and StatsD.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::go_values;
use super::vars::Reader;
use crate::statsd;
use crate::token::Token;

/// Endpoint of metrics alone, as envoyproxy/ratelimit has it. It needs no token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricsSettings {
    /// Its address.
    pub address: SocketAddr,
    /// Path of the metrics.
    pub path: String,
}

/// Port of envoyproxy/ratelimit, on all addresses.
const ENVOY_ADDRESS: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), 9090);

impl MetricsSettings {
    pub(super) fn of(read: &mut Reader<'_>) -> Option<Self> {
        let own = read.address("SLUICEGATE_METRICS");
        let expected = "an address and a port, such as `:9090` or `127.0.0.1:9090`";
        let theirs = read.read("PROMETHEUS_ADDR", expected, go_address);
        let is_enabled = read.boolean("USE_PROMETHEUS").unwrap_or(theirs.is_some());
        let path = read.read("PROMETHEUS_PATH", "a path, such as `/metrics`", path);
        let of_envoy = is_enabled.then_some(theirs.unwrap_or(ENVOY_ADDRESS));
        let path = path.unwrap_or_else(|| "/metrics".to_owned());
        Some(Self { address: own.or(of_envoy)?, path })
    }
}

/// An address of Go's `net` package, where a port alone means all addresses.
fn go_address(text: &str) -> Option<SocketAddr> {
    match text.rsplit_once(':')? {
        ("", port) => Some(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port.parse().ok()?))),
        ("localhost", port) => Some(SocketAddr::from((Ipv4Addr::LOCALHOST, port.parse().ok()?))),
        _ => text.parse().ok(),
    }
}

fn path(text: &str) -> Option<String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "/-_.~".contains(c);
    (text.starts_with('/') && text.chars().all(fits)).then(|| text.to_owned())
}

/// StatsD as in envoyproxy/ratelimit, except that it must be enabled: there it is by default.
pub(super) fn statsd(read: &mut Reader<'_>) -> Option<statsd::Options> {
    if read.is_true("USE_DOG_STATSD") {
        read.errors.push(
            "USE_DOG_STATSD: DogStatsD is not supported; set USE_STATSD=true for StatsD over TCP, or scrape metrics \
             with Prometheus (PROMETHEUS_ADDR)"
                .to_owned(),
        );
    }
    let host = read.text("STATSD_HOST");
    let is_enabled = read.boolean("USE_STATSD").unwrap_or(host.is_some());
    let is_disabled = read.is_true("DISABLE_STATS");
    let port = read.number("STATSD_PORT", 1, u16::MAX.into()).unwrap_or(8125);
    let least = Duration::from_millis(10);
    let interval = |text: &str| go_values::parse_duration(text).filter(|time| *time >= least);
    let flush_interval =
        read.read("STATS_FLUSH_INTERVAL", "a time of at least `10ms`, such as `10s`", interval);
    let expected = "`key:value` pairs separated by commas, such as `zone:a,env:prod`";
    let tags = read.read("EXTRA_TAGS", expected, tags);
    (is_enabled && !is_disabled).then(|| statsd::Options {
        host: host.unwrap_or("localhost").to_owned(),
        port: u16::try_from(port).unwrap_or(8125),
        flush_interval: flush_interval.unwrap_or(Duration::from_secs(10)),
        tags: tags.unwrap_or_default(),
    })
}

/// Tags in the form of envoyproxy/ratelimit, which replaces the separators of StatsD in values.
fn tags(text: &str) -> Option<BTreeMap<String, String>> {
    let is_separator = |c: char| ".:|".contains(c) || c.is_whitespace() || c.is_control();
    let pairs = text.split(',').map(|pair| {
        let (key, value) = pair.trim().split_once(':')?;
        let is_valid = !key.is_empty() && !value.is_empty() && !key.contains(is_separator);
        is_valid.then(|| (key.to_owned(), value.replace(is_separator, "_")))
    });
    pairs.collect()
}

/// The operator token, from a variable or from a file.
pub(super) fn admin_token(read: &mut Reader<'_>) -> Option<Token> {
    const TEXT: &str = "SLUICEGATE_ADMIN_TOKEN";
    const FILE: &str = "SLUICEGATE_ADMIN_TOKEN_FILE";
    if read.text(TEXT).is_some() && read.text(FILE).is_some() {
        read.errors.push(format!("{TEXT} and {FILE} are both set: set only one"));
    }
    let text = read.read(TEXT, "more than blanks", |text| Token::new(text).ok());
    let of_file = read.check(FILE, |path| {
        let text = fs::read_to_string(path).map_err(|error| {
            format!(
                "cannot read the token from `{path}`: {error}; check the path and its permissions"
            )
        })?;
        Token::new(&text).map_err(|_| {
            format!("the file `{path}` is empty; write the token into it, as its only line")
        })
    });
    text.or(of_file)
}
