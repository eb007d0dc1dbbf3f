//! The keys of a rule file, and the level of each.

use crate::suggest;

/// Maximum number of keys.
pub(super) const KEYS_MAX: usize = 40;

macro_rules! keys {
    ($($key:ident $name:literal $form:ident [$($level:ident)*],)*) => {
        /// A key of a file of rules.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Key { $($key),* }

        /// In the order that messages list them.
        pub(crate) const KEYS: &[Key] = &[$(Key::$key),*];

        impl Key {
            pub(super) fn of(name: &str) -> Option<Self> {
                Some(match name {
                    $($name => Self::$key,)*
                    _ => return None,
                })
            }

            pub(crate) const fn name(self) -> &'static str {
                match self { $(Self::$key => $name),* }
            }

            /// The form of the key; every key of Envoy's form is also in the native form.
            pub(crate) const fn form(self) -> Form {
                match self { $(Self::$key => Form::$form),* }
            }

            const fn levels(self) -> &'static [Level] {
                match self { $(Self::$key => &[$(Level::$level),*]),* }
            }
        }
    };
}

/// How a file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// As envoyproxy/ratelimit reads it, which has no `overrides`.
    Envoy,
    /// With native keys; likely mistakes are errors.
    Native,
}

/// The mappings that a file of rules is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    Root,
    Descriptor,
    RateLimit,
    Replaced,
    Listed,
}

keys! {
    Domain "domain" Envoy [Root],
    Descriptors "descriptors" Envoy [Root Descriptor],
    Allow "allow" Native [Root],
    Deny "deny" Native [Root],
    ForwardAuth "forward_auth" Native [Root],
    Removed "removed" Native [Root],
    Plans "plans" Native [Root],
    Overrides "overrides" Envoy [Root],
    Entry "key" Envoy [Descriptor Listed],
    Value "value" Envoy [Descriptor Listed],
    Regex "regex" Native [Descriptor Listed],
    Cidr "cidr" Native [Descriptor Listed],
    RateLimit "rate_limit" Envoy [Descriptor],
    Limits "limits" Native [Descriptor],
    Schedule "schedule" Native [Descriptor],
    Pools "pools" Native [Descriptor],
    Notify "notify" Native [Descriptor],
    Unit "unit" Envoy [RateLimit],
    RequestsPerUnit "requests_per_unit" Envoy [RateLimit],
    Unlimited "unlimited" Envoy [RateLimit],
    Name "name" Envoy [RateLimit Replaced],
    Id "id" Native [Descriptor],
    Mode "mode" Native [Descriptor],
    ShadowMode "shadow_mode" Envoy [Descriptor],
    QuotaMode "quota_mode" Envoy [Descriptor],
    Cost "cost" Native [Descriptor],
    Shared "shared" Native [Descriptor],
    ShareThreshold "share_threshold" Envoy [Descriptor],
    Prefix "prefix" Native [Descriptor],
    Replaces "replaces" Envoy [RateLimit],
    Consistency "consistency" Native [Descriptor],
    OnStoreFailure "on_store_failure" Native [Descriptor],
    OnLimit "on_limit" Native [Descriptor],
    OnExhausted "on_exhausted" Native [Descriptor],
    Overflow "overflow" Native [Descriptor],
    Priority "priority" Native [Descriptor],
    DetailedMetric "detailed_metric" Envoy [Descriptor],
    ValueToMetric "value_to_metric" Envoy [Descriptor],
    Metadata "metadata" Envoy [Descriptor],
}

const _: () = assert!(KEYS.len() <= KEYS_MAX);

impl Key {
    /// Whether it belongs to a level of a file of this form.
    pub(crate) fn belongs(self, level: Level, form: Form) -> bool {
        match (self, form) {
            // Envoy's is inside `rate_limit` and holds mappings; the native one holds plain ids.
            (Self::Replaces, Form::Native) => matches!(level, Level::Descriptor | Level::RateLimit),
            (_, Form::Native) => self.levels().contains(&level),
            (_, Form::Envoy) => self.form() == Form::Envoy && self.levels().contains(&level),
        }
    }

    /// The name of its level.
    pub(super) fn home(self) -> &'static str {
        match self.levels().first() {
            Some(Level::Root) => "the top of the file",
            Some(Level::RateLimit) => "`rate_limit`",
            Some(Level::Replaced) => "`replaces`",
            Some(Level::Descriptor | Level::Listed) | None => "a descriptor",
        }
    }
}

