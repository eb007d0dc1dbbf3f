//! Everything that a request meets beside the proxy: sluicegate, and the server behind the proxy.

use serde_json::Value;

use crate::ports;
use crate::support::Folder;
use crate::support::http::Answer;
use crate::support::service::Service;
use crate::support::upstream::Upstream;
use crate::upstream;

/// All of it; ends with this value.
pub struct Bed {
    pub service: Service,
    pub upstream: Upstream,
    pub folder: Folder,
}

impl Bed {
    /// With these rules.
    pub fn start(rules: &str) -> Self {
        let folder = Folder::new();
        let rules = folder.file("rules.yaml", rules);
        // When it is gone, nobody else is to be found at its address.
        let service = Service::with(&["--http", &ports::free(), "--rules", &rules], &[]);
        Self { service, upstream: upstream::start(), folder }
    }
}

/// What a client is told of its limit: the limit and what is left of it, in both dialects.
pub fn told(answer: &Answer) -> [String; 4] {
    ["x-ratelimit-limit", "x-ratelimit-remaining", "ratelimit", "ratelimit-policy"].map(|name| {
        // What depends on the time stands last.
        let value = answer.header(name).unwrap_or("-");
        value.split(";t=").next().unwrap().to_owned()
    })
}

/// The same, as it must be.
pub fn expected(name: &str, quota: u64, left: u64) -> [String; 4] {
    [
        quota.to_string(),
        left.to_string(),
        format!("\"{name}\";r={left}"),
        format!("\"{name}\";q={quota};w=3600"),
    ]
}

/// The error in a body.
pub fn error(answer: &Answer) -> Value {
    let body: Value = serde_json::from_str(&answer.body).unwrap_or_else(|_| panic!("{answer:?}"));
    body["error"].clone()
}

/// Whether a header holds a whole number of seconds in a range.
pub fn assert_seconds(answer: &Answer, name: &str, range: std::ops::RangeInclusive<u64>) {
    let value = answer.header(name).unwrap_or_else(|| panic!("no {name}: {answer:?}"));
    assert!(range.contains(&value.parse().unwrap()), "{name}: {value}");
}
