//! Keys of routes.

use super::deferred_keys::QUEUE;
use super::keys::{Kind, Section, key};

const TEXTS: Kind = Kind::OneOrMany(&Kind::Text);

pub(crate) const CREDENTIALS: [&str; 3] = ["api_key", "jwt", "client_certificate"];

pub(crate) const ROUTE: Section = Section {
    subject: "a route",
    example: "{ path: /v1/*, upstream: api }",
    required: &["path"],
    keys: &[
        key("name", Kind::Text, "api", "Name in logs and metrics. Default: the path."),
        key("host", TEXTS, "api.example.com", "Short for `hosts`."),
        key(
            "hosts",
            TEXTS,
            "[api.example.com, \"*.example.org\"]",
            "Hosts without port, `*.example.com` for all below it. Default: any.",
        ),
        key("path", Kind::Text, "/v1/*", "`/exact`, `/users/{id}` or `/prefix/*`."),
        key("methods", TEXTS, "[GET, HEAD]", "Methods in capitals. Default: any."),
        key(
            "upstream",
            Kind::Either(&[Kind::Text, Kind::Section(&FORWARD)]),
            "api",
            "Forwards to this upstream: its name, or a mapping.",
        ),
        key(
            "redirect",
            Kind::Either(&[Kind::Text, Kind::Section(&REDIRECT)]),
            "https://example.com{path}",
            "Redirects: the target, or a mapping.",
        ),
        key(
            "files",
            Kind::Either(&[Kind::Text, Kind::Section(&FILES)]),
            "public",
            "Serves files: the directory, or a mapping.",
        ),
        key(
            "respond",
            Kind::Section(&RESPOND),
            "{ status: 204 }",
            "Answers with a fixed response.",
        ),
        key(
            "require",
            Kind::Words(&CREDENTIALS),
            "jwt",
            "What a client must prove; others get 401. Default: nothing.",
        ),
        key(
            "limit",
            Kind::Section(&LIMIT),
            "{ domain: api, descriptors: [{ remote_address: client_ip }] }",
            "Limits the requests by the rules of a domain. Default: no limit.",
        ),
        key(
            "on_limit",
            Kind::Words(&["deny", "mark", "shape", "queue"]),
            "shape",
            "Denies a request over its limit, forwards it with a header, lets it wait, or stores it to be processed later. Default: as its rules say.",
        ),
        key(
            "shape",
            Kind::Section(&SHAPE),
            "{ queue: 100, max_wait: 10s }",
            "How requests wait, where `on_limit` of the route or of its rules is `shape`.",
        ),
        key(
            "queue",
            Kind::Section(&QUEUE),
            "{ max_count: 10000, max_age: 1d }",
            "Bounds of the requests that are processed later, where `on_limit` of the route or of its rules is `queue`.",
        ),
        key(
            "denial",
            Kind::Section(&DENIAL),
            "{ status: 503 }",
            "Response to a denied request. Default: 429 with a JSON error.",
        ),
        key(
            "request_headers",
            Kind::Section(&HEADERS),
            "{ set: { X-Client: \"{client_ip}\" } }",
            "Changes to the request's headers.",
        ),
        key(
            "response_headers",
            Kind::Section(&HEADERS),
            "{ remove: Server }",
            "Changes to the response's headers.",
        ),
    ],
};

pub(crate) const FORWARD: Section = Section {
    subject: "`upstream`",
    example: "{ name: api, strip_prefix: /v1 }",
    required: &["name"],
    keys: &[
        key("name", Kind::Text, "api", "Name of the upstream."),
        key("strip_prefix", Kind::Text, "/v1", "Removed from the path. Default: nothing."),
        key("host", Kind::Text, "api.internal", "`Host` in place of the client's."),
    ],
};

