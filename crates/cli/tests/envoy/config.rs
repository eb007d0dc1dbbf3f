//! What Envoy is told: listeners, each with a rate limit filter, before one upstream.

use serde_json::{Value, json};

/// A listener, and how its filter asks.
pub struct Front {
    filter: Value,
    before: Vec<Value>,
    route_limits: Vec<Value>,
    log: Vec<Value>,
}

impl Front {
    /// Asks for domain `shop`, by lists of descriptors as the filter has them (`rate_limits`).
    pub fn new(rate_limits: impl IntoIterator<Item = Value>) -> Self {
        let rate_limits: Vec<Value> = rate_limits.into_iter().collect();
        let filter = json!({
            "@type": "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit",
            "domain": "shop",
            // Envoy gives up after 20 ms by default, which a busy machine may need.
            "timeout": "60s",
            "rate_limit_service": {
                "transport_api_version": "V3",
                "grpc_service": { "envoy_grpc": { "cluster_name": "sluicegate" } },
            },
            "rate_limits": rate_limits,
        });
        Self { filter, before: Vec::new(), route_limits: Vec::new(), log: Vec::new() }
    }

    /// The same, with descriptors as routes have them (`route.rate_limits`): the older place, and
    /// the usual one.
    pub fn by_route(rate_limits: impl IntoIterator<Item = Value>) -> Self {
        let mut front = Self::new([]);
        front.route_limits.extend(rate_limits);
        front
    }

    /// Sets a field of the filter.
    pub fn with(mut self, field: &str, value: impl Into<Value>) -> Self {
        self.filter[field] = value.into();
        self
    }

    /// Puts a filter before the one that asks.
    pub fn after(mut self, filter: Value) -> Self {
        self.before.push(filter);
        self
    }

    /// Logs each request with a line of this format.
    pub fn logging(mut self, format: &str) -> Self {
        self.log.push(json!({
            "name": "log",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.access_loggers.stream.v3.StdoutAccessLog",
                "log_format": { "text_format_source": { "inline_string": format!("{format}\n") } },
            },
        }));
        self
    }

    fn listener(&self, number: usize) -> Value {
        let named = |name: &str, config: &Value| json!({ "name": name, "typed_config": config });
        let mut filters: Vec<Value> =
            self.before.iter().map(|filter| named("before", filter)).collect();
        filters.push(named("envoy.filters.http.ratelimit", &self.filter));
        let router = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router";
        filters.push(named("envoy.filters.http.router", &json!({ "@type": router })));
        let route = json!({ "cluster": "upstream", "rate_limits": self.route_limits });
        let routes = json!([{ "match": { "prefix": "/" }, "route": route }]);
        let manager = json!({
            "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
            "stat_prefix": "front",
            "route_config": { "virtual_hosts": [{ "name": "all", "domains": ["*"], "routes": routes }] },
            "http_filters": filters,
            "access_log": self.log,
        });
        json!({
            "name": format!("front {number}"),
            "address": address("127.0.0.1:0"),
            "filter_chains": [{ "filters": [named("manager", &manager)] }],
        })
    }
}

/// The whole configuration. All ports are 0: what is really taken is asked of Envoy.
pub fn config(fronts: &[Front], sluicegate: &str, upstream: &str) -> Value {
    let listeners = fronts.iter().enumerate().map(|(number, front)| front.listener(number));
    let mut service = cluster("sluicegate", sluicegate);
    let options = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
    service["typed_extension_protocol_options"] = json!({ options: {
        "@type": format!("type.googleapis.com/{options}"),
        "explicit_http_config": { "http2_protocol_options": {} },
    } });
    json!({
        "admin": { "address": address("127.0.0.1:0") },
        "static_resources": {
            "listeners": listeners.collect::<Vec<_>>(),
            "clusters": [cluster("upstream", upstream), service],
        },
    })
}

/// A descriptor of one entry: a header's value. A request without the header has no such
/// descriptor.
pub fn header(name: &str, key: &str) -> Value {
    json!({ "actions": [{ "request_headers": { "header_name": name, "descriptor_key": key } }] })
}

/// Sets a field of a descriptor.
pub fn with(mut descriptor: Value, field: &str, value: Value) -> Value {
    descriptor[field] = value;
    descriptor
}

fn cluster(name: &str, at: &str) -> Value {
    let endpoint = json!({ "endpoint": { "address": address(at) } });
    let endpoints = json!([{ "lb_endpoints": [endpoint] }]);
    json!({ "name": name, "load_assignment": { "cluster_name": name, "endpoints": endpoints } })
}

fn address(at: &str) -> Value {
    let (host, port) = at.rsplit_once(':').unwrap();
    let port: u16 = port.parse().unwrap();
    json!({ "socket_address": { "address": host, "port_value": port } })
}
