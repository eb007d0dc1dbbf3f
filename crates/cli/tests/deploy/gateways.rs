//! The gateway in the deploy kit: its compose file, and the chart with `gateway.enabled`.

use serde_json::Value;
use sluicegate_testkit::redis::Single;
use sluicegate_testkit::until;

use crate::compose::check_form;
use crate::gateway::Gateway;
use crate::kubernetes::{CHART, of_kind, render, validate};
use crate::support::http::get;
use crate::support::upstream::Upstream;
use crate::support::{Folder, root};
use crate::tools::{failure, file, helm, rules, stdout, strings, yaml};

const CONFIG: &str = "gateway.config=deploy/compose/gateway/gateway.yaml";
const RULES: &str = "rules.web\\.yaml=deploy/compose/gateway/rules/web.yaml";
const ENABLED: [&str; 6] =
    ["--set", "gateway.enabled=true", "--set-file", CONFIG, "--set-file", RULES];

/// The chart's output for the gateway, with further values.
fn manifests(values: &str) -> String {
    render(&[&ENABLED[..], &["--set", values]].concat())
}

/// A gateway with the arguments of a file, its configuration in front of `app`.
fn start(args: &[&str], environment: &[(&str, &str)], config: &str, app: &Upstream) -> Gateway {
    let folder = Folder::new();
    assert!(config.contains("http://app:80"), "{config}");
    let config = folder.file("gateway.yaml", &config.replace("app:80", &app.address));
    let is_config = |arg: &&str| arg.ends_with("/gateway.yaml");
    let args: Vec<&str> =
        args.iter().map(|arg| if is_config(arg) { config.as_str() } else { arg }).collect();
    assert!(args.contains(&config.as_str()), "{args:?}");
    Gateway::with(&args, environment)
}

#[test]
fn the_sixth_request_to_the_gateway_of_the_compose_file_is_denied() {
    let compose = yaml(&file("compose/gateway.yaml")).remove(0);
    check_form(&compose, "gateway");
    let service = &compose["services"]["gateway"];
    let redis = Single::start();
    let args = strings(&service["command"]);
    assert_eq!(args[0], "gateway");
    let args: Vec<&str> = args[1..]
        .iter()
        .map(|arg| if *arg == "redis://redis:6379" { redis.url() } else { arg })
        .collect();
    // As the image has it, and its volume.
    assert_eq!(strings(&service["volumes"]), ["./gateway:/etc/sluicegate:ro"]);
    let rules = root().join("deploy/compose/gateway/rules").to_str().unwrap().to_owned();
    let environment = [("SLUICEGATE_RULES", &*rules), ("SLUICEGATE_STORE_TIMEOUT", "10s")];
    let app = Upstream::answering(async |_| "reached");
    let gateway = start(&args, &environment, &file("compose/gateway/gateway.yaml"), &app);
    let ready = || (get(&gateway.admin, "/ready", &[]).status == 200).then_some(());
    until("the gateway is ready", ready);
    assert_eq!([(); 6].map(|()| gateway.get("/").status), [200, 200, 200, 200, 200, 429]);
    assert_ne!(redis.cli(&["DBSIZE"]), "0");
}

#[test]
fn the_chart_renders_valid_manifests_of_a_gateway() {
    let alternatives = [
        "replicas=1",
        "replicas=3,store.url=redis://redis:6379,gateway.service.type=LoadBalancer",
        "gateway.tlsSecrets={example-com},gateway.stateClaim=acme,gateway.service.annotations.a=b",
    ];
    for values in alternatives {
        stdout(helm(&["lint", "--strict", "--quiet", CHART]).args(ENABLED).args(["--set", values]));
        validate(&manifests(values));
    }
}

