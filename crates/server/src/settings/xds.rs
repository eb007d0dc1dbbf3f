//! Settings of the control plane that sends rules, from the variables of envoyproxy/ratelimit.

use std::time::Duration;

use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::vars::Reader;
use crate::xds::{RetryOptions, XdsOptions, XdsTls};

/// Size of a message: by default that of grpc-go, and at most.
const MESSAGE_BYTES: (u64, u64) = (4 << 20, 256 << 20);

/// Reads them; none if `CONFIG_TYPE` names files, without a look at the other variables.
///
/// | variable | default |
/// |---|---|
/// | `CONFIG_TYPE` | `FILE`; or `GRPC_XDS_SOTW` |
/// | `CONFIG_GRPC_XDS_SERVER_URL` | `localhost:18000` |
/// | `CONFIG_GRPC_XDS_NODE_ID` | `default` |
/// | `CONFIG_GRPC_XDS_NODE_METADATA` | none; `key=value,…` |
/// | `CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS` | none; `name:value,…` |
/// | `CONFIG_GRPC_XDS_SERVER_USE_TLS` | `false` |
/// | `CONFIG_GRPC_XDS_SERVER_TLS_CACERT` | the system's; a PEM file |
/// | `CONFIG_GRPC_XDS_SERVER_TLS_SAN` | the host of the URL |
/// | `CONFIG_GRPC_XDS_CLIENT_TLS_CERT`, `CONFIG_GRPC_XDS_CLIENT_TLS_KEY` | none; PEM files |
/// | `CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL` | `3s` |
/// | `XDS_CLIENT_BACKOFF_INITIAL_INTERVAL` | that |
/// | `XDS_CLIENT_BACKOFF_MAX_INTERVAL` | `60s` |
/// | `XDS_CLIENT_BACKOFF_RANDOM_FACTOR`, `XDS_CLIENT_BACKOFF_JITTER` | `0.5`, `true` |
/// | `XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES` | `4194304` |
pub(super) fn read(read: &mut Reader<'_>) -> Option<XdsOptions> {
    let types = [("FILE", false), ("GRPC_XDS_SOTW", true)];
    if !read.choice("CONFIG_TYPE", &types)? {
        return None;
    }
    let text = |read: &Reader<'_>, name: &str| read.text(name).map(str::to_owned);
    let id = text(read, "CONFIG_GRPC_XDS_NODE_ID");
    let bytes = read.number("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", 1, MESSAGE_BYTES.1);
    Some(XdsOptions {
        server: read
            .check("CONFIG_GRPC_XDS_SERVER_URL", server)
            .unwrap_or_else(|| "localhost:18000".to_owned()),
        node_id: id.unwrap_or_else(|| "default".to_owned()),
        node_metadata: read
            .check("CONFIG_GRPC_XDS_NODE_METADATA", |text| pairs(text, '='))
            .unwrap_or_default(),
        headers: read
            .check("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", headers)
            .unwrap_or_default(),
        tls: tls(read),
        retry: retry(read),
        message_bytes_max: bytes.unwrap_or(MESSAGE_BYTES.0) as usize,
    })
}

fn tls(read: &mut Reader<'_>) -> Option<XdsTls> {
    const CERT: &str = "CONFIG_GRPC_XDS_CLIENT_TLS_CERT";
    const KEY: &str = "CONFIG_GRPC_XDS_CLIENT_TLS_KEY";
    if !read.is_true("CONFIG_GRPC_XDS_SERVER_USE_TLS") {
        return None;
    }
    let (cert, key) = (read.path(CERT), read.path(KEY));
    if cert.is_some() != key.is_some() {
        let text = format!("{CERT}, {KEY}: a client certificate needs both: set the other one too");
        read.errors.push(text);
    }
    Some(XdsTls {
        ca: read.path("CONFIG_GRPC_XDS_SERVER_TLS_CACERT"),
        identity: cert.zip(key),
        server_name: read.text("CONFIG_GRPC_XDS_SERVER_TLS_SAN").map(str::to_owned),
    })
}

fn retry(read: &mut Reader<'_>) -> RetryOptions {
    let mut time = |name: &str| {
        let time = read.duration(name);
        if time.is_some_and(|time| time.is_zero()) {
            read.errors.push(format!("{name}: must be more than 0, such as `3s`"));
        }
        time
    };
    let interval = time("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL");
    let first = time("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL").or(interval);
    let first = first.unwrap_or(Duration::from_secs(3));
    let longest = time("XDS_CLIENT_BACKOFF_MAX_INTERVAL").unwrap_or(Duration::from_secs(60));
    let factor = read.ratio("XDS_CLIENT_BACKOFF_RANDOM_FACTOR").unwrap_or(0.5);
    let has_jitter = read.boolean("XDS_CLIENT_BACKOFF_JITTER").unwrap_or(true);
    let jitter = if has_jitter { f64::from(factor) } else { 0.0 };
    RetryOptions { first, longest: longest.max(first), jitter }
}

/// Host and port, possibly with the scheme that grpc-go has for names.
fn server(text: &str) -> Result<String, String> {
    let bare = text.strip_prefix("dns:///").unwrap_or(text);
    match bare.parse::<Authority>() {
        Ok(server) if server.port_u16().is_some() && !server.as_str().contains('@') => {
            Ok(bare.to_owned())
        }
        _ => Err(format!("must be a host and a port, such as `envoy-gateway:18001`, got `{text}`")),
    }
}