pub(crate) const REDIRECT: Section = Section {
    subject: "`redirect`",
    example: "{ to: \"https://example.com{path}\", status: 301 }",
    required: &["to"],
    keys: &[
        key(
            "to",
            Kind::Text,
            "https://example.com{path}",
            "Target; `{path}` and `{query}` are those of the request.",
        ),
        key(
            "status",
            Kind::Words(&["301", "302", "303", "307", "308"]),
            "301",
            "Status. Default: `308`.",
        ),
    ],
};

pub(crate) const FILES: Section = Section {
    subject: "`files`",
    example: "{ root: public, index: index.html }",
    required: &["root"],
    keys: &[
        key("root", Kind::Text, "public", "The directory."),
        key("index", Kind::Text, "index.html", "File of a directory. Default: none."),
    ],
};

pub(crate) const RESPOND: Section = Section {
    subject: "`respond`",
    example: "{ status: 200, body: ok }",
    required: &["status"],
    keys: &[
        key("status", Kind::Whole(200, 599), "200", "Status."),
        key("body", Kind::Text, "ok", "Body. Default: empty."),
        key(
            "content_type",
            Kind::Text,
            "text/html",
            "Type of the body. Default: `text/plain; charset=utf-8`.",
        ),
    ],
};

pub(crate) const LIMIT: Section = Section {
    subject: "`limit`",
    example: "{ domain: api, descriptors: [{ remote_address: client_ip }] }",
    required: &["domain", "descriptors"],
    keys: &[
        key("domain", Kind::Text, "api", "Domain of the rules."),
        key(
            "descriptors",
            Kind::List(&Kind::Either(&[Kind::Named(&Kind::Text), Kind::Section(&DESCRIPTOR)])),
            "[{ remote_address: client_ip }]",
            "Descriptors of a request: keys of the rules, each with a part of the request.",
        ),
        key("hits", Kind::Text, "header X-Cost or 1", "Cost of a request, at least 1. Default: 1."),
        key(
            "on_missing",
            Kind::Words(&["reject", "pass"]),
            "reject",
            "Rejects a request without a part of a descriptor, or leaves the descriptor out. Default: `reject`.",
        ),
        key(
            "tokens",
            Kind::Section(&TOKENS),
            "{ api: openai }",
            "Counts the tokens and the money of requests to a language model, for descriptors with such `hits`.",
        ),
        key(
            "settle",
            Kind::List(&Kind::Section(&SETTLE)),
            "[{ status: [401, 403], cost: 1 }, { cost: 0 }]",
            "Costs by the response; the first case that fits applies. Default: the request's cost.",
        ),
    ],
};

pub(crate) const DESCRIPTOR: Section = Section {
    subject: "a descriptor",
    example: "{ entries: { tokens: api_key }, hits: json max_tokens or 1000 }",
    required: &["entries"],
    keys: &[
        key(
            "entries",
            Kind::Named(&Kind::Text),
            "{ tokens: api_key }",
            "Keys of the rules, of a descriptor with a cost of its own.",
        ),
        key(
            "hits",
            Kind::Text,
            "json max_tokens or 1000",
            "Its cost, at least 1: a part of the request, or with `tokens` one of `tokens`, `input_tokens`, `output_tokens` and `money`. Default: that of the request.",
        ),
    ],
};

pub(crate) const TOKENS: Section = Section {
    subject: "`tokens`",
    example: "{ api: openai, max_output: 4096, prices: prices.yaml }",
    required: &["api"],
    keys: &[
        key("api", Kind::Words(&["openai", "anthropic"]), "openai", "API of the model."),
        key(
            "max_output",
            Kind::Whole(1, 1_000_000_000),
            "4096",
            "Output tokens of a request that names no maximum. Default: `4096`.",
        ),
        key(
            "max_body",
            Kind::Bytes,
            "4MiB",
            "Bytes of a request, which is held in memory; longer ones get 413. Default: `4MiB`.",
        ),
        key(
            "stream_usage",
            Kind::Flag,
            "false",
            "Requests the usage of a stream of OpenAI's API; some providers refuse that. Default: `true`.",
        ),
        key(
            "prices",
            Kind::Either(&[Kind::Text, Kind::Named(&Kind::Section(&CLASSES))]),
            "prices.yaml",
            "Prices of a million tokens by model, `*` in a name for any text: a file, or a mapping.",
        ),
        key(
            "weights",
            Kind::Named(&Kind::Section(&CLASSES)),
            "{ \"*\": { input: 1, cached: 0.1, output: 4 } }",
            "Weights of a token in `hits: tokens`, by model. Default: 1 each.",
        ),
    ],
};