/// The remedy for an unknown key: the nearest one, and the known ones.
pub(super) fn remedy(word: &str, level: Level, form: Form) -> String {
    let lowered = word.to_lowercase();
    if let Some((_, advice)) = ADVICE.iter().find(|(known, _)| *known == lowered) {
        return (*advice).to_owned();
    }
    let valid: Vec<&str> = names(|key| key.belongs(level, form));
    let known = SYNONYMS
        .iter()
        .find(|(warn_or_refuse, _)| *warn_or_refuse == lowered)
        .map(|(_, meant)| *meant);
    let meant = known
        .or_else(|| suggest::nearest(word, valid.iter().copied()))
        .or_else(|| suggest::nearest(word, names(|key| key.belongs(level, Form::Native))))
        .or_else(|| suggest::nearest(word, names(|_| true)));
    let all = format!("the keys here are {}", suggest::all_of(&valid));
    let Some(key) = meant.and_then(Key::of) else { return all };
    let (meant, home) = (key.name(), key.home());
    let hint = if key.belongs(level, Form::Native) {
        format!("did you mean `{meant}`?")
    } else {
        format!("did you mean `{meant}` of {home}?")
    };
    // With many keys, the nearest is enough.
    if valid.len() <= FEW_KEYS { format!("{hint} {all}") } else { hint }
}

const FEW_KEYS: usize = 6;

fn names(wanted: impl Fn(Key) -> bool) -> Vec<&'static str> {
    KEYS.iter().copied().filter(|key| wanted(*key)).map(Key::name).collect()
}

/// Synonyms of keys that a comparison of letters does not find.
const SYNONYMS: [(&str, &str); 16] = [
    ("req_per_unit", "requests_per_unit"),
    ("reqs_per_unit", "requests_per_unit"),
    ("rpu", "requests_per_unit"),
    ("requests", "requests_per_unit"),
    ("requests_per_second", "requests_per_unit"),
    ("requests_per_minute", "requests_per_unit"),
    ("per", "unit"),
    ("interval", "unit"),
    ("shadow", "shadow_mode"),
    ("quota", "quota_mode"),
    ("limit", "limits"),
    ("ip", "cidr"),
    ("network", "cidr"),
    ("pattern", "regex"),
    ("whitelist", "allow"),
    ("blacklist", "deny"),
];

/// Keys of other systems, and what to write instead.
const ADVICE: [(&str, &str); 8] = [
    (
        "unit_multiplier",
        "for other times than one unit write `limits`, like `limits: [{ algorithm: fixed_window, \
         rate: 5 per 30s }]`",
    ),
    ("algorithm", IN_LIMITS),
    ("rate", IN_LIMITS),
    ("rates", IN_LIMITS),
    ("burst", IN_LIMITS),
    ("window", IN_LIMITS),
    ("max", IN_LIMITS),
    ("queue", IN_LIMITS),
];

const IN_LIMITS: &str = "it belongs to a limit in `limits`, like `limits: [{ algorithm: \
                         token_bucket, rate: 10/s, burst: 50 }]`";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_known_by_their_names() {
        for key in KEYS {
            assert_eq!(Key::of(key.name()), Some(*key));
        }
        assert_eq!(Key::of("keys"), None);
        for (_, meant) in SYNONYMS {
            assert!(Key::of(meant).is_some(), "{meant}");
        }
    }

    #[test]
    fn strangers_get_the_nearest_key() {
        let table = [
            ("descriptiors", Level::Root, "did you mean `descriptors`? "),
            ("request_per_unit", Level::RateLimit, "did you mean `requests_per_unit`? "),
            ("requestsPerUnit", Level::RateLimit, "did you mean `requests_per_unit`? "),
            ("req_per_unit", Level::RateLimit, "did you mean `requests_per_unit`? "),
            ("ratelimit", Level::Descriptor, "did you mean `rate_limit`?"),
            ("limts", Level::Descriptor, "did you mean `limits`?"),
            ("units", Level::Descriptor, "did you mean `unit` of `rate_limit`?"),
            ("unit_multiplier", Level::RateLimit, "for other times than one unit write `limits`"),
            ("burst", Level::RateLimit, "it belongs to a limit in `limits`"),
            ("zzzzz", Level::Root, "the keys here are `domain`, `descriptors` and `overrides`"),
        ];
        for (word, level, begins) in table {
            let remedy = remedy(word, level, Form::Envoy);
            assert!(remedy.starts_with(begins), "{word}: {remedy}");
        }
    }
}
