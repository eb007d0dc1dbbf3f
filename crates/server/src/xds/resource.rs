//! From resources to the text of rules in Envoy's form, as JSON, which is YAML: one loader
//! validates all sources, with one set of messages.

use std::collections::BTreeSet;

use prost::Message;
use prost_types::value::Kind;
use prost_types::{Any, Struct};
use serde_json::{Map, Number, Value, json};
use sluicegate::config::rules::Source;

use super::TYPE_URL;
use super::proto::{RateLimitConfig, RateLimitPolicy, ResourceDescriptor};

/// A set of resources.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ResourceSet(Vec<RateLimitConfig>);

/// Names of units by number.
const UNITS: [&str; 8] = ["unknown", "second", "minute", "hour", "day", "month", "year", "week"];

impl ResourceSet {
    /// Decodes the resources of a response.
    pub(super) fn decode(resources: &[Any]) -> Result<Self, String> {
        let of_type = TYPE_URL.rsplit('/').next();
        let decode = |(index, resource): (usize, &Any)| {
            let found = &resource.type_url;
            if found.rsplit('/').next() != of_type {
                return Err(format!(
                    "resource {}: must have the type `{TYPE_URL}`, got `{found}`; send only rules on \
                     this stream",
                    index + 1
                ));
            }
            RateLimitConfig::decode(&*resource.value)
                .map_err(|error| format!("resource {}: cannot be decoded: {error}", index + 1))
        };
        resources.iter().enumerate().map(decode).collect::<Result<_, _>>().map(Self)
    }

    /// The domains with rules.
    pub(super) fn limited_domains(&self) -> BTreeSet<String> {
        let limited = self.0.iter().filter(|config| has_rules(&config.descriptors));
        limited.map(|config| config.domain.clone()).collect()
    }

    /// The rules of the set, which replaces another one with rules for the `known` domains.
    ///
    /// A set is the whole state, so a domain that it leaves out is removed. A set without any rule
    /// is ambiguous: a control plane that has just started and has not read its own configuration
    /// sends one too. It removes nothing explicitly, and the removal is withheld for the grace
    /// period.
    pub(super) fn sources(&self, known: &BTreeSet<String>) -> Vec<Source> {
        let limited = self.limited_domains();
        let is_removed = |domain: &str| {
            !limited.is_empty() && known.contains(domain) && !limited.contains(domain)
        };
        let mut sources: Vec<Source> = Vec::with_capacity(self.0.len());
        for (index, config) in self.0.iter().enumerate() {
            let name = match config.name.as_str() {
                "" => format!("resource {}", index + 1),
                name => name.to_owned(),
            };
            let value = match is_removed(&config.domain) {
                true => removed(&config.domain),
                false => rules(config),
            };
            sources.push(Source { name, text: text(&value) });
        }
        let named: BTreeSet<&str> = self.0.iter().map(|config| config.domain.as_str()).collect();
        for domain in known.iter().filter(|domain| !named.contains(domain.as_str())) {
            if is_removed(domain) {
                sources.push(Source { name: domain.clone(), text: text(&removed(domain)) });
            }
        }
        sources
    }
}

fn text(value: &Value) -> String {
    format!("{value:#}\n")
}

fn removed(domain: &str) -> Value {
    json!({ "domain": domain, "removed": true })
}

fn has_rules(descriptors: &[ResourceDescriptor]) -> bool {
    descriptors.iter().any(|one| one.rate_limit.is_some() || has_rules(&one.descriptors))
}

fn rules(config: &RateLimitConfig) -> Value {
    let mut root = Map::new();
    root.insert("domain".to_owned(), config.domain.as_str().into());
    put_descriptors(&mut root, &config.descriptors);
    Value::Object(root)
}

fn put_descriptors(map: &mut Map<String, Value>, descriptors: &[ResourceDescriptor]) {
    if !descriptors.is_empty() {
        let descriptors = descriptors.iter().map(descriptor).collect();
        map.insert("descriptors".to_owned(), Value::Array(descriptors));
    }
}

