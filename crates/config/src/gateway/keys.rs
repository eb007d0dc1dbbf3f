//! Every key of a gateway's file: the reader, the JSON Schema and the guide share this table.

/// A mapping of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Section {
    /// The mapping in messages, with the article.
    pub(crate) subject: &'static str,
    /// An example of the whole mapping.
    pub(crate) example: &'static str,
    pub(crate) keys: &'static [KeyInfo],
    /// Keys that must be there.
    pub(crate) required: &'static [&'static str],
}

/// A key of a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyInfo {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// An example of its value.
    pub(crate) example: &'static str,
    /// What it sets, with the default.
    pub(crate) description: &'static str,
}

/// The form of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Flag,
    /// A whole number in this range.
    Whole(u64, u64),
    /// A number of bytes, such as `64KiB`.
    Bytes,
    Duration,
    Rate,
    Percent,
    Words(&'static [&'static str]),
    Section(&'static Section),
    /// One, or a list that is not empty.
    OneOrMany(&'static Self),
    /// A list that is not empty.
    List(&'static Self),
    /// A mapping from any names.
    Named(&'static Self),
    Either(&'static [Self]),
}

impl Section {
    /// The names of its keys.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        self.keys.iter().map(|key| key.name).collect()
    }

    /// The example of a key.
    pub(crate) fn example_of(&self, name: &str) -> &'static str {
        let key = self.keys.iter().find(|key| key.name == name);
        debug_assert!(key.is_some(), "`{name}` is not in the table of {}", self.subject);
        key.map_or("", |key| key.example)
    }
}

pub(super) const fn key(
    name: &'static str,
    kind: Kind,
    example: &'static str,
    description: &'static str,
) -> KeyInfo {
    KeyInfo { name, kind, example, description }
}

const TEXTS: Kind = Kind::OneOrMany(&Kind::Text);

pub(crate) const GATEWAY: Section = Section {
    subject: "a gateway's file",
    example: "{ listen: 0.0.0.0:8000, upstreams: { api: http://127.0.0.1:3000 }, routes: [{ path: /*, upstream: api }] }",
    required: &["routes"],
    keys: &[
        key(
            "listen",
            Kind::OneOrMany(&Kind::Either(&[Kind::Text, Kind::Section(&LISTENER)])),
            "0.0.0.0:8000",
            "Addresses, each alone or as a mapping. Default: `127.0.0.1:8000`.",
        ),
        key(
            "admin",
            Kind::Text,
            "127.0.0.1:6070",
            "Address of the admin endpoint: metrics, readiness, configuration. Default: `127.0.0.1:6070`.",
        ),
        key(
            "webhook",
            Kind::Text,
            "https://example.com/hooks/sluicegate",
            "URL that events are sent to, such as thresholds of budgets that are reached (`notify` of a rule). Default: none.",
        ),
        key(
            "handover",
            Kind::Text,
            "/run/sluicegate/handover.sock",
            "UNIX socket over which the next process takes the listening sockets: a restart refuses no connection. Default: none.",
        ),
        key("rules", TEXTS, "rules.yaml", "Files and directories of rules. Default: none."),
        key(
            "trusted_proxies",
            TEXTS,
            "10.0.0.0/8",
            "Peers whose `X-Forwarded-For` and `Forwarded` are believed. Default: none.",
        ),
        key(
            "access",
            Kind::Section(&ACCESS),
            "{ deny: [192.0.2.0/24] }",
            "Clients that are denied or exempt, before any limit.",
        ),
        key(
            "connections",
            Kind::Section(&CONNECTIONS),
            "{ open: 100, rate: 20/s }",
            "Limits of the connections of each client address.",
        ),
        key("timeouts", Kind::Section(&TIMEOUTS), "{ header: 10s }", "Timeouts of clients."),
        key(
            "max_header_bytes",
            Kind::Bytes,
            "64KiB",
            "Size of a request's head. Default: `64KiB`.",
        ),
        key("max_body_bytes", Kind::Bytes, "10MiB", "Size of a request's body. Default: no limit."),
        key(
            "identity",
            Kind::Section(&IDENTITY),
            "{ jwt: { jwks: jwks.json, audience: api } }",
            "How clients are identified.",
        ),
        key(
            "access_log",
            Kind::Either(&[Kind::Words(&LOG_FORMATS), Kind::Section(&ACCESS_LOG)]),
            "json",
            "Access log: its format, or a mapping. Default: none.",
        ),
        key(
            "limit_headers",
            Kind::Flag,
            "true",
            "Whether admitted responses have rate limit headers. Default: `false`.",
        ),
        key(
            "request_id",
            Kind::Text,
            "X-Request-Id",
            "Header that gets an id if the request has none. Default: none.",
        ),
        key(
            "deferred",
            Kind::Either(&[Kind::Text, Kind::Section(&DEFERRED)]),
            "deferred.redb",
            "Where requests are stored that are processed later (`on_limit: queue`): a file, or a mapping. Default: none.",
        ),
        key(
            "upstreams",
            Kind::Named(&Kind::Either(&[TEXTS, Kind::Section(&UPSTREAM)])),
            "{ api: http://127.0.0.1:3000 }",
            "Groups of servers by name, each a URL, a list of URLs or a mapping.",
        ),
        key(
            "routes",
            Kind::List(&Kind::Section(&ROUTE)),
            "[{ path: /*, upstream: api }]",
            "Routes. The most specific one applies, in any order.",
        ),
    ],
};

pub(crate) const LISTENER: Section = Section {
    subject: "a listener",
    example: "{ address: 0.0.0.0:443, tls: { certificates: { cert: cert.pem, key: key.pem } } }",
    required: &["address"],
    keys: &[
        key("address", Kind::Text, "0.0.0.0:443", "Address and port; port 0 picks a free one."),
        key(
            "tls",
            Kind::Section(&TLS),
            "{ certificates: { cert: cert.pem, key: key.pem } }",
            "Encrypts connections. Default: plain text.",
        ),
        key(
            "proxy_protocol",
            TEXTS,
            "10.0.0.0/8",
            "Peers that send a PROXY header, which is required of them. Default: none.",
        ),
        key(
            "redirect_to_https",
            Kind::Flag,
            "true",
            "Answers every request with a redirect, except ACME challenges. Default: `false`.",
        ),
    ],
};

pub(crate) const TLS: Section = Section {
    subject: "`tls`",
    example: "{ certificates: { cert: cert.pem, key: key.pem } }",
    required: &[],
    keys: &[
        key(
            "certificates",
            Kind::OneOrMany(&Kind::Section(&CERTIFICATE)),
            "{ cert: cert.pem, key: key.pem }",
            "The one whose names fit is used; the first for unknown names.",
        ),
        key(
            "acme",
            Kind::Section(&ACME),
            "{ domains: [api.example.com], state: acme }",
            "Automatic certificates.",
        ),
        key(
            "client_ca",
            Kind::Text,
            "clients.pem",
            "Authorities of client certificates, which are then required. Default: none.",
        ),
        key(
            "min_version",
            Kind::Words(&["1.2", "1.3"]),
            "1.3",
            "Lowest version of TLS. Default: `1.2`.",
        ),
    ],
};

pub(crate) const CERTIFICATE: Section = Section {
    subject: "a certificate",
    example: "{ cert: cert.pem, key: key.pem }",
    required: &["cert", "key"],
    keys: &[
        key("cert", Kind::Text, "cert.pem", "Certificate chain in PEM; reloaded when it changes."),
        key("key", Kind::Text, "key.pem", "Private key in PEM."),
    ],
};

pub(crate) const ACME: Section = Section {
    subject: "`acme`",
    example: "{ domains: [api.example.com], state: acme }",
    required: &["domains", "state"],
    keys: &[
        key("domains", TEXTS, "api.example.com", "Names; each gets a certificate. No wildcards."),
        key("email", Kind::Text, "ops@example.com", "Contact of the account. Default: none."),
        key(
            "directory",
            Kind::Text,
            "https://acme-v02.api.letsencrypt.org/directory",
            "Directory of the authority. Default: Let's Encrypt.",
        ),
        key(
            "directory_ca",
            Kind::Text,
            "pebble.pem",
            "Authority of the directory's own certificate. Default: the system's.",
        ),
        key("state", Kind::Text, "acme", "Directory of account, keys and certificates."),
        key(
            "challenge",
            Kind::Words(&["http-01", "tls-alpn-01"]),
            "http-01",
            "How control of a name is proven. Default: `http-01`.",
        ),
        key("profile", Kind::Text, "shortlived", "Profile of certificates. Default: none."),
        key(
            "renew_after",
            Kind::Percent,
            "67%",
            "Share of the lifetime after which a certificate is renewed, unless the authority says otherwise. Default: `67%`.",
        ),
        key(
            "retry",
            Kind::Duration,
            "5m",
            "Pause after a failed order, doubled by each further one up to an hour. Default: `1m`.",
        ),
        key(
            "external_account",
            Kind::Section(&EXTERNAL_ACCOUNT),
            "{ id: kid-1, key: eab.key }",
            "Binds the account to one that the authority has issued. Default: none.",
        ),
    ],
};

pub(crate) const EXTERNAL_ACCOUNT: Section = Section {
    subject: "`external_account`",
    example: "{ id: kid-1, key: eab.key }",
    required: &["id", "key"],
    keys: &[
        key("id", Kind::Text, "kid-1", "Key identifier, from the authority."),
        key("key", Kind::Text, "eab.key", "File of the HMAC key, in base64url."),
    ],
};

/// A network, or a file of networks.
const NETWORKS: Kind = Kind::OneOrMany(&Kind::Either(&[Kind::Text, Kind::Section(&NETWORK_FILE)]));

pub(crate) const ACCESS: Section = Section {
    subject: "`access`",
    example: "{ deny: [192.0.2.0/24, { file: blocked.txt }] }",
    required: &[],
    keys: &[
        key(
            "allow",
            NETWORKS,
            "10.0.0.0/8",
            "Networks that are exempt from all limits. Default: none.",
        ),
        key(
            "deny",
            NETWORKS,
            "{ file: blocked.txt }",
            "Networks whose connections are closed. Default: none.",
        ),
    ],
};

pub(crate) const NETWORK_FILE: Section = Section {
    subject: "a list in a file",
    example: "{ file: blocked.txt }",
    required: &["file"],
    keys: &[key(
        "file",
        Kind::Text,
        "blocked.txt",
        "One network on each line, `#` begins a comment; reloaded when it changes.",
    )],
};

pub(crate) const CONNECTIONS: Section = Section {
    subject: "`connections`",
    example: "{ open: 100, rate: 20/s }",
    required: &[],
    keys: &[
        key("open", Kind::Whole(1, COUNT_MAX), "100", "Open connections. Default: no limit."),
        key("rate", Kind::Rate, "20/s", "New connections. Default: no limit."),
        key("tls_rate", Kind::Rate, "5/s", "TLS handshakes. Default: no limit."),
    ],
};

/// Largest count of connections and retries.
pub(crate) const COUNT_MAX: u64 = u32::MAX as u64;

pub(crate) const TIMEOUTS: Section = Section {
    subject: "`timeouts`",
    example: "{ header: 10s, idle: 75s }",
    required: &[],
    keys: &[
        key("header", Kind::Duration, "10s", "Time for a head. Default: `10s`."),
        key("body", Kind::Duration, "30s", "Time between two pieces of a body. Default: `30s`."),
        key(
            "idle",
            Kind::Duration,
            "75s",
            "Time between two requests, and for a tunnel without data. Default: `75s`.",
        ),
        key("tls_handshake", Kind::Duration, "10s", "Time for a TLS handshake. Default: `10s`."),
    ],
};

pub(crate) const IDENTITY: Section = Section {
    subject: "`identity`",
    example: "{ api_keys: { file: keys.yaml } }",
    required: &[],
    keys: &[
        key("api_keys", Kind::Section(&API_KEYS), "{ file: keys.yaml }", "API keys."),
        key("jwt", Kind::Section(&JWT), "{ jwks: jwks.json, audience: api }", "JSON Web Tokens."),
        key(
            "geo",
            Kind::Section(&GEO),
            "{ country: country.mmdb }",
            "Databases of addresses in MaxMind's format.",
        ),
        key(
            "body",
            Kind::Section(&BODY_FIELDS),
            "{ max_bytes: 64KiB }",
            "Bounds of bodies that are read for `json FIELD` and `form FIELD`.",
        ),
        key(
            "json_body",
            Kind::Section(&BODY_FIELDS),
            "{ max_bytes: 64KiB }",
            "Former name of `body`.",
        ),
    ],
};

pub(crate) const BODY_FIELDS: Section = Section {
    subject: "`body`",
    example: "{ max_bytes: 64KiB, timeout: 10s }",
    required: &[],
    keys: &[
        key(
            "max_bytes",
            Kind::Bytes,
            "64KiB",
            "Fields of a longer body are missing. At most `1MiB`. Default: `64KiB`.",
        ),
        key("timeout", Kind::Duration, "10s", "Time for the whole body. Default: `10s`."),
    ],
};

pub(crate) const API_KEYS: Section = Section {
    subject: "`api_keys`",
    example: "{ file: keys.yaml, header: X-API-Key }",
    required: &["file"],
    keys: &[
        key(
            "file",
            Kind::Text,
            "keys.yaml",
            "List of `{ name, sha256, … }`; further fields are attributes of the client.",
        ),
        key(
            "header",
            Kind::Text,
            "X-API-Key",
            "Header that carries the key. Default: `X-API-Key`, unless `query` is set.",
        ),
        key("query", Kind::Text, "key", "Query parameter that carries the key. Default: none."),
        key("forward", Kind::Flag, "true", "Whether upstreams get the key too. Default: `false`."),
    ],
};

pub(crate) const JWT: Section = Section {
    subject: "`jwt`",
    example: "{ jwks: jwks.json, audience: api }",
    required: &["jwks", "audience"],
    keys: &[
        key("jwks", Kind::Text, "jwks.json", "Keys of tokens: a file, or a URL that is cached."),
        key("issuer", Kind::Text, "https://id.example.com", "Required `iss`. Default: any."),
        key("audience", TEXTS, "api", "Accepted `aud`, one or a list; `any` does not check it."),
        key(
            "algorithms",
            TEXTS,
            "RS256",
            "Accepted algorithms, never `none`. Default: those of the keys.",
        ),
        key("leeway", Kind::Duration, "60s", "Tolerance for clocks. Default: `60s`."),
        key(
            "cookie",
            Kind::Text,
            "session",
            "Cookie that carries the token. Default: `Authorization: Bearer`.",
        ),
    ],
};

pub(crate) const GEO: Section = Section {
    subject: "`geo`",
    example: "{ asn: asn.mmdb, country: country.mmdb }",
    required: &[],
    keys: &[
        key("asn", Kind::Text, "asn.mmdb", "Database of autonomous systems. Default: none."),
        key("country", Kind::Text, "country.mmdb", "Database of countries. Default: none."),
    ],
};

pub(crate) const LOG_FORMATS: [&str; 2] = ["json", "combined"];

pub(crate) const ACCESS_LOG: Section = Section {
    subject: "`access_log`",
    example: "{ path: access.log, format: combined }",
    required: &[],
    keys: &[
        key(
            "path",
            Kind::Text,
            "access.log",
            "File that lines are appended to. Default: standard output.",
        ),
        key("format", Kind::Words(&LOG_FORMATS), "combined", "Format of a line. Default: `json`."),
    ],
};

pub(crate) use super::deferred_keys::{DEFERRED, PER_IDENTITY, QUEUE};
pub(crate) use super::route_keys::{
    CLASSES, DENIAL, FILES, FORWARD, HEADERS, LIMIT, REDIRECT, RESPOND, ROUTE, SHAPE, TOKENS,
};
pub(crate) use super::upstream_keys::{
    BALANCE, CONCURRENCY, EJECT, HEALTH, UPSTREAM, UPSTREAM_TIMEOUTS, UPSTREAM_TLS,
};
