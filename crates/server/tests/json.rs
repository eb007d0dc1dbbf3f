//! Requests in protobuf's JSON, in whichever of its ways they are written; and what is said of those that are none.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{
    Entry, RateLimitOverride,
};
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use envoy_types::pb::envoy::r#type::v3::RateLimitUnit;
use envoy_types::pb::google::protobuf::UInt64Value;
use proptest::prelude::*;
use prost::Message;
use serde_json::json;
use sluicegate_server::rls::json::request;

/// Writes requests, and makes up its mind about how by a list of numbers.
struct Writer<'a> {
    minds: std::iter::Cycle<std::slice::Iter<'a, u8>>,
}

impl Writer<'_> {
    fn one_of<'t>(&mut self, ways: &[&'t str]) -> &'t str {
        ways[usize::from(*self.minds.next().unwrap()) % ways.len()]
    }

    fn request(&mut self, request: &RateLimitRequest) -> String {
        let descriptors = request.descriptors.iter().map(|one| self.descriptor(one)).collect();
        let fields = vec![
            ("domain", (!request.domain.is_empty()).then(|| self.text(&request.domain))),
            (self.one_of(&["hitsAddend", "hits_addend"]), self.unless_0(request.hits_addend)),
            ("descriptors", Some(self.list(descriptors))),
        ];
        self.object(fields)
    }

    fn descriptor(&mut self, descriptor: &RateLimitDescriptor) -> String {
        let entries = descriptor.entries.iter().map(|entry| {
            let fields = [("key", &entry.key), ("value", &entry.value)];
            let fields =
                fields.map(|(name, text)| (name, (!text.is_empty()).then(|| self.text(text))));
            self.object(fields.into())
        });
        let entries = entries.collect();
        let negative = descriptor.is_negative_hits.then(|| "true".to_owned());
        let hits = descriptor.hits_addend.map(|hits| self.number(hits.value));
        let limit = descriptor.limit.map(|limit| {
            let unit = RateLimitUnit::try_from(limit.unit)
                .map(|unit| format!("\"{}\"", unit.as_str_name()));
            let by_name = unit.ok().filter(|_| self.one_of(&["name", "number"]) == "name");
            let unit = by_name.unwrap_or_else(|| {
                format!("{}{}", limit.unit, self.one_of(&["", ".0", "e0", "e-0"]))
            });
            let name = self.one_of(&["requestsPerUnit", "requests_per_unit"]);
            let fields = vec![(name, self.unless_0(limit.requests_per_unit)), ("unit", Some(unit))];
            self.object(fields)
        });
        let fields = vec![
            (self.one_of(&["isNegativeHits", "is_negative_hits"]), negative),
            (self.one_of(&["hitsAddend", "hits_addend"]), hits),
            ("entries", Some(self.list(entries))),
            ("limit", limit),
        ];
        self.object(fields)
    }

    /// In any order; what is not there may be left out or be null.
    fn object(&mut self, mut fields: Vec<(&str, Option<String>)>) -> String {
        if self.one_of(&["as they are", "turned"]) == "turned" {
            fields.reverse();
        }
        let mut written = Vec::new();
        for (name, value) in fields {
            let null = (self.one_of(&["null", ""]) == "null").then(|| "null".to_owned());
            if let Some(value) = value.or(null) {
                let blank = self.blank();
                written.push(format!("{blank}{}{blank}:{blank}{value}", self.text(name)));
            }
        }
        format!("{{{}{}}}", written.join(","), self.blank())
    }

    fn list(&mut self, all: Vec<String>) -> String {
        let blank = self.blank();
        format!("[{blank}{}{blank}]", all.join(&format!("{blank},{blank}")))
    }

    fn text(&mut self, text: &str) -> String {
        if self.one_of(&["plain", "escaped"]) == "plain" {
            return json!(text).to_string();
        }
        let escaped: String = text.encode_utf16().map(|unit| format!("\\u{unit:04X}")).collect();
        format!("\"{escaped}\"")
    }

    fn unless_0(&mut self, number: u32) -> Option<String> {
        (number > 0 || self.one_of(&["0", ""]) == "0").then(|| self.number(number.into()))
    }

    fn number(&mut self, number: u64) -> String {
        let (most, last) = (number / 10, number % 10);
        let written = match self.one_of(&["plain", "point", "zeros", "moved", "minus"]) {
            "point" => format!("{number}.000"),
            "zeros" if number > 0 => format!("{number}00E-2"),
            "moved" => format!("{most}.{last}e+1"),
            "minus" if number == 0 => "-0".to_owned(),
            _ => number.to_string(),
        };
        let quote = self.one_of(&["", "\""]);
        format!("{quote}{written}{quote}")
    }

    fn blank(&mut self) -> &'static str {
        self.one_of(&["", " ", "\n\t", "\r\n"])
    }
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "[a-z]{1,6}", "\\PC{0,20}", any::<String>()]
}

