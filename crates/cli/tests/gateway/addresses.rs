//! The address of a client: headers of trusted proxies, the PROXY protocol, IPv6 networks; the
//! country and the autonomous system of an address.

use std::net::{IpAddr, TcpStream};

use crate::gateway::Gateway;
use crate::support::http::{Answer, asked_on};
use crate::support::{Folder, sluicegate};

/// A gateway that admits one request of each value of this part.
fn start(folder: &Folder, options: &str, part: &str) -> Gateway {
    let rule = "prefix: { v6: 64 }\n    limits: { algorithm: fixed_window, rate: 1/year }";
    folder.file("rules.yaml", &format!("domain: web\ndescriptors:\n  - key: client\n    {rule}\n"));
    Gateway::at_addresses_of(&config(folder, options, part))
}

fn config(folder: &Folder, options: &str, part: &str) -> String {
    let text = format!(
        "rules: rules.yaml\n{options}\nroutes:\n  - path: /*\n    respond: {{ status: 200, body: \"\" }}\n    limit: {{ domain: web, descriptors: [{{ client: {part} }}] }}\n    response_headers: {{ set: {{ X-Client: \"{{client_ip}}\" }} }}\n"
    );
    folder.file("gateway.yaml", &text)
}

/// A request with these lines, behind these bytes.
fn send(gateway: &Gateway, before: &[u8], lines: &str) -> Answer {
    let request = format!("GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n{lines}\r\n");
    let bytes = [before, request.as_bytes()].concat();
    asked_on(TcpStream::connect(&gateway.address).unwrap(), &bytes)
}

fn client(gateway: &Gateway, lines: &str) -> String {
    let answer = send(gateway, b"", lines);
    answer.header("x-client").unwrap_or_else(|| panic!("{lines}: {answer:?}")).to_owned()
}

const LISTEN: &str = "listen: 127.0.0.1:0";
const TRUSTED: &str = "listen: 127.0.0.1:0\ntrusted_proxies: [127.0.0.0/8, 10.0.0.0/8]";

#[test]
fn headers_of_untrusted_peers_are_ignored() {
    let folder = Folder::new();
    let gateway = start(&folder, LISTEN, "client_ip");
    let spoofed = [
        "x-forwarded-for: 192.0.2.1\r\n",
        "x-forwarded-for: 192.0.2.2\r\nx-forwarded-for: 192.0.2.3\r\n",
        "forwarded: for=192.0.2.4\r\n",
        "x-real-ip: 192.0.2.5\r\n",
        "true-client-ip: 192.0.2.6\r\ncf-connecting-ip: 192.0.2.6\r\n",
        "x-forwarded-for: garbage\r\n",
    ];
    let statuses = spoofed.map(|lines| send(&gateway, b"", lines).status);
    assert_eq!(statuses, [200, 429, 429, 429, 429, 429]);
    assert_eq!(spoofed.map(|lines| client(&gateway, lines)), ["127.0.0.1"; 6]);
}

#[test]
fn a_trusted_proxy_names_the_client_and_clients_cannot_name_another() {
    let folder = Folder::new();
    let gateway = start(&folder, TRUSTED, "client_ip");
    for (lines, expected) in [
        ("x-forwarded-for: 192.0.2.1\r\n", "192.0.2.1"),
        // The client wrote the first ones; its proxy appended the last.
        ("x-forwarded-for: 1.1.1.1, 192.0.2.2\r\n", "192.0.2.2"),
        ("x-forwarded-for: 1.1.1.1\r\nx-forwarded-for: 192.0.2.3\r\n", "192.0.2.3"),
        ("x-forwarded-for: 1.1.1.1, 192.0.2.4, 10.0.0.7\r\n", "192.0.2.4"),
        // Ports, brackets, mapped addresses, blanks.
        ("x-forwarded-for: 192.0.2.5:4711\r\n", "192.0.2.5"),
        ("x-forwarded-for: [2001:db8::5]:4711\r\n", "2001:db8::5"),
        ("x-forwarded-for: 2001:DB8:0:0::6\r\n", "2001:db8::6"),
        ("x-forwarded-for: ::ffff:192.0.2.7\r\n", "192.0.2.7"),
        ("x-forwarded-for: ,, 192.0.2.8 ,\r\n", "192.0.2.8"),
        // What is no address is not believed, nor anything before it.
        ("x-forwarded-for: 1.1.1.1, unknown\r\n", "127.0.0.1"),
        ("x-forwarded-for: 1.1.1.1, 192.0.2.999, 10.0.0.7\r\n", "10.0.0.7"),
        ("x-forwarded-for: 1.1.1.1, _hidden\r\n", "127.0.0.1"),
        ("x-forwarded-for: \r\n", "127.0.0.1"),
        ("forwarded: for=1.1.1.1, for=\"[2001:db8::9]:80\";proto=https\r\n", "2001:db8::9"),
        ("forwarded: for=\"1.1.1.1, for=192.0.2.10\r\n", "127.0.0.1"),
        ("forwarded: for=unknown\r\n", "127.0.0.1"),
        ("x-forwarded-for: 192.0.2.11\r\nforwarded: for=1.1.1.1\r\n", "192.0.2.11"),
    ] {
        assert_eq!(client(&gateway, lines), expected, "{lines}");
    }
}