fn descriptor(one: &ResourceDescriptor) -> Value {
    let mut map = Map::new();
    map.insert("key".to_owned(), one.key.as_str().into());
    if !one.value.is_empty() {
        map.insert("value".to_owned(), one.value.as_str().into());
    }
    if let Some(policy) = &one.rate_limit {
        map.insert("rate_limit".to_owned(), rate_limit(policy));
    }
    let switches = [
        ("shadow_mode", one.shadow_mode),
        ("detailed_metric", one.detailed_metric),
        ("quota_mode", one.quota_mode),
    ];
    for (name, _) in switches.into_iter().filter(|(_, is_on)| *is_on) {
        map.insert(name.to_owned(), true.into());
    }
    if let Some(metadata) = &one.metadata {
        map.insert("metadata".to_owned(), structure(metadata));
    }
    put_descriptors(&mut map, &one.descriptors);
    Value::Object(map)
}

fn rate_limit(policy: &RateLimitPolicy) -> Value {
    let RateLimitPolicy { unit, requests_per_unit, unlimited, name, replaces } = policy;
    let mut map = Map::new();
    // Without a value on the wire, a number is 0.
    if *unit != 0 || !unlimited {
        let known = usize::try_from(*unit).ok().and_then(|unit| UNITS.get(unit));
        let unit = known.map_or_else(|| unit.to_string(), ToString::to_string);
        map.insert("unit".to_owned(), unit.into());
    }
    match unlimited {
        true => map.insert("unlimited".to_owned(), true.into()),
        false => map.insert("requests_per_unit".to_owned(), (*requests_per_unit).into()),
    };
    if !name.is_empty() {
        map.insert("name".to_owned(), name.as_str().into());
    }
    if !replaces.is_empty() {
        let replaces = replaces.iter().map(|one| json!({ "name": one.name })).collect();
        map.insert("replaces".to_owned(), Value::Array(replaces));
    }
    Value::Object(map)
}

fn structure(structure: &Struct) -> Value {
    let fields = structure.fields.iter();
    Value::Object(fields.map(|(name, value)| (name.clone(), json_value(value))).collect())
}

fn json_value(value: &prost_types::Value) -> Value {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::BoolValue(truth)) => (*truth).into(),
        Some(Kind::StringValue(text)) => text.as_str().into(),
        Some(Kind::NumberValue(number)) => number_value(*number),
        Some(Kind::StructValue(inner)) => structure(inner),
        Some(Kind::ListValue(list)) => list.values.iter().map(json_value).collect(),
    }
}

fn number_value(number: f64) -> Value {
    let is_whole = number.fract() == 0.0 && number.abs() < (1_u64 << 53) as f64;
    if is_whole {
        return (number as i64).into();
    }
    Number::from_f64(number).map_or(Value::Null, Value::Number)
}

#[cfg(test)]
mod tests {
    use sluicegate::config::rules::{Options, load};

    use super::super::proto::RateLimitReplace;
    use super::*;

    fn limited(domain: &str) -> RateLimitConfig {
        let policy = RateLimitPolicy { unit: 2, requests_per_unit: 7, ..Default::default() };
        let user = ResourceDescriptor {
            key: "user".to_owned(),
            rate_limit: Some(policy),
            ..Default::default()
        };
        RateLimitConfig {
            name: format!("r/{domain}"),
            domain: domain.to_owned(),
            descriptors: vec![user],
        }
    }

    fn empty(domain: &str) -> RateLimitConfig {
        RateLimitConfig { descriptors: Vec::new(), ..limited(domain) }
    }

