//! Kubernetes: the chart, the manifests rendered from it, and the command of their container.

use std::process::Command;

use serde_json::Value;
use sluicegate_testkit::redis::Single;
use sluicegate_testkit::until;

use crate::support::http::{get, post};
use crate::support::service::Service;
use crate::support::{Folder, root, server};
use crate::tools::{failure, file, helm, rules, stdout, strings, yaml};

pub const CHART: &str = "deploy/helm/sluicegate";
const RULES: &str = "rules.shop\\.yaml=docs/examples/service.yaml";
/// The oldest release that the chart allows, and the newest whose schemas the package has.
const RELEASES: [&str; 2] = ["1.25.0", "1.34.0"];

/// The chart's output with further arguments.
pub fn render(args: &[&str]) -> String {
    stdout(helm(&["template", "sluicegate", CHART]).args(args))
}

/// A command that compares manifests with the schemas of a release.
fn validator(manifests: &str, release: &str, folder: &Folder) -> Command {
    let path = folder.file("manifests.yaml", manifests);
    let mut command = Command::new(server("schemas-python"));
    command.args(["-m", "kubernetes_validate", "--strict", "--quiet", "-k", release, &path]);
    command
}

pub fn validate(manifests: &str) {
    let folder = Folder::new();
    for release in RELEASES {
        stdout(&mut validator(manifests, release, &folder));
    }
    let misspelt = manifests.replace("readinessProbe", "readynessProbe");
    failure(&mut validator(&misspelt, RELEASES[1], &folder));
}

pub fn of_kind<'a>(manifests: &'a [Value], kind: &str) -> &'a Value {
    manifests.iter().find(|manifest| manifest["kind"] == kind).unwrap()
}

#[test]
fn the_chart_renders_valid_manifests() {
    let alternatives: [&[&str]; 4] = [
        &["--set-file", RULES],
        &["--set", "existingConfigMap=rules,store.url=redis://redis:6379,replicas=3"],
        &[
            "--set",
            "existingConfigMap=rules,store.url=rediss://redis:6379,store.passwordSecret=redis,\
             admin.tokensSecret=operators",
        ],
        &[
            "--set",
            "existingConfigMap=rules,image.pullSecrets={registry},podAnnotations.team=edge,\
             tolerations[0].operator=Exists,nodeSelector.disk=fast,env.SLUICEGATE_MAX_IN_FLIGHT=50",
        ],
    ];
    for args in alternatives {
        stdout(helm(&["lint", "--strict", "--quiet", CHART]).args(args));
        validate(&render(args));
    }
}

#[test]
fn dashboards_are_labeled_for_the_sidecar_of_grafana() {
    let dashboard =
        |name: &str| format!("grafana.dashboards.{name}\\.json=deploy/grafana/{name}.json");
    let (service, gateway) = (dashboard("service"), dashboard("gateway"));
    let rendered = render(&["--set-file", RULES, "--set-file", &service, "--set-file", &gateway]);
    validate(&rendered);
    let manifests = yaml(&rendered);
    let found = manifests.iter().find(|one| one["metadata"]["name"] == "sluicegate-dashboards");
    let found = found.unwrap();
    assert_eq!(found["metadata"]["labels"]["grafana_dashboard"], "1");
    for name in ["service.json", "gateway.json"] {
        let text = found["data"][name].as_str().unwrap();
        assert_eq!(text.trim(), file(&format!("grafana/{name}")).trim());
    }
    let misnamed = ["template", "sluicegate", CHART, "--set", "grafana.dashboards.a=b"];
    assert!(failure(&mut helm(&misnamed)).contains("invalid propertyName 'a'"));
}

