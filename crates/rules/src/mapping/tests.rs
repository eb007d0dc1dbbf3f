//! Parts of requests: tables of valid and hostile input, and properties against naive
//! implementations.

mod hops;
mod parts;

use super::{Attributes, DescriptorMapping, Headers, Mapping, Part};

/// Headers as a table has them.
type Lines<'a> = &'a [(&'a str, &'a [u8])];

/// The value of a part, `-` if it is missing, or why it cannot be read.
fn value(part: &str, request: &Attributes<'_>) -> String {
    let part: Part = part.parse().unwrap_or_else(|error| panic!("{part}: {error}"));
    match part.value(request) {
        Ok(value) => value.map_or_else(|| "-".to_owned(), |value| value.into_owned()),
        Err(unreadable) => unreadable.to_string(),
    }
}

/// The same of a request with these headers.
fn in_headers(part: &str, lines: Lines<'_>) -> String {
    value(part, &Attributes::of(&lines))
}

/// The same of a request with this URI.
fn in_uri(part: &str, uri: &[u8]) -> String {
    let none: Lines<'_> = &[];
    value(part, &Attributes { uri: Some(uri), ..Attributes::of(&none) })
}

/// A descriptor of some keys and parts.
fn descriptor(entries: &[(&str, &str)]) -> DescriptorMapping {
    let entry = |(key, part): &(&str, &str)| ((*key).into(), part.parse().unwrap());
    entries.iter().map(entry).collect::<Vec<_>>().into()
}

/// Formats the mapped request: `key=value,key=value` for each descriptor, and the hits.
fn described(mapping: &Mapping, headers: &dyn Headers) -> (Vec<String>, u64) {
    let described = mapping.describe(&Attributes::of(headers)).unwrap();
    described.with_request("web", |request| {
        let entries = request.descriptors.iter().map(|descriptor| {
            let entries = descriptor.entries.iter();
            entries.map(|e| format!("{}={}", e.key, e.value)).collect::<Vec<_>>().join(",")
        });
        (entries.collect(), request.hits)
    })
}
