//! The path of a new user who comes from envoyproxy/ratelimit: the steps of `migrating.md` with the
//! variables of such a deployment, a real Redis, two replicas, and a real Envoy with the
//! configuration of `service.md`.

use sluicegate_testkit::redis::Single;

use crate::envoy::Envoy;
use crate::guide::{here, whole};
use crate::support::http::{self, Answer};
use crate::support::service::Service;
use crate::support::{Folder, root, sluicegate};
use crate::upstream;

/// A rules file as envoyproxy/ratelimit has it. Nothing of it comes back while the test runs.
const RULES: &str = "domain: shop
descriptors:
  - key: user_id
    rate_limit: { unit: year, requests_per_unit: 3 }
";

/// The variables of the guide's command that starts a replica, with the places of this test.
fn variables(runtime_root: &str, redis: &Single) -> Vec<(String, String)> {
    let page = std::fs::read_to_string(root().join("docs/guide/migrating.md")).unwrap();
    let mut blocks = page.split("```sh\n").skip(1).filter_map(|block| block.split("```").next());
    let command = blocks.find(|block| block.contains("sluicegate serve")).unwrap();
    let redis = format!("127.0.0.1:{}", redis.port());
    let places = [("/srv/runtime_data/current", runtime_root), ("redis.internal:6379", &redis)];
    let command = places.iter().fold(command.to_owned(), |command, (from, to)| {
        assert!(command.contains(from), "there is no `{from}` in {command}");
        command.replace(from, to)
    });
    let pairs = command.split_ascii_whitespace().filter_map(|word| word.split_once('='));
    // What a deployment of envoyproxy/ratelimit may have besides.
    let more = [
        ("BACKEND_TYPE", "redis"),
        ("LIMIT_RESPONSE_HEADERS_ENABLED", "true"),
        ("LOG_LEVEL", "info"),
        // Free ports, and time for a busy machine.
        ("GRPC_PORT", "0"),
        ("PORT", "0"),
        ("DEBUG_PORT", "0"),
        ("SLUICEGATE_STORE_TIMEOUT", "10s"),
    ];
    pairs.chain(more).map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

/// The configuration of the guide with the replicas as endpoints of its cluster `sluicegate`.
fn envoy_before(replicas: &[Service], upstream: &str, folder: &Folder) -> Envoy {
    let config = whole();
    let endpoint = config.lines().find(|line| line.contains("port_value: 8081")).unwrap();
    let port = |service: &Service| service.grpc.rsplit_once(':').unwrap().1.to_owned();
    let first = replicas.first().unwrap();
    let others: Vec<String> =
        replicas.iter().skip(1).map(|one| endpoint.replace("8081", &port(one))).collect();
    let all = [vec![endpoint.to_owned()], others].concat().join("\n");
    Envoy::start(&here(&config.replace(endpoint, &all), &first.grpc, upstream), folder)
}

fn get(envoy: &Envoy, user: &str) -> Answer {
    http::get(&envoy.listeners[0], "/", &[("x-user-id", user.as_bytes())])
}

fn hits(service: &Service) -> u64 {
    let page = service.admin("/metrics").body;
    let name = "ratelimit_service_rate_limit_total_hits{domain=\"shop\",key1=\"user_id\"";
    let line = page.lines().find(|line| line.starts_with(name)).unwrap();
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

#[test]
fn a_deployment_of_envoyproxy_ratelimit_is_limited_by_two_replicas_and_one_redis() {
    let (folder, redis, upstream) = (Folder::new(), Single::start(), upstream::start());
    folder.file("ratelimit/config/shop.yaml", RULES);
    let run = sluicegate(&["check", &format!("{}/ratelimit/config", folder.path())], "");
    assert_eq!(run.code, 0, "{}", run.stderr);
    let variables = variables(folder.path(), &redis);
    let start = |args: &[&str]| {
        let mut service = Service::by_variables(&variables, args);
        service.has_said("the store answers");
        service
    };

    // Shadow mode denies nothing, and the log shows that it is on.
    let mut trial = [start(&["--shadow"])];
    trial[0].has_said("shadow mode is on, and nothing is enforced");
    let envoy = envoy_before(&trial, &upstream.address, &folder);
    assert_eq!([(); 5].map(|()| get(&envoy, "trial").status), [200; 5]);
    assert!(trial[0].admin("/rlconfig").body.starts_with("# shadow mode"));
    drop((envoy, trial));

    // Two replicas admit as much as one.
    let mut replicas = [start(&[]), start(&[])];
    let line = replicas[0].has_said("INFO  started ");
    for part in [" count=1 ", " shadow=false ", "store=redis://127.0.0.1:", "grpc=0.0.0.0:"] {
        assert!(line.contains(part), "{part}: {line}");
    }
    let envoy = envoy_before(&replicas, &upstream.address, &folder);
    let answers = [(); 4].map(|()| get(&envoy, "42"));
    assert_eq!(answers.each_ref().map(|answer| answer.status), [200, 200, 200, 429]);
    let hits = replicas.each_ref().map(hits);
    assert!(hits[0] + hits[1] == 4 && hits.iter().all(|hits| *hits > 0), "{hits:?}");
    let denied = &answers[3];
    for (name, value) in [
        ("x-envoy-ratelimited", "true"),
        ("x-ratelimit-limit", "3, 3;w=31536000"),
        ("x-ratelimit-remaining", "0"),
        ("ratelimit-limit", "3"),
        ("ratelimit-remaining", "0"),
    ] {
        assert_eq!(denied.header(name), Some(value), "{name}: {denied:?}");
    }
    let retry_after: u64 = denied.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=31_536_000).contains(&retry_after), "{retry_after}");
    assert_eq!(get(&envoy, "43").status, 200, "another user has a limit of their own");

    // Without Redis the answer is an error, and Envoy's `failure_mode_deny: false` admits.
    redis.kill();
    for replica in &mut replicas {
        let line = replica.says("the store cannot be reached");
        assert!(
            line.contains("`error` for 1 rule (unless another rule denies, an error,"),
            "{line}"
        );
    }
    assert_eq!(get(&envoy, "42").status, 200);
    assert_eq!(envoy.counted("cluster.upstream.ratelimit.error"), 1);

    // `on_store_failure: local`, as the guide suggests.
    let local = format!("{RULES}    on_store_failure: local\n");
    folder.file("ratelimit/config/shop.yaml", &local);
    for replica in &mut replicas {
        replica.says("rules reloaded");
    }
    let statuses = [(); 9].map(|()| get(&envoy, "44").status);
    assert!(statuses.contains(&429), "each replica enforces its share: {statuses:?}");
}

#[test]
fn a_misspelt_domain_and_an_empty_volume_are_not_silent() {
    let (folder, redis, upstream) = (Folder::new(), Single::start(), upstream::start());
    folder.file("ratelimit/config/shop.yaml", &RULES.replace("domain: shop", "domain: shopp"));
    let mut replicas = [Service::by_variables(&variables(folder.path(), &redis), &[])];
    replicas[0].has_said("the store answers");
    let envoy = envoy_before(&replicas, &upstream.address, &folder);
    assert_eq!(get(&envoy, "42").status, 200);
    let line = replicas[0].has_said("requests for a domain without rules");
    assert!(line.contains("did you mean `shopp`?") && line.contains("domain=shop "), "{line}");

    let empty = Folder::new();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_sluicegate"));
    let run = command.arg("serve").envs(variables(empty.path(), &redis)).output().unwrap();
    let errors = String::from_utf8_lossy(&run.stderr);
    assert_eq!(run.status.code(), Some(2), "{errors}");
    assert!(errors.contains("RUNTIME_SUBDIRECTORY=`ratelimit`"), "{errors}");
}