#[test]
fn tokens_of_operators_are_mounted_where_their_variable_says() {
    let manifests = yaml(&render(&["--set", "existingConfigMap=a,admin.tokensSecret=operators"]));
    let pod = &of_kind(&manifests, "Deployment")["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let find = |list: &Value, name: &str| {
        list.as_array().unwrap().iter().find(|one| one["name"] == name).cloned().unwrap()
    };
    let variable = find(&container["env"], "SLUICEGATE_ADMIN_TOKENS");
    let mount = find(&container["volumeMounts"], "admin");
    let path = format!("{}/tokens.yaml", mount["mountPath"].as_str().unwrap());
    assert_eq!(variable["value"], path);
    assert_eq!(find(&pod["volumes"], "admin")["secret"]["secretName"], "operators");
}

#[test]
fn variables_keep_their_values() {
    let env = r#"env={"A": "7 s", "B": 16000000, "C": 0.8, "D": true}"#;
    let manifests = yaml(&render(&["--set", "existingConfigMap=rules", "--set-json", env]));
    let container = &of_kind(&manifests, "Deployment")["spec"]["template"]["spec"]["containers"][0];
    let variables = container["env"].as_array().unwrap();
    let values = ["A", "B", "C", "D"]
        .map(|name| &variables.iter().find(|variable| variable["name"] == name).unwrap()["value"]);
    assert_eq!(values, ["7 s", "16000000", "0.8", "true"]);
}

#[test]
fn the_manifests_are_those_of_the_chart() {
    let path = root().join("deploy/kubernetes/sluicegate.yaml");
    let rendered = render(&["--values", "deploy/kubernetes/values.yaml"]);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &rendered).unwrap();
    }
    validate(&rendered);
    let current = std::fs::read_to_string(&path).unwrap();
    assert!(current == rendered, "{} is old: run the tests with UPDATE=1", path.display());
}

#[test]
fn values_that_would_not_limit_are_rejected() {
    let cases = [
        ("replicas=1", "no rules: add --set-file"),
        ("existingConfigMap=rules,replicas=2", "set store.url to a Redis, or replicas to 1"),
        ("existingConfigMap=rules,rules.a=b", "both rules and existingConfigMap are set"),
        ("existingConfigMap=rules,replica=1", "additional properties 'replica' not allowed"),
        ("existingConfigMap=rules,store.url=redis:6379", "/store/url"),
        ("existingConfigMap=rules,store.passwordSecret=redis", "set store.url to a Redis"),
    ];
    for (values, part) in cases {
        let errors = failure(helm(&["template", "sluicegate", CHART, "--set"]).arg(values));
        assert!(errors.contains(part), "{values}: {errors}");
    }
}

#[test]
fn names_and_labels_of_the_manifests_refer_to_each_other() {
    let manifests = yaml(&file("kubernetes/sluicegate.yaml"));
    let pod = &of_kind(&manifests, "Deployment")["spec"]["template"];
    let labels = pod["metadata"]["labels"].as_object().unwrap();
    let selects = |selector: &Value| {
        let selector = selector.as_object().unwrap();
        selector.iter().all(|(key, value)| labels.get(key) == Some(value))
    };
    let container = &pod["spec"]["containers"][0];
    let ports: Vec<&Value> =
        container["ports"].as_array().unwrap().iter().map(|port| &port["name"]).collect();
    let mut services = 0;
    for manifest in &manifests {
        let spec = &manifest["spec"];
        match manifest["kind"].as_str().unwrap() {
            "Service" => {
                assert!(selects(&spec["selector"]), "{manifest}");
                for port in spec["ports"].as_array().unwrap() {
                    assert!(ports.contains(&&port["targetPort"]), "{port}");
                }
                services += 1;
            }
            "PodDisruptionBudget" | "Deployment" => {
                assert!(selects(&spec["selector"]["matchLabels"]), "{manifest}");
            }
            "ConfigMap" => {
                let volume = &pod["spec"]["volumes"][0]["configMap"]["name"];
                assert_eq!(volume, &manifest["metadata"]["name"]);
            }
            kind => panic!("unexpected {kind}"),
        }
    }
    assert_eq!((services, manifests.len()), (2, 5));
}

