//! The oracle: generated code. Fuzz targets use it too, by path.

use envoy_types::pb::envoy::service::ratelimit::v3 as generated;
use prost::Message;
use sluicegate_server::rls::request::{RateLimitRequest, RequestLimits, WireError};

const LIMITS: RequestLimits = RequestLimits { descriptors: 100_000, entries: 100_000 };

/// Reads the bytes both ways: both refuse them, or both find the same in them.
///
/// Two differences are meant: more than [`RequestLimits`] allows is refused here, and so are unknown groups that are nested deeper than anybody needs.
pub(crate) fn same(bytes: &[u8]) {
    let ours = RateLimitRequest::decode(bytes, LIMITS);
    let theirs = generated::RateLimitRequest::decode(bytes);
    match (ours, theirs) {
        (Ok(ours), Ok(theirs)) => same_content(&ours, &theirs),
        (Err(_), Err(_)) | (Err(WireError::TooMany | WireError::TooDeep), Ok(_)) => {}
        (ours, theirs) => panic!("{bytes:?}: {ours:?} {theirs:?}"),
    }
}

fn same_content(ours: &RateLimitRequest<'_>, theirs: &generated::RateLimitRequest) {
    assert_eq!(ours.domain, theirs.domain);
    assert_eq!(ours.hits_addend, theirs.hits_addend);
    assert_eq!(ours.descriptors.len(), theirs.descriptors.len());
    for (one, other) in ours.descriptors.iter().zip(&theirs.descriptors) {
        let entries: Vec<_> = ours.entries(one).iter().map(|e| (e.key, e.value)).collect();
        let expected: Vec<_> = other.entries.iter().map(|e| (&*e.key, &*e.value)).collect();
        assert_eq!(entries, expected);
        assert_eq!(
            one.limit.map(|l| (l.requests_per_unit, l.unit)),
            other.limit.map(|l| (l.requests_per_unit, l.unit))
        );
        assert_eq!(one.hits_addend, other.hits_addend.map(|h| h.value));
        assert_eq!(one.is_negative_hits, other.is_negative_hits);
    }
}
