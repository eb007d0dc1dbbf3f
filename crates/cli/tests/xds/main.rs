//! `sluicegate serve` with the rules of a control plane.

// A test that cannot go on should say so by failing.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used)]

mod control_plane;
#[path = "../support/mod.rs"]
mod support;

use std::time::Duration;

use control_plane::{ControlPlane, limited};
use envoy_types::pb::envoy::service::discovery::v3::DiscoveryRequest;
use envoy_types::pb::google::protobuf::Any;
use envoy_types::pb::google::protobuf::value::Kind;
use envoy_types::pb::ratelimit::config::ratelimit::v3::RateLimitConfig;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use sluicegate_testkit::until;
use support::service::Service;
use support::{Folder, sluicegate};
use tonic::transport::{Certificate, Identity, ServerTlsConfig};

const TYPE: (&str, &str) = ("CONFIG_TYPE", "GRPC_XDS_SOTW");

fn connected(control_plane: &ControlPlane, more: &[(&str, &str)]) -> Service {
    let server = control_plane.address.to_string();
    let variables = [TYPE, ("CONFIG_GRPC_XDS_SERVER_URL", server.as_str())];
    let quick = ("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", "100ms");
    Service::with(&[], &[&variables[..], &[quick], more].concat())
}

/// The version and the nonce of an acknowledgement.
fn ack(request: &DiscoveryRequest) -> (&str, &str) {
    assert_eq!(request.error_detail, None);
    (&request.version_info, &request.response_nonce)
}

fn errors(request: &DiscoveryRequest) -> &str {
    &request.error_detail.as_ref().expect("a NACK").message
}

fn metric(service: &Service, sample: &str) -> f64 {
    let page = service.admin("/metrics").body;
    let value = page.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("no {sample}")).parse().unwrap()
}

fn checks(service: &Service, domain: &str, count: usize) -> Vec<u16> {
    (0..count).map(|_| service.check(domain, "alice")).collect()
}

