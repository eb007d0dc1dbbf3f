//! Trace context of a call: its headers in W3C or B3 form, and the sampling decision.
//!
//! ```text
//!   traceparent: 00-<trace: 32 hex>-<span: 16 hex>-<flags: 2 hex, 01 is sampled>
//!   b3:          <trace: 16 or 32 hex>-<span: 16 hex>[-<0, 1 or d>[-<parent>]], or only 0, 1 or d
//!   x-b3-traceid, x-b3-spanid, x-b3-sampled (0 or 1), x-b3-flags (1 is d)
//! ```
//!
//! The first valid form counts; invalid headers are ignored.

use http::{HeaderMap, HeaderName};

/// The caller's span.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Parent {
    pub(super) trace: Option<u128>,
    pub(super) span: Option<u64>,
    /// The caller's sampling decision, if it made one.
    pub(super) sampled: Option<bool>,
}

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const B3: HeaderName = HeaderName::from_static("b3");
const B3_TRACE: HeaderName = HeaderName::from_static("x-b3-traceid");
const B3_SPAN: HeaderName = HeaderName::from_static("x-b3-spanid");
const B3_SAMPLED: HeaderName = HeaderName::from_static("x-b3-sampled");
const B3_FLAGS: HeaderName = HeaderName::from_static("x-b3-flags");

pub(super) fn extract(headers: &HeaderMap) -> Parent {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let w3c = text(TRACEPARENT).and_then(w3c);
    let single = || text(B3).and_then(single);
    w3c.or_else(single).or_else(|| multiple(text)).unwrap_or_default()
}

/// Samples by trace id as OpenTelemetry's ratio sampler does, so that services agree.
pub(super) fn is_sampled(trace: u128, sampled_below: u64) -> bool {
    (trace as u64) >> 1 < sampled_below
}

/// The threshold of a sampling rate.
pub(super) fn sampled_below(rate: f64) -> u64 {
    const ALL: u64 = 1 << 63;
    if rate >= 1.0 { ALL } else { (rate.max(0.0) * ALL as f64) as u64 }
}

fn w3c(text: &str) -> Option<Parent> {
    let mut parts = text.trim().splitn(4, '-');
    let (version, trace, span, flags) =
        (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let is_lower = !text.bytes().any(|byte| byte.is_ascii_uppercase());
    // Later versions may append fields; version 00 may not.
    let (flags, rest) = flags.split_at_checked(2)?;
    let fits = version != "ff" && is_lower && (rest.is_empty() || version != "00");
    hex(version, 2).filter(|_| fits && (rest.is_empty() || rest.starts_with('-')))?;
    let sampled = hex(flags, 2)? & 1 == 1;
    Some(Parent {
        trace: Some(nonzero_hex(trace, 32)?),
        span: span_id(span),
        sampled: Some(sampled),
    })
    .filter(|parent| parent.span.is_some())
}

fn single(text: &str) -> Option<Parent> {
    let mut parts = text.trim().split('-');
    let first = parts.next()?;
    let Some(span) = parts.next() else {
        return Some(Parent { sampled: Some(sampling_state(first)?), ..Parent::default() });
    };
    let sampled = match parts.next() {
        Some(state) => Some(sampling_state(state)?),
        None => None,
    };
    Some(Parent { trace: Some(trace_id(first)?), span: Some(span_id(span)?), sampled })
}

fn multiple<'a>(text: impl Fn(HeaderName) -> Option<&'a str>) -> Option<Parent> {
    let debug = text(B3_FLAGS).filter(|flags| *flags == "1").map(|_| true);
    let sampled = debug.or_else(|| text(B3_SAMPLED).and_then(sampling_state));
    let trace = text(B3_TRACE).and_then(trace_id);
    // Neither id is valid without the other.
    let (trace, span) = trace.zip(text(B3_SPAN).and_then(span_id)).unzip();
    (trace.is_some() || sampled.is_some()).then_some(Parent { trace, span, sampled })
}

fn sampling_state(state: &str) -> Option<bool> {
    match state {
        "1" | "d" | "true" => Some(true),
        "0" | "false" => Some(false),
        _ => None,
    }
}

fn trace_id(text: &str) -> Option<u128> {
    nonzero_hex(text, 32).or_else(|| nonzero_hex(text, 16))
}

fn span_id(text: &str) -> Option<u64> {
    nonzero_hex(text, 16).and_then(|id| u64::try_from(id).ok())
}

