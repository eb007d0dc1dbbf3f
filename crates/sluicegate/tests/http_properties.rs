//! For any verdict and any names: every header is valid, and says what the verdict said.
//!
//! Structured fields are read back by a small reader that follows RFC 9651 and knows nothing of the writer.

#![cfg(feature = "http")]
#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

use http::{HeaderMap, StatusCode};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use serde_json::Value;
use sluicegate::Policy;
use sluicegate::http::{Reset, Style, VerdictResponse};
use sluicegate_core::time::{Span, Timestamp};
use sluicegate_core::verdict::{Outcome, Verdict};

/// The same cases every time, and others with `PROPTEST_CASES`.
fn cases(at_least: u32) -> ProptestConfig {
    let asked = std::env::var("PROPTEST_CASES").ok();
    let asked = asked.and_then(|n| n.parse().ok()).unwrap_or(0);
    ProptestConfig {
        cases: at_least.max(asked),
        failure_persistence: None,
        rng_seed: if asked == 0 { RngSeed::Fixed(3) } else { RngSeed::Random },
        ..ProptestConfig::default()
    }
}

// === anything that could be told ===

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..3, 0u64..100_000_000, any::<u64>()]
}

fn span() -> impl Strategy<Value = Span> {
    number().prop_map(Span::from_micros)
}

fn outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![
        2 => span().prop_map(|wait| Outcome::Allow { wait }),
        2 => span().prop_map(|retry_after| Outcome::Deny { retry_after }),
        1 => number().prop_map(|max_cost| Outcome::Never { max_cost }),
    ]
}

fn verdict() -> impl Strategy<Value = Verdict> {
    let remaining = prop::option::of(prop_oneof![-3i64..9, any::<i64>()]);
    let decided_by = prop::option::weighted(0.9, 0usize..5);
    let marks = (any::<bool>(), any::<bool>(), prop::option::of(outcome()));
    (outcome(), decided_by, remaining, span(), marks).prop_map(
        |(outcome, decided_by, remaining, reset_after, (soft, elastic, shadow))| Verdict {
            outcome,
            decided_by,
            remaining,
            reset_after,
            beyond: 0,
            soft,
            elastic,
            shadow,
        },
    )
}

fn policy() -> impl Strategy<Value = Policy> {
    let name = prop_oneof![
        "[a-z]{1,9}",
        r#"[ -~]{0,80}"#,
        prop::collection::vec(any::<char>(), 0..90).prop_map(String::from_iter),
    ];
    let algorithm = prop::sample::select(vec!["token_bucket", "concurrency", "warm_up"]);
    let quota = prop::option::weighted(0.8, number());
    (name, algorithm, quota, prop::option::of(span()), prop::bool::weighted(0.8)).prop_map(
        |(name, algorithm, quota, window, enforced)| Policy {
            name,
            algorithm,
            quota,
            window,
            enforced,
        },
    )
}

fn style() -> impl Strategy<Value = Style> {
    let reset =
        prop::sample::select(vec![Reset::UnixSeconds, Reset::UnixMillis, Reset::SecondsToGo]);
    let denied = (100u16..1_000).prop_map(|code| StatusCode::from_u16(code).unwrap());
    (any::<bool>(), reset, any::<bool>(), denied).prop_map(
        |(x_headers, reset, ietf_fields, denied)| Style { x_headers, reset, ietf_fields, denied },
    )
}