pub(crate) const CLASSES: Section = Section {
    subject: "the numbers of a model",
    example: "{ input: 2.50, cached: 1.25, output: 10 }",
    required: &["input", "output"],
    keys: &[
        key("input", Kind::Text, "2.50", "Of input."),
        key("cached", Kind::Text, "1.25", "Of input from a cache. Default: as `input`."),
        key("cache_write", Kind::Text, "3.75", "Of input into a cache. Default: as `input`."),
        key("output", Kind::Text, "10", "Of output."),
    ],
};

pub(crate) const SETTLE: Section = Section {
    subject: "a case of `settle`",
    example: "{ status: 5xx, cost: 0 }",
    required: &[],
    keys: &[
        key(
            "descriptor",
            TEXTS,
            "tokens",
            "Keys of the descriptor, with `+` between several. Default: all descriptors.",
        ),
        key(
            "status",
            TEXTS,
            "[401, 403]",
            "Statuses, classes such as `5xx`, or ranges. Default: any.",
        ),
        key(
            "header",
            Kind::Named(&Kind::Text),
            "{ X-Cache: HIT }",
            "Headers and values that the response must have. Default: any.",
        ),
        key(
            "cost",
            Kind::Text,
            "json usage.total_tokens",
            "Cost: a number, `header NAME`, `json FIELD`, `bytes`, or `duration` in milliseconds.",
        ),
        key("reset", Kind::Flag, "true", "Costs nothing, and the limits are full again."),
    ],
};

pub(crate) const SHAPE: Section = Section {
    subject: "`shape`",
    example: "{ queue: 100, max_wait: 10s }",
    required: &[],
    keys: &[
        key(
            "queue",
            Kind::Whole(1, 100_000),
            "100",
            "Requests that wait for one limit of one identity; more are denied. Default: `100`.",
        ),
        key(
            "max_wait",
            Kind::Duration,
            "10s",
            "Requests that would wait longer are denied at once. Default: `10s`.",
        ),
        key(
            "fair_by",
            Kind::Text,
            "jwt sub",
            "Part of the request: its values get equal shares of a limit. Default: `client_ip`.",
        ),
    ],
};

pub(crate) const DENIAL: Section = Section {
    subject: "`denial`",
    example: "{ status: 503, body: busy }",
    required: &[],
    keys: &[
        key("status", Kind::Whole(400, 599), "503", "Status. Default: `429`."),
        key("body", Kind::Text, "busy", "Body in place of the JSON error."),
        key(
            "content_type",
            Kind::Text,
            "text/plain",
            "Type of that body. Default: `text/plain; charset=utf-8`.",
        ),
        key("html", Kind::Text, "<h1>Too fast</h1>", "Body for clients that accept HTML."),
        key("hide", TEXTS, "protective", "Names of limits whose numbers clients do not see."),
    ],
};

pub(crate) const HEADERS: Section = Section {
    subject: "changes to headers",
    example: "{ set: { X-Client: \"{client_ip}\" }, remove: [Server] }",
    required: &[],
    keys: &[
        key(
            "set",
            Kind::Named(&Kind::Text),
            "{ X-Client: \"{client_ip}\" }",
            "Names and values; `{client_ip}`, `{request_id}` and `{host}` are replaced.",
        ),
        key("remove", TEXTS, "[Server, X-Powered-By]", "Names."),
    ],
};
