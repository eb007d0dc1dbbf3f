//! redis-benchmark: many clients with many commands under way.

use std::process::Command;

use crate::support::server;
use crate::support::service::Service;
use crate::{port, service};

fn run(service: &Service, args: &[&str]) {
    let mut command = Command::new(server("redis-benchmark"));
    command.args(["-p", port(service), "--csv"]).args(args);
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{errors}");
    assert!(String::from_utf8_lossy(&output.stdout).lines().count() >= 2);
}

/// A number of `/metrics`.
fn counted(service: &Service, name: &str) -> u64 {
    let metrics = service.admin("/metrics").body;
    let line = metrics.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("there is no {name}")).trim().parse().unwrap()
}

#[test]
fn every_command_of_many_clients_is_answered() {
    let (service, _folder) = service(&[]);
    let throttle = ["CL.THROTTLE", "key:__rand_int__", "99", "100", "86400"];
    for (pipeline, count) in [("1", 2_000), ("16", 32_000), ("500", 50_000)] {
        let before = counted(&service, "sluicegate_calls_total{door=\"cl.throttle\"}");
        let count_text = count.to_string();
        let args = ["-c", "50", "-P", pipeline, "-n", &count_text, "-r", "1000"];
        run(&service, &[&args[..], &throttle[..]].concat());
        let answered = counted(&service, "sluicegate_calls_total{door=\"cl.throttle\"}") - before;
        // It sends whole pipelines, so it may send a few too many.
        let most = count + 50 * pipeline.parse::<u64>().unwrap();
        assert!((count..=most).contains(&answered), "{answered} of {count}");
    }
    run(&service, &["-c", "50", "-P", "16", "-n", "16000", "SG.CHECK", "shop", "user=42"]);
    run(&service, &["-3", "-c", "5", "-n", "1000", "-t", "ping"]);
    for door in ["cl.throttle", "sg.check"] {
        for reason in ["invalid", "service_error", "overload", "late"] {
            let name =
                format!("sluicegate_call_failures_total{{door=\"{door}\",reason=\"{reason}\"}}");
            assert_eq!(counted(&service, &name), 0, "{name}");
        }
    }
}

/// What was admitted is never more than there is, however many ask at once.
#[test]
fn no_more_passes_than_may() {
    let (service, _folder) = service(&[]);
    run(
        &service,
        &["-c", "50", "-P", "16", "-n", "20000", "CL.THROTTLE", "one", "999", "1", "86400"],
    );
    let mut connection =
        redis::Client::open(format!("redis://{}", service.resp)).unwrap().get_connection().unwrap();
    let said: Vec<i64> = redis::cmd("CL.THROTTLE")
        .arg("one")
        .arg(999)
        .arg(1)
        .arg(86_400)
        .query(&mut connection)
        .unwrap();
    assert_eq!(said[..3], [1, 1_000, 0]);
}