fn headers(text: &str) -> Result<HeaderMap, String> {
    let header = |(name, value): (String, String)| {
        // The value may be a secret: it is not repeated.
        let (Ok(header), Ok(mut value)) = (name.parse(), HeaderValue::from_str(&value)) else {
            return Err(format!("`{name}` is not a valid header"));
        };
        value.set_sensitive(true);
        Ok::<(HeaderName, HeaderValue), String>((header, value))
    };
    pairs(text, ':')?.into_iter().map(header).collect()
}

fn pairs(text: &str, between: char) -> Result<Vec<(String, String)>, String> {
    let pairs = text.split(',').filter(|pair| !pair.trim().is_empty());
    pairs
        .map(|pair| match pair.split_once(between) {
            Some((name, value)) if !name.trim().is_empty() => {
                Ok((name.trim().to_owned(), value.trim().to_owned()))
            }
            _ => Err(format!("must be `name{between}value`, several separated by commas")),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Vars;

    fn of(given: &[(&'static str, &'static str)]) -> Result<Option<XdsOptions>, String> {
        let vars = Vars::new([&[("CONFIG_TYPE", "GRPC_XDS_SOTW")], given].concat());
        let mut reader = Reader::new(&vars);
        let options = read(&mut reader);
        if reader.errors.is_empty() { Ok(options) } else { Err(reader.errors.join("\n")) }
    }

    #[test]
    fn defaults_are_those_of_envoyproxy_ratelimit() {
        let options = of(&[]).unwrap().unwrap();
        let seconds = Duration::from_secs;
        let retry = RetryOptions { first: seconds(3), longest: seconds(60), jitter: 0.5 };
        let expected = XdsOptions {
            server: "localhost:18000".to_owned(),
            node_id: "default".to_owned(),
            node_metadata: Vec::new(),
            headers: HeaderMap::new(),
            tls: None,
            retry,
            message_bytes_max: 4 << 20,
        };
        assert_eq!(options, expected);
        assert_eq!(of(&[("CONFIG_TYPE", "file"), ("CONFIG_GRPC_XDS_SERVER_URL", "?")]), Ok(None));
    }

    #[test]
    fn every_variable_has_an_effect() {
        let options = of(&[
            ("CONFIG_GRPC_XDS_SERVER_URL", "dns:///envoy-gateway:18001"),
            ("CONFIG_GRPC_XDS_NODE_ID", "envoy-ratelimit"),
            ("CONFIG_GRPC_XDS_NODE_METADATA", "zone=a, tier=1=2"),
            ("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "authorization:Bearer x:y,x-b:2"),
            ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true"),
            ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "/certs/ca.crt"),
            ("CONFIG_GRPC_XDS_SERVER_TLS_SAN", "gateway"),
            ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "/certs/tls.crt"),
            ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "/certs/tls.key"),
            ("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", "5s"),
            ("XDS_CLIENT_BACKOFF_MAX_INTERVAL", "20s"),
            ("XDS_CLIENT_BACKOFF_JITTER", "false"),
            ("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "1000"),
        ]);
        let options = options.unwrap().unwrap();
        assert_eq!(options.to_string(), "xds:envoy-gateway:18001");
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(options.node_metadata, [pair("zone", "a"), pair("tier", "1=2")]);
        assert_eq!(options.headers["authorization"], "Bearer x:y");
        assert!(!format!("{options:?}").contains("Bearer"), "{options:?}");
        let tls = options.tls.unwrap();
        assert_eq!(tls.server_name.as_deref(), Some("gateway"));
        assert_eq!(tls.identity, Some(("/certs/tls.crt".into(), "/certs/tls.key".into())));
        let seconds = Duration::from_secs;
        let retry = RetryOptions { first: seconds(5), longest: seconds(20), jitter: 0.0 };
        assert_eq!((options.retry, options.message_bytes_max), (retry, 1_000));
        let own = of(&[("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "90s")]).unwrap().unwrap().retry;
        assert_eq!((own.first, own.longest), (seconds(90), seconds(90)));
    }

    #[test]
    fn what_is_wrong_is_refused_without_secrets() {
        for (name, value, expected) in [
            ("CONFIG_TYPE", "GRPC_XDS", "must be one of `FILE`, `GRPC_XDS_SOTW`"),
            ("CONFIG_GRPC_XDS_SERVER_URL", "envoy-gateway", "must be a host and a port"),
            ("CONFIG_GRPC_XDS_SERVER_URL", "http://h:1", "must be a host and a port"),
            ("CONFIG_GRPC_XDS_NODE_METADATA", "zone", "must be `name=value`"),
            ("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "a b:secret", "not a valid header"),
            ("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "0s", "must be more than 0"),
            ("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "0", "a whole number from 1"),
        ] {
            let error = of(&[(name, value)]).unwrap_err();
            assert!(error.starts_with(name) && error.contains(expected), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
        let half = [
            ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true"),
            ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "/certs/tls.crt"),
        ];
        assert!(of(&half).unwrap_err().contains("set the other one too"));
    }
}