prop_compose! {
    fn descriptor()(
        entries in prop::collection::vec((text(), text()), 0..4),
        limit in prop::option::of((any::<u32>(), prop_oneof![0..9, any::<i32>()])),
        hits in prop::option::of(prop_oneof![0..3_u64, any::<u64>()]),
        is_negative_hits: bool,
    ) -> RateLimitDescriptor {
        RateLimitDescriptor {
            entries: entries.into_iter().map(|(key, value)| Entry { key, value }).collect(),
            limit: limit.map(|(requests_per_unit, unit)| RateLimitOverride { requests_per_unit, unit }),
            hits_addend: hits.map(|value| UInt64Value { value }),
            is_negative_hits,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn a_request_is_the_same_however_it_is_written(
        domain in text(),
        descriptors in prop::collection::vec(descriptor(), 0..4),
        hits_addend: u32,
        minds in prop::collection::vec(any::<u8>(), 1..50),
    ) {
        let asked = RateLimitRequest { domain, descriptors, hits_addend };
        let text = Writer { minds: minds.iter().cycle() }.request(&asked);
        let read = request(text.as_bytes());
        prop_assert!(read.is_ok(), "{:?}: {}", read, text);
        prop_assert_eq!(RateLimitRequest::decode(&*read.unwrap()).unwrap(), asked, "{}", text);
    }

    #[test]
    fn whatever_is_read_is_a_message(text in r#"[\[\]{}:,"0-9.eE+\-a ]{0,30}|\{"(domain|descriptors|hitsAddend)":[\[\]{}:,"0-9.eE+\-a ]{0,20}\}"#) {
        if let Ok(bytes) = request(text.as_bytes()) {
            prop_assert!(RateLimitRequest::decode(&*bytes).is_ok(), "{text}");
            prop_assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{text}");
        }
    }
}

#[test]
fn what_is_none_is_told_where_and_why() {
    let told = [
        (r#"{"domain":"d","domain":"d"}"#, "a request has `domain` twice"),
        (r#"{"hits_addend":null,"hitsAddend":1}"#, "a request has `hitsAddend` twice"),
        (
            r#"{"extra":null}"#,
            "a request has no field `extra`, only domain, descriptors, hitsAddend",
        ),
        (r#"{"domain":1}"#, "`domain` must be a string, got `1`"),
        (r#"{"domain":"\ud800"}"#, r#"`domain` must be a string, got `"\ud800"`"#),
        (
            r#"{"hitsAddend":1.5}"#,
            "`hitsAddend` must be a whole number from 0 to 4294967295, got `1.5`",
        ),
        (
            r#"{"descriptors":[{},{"hitsAddend":"01"}]}"#,
            "descriptors[1]: `hitsAddend` must be a whole number from 0 to 18446744073709551615, got `\"01\"`",
        ),
        (
            r#"{"descriptors":[{"limit":{"unit":"WEEK"}}]}"#,
            "descriptors[0]: `unit` must be a unit: SECOND, MINUTE, HOUR, DAY, MONTH, YEAR, or a number from 1 to 7, got `\"WEEK\"`",
        ),
        (
            r#"{"descriptors":[{"entries":[{"key":"a"},null]}]}"#,
            "descriptors[0]: entries[1]: an entry must be an object, got `null`",
        ),
        (
            r#"{"descriptors":[{"isNegativeHits":"true"}]}"#,
            "descriptors[0]: `isNegativeHits` must be true or false, got `\"true\"`",
        ),
        (r#"{"descriptors":{}}"#, "`descriptors` must be a list, got `{}`"),
        ("{\n\"domain\": 01}", "a request cannot be read: invalid number at line 2 column 12"),
        ("\u{feff}{}", "a request cannot be read: expected value at line 1 column 1"),
        (
            r#"{"domain":"","descriptors":[],"hitsAddend":1,"domain":"","domain":"","domain":""}"#,
            "a request has `domain` twice",
        ),
    ];
    for (text, why) in told {
        assert_eq!(request(text.as_bytes()).unwrap_err().to_string(), why, "{text}");
    }
    assert_eq!(
        request(b"{\"domain\":\"\xFF\"}").unwrap_err().to_string(),
        "a request must be UTF-8"
    );
    // As deep as a body is long, which takes no stack.
    for open in ["[", "{\"domain\":", "{\"descriptors\":[", "{\"hitsAddend\":["] {
        assert!(request(open.repeat(200_000).as_bytes()).is_err());
    }
    let deep = format!("{{\"hitsAddend\":{}{}}}", "[".repeat(200_000), "]".repeat(200_000));
    assert!(request(deep.as_bytes()).is_err());
}
