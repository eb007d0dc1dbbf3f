//! Keys of deferred requests.

use super::keys::{Kind, Section, key};

pub(crate) const DEFERRED: Section = Section {
    subject: "`deferred`",
    example: "{ path: deferred.redb, keep: 1h }",
    required: &[],
    keys: &[
        key("path", Kind::Text, "deferred.redb", "File of this node; or `store`."),
        key(
            "store",
            Kind::Words(&["redis"]),
            "redis",
            "The Redis of `--store`, which all nodes share; or `path`.",
        ),
        key(
            "tickets",
            Kind::Text,
            "/tickets",
            "Path of the tickets. Default: `/.sluicegate/tickets`.",
        ),
        key(
            "keep",
            Kind::Duration,
            "1h",
            "How long the response of a processed request is stored. Default: `1h`.",
        ),
        key(
            "keep_dead",
            Kind::Duration,
            "7d",
            "How long a dead letter is stored: a request that could not be processed. Default: `7d`.",
        ),
        key(
            "max_bytes",
            Kind::Bytes,
            "1GiB",
            "Size of all stored requests and responses; beyond it requests are denied. Default: `1GiB`.",
        ),
    ],
};

pub(crate) const QUEUE: Section = Section {
    subject: "`queue`",
    example: "{ max_count: 10000, max_age: 1d }",
    required: &[],
    keys: &[
        key(
            "max_bytes",
            Kind::Bytes,
            "1MiB",
            "Size of a request's body; larger ones are denied. At most `8MiB`. Default: `1MiB`.",
        ),
        key(
            "max_response_bytes",
            Kind::Bytes,
            "1MiB",
            "Size of a response's body; of larger ones only status and headers are stored. At most `8MiB`. Default: `1MiB`.",
        ),
        key(
            "max_age",
            Kind::Duration,
            "1d",
            "A request that is older is not sent any more: it is a dead letter. Default: `1d`.",
        ),
        key(
            "max_count",
            Kind::Whole(1, 1_000_000),
            "10000",
            "Waiting requests of the route; more are denied. Default: `10000`.",
        ),
        key(
            "per_identity",
            Kind::Section(&PER_IDENTITY),
            "{ count: 100, bytes: 10MiB }",
            "Bounds of the waiting requests with the same limits and identity.",
        ),
        key(
            "attempts",
            Kind::Whole(1, 100),
            "8",
            "Attempts to send a request; then it is a dead letter. Default: `8`.",
        ),
        key(
            "callback",
            Kind::OneOrMany(&Kind::Text),
            "https://hooks.example.com/*",
            "URLs that clients may name in `X-Callback-URL` to get the result. Default: none.",
        ),
    ],
};

pub(crate) const PER_IDENTITY: Section = Section {
    subject: "`per_identity`",
    example: "{ count: 100, bytes: 10MiB }",
    required: &[],
    keys: &[
        key("count", Kind::Whole(1, 1_000_000), "100", "Waiting requests. Default: `100`."),
        key("bytes", Kind::Bytes, "10MiB", "Their size. Default: `10MiB`."),
    ],
};
