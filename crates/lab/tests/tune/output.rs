//! The rules file is valid, and the engine decides with it as the recommendation states.

use sluicegate::rules::request::{Descriptor, Entry, Request};
use sluicegate_core::time::Timestamp;
use sluicegate_lab::arrival::{Arrival, Client};
use sluicegate_lab::replay::Replay;
use sluicegate_lab::tune::rules_file::RuleNames;
use sluicegate_lab::tune::{TuneResult, Tuning};

use crate::tenants::tenants;
use crate::{bursts, tuned};

fn names() -> RuleNames {
    RuleNames {
        domain: "shop".to_owned(),
        key: "user".to_owned(),
        client: "header X-User".to_owned(),
    }
}

/// Requests that the engine denies before and after a moment, with the rules file.
fn denied(tuning: &Tuning, arrivals: &[Arrival], split: Timestamp) -> [u64; 2] {
    let rules = tuning.rules_file(&names(), "sluicegate tune").unwrap().unwrap();
    let replay = Replay::new(sluicegate::rules_of(&rules).unwrap()).unwrap();
    let mut denied = [0, 0];
    for arrival in arrivals {
        let user = arrival.client.to_string();
        let (user, scope) = ([Entry::new("user", &user)], [Entry::new("scope", "all")]);
        let descriptors = [Descriptor::of(&user), Descriptor::of(&scope)];
        let request = Request { domain: "shop", descriptors: &descriptors, hits: 1 };
        let allowed = replay.run(arrival.at, &request).allowed;
        denied[usize::from(arrival.at >= split)] += u64::from(!allowed);
    }
    denied
}

#[test]
fn the_engine_denies_what_the_recommendation_states() {
    let arrivals = tenants(5, 300, 4.0);
    for goal in ["3% of users", "2% of requests", "p97"] {
        let tuning = tuned(arrivals.clone(), goal);
        let TuneResult::Limit(limit) = &tuning.result else { panic!() };
        let stated = [limit.outcome.training, limit.outcome.held_out];
        let stated = stated.map(|part| part.denied_requests);
        assert!(stated[0] > 0, "{goal}");
        assert_eq!(denied(&tuning, &arrivals, tuning.facts.split), stated, "{goal}");
    }
}

#[test]
fn the_file_of_a_capacity_holds_it() {
    let mut arrivals = bursts(30, 5, 20, 3_600);
    arrivals.sort_by_key(|arrival| arrival.at);
    let tuning = tuned(arrivals.clone(), "12/s");
    let TuneResult::Protection(found) = &tuning.result else { panic!() };
    let limit = found.per_client.unwrap();
    let [training, _] = denied(&tuning, &arrivals, tuning.facts.split);
    // The limit of all has nothing left to deny.
    assert_eq!(training, limit.training.denied_requests);
    let rules = tuning.rules_file(&names(), "sluicegate tune").unwrap().unwrap();
    assert!(rules.contains("- { scope: text all }") && rules.contains("value: all"), "{rules}");
}

#[test]
fn names_are_quoted_where_they_must_be_and_comments_cannot_end() {
    let tuning = tuned(bursts(100, 3, 60, 900), "5% of users");
    let odd = RuleNames {
        domain: "a: b # c".to_owned(),
        key: "x-user".to_owned(),
        client: "header X-User or \"none\"".to_owned(),
    };
    let rules = tuning.rules_file(&odd, "sluicegate tune 'a\nb: c'").unwrap().unwrap();
    assert!(rules.contains("domain: \"a: b # c\"\n"), "{rules}");
    assert!(rules.lines().take_while(|line| *line != "forward_auth:").skip(1).count() > 3);
    let bad = RuleNames { client: "cookie".to_owned(), ..names() };
    assert!(tuning.rules_file(&bad, "").unwrap_err().contains("cookie"));
}

#[test]
fn the_report_and_the_json_have_the_figures() {
    let arrivals = tenants(5, 300, 4.0);
    let tuning = tuned(arrivals, "p97");
    let client = |i: u32| Client { name: format!("tenant <{i}>"), is_abuser: None };
    let clients: Vec<Client> = (0..300).map(client).collect();
    let rules = tuning.rules_file(&names(), "sluicegate tune a.log").unwrap();
    let report = tuning.report(&clients, rules.as_deref(), "sluicegate tune a.log").unwrap();
    let html = report.html();
    for expected in ["Rate and burst", "Peaks of clients", "tenant &lt;", "algorithm: token_bucket"]
    {
        assert!(html.contains(expected), "{expected}");
    }
    assert_eq!(html.matches("<svg").count(), 2);
    let json = tuning.to_json(&clients);
    let TuneResult::Limit(limit) = &tuning.result else { panic!() };
    assert_eq!(json["limit"]["burst"], limit.size);
    assert_eq!(json["held_out"]["denied_requests"], limit.outcome.held_out.denied_requests);
    let first = json["denied_clients"][0]["client"].as_str().unwrap();
    assert!(first.starts_with("tenant <"), "{first}");
    let text = tuning.to_text(&clients);
    assert!(text.contains(&limit.shape.rule(limit.size)) && text.contains(first), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 110), "{text}");

    let short = tuned(bursts(20, 1, 60, 600), "0.1% of users");
    assert_eq!(short.rules_file(&names(), ""), Ok(None));
    assert_eq!(short.to_json(&[])["too_few_clients"]["clients_needed"], 2_995);
    assert_eq!(short.to_json(&[])["limit"], serde_json::Value::Null);
    assert!(short.report(&[], None, "").unwrap().html().contains("Too few clients"));
}