#[test]
fn the_first_set_makes_the_service_ready_and_is_acknowledged() {
    let mut control_plane = ControlPlane::start("127.0.0.1:0", None);
    let variables = [
        ("CONFIG_GRPC_XDS_NODE_ID", "envoy-ratelimit"),
        ("CONFIG_GRPC_XDS_NODE_METADATA", "zone=a"),
        ("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "authorization:Bearer sesame"),
        ("RUNTIME_ROOT", "/nowhere"),
    ];
    let mut service = connected(&control_plane, &variables);
    let first = control_plane.next();
    let node = first.node.as_ref().unwrap();
    assert_eq!(node.id, "envoy-ratelimit");
    let zone = &node.metadata.as_ref().unwrap().fields["zone"];
    assert_eq!(zone.kind, Some(Kind::StringValue("a".to_owned())));
    let type_url = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";
    assert_eq!(first.type_url, type_url);
    assert_eq!(ack(&first), ("", ""));
    assert_eq!(control_plane.header("authorization"), "Bearer sesame");
    assert_eq!(service.admin("/ready").status, 503);
    assert_ne!(service.check("shop", "alice"), 200);
    assert!(metric(&service, "sluicegate_xds_disconnected_seconds") > 0.0);

    let nonce = control_plane.send("v1", &[limited("shop", 2), limited("web", 1)]);
    let second = control_plane.next();
    assert_eq!(ack(&second), ("v1", nonce.as_str()));
    assert_eq!(second.type_url, type_url);
    assert_eq!(service.admin("/ready").status, 200);
    assert_eq!(checks(&service, "shop", 3), [200, 200, 429]);
    assert_eq!(checks(&service, "web", 2), [200, 429]);
    assert!(service.admin("/rlconfig").body.contains("shop.user: unit=YEAR requests_per_unit=2"));
    assert_eq!(metric(&service, "sluicegate_xds_disconnected_seconds"), 0.0);
    assert_eq!(metric(&service, r#"sluicegate_xds_updates_total{outcome="accepted"}"#), 1.0);
    let address = control_plane.address;
    service.has_said(&format!("rules=xds:{address}"));
    let config = service.admin("/config").body;
    assert!(config.contains("envoy-ratelimit") && !config.contains("sesame"), "{config}");

    let nonce = control_plane.send("v2", &[limited("shop", 4), limited("web", 1)]);
    assert_eq!(ack(&control_plane.next()), ("v2", nonce.as_str()));
    // A limit in Envoy's form counts denied requests too.
    assert_eq!(checks(&service, "shop", 2), [200, 429], "the counter continues");
    assert!(control_plane.is_silent(Duration::from_millis(300)));
}

#[test]
fn an_invalid_set_is_refused_and_the_last_good_one_stays() {
    let mut control_plane = ControlPlane::start("127.0.0.1:0", None);
    let mut service = connected(&control_plane, &[]);
    control_plane.next();

    let mut bad = limited("shop", 1);
    bad.descriptors[0].rate_limit.as_mut().unwrap().unit = 0;
    let nonce = control_plane.send("v1", &[bad.clone()]);
    let refused = control_plane.next();
    assert_eq!((refused.version_info.as_str(), &refused.response_nonce), ("", &nonce));
    assert!(errors(&refused).starts_with("rules/shop:"), "{}", errors(&refused));
    assert!(errors(&refused).contains("unknown"), "{}", errors(&refused));
    assert_eq!(service.admin("/ready").status, 503, "there are no rules from before");

    let nonce = control_plane.send("v2", &[limited("shop", 1)]);
    assert_eq!(ack(&control_plane.next()), ("v2", nonce.as_str()));
    assert_eq!(checks(&service, "shop", 2), [200, 429]);

    // The same set at once again, as some control planes do, is not answered at once.
    let nonce = control_plane.send("v3", &[limited("new", 1), bad.clone()]);
    let refused = control_plane.next();
    assert_eq!((refused.version_info.as_str(), &refused.response_nonce), ("v2", &nonce));
    let line = service.says("rules not loaded: the previous rules stay in force");
    assert!(line.contains("ERROR"), "{line}");
    let nonce = control_plane.send("v3", &[limited("new", 1), bad]);
    assert!(control_plane.is_silent(Duration::from_millis(500)));
    let again = control_plane.next();
    assert_eq!((errors(&again), &again.response_nonce), (errors(&refused), &nonce));
    assert_eq!(checks(&service, "shop", 1), [429]);
    assert_eq!(service.check("new", "alice"), 200, "no part of it is in force");
    assert_eq!(service.admin("/ready").status, 200);
    assert_eq!(metric(&service, r#"sluicegate_xds_updates_total{outcome="rejected"}"#), 3.0);
    assert_eq!(metric(&service, "sluicegate_rules_last_reload_successful"), 0.0);

    let other = Any { type_url: "type.googleapis.com/other".to_owned(), value: Vec::new() };
    control_plane.send_any("v4", vec![other]);
    assert!(errors(&control_plane.next()).contains("resource 1: must have the type"));

    let nonce = control_plane.send("v5", &[limited("shop", 1), limited("new", 1)]);
    assert_eq!(ack(&control_plane.next()), ("v5", nonce.as_str()));
    assert_eq!(checks(&service, "new", 2), [200, 429]);
    assert_eq!(metric(&service, "sluicegate_rules_last_reload_successful"), 1.0);
}

#[test]
fn a_set_removes_what_it_leaves_out_unless_it_is_empty() {
    let mut control_plane = ControlPlane::start("127.0.0.1:0", None);
    let mut service = connected(&control_plane, &[]);
    control_plane.next();
    control_plane.send("v1", &[limited("shop", 1), limited("web", 1)]);
    ack(&control_plane.next());
    assert_eq!(checks(&service, "shop", 2), [200, 429]);
    assert_eq!(checks(&service, "web", 2), [200, 429]);

    control_plane.send("v2", &[limited("shop", 1)]);
    ack(&control_plane.next());
    assert_eq!(service.check("web", "alice"), 200, "removed at once");
    assert_eq!(service.check("shop", "alice"), 429);

    // A control plane that has just started has nothing yet.
    let nonce = control_plane.send("v3", &[]);
    assert_eq!(ack(&control_plane.next()), ("v3", nonce.as_str()));
    service.says("rules withheld");
    assert_eq!(service.check("shop", "alice"), 429, "its last rules stay in force");
    let bare = RateLimitConfig { descriptors: Vec::new(), ..limited("shop", 1) };
    control_plane.send("v4", &[bare]);
    ack(&control_plane.next());
    assert_eq!(service.check("shop", "alice"), 429, "and here too");
    assert_eq!(metric(&service, "sluicegate_rules_withheld_domains"), 1.0);

    control_plane.send("v5", &[limited("web", 1)]);
    ack(&control_plane.next());
    assert_eq!(service.check("shop", "alice"), 200);
    assert_eq!(metric(&service, "sluicegate_rules_withheld_domains"), 0.0);

    let mut service = connected(&control_plane, &[("SLUICEGATE_RULES_REMOVAL_GRACE", "0")]);
    control_plane.next();
    control_plane.send("v1", &[limited("shop", 1)]);
    ack(&control_plane.next());
    assert_eq!(checks(&service, "shop", 2), [200, 429]);
    control_plane.send("v2", &[]);
    ack(&control_plane.next());
    assert_eq!(service.check("shop", "alice"), 200, "without a grace period at once");
    service.says("no domain has rules");
}

#[test]
fn the_last_set_is_enforced_while_the_control_plane_is_away() {
    let mut control_plane = ControlPlane::start("127.0.0.1:0", None);
    let address = control_plane.address.to_string();
    let mut service = connected(&control_plane, &[]);
    control_plane.next();
    control_plane.send("7", &[limited("shop", 1)]);
    ack(&control_plane.next());
    assert_eq!(checks(&service, "shop", 2), [200, 429]);

    drop(control_plane);
    let line = service.says("no stream to the control plane: the last rules stay in force");
    assert!(line.contains("WARN") && line.contains(&address), "{line}");
    until("the stream is away", || {
        (metric(&service, "sluicegate_xds_disconnected_seconds") > 0.2).then_some(())
    });
    assert_eq!(checks(&service, "shop", 1), [429]);
    assert_eq!(service.admin("/ready").status, 200);
    assert!(metric(&service, "sluicegate_xds_failures_total") >= 1.0);
    service.signal("HUP");
    service.says("rules reloaded");
    assert_eq!(checks(&service, "shop", 1), [429]);

    // It counts its versions from 1 again: a version of before must not hide a set from the node.
    let mut control_plane = ControlPlane::start(&address, None);
    assert_eq!(ack(&control_plane.next()), ("", ""));
    let nonce = control_plane.send("1", &[limited("shop", 100)]);
    assert_eq!(ack(&control_plane.next()), ("1", nonce.as_str()));
    service.says("the control plane answers");
    assert_eq!(checks(&service, "shop", 1), [200]);
    assert_eq!(metric(&service, "sluicegate_xds_disconnected_seconds"), 0.0);
}

#[test]
fn a_service_that_starts_before_its_control_plane_waits_for_it() {
    let first = ControlPlane::start("127.0.0.1:0", None);
    let address = first.address.to_string();
    drop(first);
    let variables = [
        TYPE,
        ("CONFIG_GRPC_XDS_SERVER_URL", address.as_str()),
        ("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", "50ms"),
    ];
    let mut service = Service::with(&[], &variables);
    service.has_said("no stream to the control plane");
    assert_eq!(service.admin("/ready").status, 503);
    let mut control_plane = ControlPlane::start(&address, None);
    control_plane.next();
    control_plane.send("1", &[limited("shop", 1)]);
    ack(&control_plane.next());
    assert_eq!(checks(&service, "shop", 2), [200, 429]);
}

#[test]
fn a_message_that_is_too_large_is_refused_and_nothing_else_changes() {
    let mut control_plane = ControlPlane::start("127.0.0.1:0", None);
    let size = ("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "2000");
    let mut service = connected(&control_plane, &[size]);
    control_plane.next();
    control_plane.send("1", &[limited("shop", 1)]);
    ack(&control_plane.next());
    control_plane.send("2", &[limited(&"x".repeat(2_000), 1)]);
    let line = service.says("no stream to the control plane");
    assert!(line.contains("2000"), "{line}");
    assert_eq!(ack(&control_plane.next()), ("", ""), "a new stream");
    assert_eq!(checks(&service, "shop", 2), [200, 429]);
}

#[test]
fn both_sides_have_certificates() {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let issue = |name: &str| {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        (params.signed_by(&key, &ca).unwrap().pem(), key.serialize_pem())
    };
    let ((cert, key), folder) = (issue("envoy-gateway"), Folder::new());
    let tls = ServerTlsConfig::new()
        .identity(Identity::from_pem(cert, key))
        .client_ca_root(Certificate::from_pem(ca.pem()));
    let mut control_plane = ControlPlane::start("127.0.0.1:0", Some(tls));
    let (cert, key) = issue("envoy-ratelimit");
    let files = [folder.file("ca.crt", &ca.pem()), folder.file("tls.crt", &cert)];
    let key = folder.file("tls.key", &key);
    let mut variables = vec![
        ("CONFIG_GRPC_XDS_SERVER_USE_TLS", "true"),
        ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", files[0].as_str()),
        ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", files[1].as_str()),
        ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", key.as_str()),
    ];
    let mut untrusted = connected(&control_plane, &variables);
    let line = untrusted.has_said("no stream to the control plane");
    assert!(line.contains("certificate"), "the name is another one: {line}");
    drop(untrusted);

    variables.push(("CONFIG_GRPC_XDS_SERVER_TLS_SAN", "envoy-gateway"));
    let service = connected(&control_plane, &variables);
    control_plane.next();
    control_plane.send("1", &[limited("shop", 1)]);
    ack(&control_plane.next());
    assert_eq!(checks(&service, "shop", 2), [200, 429]);

    let mut anonymous = connected(&control_plane, &[variables[0], variables[1], variables[4]]);
    anonymous.has_said("no stream to the control plane");
    assert_eq!(anonymous.admin("/ready").status, 503);
}

#[test]
fn commands_without_a_connection_name_the_remedy() {
    let folder = Folder::new();
    let run = |line: &str| support::shell(line, std::path::Path::new(folder.path()));
    for command in ["check", "explain shop user=1", "gateway --upstream http://127.0.0.1:1"] {
        let run = run(&format!("CONFIG_TYPE=GRPC_XDS_SOTW sluicegate {command}"));
        let expected = "rules come from the control plane `localhost:18000`";
        assert!(run.code != 0 && run.stderr.contains(expected), "{command}: {}", run.stderr);
    }
    folder.file("rules.yaml", "domain: d\ndescriptors: [{ key: a }]\n");
    let run = sluicegate(&["check", &format!("{}/rules.yaml", folder.path())], "");
    assert_eq!(run.code, 0, "{}", run.stderr);
}
