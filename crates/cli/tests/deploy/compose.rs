//! The compose file: its schema, the configuration of its Envoy, and all of its services together.

use std::process::Command;

use serde_json::Value;
use sluicegate_testkit::redis::{Options, Single};
use sluicegate_testkit::until;

use crate::envoy::{Envoy, validated};
use crate::support::service::Service;
use crate::support::upstream::Upstream;
use crate::support::{Folder, http, root, server};
use crate::tools::{failure, file, stdout, strings, yaml};

fn compose() -> Value {
    yaml(&file("compose/compose.yaml")).remove(0)
}

/// A command that compares a compose file with its schema.
fn validator(text: &str, folder: &Folder) -> Command {
    const PROGRAM: &str = "
import importlib.util, json, pathlib, sys, jsonschema
package = pathlib.Path(importlib.util.find_spec('compose').origin).parent
schema = json.loads((package / 'config/compose_spec.json').read_text())
jsonschema.Draft7Validator(schema).validate(json.loads(pathlib.Path(sys.argv[1]).read_text()))
";
    let path = folder.file("compose.json", text);
    let mut command = Command::new(server("schemas-python"));
    command.args(["-c", PROGRAM, &path]);
    command
}

#[test]
fn the_compose_file_has_the_form_of_one() {
    check_form(&compose(), "sluicegate");
}

/// Compares a compose file with the schema; `service` is the one that is built here.
pub fn check_form(compose: &Value, service: &str) {
    let folder = Folder::new();
    stdout(&mut validator(&compose.to_string(), &folder));
    let misspelt = compose.to_string().replace("depends_on", "depend_on");
    assert!(failure(&mut validator(&misspelt, &folder)).contains("depend_on"));
    for service in compose["services"].as_object().unwrap().values() {
        let mounts = service["volumes"].as_array().into_iter().flatten();
        for mount in mounts {
            let source = mount.as_str().unwrap().split(':').next().unwrap();
            assert!(root().join("deploy/compose").join(source).exists(), "{mount}");
        }
    }
    let build = &compose["services"][service]["build"];
    assert_eq!(
        (&build["context"], &build["dockerfile"]),
        (&"../..".into(), &"deploy/Dockerfile".into())
    );
}

#[test]
fn envoy_is_the_one_that_the_tests_run() {
    let script = std::fs::read_to_string(root().join("scripts/servers")).unwrap();
    let version = script.lines().find_map(|line| line.strip_prefix("envoy_version=")).unwrap();
    let image = &compose()["services"]["envoy"]["image"];
    assert_eq!(image.as_str().unwrap(), format!("envoyproxy/envoy:v{version}"));
    validated(&file("compose/envoy.yaml"), &Folder::new());
}

/// The configuration with the addresses of a test.
fn configure(service: &str, upstream: &str) -> String {
    let port = |address: &str| format!("port_value: {} ", address.rsplit_once(':').unwrap().1);
    let config = file("compose/envoy.yaml");
    let (listeners, clusters) = config.split_once("  clusters:\n").unwrap();
    let replace = |text: &str, from: &str, to: &str| {
        assert!(text.contains(from), "there is no `{from}`");
        text.replace(from, to)
    };
    let listeners = replace(listeners, "0.0.0.0, port_value: 10000", "127.0.0.1, port_value: 0");
    let listeners = replace(&listeners, "port_value: 8000", "port_value: 0");
    // A busy machine may need longer.
    let listeners = replace(&listeners, "timeout: 0.100s", "timeout: 60s");
    let clusters = replace(clusters, "port_value: 8000 ", &port(upstream));
    let clusters = replace(
        &clusters,
        "sluicegate, port_value: 8081 ",
        &format!("127.0.0.1, {}", port(service)),
    );
    format!(
        "admin: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: 0 }} }} }}\n\
         {listeners}  clusters:\n{clusters}"
    )
}

#[test]
fn the_sixth_request_of_a_user_in_a_minute_is_denied() {
    let compose = compose();
    let services = &compose["services"];
    let options = strings(&services["redis"]["command"])[1..].join(" ");
    assert_eq!(options, "--save  --appendonly no --maxmemory-policy noeviction");
    let more = vec!["maxmemory-policy noeviction".to_owned()];
    let redis = Single::with(Options { more, ..Options::default() });

    let service = &services["sluicegate"];
    let mut args = strings(&service["command"]);
    assert_eq!(args.remove(0), "serve");
    let args: Vec<&str> = args
        .into_iter()
        .map(|arg| if arg == "redis://redis:6379" { redis.url() } else { arg })
        .collect();
    assert!(args.contains(&redis.url()), "{args:?}");
    let rules = root().join("deploy/compose/rules").to_str().unwrap().to_owned();
    let environment = service["environment"].as_object().unwrap();
    let mut variables: Vec<(&str, &str)> =
        environment.iter().map(|(name, value)| (name.as_str(), value.as_str().unwrap())).collect();
    // As the image has it, and its volume.
    variables.push(("SLUICEGATE_RULES", &rules));
    variables.push(("SLUICEGATE_STORE_TIMEOUT", "10s"));
    let service = Service::with(&args, &variables);
    until("the service is ready", || (service.admin("/ready").status == 200).then_some(()));

    let upstream = Upstream::answering(async |_| "reached");
    let folder = Folder::new();
    let envoy = Envoy::start(&configure(&service.grpc, &upstream.address), &folder);
    let request = || http::get(&envoy.listeners[0], "/", &[("x-user-id", b"42")]).status;
    assert_eq!([(); 6].map(|()| request()), [200, 200, 200, 200, 200, 429]);
    assert_eq!(upstream.reached(), 5);
    let stand_in = http::get(&envoy.listeners[1], "/", &[]);
    assert_eq!((stand_in.status, stand_in.body.trim()), (200, "hello from the upstream"));
    assert_ne!(redis.cli(&["DBSIZE"]), "0");
}