proptest! {
    #![proptest_config(cases(4_000))]

    #[test]
    fn every_header_is_valid(
        verdict in verdict(),
        policies in prop::collection::vec(policy(), 0..4),
        now in number(),
        style in style(),
    ) {
        let told = VerdictResponse { verdict: &verdict, policies: &policies, now: Timestamp::from_micros(now) };
        let mut headers = HeaderMap::new();
        told.write_headers(&style, &mut headers);
        check_values(&headers)?;
        check_numbers(&headers, &style)?;
        check_fields(&headers, &told)?;
        check_what_belongs(&headers, &told, &style)?;

        let mut grpc = HeaderMap::new();
        told.write_grpc_headers(&style, &mut grpc);
        check_values(&grpc)?;
        check_grpc(&grpc, &told)?;
    }

    #[test]
    fn the_body_says_when_to_come_again(
        verdict in verdict(),
        policies in prop::collection::vec(policy(), 0..4),
        now in number(),
    ) {
        let now = Timestamp::from_micros(now);
        let told = VerdictResponse { verdict: &verdict, policies: &policies, now };
        let Some(body) = told.body() else {
            prop_assert!(verdict.outcome.is_allowed());
            return Ok(());
        };
        let body: Value = serde_json::from_str(&body).unwrap();
        let error = &body["error"];
        prop_assert_eq!(&error["code"], "rate_limited");
        prop_assert_eq!(error["message"].as_str().map(str::to_owned), told.message());

        let decider = verdict.decided_by.and_then(|place| policies.get(place));
        let named = decider.filter(|policy| policy.enforced).map(|policy| policy.name.as_str());
        let context = &error["context"];
        prop_assert_eq!(context["limit"].as_str(), named);
        match verdict.outcome {
            Outcome::Deny { retry_after } => {
                let renewal_us = context["renewal"].as_u64().unwrap() * 1_000;
                let due_us = now.after(retry_after).as_micros();
                prop_assert!((due_us..due_us + 1_000).contains(&renewal_us));
                let wait_us = context["retry_after_ms"].as_u64().unwrap() * 1_000;
                let due_us = retry_after.as_micros();
                prop_assert!((due_us..due_us + 1_000).contains(&wait_us));
                prop_assert!(context.get("max_cost").is_none());
            }
            Outcome::Never { max_cost } => {
                prop_assert_eq!(context["max_cost"].as_u64(), Some(max_cost));
                prop_assert!(context.get("renewal").is_none());
                prop_assert!(context.get("retry_after_ms").is_none());
            }
            Outcome::Allow { .. } => prop_assert!(false, "an admitted request has no body"),
        }
    }

    #[test]
    fn words_are_never_short_and_never_half_as_long_again(wait in span()) {
        let verdict = Verdict { outcome: Outcome::Deny { retry_after: wait }, ..EMPTY };
        let told = VerdictResponse { verdict: &verdict, policies: &[], now: Timestamp::EPOCH };
        let message = told.message().unwrap();
        let words: Vec<&str> = message.split(' ').collect();
        let (count, unit) = (words[4].parse::<u64>().unwrap(), words[5]);
        prop_assert_eq!(unit.ends_with('s'), count != 1);
        let seconds = match unit.trim_end_matches('s') {
            "second" => 1,
            "minute" => 60,
            "hour" => 3_600,
            "day" => 86_400,
            other => return Err(TestCaseError::fail(other.to_owned())),
        };
        let (said, due) = (count * seconds, wait.as_micros().div_ceil(1_000_000).max(1));
        prop_assert!(said >= due && 2 * said <= 3 * due, "{} for {:?}", message, wait);
    }
}

const EMPTY: Verdict = Verdict {
    outcome: Outcome::Allow { wait: Span::ZERO },
    decided_by: None,
    remaining: None,
    reset_after: Span::ZERO,
    beyond: 0,
    soft: false,
    elastic: false,
    shadow: None,
};

// === what must hold ===

/// Printable ASCII, without spaces around it, and not long: what every client and proxy can take.
fn check_values(headers: &HeaderMap) -> Result<(), TestCaseError> {
    for (name, value) in headers {
        let bytes = value.as_bytes();
        prop_assert!(bytes.iter().all(|b| (b' '..=b'~').contains(b)), "{}: {:?}", name, value);
        prop_assert!(!bytes.is_empty() && bytes.len() <= 2_048, "{}: {:?}", name, value);
        prop_assert_eq!(bytes, bytes.trim_ascii(), "{}", name);
    }
    Ok(())
}

fn check_numbers(headers: &HeaderMap, style: &Style) -> Result<(), TestCaseError> {
    let number =
        |name: &str| headers.get(name).map(|value| value.to_str().unwrap().parse::<u64>().unwrap());
    let remaining = number("x-ratelimit-remaining");
    prop_assert_eq!(remaining.is_some(), number("x-ratelimit-limit").is_some());
    let reset = number("x-ratelimit-reset").unwrap_or_default();
    prop_assert!(style.reset != Reset::SecondsToGo || reset <= i32::MAX as u64);
    let wait = number("retry-after");
    prop_assert!(wait.is_none_or(|wait| (1..=i32::MAX as u64).contains(&wait)));
    if style.x_headers {
        prop_assert_eq!(wait, number("x-ratelimit-retry-after"));
    }
    Ok(())
}

