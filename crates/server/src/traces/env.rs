//! The environment variables of envoyproxy/ratelimit and of OpenTelemetry that have to do with traces.

use std::collections::hash_map::RandomState;
use std::fmt::{self, Display};
use std::hash::BuildHasher;
use std::str::FromStr;
use std::time::Duration;

use http::HeaderMap;

use super::options::{Endpoint, Options, Protocol};
use crate::settings::go;

/// An environment variable that says nothing useful.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadVariable {
    name: String,
    why: String,
}

/// The most spans that may wait, whatever a variable says.
const QUEUE_MAX: usize = 1 << 20;

impl Options {
    /// As the environment says; nothing if it does not want traces.
    ///
    /// | variable | default |
    /// |---|---|
    /// | `TRACING_ENABLED` | `false` |
    /// | `TRACING_EXPORTER_PROTOCOL` | `http`; or `grpc` |
    /// | `TRACING_SERVICE_NAME`, `TRACING_SERVICE_NAMESPACE`, `TRACING_SERVICE_INSTANCE_ID` | `RateLimit`, none, made up |
    /// | `TRACING_SAMPLING_RATE` | `1` |
    /// | `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, or `OTEL_EXPORTER_OTLP_ENDPOINT` without `/v1/traces` | `http://localhost:4318`, with gRPC 4317 |
    /// | `OTEL_EXPORTER_OTLP_TRACES_HEADERS`, `OTEL_EXPORTER_OTLP_HEADERS` | none; `key=value,key=value` |
    /// | `OTEL_EXPORTER_OTLP_TRACES_TIMEOUT`, `OTEL_EXPORTER_OTLP_TIMEOUT` | `10000`, in milliseconds |
    /// | `OTEL_BSP_SCHEDULE_DELAY`, `OTEL_BSP_MAX_QUEUE_SIZE`, `OTEL_BSP_MAX_EXPORT_BATCH_SIZE` | `5000` ms, `2048`, `512` |
    /// | `OTEL_RESOURCE_ATTRIBUTES` | none; `key=value,key=value` |
    ///
    /// ```
    /// use sluicegate_server::traces::Options;
    ///
    /// assert!(Options::from_env(|_| None)?.is_none());
    /// let options = Options::from_env(|name| (name == "TRACING_ENABLED").then(|| "true".to_owned()))?;
    /// assert_eq!(options.unwrap().sampling_rate, 1.0);
    /// # Ok::<(), sluicegate_server::traces::BadVariable>(())
    /// ```
    ///
    /// # Errors
    /// When a variable has a value that it cannot have. While traces are off only `TRACING_ENABLED` is looked at.
    pub fn from_env(
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, BadVariable> {
        let env = Env(|name: &str| variable(name).filter(|value| !value.trim().is_empty()));
        if !env.read("TRACING_ENABLED", bool_of)?.unwrap_or(false) {
            return Ok(None);
        }
        let usual = Self::default();
        let number = |name: &str| env.read(name, number_of);
        let millis = |name: &str| Ok(number(name)?.map(|ms| Duration::from_millis(ms as u64)));
        let one_of = |special: &str, common: &str| match millis(special)? {
            Some(given) => Ok(Some(given)),
            None => millis(common),
        };
        Ok(Some(Self {
            protocol: env.read("TRACING_EXPORTER_PROTOCOL", protocol_of)?.unwrap_or_default(),
            endpoint: env.endpoint()?,
            headers: env.headers()?,
            resource: env.resource()?,
            sampling_rate: env.read("TRACING_SAMPLING_RATE", rate_of)?.unwrap_or(1.0),
            queue_max: number("OTEL_BSP_MAX_QUEUE_SIZE")?.unwrap_or(usual.queue_max),
            batch_max: number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE")?.unwrap_or(usual.batch_max),
            delay: millis("OTEL_BSP_SCHEDULE_DELAY")?.unwrap_or(usual.delay),
            timeout: one_of("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT")?
                .unwrap_or(usual.timeout),
            flush: usual.flush,
        }))
    }
}

struct Env<F>(F);

impl<F: Fn(&str) -> Option<String>> Env<F> {
    fn read<T>(
        &self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<Option<T>, BadVariable> {
        let Some(text) = (self.0)(name) else { return Ok(None) };
        parse(text.trim()).map(Some).map_err(|why| BadVariable { name: name.to_owned(), why })
    }

    fn endpoint(&self) -> Result<Option<Endpoint>, BadVariable> {
        let parse = |text: &str| Endpoint::from_str(text).map_err(|error| error.to_string());
        if let Some(exact) = self.read("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", parse)? {
            return Ok(Some(exact));
        }
        let base = self.read("OTEL_EXPORTER_OTLP_ENDPOINT", parse)?;
        Ok(base.map(|base| base.join("v1/traces")))
    }

    fn headers(&self) -> Result<HeaderMap, BadVariable> {
        let parse = |text: &str| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs_of(text)? {
                let parsed = (name.parse::<http::HeaderName>(), value.parse::<http::HeaderValue>());
                let (Ok(name), Ok(mut value)) = parsed else {
                    return Err(format!("`{name}` is no header"));
                };
                value.set_sensitive(true);
                headers.insert(name, value);
            }
            Ok(headers)
        };
        match self.read("OTEL_EXPORTER_OTLP_TRACES_HEADERS", parse)? {
            Some(headers) => Ok(headers),
            None => Ok(self.read("OTEL_EXPORTER_OTLP_HEADERS", parse)?.unwrap_or_default()),
        }
    }

