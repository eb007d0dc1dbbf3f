//! Envoy's configuration, as the guides show it.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType};

use crate::envoy::{Envoy, validated};
use crate::support::http::{self, Answer};
use crate::support::service::Service;
use crate::support::{Folder, root};
use crate::upstream;

/// The blocks of YAML in the guides that begin with this text.
fn blocks(beginning: &str) -> Vec<String> {
    let pages = ["service", "migrating"]
        .map(|name| std::fs::read_to_string(root().join(format!("docs/guide/{name}.md"))).unwrap());
    let blocks = pages.iter().flat_map(|page| page.split("```yaml\n").skip(1));
    let blocks = blocks.map(|block| block.split("```").next().unwrap().to_owned());
    blocks.filter(|block| block.starts_with(beginning)).collect()
}

/// The one whole configuration.
pub fn whole() -> String {
    let [whole] = blocks("admin:").try_into().unwrap();
    whole
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

fn indented(block: &str, by: usize) -> String {
    block.lines().map(|line| format!("{:by$}{line}\n", "")).collect()
}

/// The configuration with a block before the line that says this.
fn before(config: &str, place: &str, block: &str) -> String {
    let lines = config.lines().map(|line| {
        let block =
            if line.trim() == place { indented(block, indent(line)) } else { String::new() };
        format!("{block}{line}\n")
    });
    let changed: String = lines.collect();
    assert_ne!(changed, config, "there is no `{place}`");
    changed
}

/// The configuration with a block in place of the first with the same first line.
fn instead(config: &str, block: &str) -> String {
    let (first, mut lines) = (block.lines().next().unwrap(), config.lines());
    let above: Vec<&str> = lines.by_ref().take_while(|line| line.trim() != first).collect();
    let rest = config.lines().skip(above.len());
    let by = rest.clone().next().map(indent).unwrap();
    let below = rest.skip(1).skip_while(|line| indent(line) > by);
    let [above, below] = [above, below.collect()]
        .map(|lines| lines.iter().map(|line| format!("{line}\n")).collect::<String>());
    above + &indented(block, by) + &below
}

/// The configuration, with what a test must have otherwise than a user.
pub fn here(config: &str, service: &str, upstream: &str) -> String {
    let port = |address: &str| format!("port_value: {}", address.rsplit_once(':').unwrap().1);
    let changes = [
        ("port_value: 9901", "port_value: 0".to_owned()),
        ("127.0.0.1, port_value: 10000", "127.0.0.1, port_value: 0".to_owned()),
        ("port_value: 8000", port(upstream)),
        ("port_value: 8081", port(service)),
        // A busy machine may need longer.
        ("timeout: 0.020s", "timeout: 60s".to_owned()),
    ];
    changes.iter().fold(config.to_owned(), |config, (from, to)| {
        assert!(config.contains(from), "there is no `{from}`");
        config.replace(from, to)
    })
}

#[test]
fn the_configuration_of_the_guide_limits_users_and_their_exports() {
    let folder = Folder::new();
    let rules = root().join("docs/examples/service.yaml");
    let service = Service::start(rules.to_str().unwrap(), "127.0.0.1:0", &[]);
    let upstream = upstream::start();
    let [route] = blocks("- match:").try_into().unwrap();
    let config = before(&whole(), "- match: { prefix: / }", &route);
    let envoy = Envoy::start(&here(&config, &service.grpc, &upstream.address), &folder);
    let get = |path| http::get(&envoy.listeners[0], path, &[("x-user-id", b"42".as_slice())]);

    let told = |answer: Answer| {
        let header = |name| answer.header(name).unwrap_or_default().to_owned();
        (answer.status, header("x-ratelimit-limit"), header("x-ratelimit-remaining"))
    };
    let (daily, both) = (
        r#"1000, 1000;w=86400;name="daily""#,
        r#"2, 1000;w=86400;name="daily", 2;w=86400;name="exports""#,
    );
    let guide = std::fs::read_to_string(root().join("docs/guide/service.md")).unwrap();
    assert!(guide.contains(&format!("x-ratelimit-limit: {daily}\nx-ratelimit-remaining: 999\n")));
    assert_eq!(told(get("/")), (200, daily.to_owned(), "999".to_owned()));
    for (status, left) in [(200, "1"), (200, "0"), (429, "0")] {
        assert_eq!(told(get("/export")), (status, both.to_owned(), left.to_owned()));
    }
    // The export that was denied was not charged to the user either.
    assert_eq!(told(get("/")), (200, daily.to_owned(), "996".to_owned()));
    assert_eq!(upstream.reached(), 4);
    assert_eq!(
        http::get(&envoy.listeners[0], "/export", &[]).status,
        200,
        "nobody is under no limit"
    );
}

#[test]
fn every_other_part_of_the_guides_fits_into_it() {
    let folder = Folder::new();
    validated(&whole(), &folder);
    let (limits, filters) = (blocks("rate_limits:"), blocks("- name:"));
    assert!(limits.len() >= 3 && filters.len() >= 2, "some were not found");
    for block in limits {
        validated(&instead(&whole(), &block), &folder);
    }
    for block in filters {
        validated(&before(&whole(), "- name: envoy.filters.http.ratelimit", &block), &folder);
    }
}

#[test]
fn headers_that_clients_made_up_do_not_reach_the_upstream() {
    let folder = Folder::new();
    let rules = root().join("docs/examples/service.yaml");
    let environment = [("LIMIT_REQUEST_HEADERS_ENABLED", "true")];
    let service = Service::start(rules.to_str().unwrap(), "127.0.0.1:0", &environment);
    let upstream = upstream::start();
    let [filter] = blocks("- name: envoy.filters.http.header_mutation").try_into().unwrap();
    let config = before(&whole(), "- name: envoy.filters.http.ratelimit", &filter);
    let envoy = Envoy::start(&here(&config, &service.grpc, &upstream.address), &folder);
    let headers: [(&str, &[u8]); 2] = [("x-user-id", b"42"), ("ratelimit-remaining", b"1000000")];
    let answer = http::get(&envoy.listeners[0], "/", &headers);
    let reached: Vec<&str> =
        answer.body.lines().filter(|line| line.starts_with("ratelimit-remaining")).collect();
    assert_eq!(reached, ["ratelimit-remaining: 999"], "{answer:?}");
}

/// Certificates as the guide names them: a CA, the service's, and Envoy's. Their directory.
fn certificates(folder: &Folder) -> String {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // Of one name with what it signs, it would seem to be signed by itself.
    params.distinguished_name.push(DnType::CommonName, "ca");
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    folder.file("ca.pem", &ca.pem());
    let service = SanType::DnsName("sluicegate.internal".try_into().unwrap());
    let edge = SanType::URI("spiffe://cluster/edge".try_into().unwrap());
    for (name, san) in [("server", service), ("edge", edge)] {
        let (mut params, key) = (CertificateParams::default(), KeyPair::generate().unwrap());
        params.subject_alt_names = vec![san];
        folder.file(&format!("{name}.pem"), &params.signed_by(&key, &ca).unwrap().pem());
        folder.file(&format!("{name}.key"), &key.serialize_pem());
    }
    folder.path().to_owned()
}

#[test]
fn the_tls_of_the_guide_lets_those_in_who_have_the_name() {
    let folder = Folder::new();
    let at = certificates(&folder);
    let rules = root().join("docs/examples/service.yaml");
    let [tls] = blocks("transport_socket:").try_into().unwrap();
    let tls = tls.replace("/etc/envoy/", &format!("{at}/"));
    let config = before(&whole(), "typed_extension_protocol_options:", &tls);
    let [cert, key, ca] = ["server.pem", "server.key", "ca.pem"].map(|name| format!("{at}/{name}"));
    for (name, is_let_in) in [("spiffe://cluster/edge", true), ("spiffe://cluster/other", false)] {
        let environment = [
            ("SLUICEGATE_TLS_CERT", cert.as_str()),
            ("SLUICEGATE_TLS_KEY", &key),
            ("SLUICEGATE_CLIENT_CA", &ca),
            ("SLUICEGATE_CLIENT_SAN", name),
        ];
        let service = Service::start(rules.to_str().unwrap(), "127.0.0.1:0", &environment);
        let upstream = upstream::start();
        let envoy = Envoy::start(&here(&config, &service.grpc, &upstream.address), &folder);
        let answer = http::get(&envoy.listeners[0], "/", &[("x-user-id", b"42".as_slice())]);
        let limit = answer.header("x-ratelimit-remaining");
        assert_eq!((answer.status, limit), (200, is_let_in.then_some("999")), "{name}");
        assert_eq!(envoy.counted("cluster.upstream.ratelimit.error"), u64::from(!is_let_in));
    }
}