fn check_fields(headers: &HeaderMap, told: &VerdictResponse<'_>) -> Result<(), TestCaseError> {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap());
    if let Some(field) = text("ratelimit-policy") {
        let listed = read_list(field).map_err(TestCaseError::fail)?;
        let known = || told.policies.iter().filter(|p| p.enforced && p.quota.is_some());
        // Only a list that one more long name would not fit into may end early.
        let ends_early = listed.len() < known().count() && field.len() > 1_200;
        prop_assert!(ends_early || listed.len() == known().count(), "{}", field);
        for (item, policy) in listed.iter().zip(known()) {
            let quota = policy.quota.unwrap().min(999_999_999_999_999);
            prop_assert_eq!(item.integer("q"), Some(i64::try_from(quota).unwrap()));
            prop_assert!(item.integer("w").is_none_or(|w| w > 0));
            prop_assert!(item.only(&["q", "qu", "w"]), "{}", field);
            check_name(&item.name, &policy.name)?;
        }
    }
    if let Some(field) = text("ratelimit") {
        let listed = read_list(field).map_err(TestCaseError::fail)?;
        let [item] = &listed[..] else {
            return Err(TestCaseError::fail("one limit decides"));
        };
        prop_assert!(item.integer("r").is_some_and(|left| left >= 0), "{}", field);
        prop_assert!(item.only(&["r", "t"]), "{}", field);
        check_name(&item.name, &told.policies[told.verdict.decided_by.unwrap()].name)?;
        // The draft: Retry-After should not name a time before the end of the effective window.
        let wait = text("retry-after").map(|value| value.parse::<i64>().unwrap());
        if let (Some(window), Some(wait)) = (item.integer("t"), wait) {
            prop_assert!(window <= wait);
        }
    }
    Ok(())
}

/// Plain names come back as they were; the others at least as the start of their encoding.
fn check_name(read: &str, name: &str) -> Result<(), TestCaseError> {
    let start: String = name.chars().take(64).collect();
    if start.bytes().all(|b| (b' '..=b'~').contains(&b)) {
        prop_assert_eq!(read, start);
    } else if !start.contains('%') {
        prop_assert_eq!(percent_decoded(read), start);
    }
    Ok(())
}

fn check_what_belongs(
    headers: &HeaderMap,
    told: &VerdictResponse<'_>,
    style: &Style,
) -> Result<(), TestCaseError> {
    let outcome = told.verdict.outcome;
    let denied = !outcome.is_allowed();
    prop_assert_eq!(told.status(style).is_some(), denied);
    for name in ["content-type", "cache-control"] {
        prop_assert_eq!(headers.contains_key(name), denied);
    }
    let wait = matches!(outcome, Outcome::Deny { .. });
    prop_assert_eq!(headers.contains_key("retry-after"), wait);
    let warned = headers.contains_key("x-ratelimit-warning");
    prop_assert_eq!(warned, told.verdict.soft && !denied && style.x_headers);
    let spoken = |start: &str| headers.keys().any(|name| name.as_str().starts_with(start));
    prop_assert!(style.x_headers || !spoken("x-"));
    prop_assert!(style.ietf_fields || !spoken("ratelimit"));
    let decider = told.verdict.decided_by.and_then(|place| told.policies.get(place));
    if decider.is_none_or(|policy| !policy.enforced || policy.quota.is_none()) {
        prop_assert!(!spoken("x-ratelimit-limit") && !headers.contains_key("ratelimit"));
    }
    Ok(())
}

fn check_grpc(headers: &HeaderMap, told: &VerdictResponse<'_>) -> Result<(), TestCaseError> {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap());
    prop_assert_eq!(text("grpc-status"), told.grpc_status().map(|_| "8"));
    prop_assert_eq!(text("grpc-message").map(percent_decoded), told.message());
    let pushback = text("grpc-retry-pushback-ms").map(|ms| ms.parse::<i32>().unwrap());
    match told.verdict.outcome {
        Outcome::Allow { .. } => prop_assert_eq!(pushback, None),
        Outcome::Deny { retry_after } if retry_after <= Span::from_secs(60) => {
            let due_us = retry_after.as_micros();
            let said_us = u64::try_from(pushback.unwrap()).unwrap() * 1_000;
            prop_assert!((due_us..due_us + 1_000).contains(&said_us));
        }
        _ => prop_assert_eq!(pushback, Some(-1)),
    }
    Ok(())
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, more @ ..] = rest {
        let escaped = text_at(more).filter(|_| *first == b'%');
        bytes.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &more[2..] } else { more };
    }
    String::from_utf8(bytes).unwrap()
}

