//! Options of traces, from the variables of envoyproxy/ratelimit and OpenTelemetry.

use std::str::FromStr;
use std::time::Duration;

use http::uri::{PathAndQuery, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use percent_encoding::percent_decode_str;

use super::vars::Reader;
use crate::traces::{Options, Protocol};

/// Limit of every number, so that no variable makes the queue unbounded.
const NUMBER_MAX: u64 = 1 << 20;

/// Reads the options; `None` while tracing is off, without a look at the other variables.
///
/// | variable | default |
/// |---|---|
/// | `SLUICEGATE_TRACES` | none; the collector's URL, and enables tracing |
/// | `TRACING_ENABLED` | `false` |
/// | `TRACING_EXPORTER_PROTOCOL` | `http`; or `grpc` |
/// | `TRACING_SERVICE_NAME` | `RateLimit` |
/// | `TRACING_SERVICE_NAMESPACE`, `TRACING_SERVICE_INSTANCE_ID` | none, random |
/// | `TRACING_SAMPLING_RATE` | `1` |
/// | `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT` | the next one, with `/v1/traces` |
/// | `OTEL_EXPORTER_OTLP_ENDPOINT` | `http://localhost:4318`, with gRPC 4317 |
/// | `OTEL_EXPORTER_OTLP_TRACES_HEADERS`, `OTEL_EXPORTER_OTLP_HEADERS` | none; `key=value,…` |
/// | `OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE` | the next one; a PEM file |
/// | `OTEL_EXPORTER_OTLP_CERTIFICATE` | the system's; a PEM file |
/// | `OTEL_EXPORTER_OTLP_TRACES_TIMEOUT`, `OTEL_EXPORTER_OTLP_TIMEOUT` | `10000`, in milliseconds |
/// | `OTEL_BSP_SCHEDULE_DELAY` | `5000`, in milliseconds |
/// | `OTEL_BSP_MAX_QUEUE_SIZE`, `OTEL_BSP_MAX_EXPORT_BATCH_SIZE` | `2048`, `512` |
/// | `OTEL_EXPORTER_OTLP_TRACES_COMPRESSION` | the next one |
/// | `OTEL_EXPORTER_OTLP_COMPRESSION` | `none`; or `gzip` |
/// | `OTEL_RESOURCE_ATTRIBUTES` | none; `key=value,key=value` |
pub(super) fn read(read: &mut Reader<'_>) -> Option<Options> {
    let own = read.text("SLUICEGATE_TRACES").is_some();
    if !(own || read.is_true("TRACING_ENABLED")) {
        return None;
    }
    let defaults = Options::default();
    let protocols = [("http", Protocol::Http), ("grpc", Protocol::Grpc)];
    Some(Options {
        protocol: read.choice("TRACING_EXPORTER_PROTOCOL", &protocols).unwrap_or_default(),
        endpoint: endpoint(read, own),
        headers: one_of(read, "HEADERS", headers).unwrap_or_default(),
        certificate: one_of(read, "CERTIFICATE", |read, name| read.path(name)),
        gzip: one_of(read, "COMPRESSION", gzip).unwrap_or(defaults.gzip),
        resource: resource(read),
        sampling_rate: sampling_rate(read).unwrap_or(1.0),
        queue_max: count(read, "OTEL_BSP_MAX_QUEUE_SIZE").unwrap_or(defaults.queue_max),
        batch_max: count(read, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE").unwrap_or(defaults.batch_max),
        delay: millis(read, "OTEL_BSP_SCHEDULE_DELAY").unwrap_or(defaults.delay),
        timeout: one_of(read, "TIMEOUT", millis).unwrap_or(defaults.timeout),
        flush: defaults.flush,
    })
}

/// The exporter's variable for traces, or else the one for all signals.
fn one_of<T>(
    read: &mut Reader<'_>,
    suffix: &str,
    value: fn(&mut Reader<'_>, &str) -> Option<T>,
) -> Option<T> {
    let for_traces = value(read, &format!("OTEL_EXPORTER_OTLP_TRACES_{suffix}"));
    for_traces.or_else(|| value(read, &format!("OTEL_EXPORTER_OTLP_{suffix}")))
}

fn count(read: &mut Reader<'_>, name: &str) -> Option<usize> {
    read.number(name, 1, NUMBER_MAX).map(|number| number as usize)
}

fn millis(read: &mut Reader<'_>, name: &str) -> Option<Duration> {
    read.number(name, 1, NUMBER_MAX).map(Duration::from_millis)
}

/// `opentelemetry-otlp` would ignore a compression that it was built without.
fn gzip(read: &mut Reader<'_>, name: &str) -> Option<bool> {
    read.choice(name, &[("none", false), ("gzip", true)])
}

fn sampling_rate(read: &mut Reader<'_>) -> Option<f64> {
    let parse = |text: &str| text.parse().ok().filter(|rate| (0.0..=1.0).contains(rate));
    read.read("TRACING_SAMPLING_RATE", "a number from 0 to 1, such as `0.1`", parse)
}

fn endpoint(read: &mut Reader<'_>, own: bool) -> Option<Uri> {
    const EXPECTED: &str = "a URL that begins with http:// or https://";
    if let Some(exact) = read.read("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", EXPECTED, url) {
        return Some(exact);
    }
    let base = if own { "SLUICEGATE_TRACES" } else { "OTEL_EXPORTER_OTLP_ENDPOINT" };
    read.read(base, EXPECTED, |text| {
        let mut parts = url(text)?.into_parts();
        let path = parts.path_and_query.as_ref().map_or("", PathAndQuery::path);
        let path = format!("{}/v1/traces", path.trim_end_matches('/'));
        parts.path_and_query = Some(path.parse().ok()?);
        Uri::from_parts(parts).ok()
    })
}

/// Parses a URL and drops its user name and password, which `/config` would show.
pub(super) fn url(text: &str) -> Option<Uri> {
    let mut parts = Uri::from_str(text).ok()?.into_parts();
    let scheme = parts.scheme.as_ref()?;
    let authority = parts.authority.as_ref()?;
    if !(*scheme == Scheme::HTTP || *scheme == Scheme::HTTPS) || authority.host().is_empty() {
        return None;
    }
    if let Some((_, host)) = authority.as_str().rsplit_once('@') {
        parts.authority = Some(host.parse().ok()?);
    }
    Uri::from_parts(parts).ok()
}

fn headers(read: &mut Reader<'_>, name: &str) -> Option<HeaderMap> {
    read.check(name, |text| {
        let header = |(name, value): (String, String)| {
            let (Ok(header), Ok(mut value)) = (name.parse(), HeaderValue::from_str(&value)) else {
                return Err(format!("`{name}` is not a valid header"));
            };
            value.set_sensitive(true);
            Ok::<(HeaderName, HeaderValue), String>((header, value))
        };
        pairs(text)?.into_iter().map(header).collect()
    })
}

fn resource(read: &mut Reader<'_>) -> Vec<(String, String)> {
    let text = |name: &str| read.text(name).map(str::to_owned);
    let name = text("TRACING_SERVICE_NAME").unwrap_or_else(|| "RateLimit".to_owned());
    let id = text("TRACING_SERVICE_INSTANCE_ID").unwrap_or_else(random_uuid);
    let namespace = text("TRACING_SERVICE_NAMESPACE");
    let mut resource =
        vec![("service.name".to_owned(), name), ("service.instance.id".to_owned(), id)];
    resource.extend(namespace.map(|namespace| ("service.namespace".to_owned(), namespace)));
    // The variables above have precedence.
    let known = resource.len();
    for (key, value) in read.check("OTEL_RESOURCE_ATTRIBUTES", pairs).unwrap_or_default() {
        if !resource[..known].iter().any(|(taken, _)| *taken == key) {
            resource.push((key, value));
        }
    }
    resource
}

/// Parses `key=value,key=value` with percent-encoded values.
fn pairs(text: &str) -> Result<Vec<(String, String)>, String> {
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| match pair.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => {
                let value = percent_decode_str(value.trim()).decode_utf8_lossy();
                Ok((key.trim().to_owned(), value.into_owned()))
            }
            // The text may be a secret: it is not repeated.
            _ => Err("must be `key=value`, several separated by commas".to_owned()),
        })
        .collect()
}

/// A UUID of version 4.
fn random_uuid() -> String {
    let (high, low) = (fastrand::u64(..), fastrand::u64(..));
    let (a, b, c) = (high >> 32, high >> 16 & 0xffff, high & 0xfff);
    let (d, e) = (low >> 48 & 0x3fff | 0x8000, low & 0xffff_ffff_ffff);
    format!("{a:08x}-{b:04x}-4{c:03x}-{d:04x}-{e:012x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Vars;

    fn of(given: &[(&'static str, &'static str)]) -> Result<Option<Options>, String> {
        let vars = Vars::new([&[("TRACING_ENABLED", "true")], given].concat());
        let mut reader = Reader::new(&vars);
        let options = read(&mut reader);
        if reader.errors.is_empty() { Ok(options) } else { Err(reader.errors.join("\n")) }
    }

    #[test]
    fn endpoints() {
        let endpoint = |given: &[(&'static str, &'static str)]| {
            of(given).unwrap().unwrap().endpoint.unwrap().to_string()
        };
        let base = "OTEL_EXPORTER_OTLP_ENDPOINT";
        assert_eq!(of(&[]).unwrap().unwrap().endpoint, None);
        assert_eq!(endpoint(&[(base, "http://c:99/")]), "http://c:99/v1/traces");
        assert_eq!(endpoint(&[(base, "https://c:99/otel")]), "https://c:99/otel/v1/traces");
        assert_eq!(endpoint(&[(base, "http://me:secret@c")]), "http://c/v1/traces");
        assert_eq!(endpoint(&[(base, "http://[::1]:5")]), "http://[::1]:5/v1/traces");
        let exact = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://t/in?x=1");
        assert_eq!(endpoint(&[(base, "http://c:99"), exact]), "http://t/in?x=1");
        let own = [("SLUICEGATE_TRACES", "http://d"), (base, "http://c"), ("TRACING_ENABLED", "0")];
        assert_eq!(endpoint(&own), "http://d/v1/traces");
    }

    #[test]
    fn resource_and_headers() {
        let given = [
            ("TRACING_SERVICE_NAMESPACE", "edge"),
            ("TRACING_SERVICE_INSTANCE_ID", "7"),
            ("OTEL_RESOURCE_ATTRIBUTES", "zone=a%20b, service.name=other,"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20x"),
        ];
        let options = of(&given).unwrap().unwrap();
        let resource: Vec<_> = options.resource.iter().map(|(k, v)| (&**k, &**v)).collect();
        let expected = [
            ("service.name", "RateLimit"),
            ("service.instance.id", "7"),
            ("service.namespace", "edge"),
            ("zone", "a b"),
        ];
        assert_eq!(resource, expected);
        assert_eq!(options.headers["authorization"], "Bearer x");
        assert!(!format!("{options:?}").contains("Bearer"), "secrets are not printed");
        let id = &of(&[]).unwrap().unwrap().resource[1].1;
        assert_eq!((id.len(), id.as_bytes()[14]), (36, b'4'), "{id}");
    }

    #[test]
    fn invalid_values() {
        for (name, value, why) in [
            ("TRACING_ENABLED", "yes", "must be `true` or `false`, got `yes`"),
            ("TRACING_EXPORTER_PROTOCOL", "udp", "must be one of `http`, `grpc`, got `udp`"),
            (
                "TRACING_SAMPLING_RATE",
                "1.5",
                "must be a number from 0 to 1, such as `0.1`, got `1.5`",
            ),
            (
                "TRACING_SAMPLING_RATE",
                "NaN",
                "must be a number from 0 to 1, such as `0.1`, got `NaN`",
            ),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "zstd", "must be one of `none`, `gzip`, got `zstd`"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "0", "must be a whole number from 1 to 1048576, got `0`"),
            (
                "OTEL_EXPORTER_OTLP_ENDPOINT",
                "collector:4318",
                "must be a URL that begins with http:// or https://, got `collector:4318`",
            ),
            (
                "OTEL_EXPORTER_OTLP_HEADERS",
                "secret",
                "must be `key=value`, several separated by commas",
            ),
        ] {
            let error = of(&[(name, value)]).unwrap_err();
            assert_eq!(error, format!("{name}: {why}"));
        }
    }

    #[test]
    fn blank_variables_are_unset() {
        let names = [
            "TRACING_EXPORTER_PROTOCOL",
            "TRACING_SAMPLING_RATE",
            "TRACING_SERVICE_NAMESPACE",
            "OTEL_BSP_MAX_QUEUE_SIZE",
            "OTEL_EXPORTER_OTLP_CERTIFICATE",
            "OTEL_EXPORTER_OTLP_COMPRESSION",
            "OTEL_EXPORTER_OTLP_HEADERS",
            "OTEL_EXPORTER_OTLP_TIMEOUT",
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
            "OTEL_RESOURCE_ATTRIBUTES",
        ];
        let options = of(&names.map(|name| (name, " \t"))).unwrap().unwrap();
        let defaults = Options::default();
        assert_eq!((options.endpoint, options.certificate), (None, None));
        assert_eq!((options.timeout, options.queue_max), (defaults.timeout, defaults.queue_max));
        assert_eq!((options.gzip, options.resource.len()), (false, 2));
        assert!(of(&[("TRACING_ENABLED", " ")]).unwrap().is_none());
        let base = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c");
        let blank = of(&[("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", " "), base]).unwrap().unwrap();
        assert_eq!(blank.endpoint.unwrap(), "http://c/v1/traces");
    }

    #[test]
    fn compression_of_traces_has_precedence() {
        let all = ("OTEL_EXPORTER_OTLP_COMPRESSION", "GZIP");
        assert!(of(&[all]).unwrap().unwrap().gzip);
        let none = of(&[("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "none"), all]);
        assert!(!none.unwrap().unwrap().gzip);
    }

    #[test]
    fn other_variables_are_not_read_while_tracing_is_off() {
        let off = of(&[("TRACING_ENABLED", "0"), ("TRACING_SAMPLING_RATE", "x")]);
        assert!(off.unwrap().is_none());
    }
}
