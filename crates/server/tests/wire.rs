//! What is read and written by hand is what generated code reads and writes.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

#[path = "wire/same.rs"]
mod same;

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{
    Entry, RateLimitOverride,
};
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use envoy_types::pb::google::protobuf::UInt64Value;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use prost::Message;

use same::same;

fn text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "[a-z]{1,6}", "\\PC{0,40}"]
}

/// Often nothing, which goes without saying.
fn number<N: Arbitrary + Default + Clone>() -> impl Strategy<Value = N> {
    prop_oneof![Just(N::default()), any::<N>()]
}

prop_compose! {
    fn descriptor()(
        entries in vec((text(), text()), 0..5),
        limit in prop::option::of((number::<u32>(), number::<i32>())),
        hits in prop::option::of(number::<u64>()),
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

prop_compose! {
    fn message()(
        domain in text(),
        descriptors in vec(descriptor(), 0..4),
        hits_addend: u32,
    ) -> Vec<u8> {
        RateLimitRequest { domain, descriptors, hits_addend }.encode_to_vec()
    }
}

prop_compose! {
    /// A request with one descriptor whose fields come several times.
    fn descriptor_in_pieces()(pieces in vec(descriptor(), 0..4)) -> Vec<u8> {
        let inside: Vec<u8> = pieces.iter().flat_map(Message::encode_to_vec).collect();
        let mut bytes = vec![0x12];
        prost::encode_length_delimiter(inside.len(), &mut bytes).unwrap();
        bytes.extend(inside);
        bytes
    }
}

/// Something that happens to bytes on their way.
#[derive(Debug, Clone)]
enum Damage {
    Set(Index, u8),
    Flip(Index, u8),
    Insert(Index, u8),
    Remove(Index),
    Truncate(Index),
    /// A piece comes twice, the second time somewhere else.
    Repeat(Index, Index, Index),
}

fn damage() -> impl Strategy<Value = Damage> {
    let at = any::<Index>;
    prop_oneof![
        (at(), any::<u8>()).prop_map(|(at, byte)| Damage::Set(at, byte)),
        (at(), 0..8u8).prop_map(|(at, bit)| Damage::Flip(at, bit)),
        (at(), any::<u8>()).prop_map(|(at, byte)| Damage::Insert(at, byte)),
        at().prop_map(Damage::Remove),
        at().prop_map(Damage::Truncate),
        (at(), at(), at()).prop_map(|(from, to, at)| Damage::Repeat(from, to, at)),
    ]
}

fn damaged(mut bytes: Vec<u8>, damage: &[Damage]) -> Vec<u8> {
    for one in damage {
        // Behind the last is a place too.
        let place = |index: &Index| index.index(bytes.len() + 1);
        match one {
            Damage::Insert(at, byte) => bytes.insert(place(at), *byte),
            Damage::Truncate(at) => bytes.truncate(place(at)),
            Damage::Repeat(from, to, at) => {
                let (from, to, at) = (place(from), place(to), place(at));
                let piece = bytes[from.min(to)..from.max(to)].to_vec();
                bytes.splice(at..at, piece);
            }
            _ if bytes.is_empty() => {}
            Damage::Set(at, byte) => *at.get_mut(&mut bytes) = *byte,
            Damage::Flip(at, bit) => *at.get_mut(&mut bytes) ^= 1 << bit,
            Damage::Remove(at) => drop(bytes.remove(at.index(bytes.len()))),
        }
    }
    bytes
}

/// What a protobuf message is made of.
const TYPICAL: [u8; 13] =
    [0x0a, 0x12, 0x18, 0x1a, 0x20, 0x13, 0x14, 0x0b, 0x0c, 0x02, 0x03, 0x01, 0x80];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn good_messages(bytes in message()) {
        same(&bytes);
    }

    /// Two messages one behind the other are one: single fields are the later ones, and lists go on.
    #[test]
    fn messages_in_pieces(one in message(), other in message()) {
        same(&[one, other].concat());
    }

    /// Of a limit, too, each field is the last that came.
    #[test]
    fn descriptors_in_pieces(bytes in descriptor_in_pieces()) {
        same(&bytes);
    }

    #[test]
    fn broken_messages(bytes in prop_oneof![message(), descriptor_in_pieces()], damage in vec(damage(), 1..6)) {
        same(&damaged(bytes, &damage));
    }

    #[test]
    fn noise(bytes in vec(prop_oneof![any::<u8>(), select(TYPICAL.to_vec())], 0..40)) {
        same(&bytes);
    }
}