fn text_at(digits: &[u8]) -> Option<u8> {
    let digits = std::str::from_utf8(digits.get(..2)?).ok()?;
    u8::from_str_radix(digits, 16).ok()
}

// === a reader of structured fields: lists of strings with parameters ===

struct Item {
    name: String,
    parameters: Vec<(String, Parameter)>,
}

#[derive(Debug, PartialEq)]
enum Parameter {
    Integer(i64),
    String(String),
}

impl Item {
    fn integer(&self, key: &str) -> Option<i64> {
        self.parameters.iter().find_map(|(k, value)| match value {
            Parameter::Integer(number) if k == key => Some(*number),
            _ => None,
        })
    }

    /// Whether these keys occur, each once at most and of its type, and no others.
    fn only(&self, keys: &[&str]) -> bool {
        let mut allowed = keys.to_vec();
        self.parameters.iter().all(|(key, value)| {
            let place = allowed.iter().position(|k| k == key);
            let fits = match value {
                Parameter::Integer(_) => key != "qu",
                Parameter::String(unit) => key == "qu" && unit == "concurrent-requests",
            };
            place.map(|place| allowed.remove(place)).is_some() && fits
        })
    }
}

/// RFC 9651, 4.2.1: items between commas, optional white space around these, none at the end.
fn read_list(field: &str) -> Result<Vec<Item>, String> {
    let mut input = field;
    let mut items = Vec::new();
    loop {
        let name = read_string(&mut input)?;
        let mut parameters = Vec::new();
        while let Some(rest) = input.strip_prefix(';') {
            input = rest.trim_start_matches(' ');
            parameters.push(read_parameter(&mut input)?);
        }
        items.push(Item { name, parameters });
        if input.is_empty() {
            return Ok(items);
        }
        let rest = input.trim_start_matches([' ', '\t']).strip_prefix(',');
        input = rest.ok_or(format!("no comma before `{input}`"))?.trim_start_matches([' ', '\t']);
    }
}

fn read_parameter(input: &mut &str) -> Result<(String, Parameter), String> {
    let (key, rest) = input.split_once('=').ok_or("a flag")?;
    let starts_well = key.starts_with(|c: char| c.is_ascii_lowercase() || c == '*');
    let key_char = |c: char| matches!(c, 'a'..='z' | '0'..='9' | '_' | '-' | '.' | '*');
    if !starts_well || !key.chars().all(key_char) {
        return Err(format!("not a key: `{key}`"));
    }
    *input = rest;
    if input.starts_with('"') {
        return Ok((key.to_owned(), Parameter::String(read_string(input)?)));
    }
    let end = input.find([';', ',', ' ']).unwrap_or(input.len());
    let (digits, rest) = input.split_at(end);
    *input = rest;
    let bare = digits.strip_prefix('-').unwrap_or(digits);
    if bare.is_empty() || bare.len() > 15 || !bare.bytes().all(|b| b.is_ascii_digit()) {
        return Err(format!("not an integer: `{digits}`"));
    }
    let number = digits.parse().map_err(|error| format!("{digits}: {error}"))?;
    Ok((key.to_owned(), Parameter::Integer(number)))
}

fn read_string(input: &mut &str) -> Result<String, String> {
    let mut chars = input.strip_prefix('"').ok_or(format!("not a string: `{input}`"))?.chars();
    let mut text = String::new();
    loop {
        match chars.next().ok_or("a string without an end")? {
            '"' => break,
            '\\' => match chars.next() {
                Some(c @ ('"' | '\\')) => text.push(c),
                other => return Err(format!("escaped {other:?}")),
            },
            c @ ' '..='~' => text.push(c),
            other => return Err(format!("{other:?} in a string")),
        }
    }
    *input = chars.as_str();
    Ok(text)
}
