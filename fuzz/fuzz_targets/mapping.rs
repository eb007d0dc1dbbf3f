//! The head of a request, mapped to descriptors: any input is mapped or rejected, and the client
//! address is always one that a trusted proxy reported.
//!
//! The first line is the mapping's one part, the second the URI; each other is a header, its name
//! up to the first `:`.

#![no_main]

use std::net::IpAddr;

use libfuzzer_sys::fuzz_target;
use sluicegate_rules::mapping::{Attributes, Mapping, Part, Proxies};

fuzz_target!(|bytes: &[u8]| {
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let part = String::from_utf8_lossy(lines.next().unwrap_or_default()).into_owned();
    let uri = lines.next().unwrap_or_default();
    let split = |line: &'_ [u8]| {
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        (String::from_utf8_lossy(&line[..colon]).into_owned(), line.get(colon + 1..).unwrap_or_default().to_vec())
    };
    let headers: Vec<(String, Vec<u8>)> = lines.map(split).collect();
    let headers: Vec<(&str, &[u8])> =
        headers.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect();

    let ours = Proxies::new(vec!["10.0.0.0/8".parse().expect("a network")]);
    let peer: IpAddr = [10, 0, 0, 1].into();
    let client = ours.client_ip(peer, &headers.as_slice());
    // A trusted proxy appends to the header.
    let known: IpAddr = [203, 0, 113, 9].into();
    let mut forwarded = headers.clone();
    forwarded.push(("x-forwarded-for", b"203.0.113.9"));
    assert_eq!(ours.client_ip(peer, &forwarded.as_slice()), known);

    let Ok(part) = part.parse::<Part>() else { return };
    assert_eq!(part.to_string().parse::<Part>().as_ref(), Ok(&part));
    let descriptor = vec![("key".into(), part.clone())];
    let mapping = Mapping { descriptors: vec![descriptor.into()], hits: Some(part) };
    let headers = headers.as_slice();
    let request = Attributes {
        client_ip: Some(client),
        method: Some(uri),
        scheme: Some(uri),
        host: Some(uri),
        uri: Some(uri),
        headers: &headers,
        identity: None,
    };
    if let Ok(described) = mapping.describe(&request) {
        described.with_request("web", |request| {
            let entries = request.descriptors.iter().flat_map(|descriptor| descriptor.entries);
            for entry in entries {
                assert!(!entry.value.is_empty() && entry.value.len() <= 3 * bytes.len() + 64);
            }
        });
    }
});