#[test]
fn a_network_of_ipv6_is_one_client() {
    let folder = Folder::new();
    let gateway = start(&folder, TRUSTED, "client_ip");
    let status =
        |address: &str| send(&gateway, b"", &format!("x-forwarded-for: {address}\r\n")).status;
    let same = ["2001:db8::1", "2001:db8::ffff:2", "[2001:db8:0:0:1::3]:80"];
    assert_eq!(same.map(status), [200, 429, 429]);
    assert_eq!(["2001:db8:0:1::1", "192.0.2.1", "::ffff:192.0.2.1"].map(status), [200, 200, 429]);
}

/// A header of version 2 with these addresses.
fn version_2(client: [u8; 4]) -> Vec<u8> {
    let addresses = [client, [10, 0, 0, 1]].concat();
    [b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c".as_slice(), &addresses, &[0x12, 0x34, 0, 80]].concat()
}

#[test]
fn the_proxy_protocol_is_for_listed_peers_only() {
    let folder = Folder::new();
    let listen =
        |peers: &str| format!("listen: {{ address: 127.0.0.1:0, proxy_protocol: {peers} }}");
    let gateway = start(&folder, &listen("127.0.0.0/8"), "client_ip");
    let line = b"PROXY TCP4 192.0.2.1 10.0.0.1 4660 80\r\n";
    let six = b"PROXY TCP6 2001:db8::1 2001:db8::2 4660 80\r\n";
    // The address of the header is that of the client, and what the client adds is not believed.
    let spoofed = "x-forwarded-for: 1.1.1.1\r\n";
    let of = |before: &[u8]| {
        let answer = send(&gateway, before, spoofed);
        (answer.status, answer.header("x-client").unwrap().to_owned())
    };
    assert_eq!(of(line), (200, "192.0.2.1".to_owned()));
    assert_eq!(of(&version_2([192, 0, 2, 1])), (429, "192.0.2.1".to_owned()));
    assert_eq!(of(&version_2([192, 0, 2, 2])), (200, "192.0.2.2".to_owned()));
    assert_eq!(of(six), (200, "2001:db8::1".to_owned()));
    let gateway = start(&folder, &listen("192.0.2.0/24"), "client_ip");
    assert_eq!(send(&gateway, line, "").status, 400, "of another peer");
    assert_eq!(client(&gateway, ""), "127.0.0.1");
}

/// A database in MaxMind's format: networks of IPv4 and the path of keys to the value of each.
fn database(keys: &[&str], networks: &[(&str, u8, &[u8])]) -> Vec<u8> {
    const UNUSED: usize = usize::MAX;
    // By node, the next one of each bit; a value is its number behind all nodes.
    let mut nodes = vec![[UNUSED; 2]];
    let mut leaves = Vec::new();
    for (number, (address, length, _)) in networks.iter().enumerate() {
        let bits = match address.parse().unwrap() {
            IpAddr::V4(address) => u128::from(u32::from(address)),
            IpAddr::V6(address) => u128::from(address),
        };
        let is_v4 = !address.contains(':');
        let length = if is_v4 { length + 96 } else { *length };
        let mut node = 0;
        for position in 0..length {
            let bit = (bits >> (127 - position) & 1) as usize;
            if position + 1 == length {
                leaves.push((node, bit, number));
            } else {
                if nodes[node][bit] == UNUSED {
                    nodes.push([UNUSED; 2]);
                    nodes[node][bit] = nodes.len() - 1;
                }
                node = nodes[node][bit];
            }
        }
    }
    let text = |text: &str| [&[0x40 | text.len() as u8], text.as_bytes()].concat();
    let mut data = Vec::new();
    let mut offsets = Vec::new();
    for (_, _, value) in networks {
        offsets.push(data.len());
        for key in keys {
            data.push(0xe1);
            data.extend(text(key));
        }
        data.extend(*value);
    }
    let count = nodes.len();
    let mut tree: Vec<[usize; 2]> = nodes
        .iter()
        .map(|node| node.map(|next| if next == UNUSED { count } else { next }))
        .collect();
    for (node, bit, number) in leaves {
        tree[node][bit] = count + 16 + offsets[number];
    }
    let record = |record: &usize| (*record as u32).to_be_bytes()[1..].to_vec();
    let mut bytes: Vec<u8> = tree.iter().flatten().flat_map(record).collect();
    bytes.extend([0; 16]);
    bytes.extend(data);
    bytes.extend(b"\xab\xcd\xefMaxMind.com");
    let number =
        |name: &str, value: u32| [text(name), vec![0xc4], value.to_be_bytes().to_vec()].concat();
    bytes.push(0xe9);
    bytes.extend(number("node_count", count as u32));
    for (name, value) in [
        ("record_size", 24_u8),
        ("ip_version", 6),
        ("binary_format_major_version", 2),
        ("binary_format_minor_version", 0),
    ] {
        bytes.extend([text(name), vec![0xa1, value]].concat());
    }
    bytes.extend([text("database_type"), text("test")].concat());
    bytes.extend([text("build_epoch"), vec![0x01, 0x02, 0x01]].concat());
    bytes.extend([text("languages"), vec![0x00, 0x04]].concat());
    bytes.extend([text("description"), vec![0xe0]].concat());
    bytes
}

#[test]
fn country_and_autonomous_system_come_from_files_that_reload() {
    let folder = Folder::new();
    let countries = |of_doc: &[u8]| {
        let networks: [(&str, u8, &[u8]); 3] = [
            ("192.0.2.0", 24, of_doc),
            ("198.51.100.0", 24, b"\x42FR"),
            ("2001:db8::", 32, b"\x42FR"),
        ];
        database(&["country", "iso_code"], &networks)
    };
    folder.bytes("country.mmdb", &countries(b"\x42DE"));
    let systems: [(&str, u8, &[u8]); 2] =
        [("192.0.2.0", 24, b"\xc2\xfb\xf0"), ("198.51.100.0", 25, b"\xc3\x01\x00\x00")];
    folder.bytes("asn.mmdb", &database(&["autonomous_system_number"], &systems));
    let geo = format!("{TRUSTED}\nidentity: {{ geo: {{ country: country.mmdb, asn: asn.mmdb }} }}");
    let status = |gateway: &Gateway, address: &str| {
        send(gateway, b"", &format!("x-forwarded-for: {address}\r\n")).status
    };
    let mut gateway = start(&folder, &geo, "country or unknown");
    let all =
        ["192.0.2.1", "192.0.2.2", "198.51.100.1", "2001:db8:1::1", "203.0.113.1", "203.0.113.2"];
    assert_eq!(all.map(|address| status(&gateway, address)), [200, 429, 200, 429, 200, 429]);
    folder.bytes("country.mmdb", b"no database");
    let line =
        gateway.process.says("country database not loaded; the last good one stays in force");
    assert!(line.contains("MaxMind's format"), "{line}");
    assert_eq!(status(&gateway, "192.0.2.1"), 429);
    folder.bytes("country.mmdb", &countries(b"\x42AT"));
    gateway.process.says("country database reloaded");
    assert_eq!(["192.0.2.1", "192.0.2.2"].map(|address| status(&gateway, address)), [200, 429]);

    let gateway = start(&folder, &geo, "asn");
    let all = ["192.0.2.1", "192.0.2.2", "198.51.100.1", "198.51.100.200"];
    assert_eq!(
        all.map(|address| status(&gateway, address)),
        [200, 429, 200, 400],
        "the last is unknown"
    );
    let run = sluicegate(&["check", &config(&folder, &geo, "asn")], "");
    assert!(run.stderr.contains("addresses that the database does not have are rejected, got `asn`; write `asn or unknown`"), "{}", run.stderr);
}