#[test]
fn a_gateway_that_would_not_be_reached_or_not_limit_is_rejected() {
    let cases = [
        ("gateway.enabled=true", "no file of the gateway: add --set-file gateway.config"),
        ("gateway.config=listen: a", "set gateway.enabled=true"),
        ("gateway.enabled=true,gateway.config=routes: []", "does not listen on 0.0.0.0:8000"),
        ("gateway.enabled=true,gateway.config=listen: 127.0.0.1:8000", "does not listen on"),
        ("gateway.enabled=true,gateway.config=rules: a", "gateway.config has `rules`"),
        ("gateway.enabled=true,gateway.port=1", "additional properties 'port' not allowed"),
    ];
    for (values, part) in cases {
        let values = format!("existingConfigMap=rules,{values}");
        let errors = failure(helm(&["template", "sluicegate", CHART, "--set"]).arg(&values));
        assert!(errors.contains(part), "{values}: {errors}");
    }
}

#[test]
fn ports_and_volumes_of_the_gateway_refer_to_each_other() {
    let manifests = yaml(&manifests("gateway.tlsSecrets={example-com},gateway.stateClaim=acme"));
    let pod = &of_kind(&manifests, "Deployment")["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let names = |value: &Value| -> Vec<String> {
        let items = value.as_array().unwrap().iter();
        items.map(|item| item["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&container["ports"]), ["http", "admin"]);
    assert_eq!(names(&container["volumeMounts"]), names(&pod["volumes"]));
    let services: Vec<&Value> = manifests.iter().filter(|one| one["kind"] == "Service").collect();
    assert_eq!(services.len(), 1, "none for Envoy");
    let port = &services[0]["spec"]["ports"][0];
    assert_eq!((&port["port"], &port["targetPort"]), (&80.into(), &"http".into()));
    let mounts = container["volumeMounts"].as_array().unwrap();
    let state = mounts.iter().find(|mount| mount["name"] == "state").unwrap();
    assert_eq!(
        (&state["mountPath"], &state["readOnly"]),
        (&"/var/lib/sluicegate".into(), &Value::Null)
    );
    assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
    let grace = pod["terminationGracePeriodSeconds"].as_u64().unwrap();
    assert!(grace > 10 + 30, "more than delay and timeout of the drain: {grace}");
}

#[test]
fn the_container_of_the_gateway_starts_drains_and_its_probes_succeed() {
    let manifests = yaml(&manifests("replicas=1"));
    let container = &of_kind(&manifests, "Deployment")["spec"]["template"]["spec"]["containers"][0];
    let data = |key: &str| {
        let maps = manifests.iter().filter(|one| one["kind"] == "ConfigMap");
        maps.filter_map(|one| one["data"][key].as_str()).next().unwrap()
    };
    let (app, folder) = (Upstream::answering(async |_| "reached"), Folder::new());
    let rules = rules(&folder, "web.yaml", data("web.yaml"));
    let args = strings(&container["args"]);
    assert_eq!(args[0], "gateway");
    let args: Vec<&str> = args[1..]
        .iter()
        .map(|arg| if *arg == "/etc/sluicegate/rules" { &rules } else { *arg })
        .collect();
    let variables = container["env"].as_array().unwrap().iter();
    let environment: Vec<(&str, &str)> = variables
        .map(|one| (one["name"].as_str().unwrap(), one["value"].as_str().unwrap_or("secret")))
        .filter(|(name, value)| {
            assert!(*name != "SLUICEGATE_ADMIN" || *value == "0.0.0.0:6070");
            *name != "SLUICEGATE_ADMIN"
        })
        .collect();
    let mut gateway = start(&args, &environment, data("gateway.yaml"), &app);
    let probe = |name: &str| {
        let request = &container[name]["httpGet"];
        assert_eq!(request["port"], "admin");
        get(&gateway.admin, request["path"].as_str().unwrap(), &[]).status
    };
    let probes = ["startupProbe", "livenessProbe", "readinessProbe"];
    assert_eq!(probes.map(probe), [200; 3]);
    assert_eq!([(); 6].map(|()| gateway.get("/").status), [200, 200, 200, 200, 200, 429]);
    gateway.signal("TERM");
    gateway.process.says("draining");
    let status = |path: &str| get(&gateway.admin, path, &[]).status;
    assert_eq!([status("/ready"), status("/live")], [503, 200]);
    assert_eq!(gateway.get("/").status, 429, "served until load balancers have noticed");
}