#[test]
fn the_pod_is_restricted() {
    for manifests in [file("kubernetes/sluicegate.yaml"), render(&["--set-file", RULES])] {
        let manifests = yaml(&manifests);
        let pod = &of_kind(&manifests, "Deployment")["spec"]["template"]["spec"];
        // A Service named `sluicegate` would set SLUICEGATE_PORT=tcp://… in every pod beside it.
        assert_eq!(pod["enableServiceLinks"], false);
        assert_eq!(pod["automountServiceAccountToken"], false);
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        let container = &pod["containers"][0]["securityContext"];
        assert_eq!(container["readOnlyRootFilesystem"], true);
        assert_eq!(container["allowPrivilegeEscalation"], false);
        assert_eq!(strings(&container["capabilities"]["drop"]), ["ALL"]);
    }
}

/// Starts the container of the Deployment with its arguments and variables, on free ports.
fn start(manifests: &[Value], store: &str, folder: &Folder) -> Service {
    let pod = &of_kind(manifests, "Deployment")["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let data = of_kind(manifests, "ConfigMap")["data"].as_object().unwrap();
    for (name, text) in data {
        rules(folder, name, text.as_str().unwrap());
    }
    let mount = container["volumeMounts"][0]["mountPath"].as_str().unwrap();
    let folder = format!("{}/rules", folder.path());
    let args = strings(&container["args"]);
    let args: Vec<&str> =
        args.into_iter().map(|arg| if arg == mount { folder.as_str() } else { arg }).collect();
    assert_eq!(args[0], "serve");
    let port = |name: &str| {
        let ports = container["ports"].as_array().unwrap();
        ports.iter().find(|port| port["name"] == name).unwrap()["containerPort"].clone()
    };
    let mut environment = Vec::new();
    for variable in container["env"].as_array().unwrap() {
        let (name, value) = (variable["name"].as_str().unwrap(), variable["value"].as_str());
        match name {
            "SLUICEGATE_GRPC" | "SLUICEGATE_HTTP" | "SLUICEGATE_ADMIN" => {
                let endpoint = name.trim_start_matches("SLUICEGATE_").to_lowercase();
                assert_eq!(value.unwrap(), format!("0.0.0.0:{}", port(&endpoint)));
            }
            "SLUICEGATE_STORE" => environment.push((name, store)),
            _ => environment.push((name, value.unwrap_or("secret"))),
        }
    }
    Service::with(&args[1..], &environment)
}

#[test]
fn the_container_starts_and_its_probes_succeed() {
    let redis = Single::start();
    let chart = render(&["--set-file", RULES]);
    for (manifests, store) in [(file("kubernetes/sluicegate.yaml"), redis.url()), (chart, "memory")]
    {
        let (manifests, folder) = (yaml(&manifests), Folder::new());
        let mut service = start(&manifests, store, &folder);
        let container =
            &of_kind(&manifests, "Deployment")["spec"]["template"]["spec"]["containers"][0];
        let probe = |name: &str| {
            let request = &container[name]["httpGet"];
            assert_eq!(request["port"], "admin");
            get(&service.admin, request["path"].as_str().unwrap(), &[]).status
        };
        until("the readiness probe succeeds", || (probe("readinessProbe") == 200).then_some(()));
        assert_eq!([probe("startupProbe"), probe("livenessProbe")], [200, 200]);
        let check = r#"{"domain":"shop","descriptors":[{"user_id":"42"}]}"#;
        let answer = post(&service.http, "/v1/check", check);
        assert_eq!(answer.header("x-ratelimit-remaining"), Some("999"), "{answer:?}");

        service.signal("TERM");
        service.says("draining");
        let probe = |path: &str| get(&service.admin, path, &[]).status;
        assert_eq!([probe("/ready"), probe("/live")], [503, 200]);
    }
}
