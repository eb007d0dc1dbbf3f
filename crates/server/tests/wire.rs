//! What is read and written by hand is what generated code reads and writes.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{
    Entry, RateLimitOverride,
};
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use envoy_types::pb::google::protobuf::UInt64Value;
use proptest::prelude::*;
use prost::Message;
use sluicegate_server::rls::ask::{Ask, Most};

fn text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "[a-z]{1,6}", "\\PC{0,40}"]
}

prop_compose! {
    fn descriptor()(
        entries in prop::collection::vec((text(), text()), 0..5),
        limit in prop::option::of((any::<u32>(), any::<i32>())),
        hits in prop::option::of(any::<u64>()),
    ) -> RateLimitDescriptor {
        RateLimitDescriptor {
            entries: entries.into_iter().map(|(key, value)| Entry { key, value }).collect(),
            limit: limit.map(|(requests_per_unit, unit)| RateLimitOverride { requests_per_unit, unit }),
            hits_addend: hits.map(|value| UInt64Value { value }),
            ..Default::default()
        }
    }
}

fn same(bytes: &[u8]) {
    let ours = Ask::read(bytes, Most { descriptors: 100_000, entries: 100_000 });
    let theirs = RateLimitRequest::decode(bytes);
    match (ours, theirs) {
        (Ok(ours), Ok(theirs)) => {
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
            }
        }
        (Err(_), Err(_)) => {}
        (ours, theirs) => panic!("{bytes:?}: {ours:?} {theirs:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn good_messages(domain in text(), descriptors in prop::collection::vec(descriptor(), 0..5), hits_addend: u32) {
        same(&RateLimitRequest { domain, descriptors, hits_addend }.encode_to_vec());
    }

    #[test]
    fn broken_messages(domain in text(), descriptors in prop::collection::vec(descriptor(), 0..3), hits_addend: u32, damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..4u8), 1..6)) {
        let mut bytes = RateLimitRequest { domain, descriptors, hits_addend }.encode_to_vec();
        for (at, byte, how) in damage {
            if bytes.is_empty() { bytes.push(byte); continue; }
            let at = at.index(bytes.len());
            match how { 0 => bytes[at] = byte, 1 => bytes.insert(at, byte), 2 => { bytes.remove(at); } _ => bytes.truncate(at) }
        }
        same(&bytes);
    }

    #[test]
    fn noise(bytes in prop::collection::vec(prop_oneof![any::<u8>(), prop::sample::select(vec![0x0a,0x12,0x18,0x1a,0x20,0x13,0x14,0x0b,0x0c,2,3,1,0x80])], 0..40)) { same(&bytes); }
}