    fn resource(&self) -> Result<Vec<(String, String)>, BadVariable> {
        let text = |name: &str| (self.0)(name);
        let name = text("TRACING_SERVICE_NAME").unwrap_or_else(|| "RateLimit".to_owned());
        let id = text("TRACING_SERVICE_INSTANCE_ID").unwrap_or_else(made_up);
        let mut resource =
            vec![("service.name".to_owned(), name), ("service.instance.id".to_owned(), id)];
        if let Some(namespace) = text("TRACING_SERVICE_NAMESPACE") {
            resource.push(("service.namespace".to_owned(), namespace));
        }
        let more = self.read("OTEL_RESOURCE_ATTRIBUTES", pairs_of)?.unwrap_or_default();
        // What is said in particular goes before what is said in general.
        let known = resource.len();
        for (key, value) in more {
            if !resource[..known].iter().any(|(taken, _)| *taken == key) {
                resource.push((key, value));
            }
        }
        Ok(resource)
    }
}

/// As Go reads it, and so envoyproxy/ratelimit.
fn bool_of(text: &str) -> Result<bool, String> {
    go::truth(text).ok_or_else(|| format!("must be true or false, got `{text}`"))
}

fn protocol_of(text: &str) -> Result<Protocol, String> {
    match text {
        "http" => Ok(Protocol::Http),
        "grpc" => Ok(Protocol::Grpc),
        _ => Err(format!("must be http or grpc, got `{text}`")),
    }
}

fn rate_of(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (0.0..=1.0).contains(rate));
    rate.ok_or_else(|| format!("must be a number from 0 to 1, got `{text}`"))
}

fn number_of(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=QUEUE_MAX).contains(number));
    number.ok_or_else(|| format!("must be a whole number from 1 to {QUEUE_MAX}, got `{text}`"))
}

/// `key=value,key=value`, with `%20` for what cannot be written.
fn pairs_of(text: &str) -> Result<Vec<(String, String)>, String> {
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| match pair.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => {
                Ok((key.trim().to_owned(), plain(value.trim())))
            }
            // Perhaps it is a secret: it is not repeated.
            _ => Err("must be `key=value`, several with commas between them".to_owned()),
        })
        .collect()
}

/// What stands behind percent signs is put in their place.
fn plain(text: &str) -> String {
    let (mut out, mut rest) = (Vec::with_capacity(text.len()), text.as_bytes());
    while let [first, behind @ ..] = rest {
        let code = behind.get(..2).and_then(|code| str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) if *first == b'%' => {
                out.push(byte);
                rest = &behind[2..];
            }
            _ => {
                out.push(*first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// As unique as a UUID of version 4, and written like one.
fn made_up() -> String {
    let random = RandomState::new();
    let [high, low] = [random.hash_one(0), random.hash_one(1)];
    let (a, b, c) = (high >> 32, high >> 16 & 0xffff, high & 0xfff);
    let (d, e) = (low >> 48 & 0x3fff | 0x8000, low & 0xffff_ffff_ffff);
    format!("{a:08x}-{b:04x}-4{c:03x}-{d:04x}-{e:012x}")
}

// === impl BadVariable ===

impl Display for BadVariable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.why)
    }
}

impl std::error::Error for BadVariable {}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(given: &[(&str, &str)]) -> Result<Option<Options>, BadVariable> {
        let all = [&[("TRACING_ENABLED", "true")], given].concat();
        let find = |name: &str| all.iter().rfind(|(key, _)| *key == name);
        Options::from_env(|name| find(name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn places() {
        let target = |given: &[(&str, &str)]| of(given).unwrap().unwrap().target().uri();
        let (grpc, base) = (("TRACING_EXPORTER_PROTOCOL", "grpc"), "OTEL_EXPORTER_OTLP_ENDPOINT");
        let export = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
        assert_eq!(target(&[]), "http://localhost:4318/v1/traces");
        assert_eq!(target(&[(base, "http://c:99/")]), "http://c:99/v1/traces");
        assert_eq!(target(&[(base, "http://c:99/otel")]), "http://c:99/otel/v1/traces");
        let exact = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://t/in?x=1");
        assert_eq!(target(&[(base, "http://c:99"), exact]), "http://t:80/in?x=1");
        assert_eq!(target(&[grpc]), format!("http://localhost:4317{export}"));
        assert_eq!(target(&[grpc, (base, "http://[::1]:5")]), format!("http://[::1]:5{export}"));
    }

    #[test]
    fn who_we_are() {
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
    fn what_cannot_be_is_told() {
        for (name, value, why) in [
            ("TRACING_ENABLED", "yes", "must be true or false, got `yes`"),
            ("TRACING_EXPORTER_PROTOCOL", "udp", "must be http or grpc, got `udp`"),
            ("TRACING_SAMPLING_RATE", "1.5", "must be a number from 0 to 1, got `1.5`"),
            ("TRACING_SAMPLING_RATE", "NaN", "must be a number from 0 to 1, got `NaN`"),
            ("OTEL_BSP_MAX_QUEUE_SIZE", "0", "must be a whole number from 1 to 1048576, got `0`"),
            (
                "OTEL_EXPORTER_OTLP_ENDPOINT",
                "collector:4318",
                "must be a URL that begins with http:// (a collector on the way can add TLS), got `collector:4318`",
            ),
            (
                "OTEL_EXPORTER_OTLP_HEADERS",
                "secret",
                "must be `key=value`, several with commas between them",
            ),
        ] {
            let error = of(&[(name, value)]).unwrap_err();
            assert_eq!(error.to_string(), format!("{name}: {why}"));
        }
    }

    #[test]
    fn while_it_is_off_nothing_else_is_looked_at() {
        let off = of(&[("TRACING_ENABLED", "0"), ("TRACING_SAMPLING_RATE", "x")]);
        assert!(off.unwrap().is_none());
    }
}