/// An id of exactly `digits` digits; 0 is invalid.
fn nonzero_hex(text: &str, digits: usize) -> Option<u128> {
    hex(text, digits).filter(|id| *id != 0)
}

fn hex(text: &str, digits: usize) -> Option<u128> {
    let fits = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if fits { u128::from_str_radix(text, 16).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: u128 = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736;
    const SPAN: u64 = 0x00f0_67aa_0ba9_02b7;

    fn of(headers: &[(&'static str, &str)]) -> Parent {
        let headers = headers.iter().map(|(name, value)| {
            (HeaderName::from_static(name), http::HeaderValue::from_str(value).unwrap())
        });
        extract(&headers.collect())
    }

    fn known(sampled: Option<bool>) -> Parent {
        Parent { trace: Some(TRACE), span: Some(SPAN), sampled }
    }

    #[test]
    fn traceparent() {
        let of = |text: &str| of(&[("traceparent", text)]);
        let ids = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7";
        assert_eq!(of(&format!("00-{ids}-01")), known(Some(true)));
        assert_eq!(of(&format!("00-{ids}-00")), known(Some(false)));
        // Only the lowest bit means sampled.
        assert_eq!(of(&format!("00-{ids}-02")), known(Some(false)));
        assert_eq!(of(&format!("cc-{ids}-01-what-comes-later")), known(Some(true)));
        for wrong in [
            String::new(),
            "00".into(),
            format!("00-{ids}"),
            format!("00-{ids}-1"),
            format!("00-{ids}-011"),
            format!("00-{ids}-01-more"),
            format!("cc-{ids}-01more"),
            format!("ff-{ids}-01"),
            format!("00-{ids}-0g"),
            format!("00-{}-01", ids.to_uppercase()),
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01".into(),
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01".into(),
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".into(),
        ] {
            assert_eq!(of(&wrong), Parent::default(), "{wrong}");
        }
    }

    #[test]
    fn b3_in_one_header() {
        let of = |text: &str| of(&[("b3", text)]);
        let ids = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7";
        assert_eq!(of(ids), known(None));
        assert_eq!(of(&format!("{ids}-1")), known(Some(true)));
        assert_eq!(of(&format!("{ids}-d")), known(Some(true)));
        assert_eq!(of(&format!("{ids}-0-05e3ac9a4f6e3b90")), known(Some(false)));
        let short = of("a3ce929d0e0e4736-00f067aa0ba902b7-1");
        assert_eq!(short.trace, Some(u128::from(TRACE as u64)));
        assert_eq!(of("0"), Parent { sampled: Some(false), ..Parent::default() });
        assert_eq!(of("x"), Parent::default());
        assert_eq!(of(&format!("{ids}-x")), Parent::default());
    }

    #[test]
    fn b3_in_several_headers() {
        let ids = [
            ("x-b3-traceid", "4bf92f3577b34da6a3ce929d0e0e4736"),
            ("x-b3-spanid", "00f067aa0ba902b7"),
        ];
        assert_eq!(of(&ids), known(None));
        assert_eq!(of(&[&ids[..], &[("x-b3-sampled", "0")]].concat()), known(Some(false)));
        let debug = [("x-b3-sampled", "0"), ("x-b3-flags", "1")];
        assert_eq!(of(&[&ids[..], &debug].concat()), known(Some(true)));
        assert_eq!(of(&ids[..1]), Parent::default());
        assert_eq!(of(&[("x-b3-sampled", "1")]).sampled, Some(true));
    }

    #[test]
    fn the_first_valid_form_counts() {
        let b3 = ("b3", "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0");
        let w3c = ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
        assert_eq!(of(&[b3, w3c]), known(Some(true)));
        assert_eq!(of(&[b3, ("traceparent", "nonsense")]), known(Some(false)));
    }

    #[test]
    fn a_rate_samples_its_share_by_trace_id() {
        assert!(is_sampled(u128::MAX, sampled_below(1.0)) && !is_sampled(0, sampled_below(0.0)));
        let half = sampled_below(0.5);
        // Only the lower half of the number is looked at.
        assert!(
            is_sampled(0x7fff_ffff_ffff_ffff, half) && !is_sampled(0x8000_0000_0000_0000, half)
        );
        assert!(is_sampled(u128::MAX << 64, half));
        assert_eq!(sampled_below(-1.0), 0);
        assert_eq!(sampled_below(f64::NAN), 0);
    }
}