    #[test]
    fn every_field_is_rendered_and_the_loader_reads_it() {
        let mut config = limited("shop: \"é\n\u{1}");
        let policy = RateLimitPolicy {
            unit: 7,
            requests_per_unit: 3,
            name: "weekly".to_owned(),
            replaces: vec![RateLimitReplace { name: "other".to_owned() }],
            ..Default::default()
        };
        let fields = [
            ("tier", Kind::StringValue("gold".to_owned())),
            ("weight", Kind::NumberValue(2.5)),
            ("count", Kind::NumberValue(3.0)),
            ("none", Kind::NullValue(0)),
        ];
        let fields =
            fields.map(|(name, kind)| (name.to_owned(), prost_types::Value { kind: Some(kind) }));
        let inner = ResourceDescriptor {
            key: "1.5".to_owned(),
            value: "*".to_owned(),
            rate_limit: Some(policy),
            shadow_mode: true,
            detailed_metric: true,
            quota_mode: true,
            metadata: Some(Struct { fields: fields.into_iter().collect() }),
            ..Default::default()
        };
        let free = RateLimitPolicy { unlimited: true, ..Default::default() };
        let free = ResourceDescriptor {
            key: "free".to_owned(),
            rate_limit: Some(free),
            ..Default::default()
        };
        config.descriptors[0].descriptors = vec![inner];
        config.descriptors.push(free);
        let sources = ResourceSet(vec![config]).sources(&BTreeSet::new());
        let rendered: Value = serde_json::from_str(&sources[0].text).unwrap();
        let expected = json!({
            "domain": "shop: \"é\n\u{1}",
            "descriptors": [
                {
                    "key": "user",
                    "rate_limit": { "unit": "minute", "requests_per_unit": 7 },
                    "descriptors": [{
                        "key": "1.5",
                        "value": "*",
                        "rate_limit": {
                            "unit": "week", "requests_per_unit": 3, "name": "weekly",
                            "replaces": [{ "name": "other" }],
                        },
                        "shadow_mode": true,
                        "detailed_metric": true,
                        "quota_mode": true,
                        "metadata": { "count": 3, "none": null, "tier": "gold", "weight": 2.5 },
                    }],
                },
                { "key": "free", "rate_limit": { "unlimited": true } },
            ],
        });
        assert_eq!(rendered, expected);
        let loaded = load(&sources, &Options::default()).unwrap();
        assert_eq!(loaded.domains[0].name, "shop: \"é\n\u{1}");
        assert_eq!(loaded.domains[0].descriptors.len(), 2);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_resource() {
        let wrong = |change: fn(&mut RateLimitPolicy)| {
            let mut config = limited("shop");
            change(config.descriptors[0].rate_limit.as_mut().unwrap());
            let sources = ResourceSet(vec![config]).sources(&BTreeSet::new());
            load(&sources, &Options::default()).unwrap_err().to_string()
        };
        for (change, expected) in [
            ((|one| one.unit = 0) as fn(&mut RateLimitPolicy), "unknown"),
            (|one| one.unit = 9, "9"),
            (|one| one.unlimited = true, "unlimited"),
        ] {
            let error = wrong(change);
            assert!(error.starts_with("r/shop:") && error.contains(expected), "{error}");
        }
        let any = |type_url: &str, value: &[u8]| Any {
            type_url: type_url.to_owned(),
            value: value.to_vec(),
        };
        let error = ResourceSet::decode(&[any("type.googleapis.com/other", &[])]).unwrap_err();
        assert!(error.starts_with("resource 1: must have the type"), "{error}");
        let error = ResourceSet::decode(&[any(TYPE_URL, &[0xff])]).unwrap_err();
        assert!(error.starts_with("resource 1: cannot be decoded"), "{error}");
        let mut unknown = limited("shop").encode_to_vec();
        unknown.extend([0xfa, 0x01, 0x01, b'x']);
        let set = ResourceSet::decode(&[any(TYPE_URL, &unknown)]).unwrap();
        assert_eq!(set, ResourceSet(vec![limited("shop")]), "unknown fields are ignored");
    }

    #[test]
    fn a_set_with_rules_removes_what_it_leaves_out_and_an_empty_one_removes_nothing() {
        let known: BTreeSet<String> = ["shop", "web"].map(str::to_owned).into();
        let removed = |set: Vec<RateLimitConfig>| {
            let loaded = load(&ResourceSet(set).sources(&known), &Options::default()).unwrap();
            loaded.removed
        };
        assert_eq!(removed(vec![limited("shop")]), ["web"]);
        assert_eq!(removed(vec![limited("shop"), empty("web"), empty("other")]), ["web"]);
        assert_eq!(removed(vec![limited("new")]), ["shop", "web"]);
        assert!(removed(vec![limited("shop"), limited("web")]).is_empty());
        assert!(removed(vec![empty("web")]).is_empty(), "withheld");
        assert!(removed(Vec::new()).is_empty(), "withheld");
    }
}
