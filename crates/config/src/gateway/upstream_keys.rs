//! Keys of upstreams.

use super::keys::{COUNT_MAX, Kind, Section, key};

pub(crate) const UPSTREAM: Section = Section {
    subject: "an upstream",
    example: "{ servers: [http://10.0.0.1:3000, http://10.0.0.2:3000] }",
    required: &["servers"],
    keys: &[
        key(
            "servers",
            Kind::OneOrMany(&Kind::Text),
            "http://127.0.0.1:3000",
            "`http://`, `https://`, or `h2c://` for HTTP/2 without TLS.",
        ),
        key(
            "balance",
            Kind::Either(&[
                Kind::Words(&["round_robin", "least_connections"]),
                Kind::Section(&BALANCE),
            ]),
            "least_connections",
            "`round_robin`, `least_connections` or `{ hash: PART }`. Default: `round_robin`.",
        ),
        key(
            "health",
            Kind::Either(&[Kind::Text, Kind::Section(&HEALTH)]),
            "/health",
            "Active checks: the path, or a mapping. Default: none.",
        ),
        key(
            "eject",
            Kind::Section(&EJECT),
            "{ failures: 5, duration: 10s }",
            "A server that fails requests is not used for a while.",
        ),
        key(
            "concurrency",
            Kind::Either(&[Kind::Whole(1, COUNT_MAX), Kind::Section(&CONCURRENCY)]),
            "{ adaptive: latency }",
            "Requests in flight at all its servers: a number, or a mapping. Default: no limit.",
        ),
        key(
            "timeouts",
            Kind::Section(&UPSTREAM_TIMEOUTS),
            "{ connect: 5s, first_byte: 60s }",
            "Timeouts of its servers.",
        ),
        key(
            "max_idle",
            Kind::Whole(0, COUNT_MAX),
            "256",
            "Idle connections of each worker to each server. Default: `256`.",
        ),
        key(
            "tls",
            Kind::Section(&UPSTREAM_TLS),
            "{ ca: internal-ca.pem }",
            "TLS options of `https` servers.",
        ),
        key(
            "resolvers",
            Kind::OneOrMany(&Kind::Text),
            "[10.0.0.53:53]",
            "DNS servers that are asked for the names of servers. Default: the system's.",
        ),
    ],
};

pub(crate) const CONCURRENCY: Section = Section {
    subject: "`concurrency`",
    example: "{ adaptive: latency }",
    required: &[],
    keys: &[
        key(
            "max",
            Kind::Whole(1, COUNT_MAX),
            "100",
            "The limit; the highest one, if it is adaptive. Default of adaptive limits: `1000`.",
        ),
        key(
            "adaptive",
            Kind::Words(&CAPACITY_SIGNALS),
            "latency",
            "The limit follows `latency` and failures, or `failures` alone. Default: it is fixed.",
        ),
        key("min", Kind::Whole(1, COUNT_MAX), "4", "The lowest adaptive limit. Default: `4`."),
        key("start", Kind::Whole(1, COUNT_MAX), "20", "The first adaptive limit. Default: `20`."),
        key(
            "max_wait",
            Kind::Duration,
            "1s",
            "The longest time that a request waits for another one to end. Default: `1s`.",
        ),
    ],
};

pub(crate) const CAPACITY_SIGNALS: [&str; 2] = ["latency", "failures"];

pub(crate) const BALANCE: Section = Section {
    subject: "`balance`",
    example: "{ hash: client_ip }",
    required: &["hash"],
    keys: &[key(
        "hash",
        Kind::Text,
        "client_ip",
        "Part of the request; the same value gets the same server.",
    )],
};

pub(crate) const HEALTH: Section = Section {
    subject: "`health`",
    example: "{ path: /health, every: 5s }",
    required: &[],
    keys: &[
        key("path", Kind::Text, "/health", "Path that is requested with GET. Default: `/`."),
        key("every", Kind::Duration, "5s", "Interval. Default: `5s`."),
        key("timeout", Kind::Duration, "1s", "Timeout of a check. Default: `1s`."),
        key(
            "healthy_after",
            Kind::Whole(1, COUNT_MAX),
            "2",
            "Successes in a row until a server is used again. Default: `2`.",
        ),
        key(
            "unhealthy_after",
            Kind::Whole(1, COUNT_MAX),
            "3",
            "Failures in a row until a server is not used. Default: `3`.",
        ),
        key("status", Kind::Text, "200-399", "Expected status or range. Default: `200-399`."),
    ],
};

pub(crate) const EJECT: Section = Section {
    subject: "`eject`",
    example: "{ failures: 5, duration: 10s }",
    required: &[],
    keys: &[
        key(
            "failures",
            Kind::Whole(0, COUNT_MAX),
            "5",
            "Failures in a row; 0 never ejects. Default: `5`.",
        ),
        key("duration", Kind::Duration, "10s", "Time without requests. Default: `10s`."),
    ],
};

pub(crate) const UPSTREAM_TIMEOUTS: Section = Section {
    subject: "`timeouts`",
    example: "{ connect: 5s, first_byte: 60s }",
    required: &[],
    keys: &[
        key("connect", Kind::Duration, "5s", "Time for a connection. Default: `5s`."),
        key(
            "first_byte",
            Kind::Duration,
            "60s",
            "From the end of the request to the head of its response. Default: `60s`.",
        ),
        key(
            "total",
            Kind::Duration,
            "5m",
            "From the request to the end of its response. Default: no limit.",
        ),
        key(
            "idle",
            Kind::Duration,
            "4s",
            "How long an unused connection is kept; less than the server's. Default: `4s`.",
        ),
    ],
};

pub(crate) const UPSTREAM_TLS: Section = Section {
    subject: "`tls`",
    example: "{ ca: internal-ca.pem }",
    required: &[],
    keys: &[
        key("ca", Kind::Text, "internal-ca.pem", "Authorities. Default: the system's."),
        key("cert", Kind::Text, "gateway.pem", "Certificate of the gateway. Default: none."),
        key("key", Kind::Text, "gateway-key.pem", "Private key of that certificate."),
        key(
            "server_name",
            Kind::Text,
            "api.internal",
            "Name in the server's certificate. Default: the host.",
        ),
    ],
};
