//! Files of gateways: `gateway/full.yaml` has every key; each other `gateway/<name>.yaml` has
//! mistakes, with exactly what is printed in `gateway/<name>.txt`. `UPDATE=1` writes those anew.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use boon::{Compiler, Schemas};
use sluicegate_config::gateway::deferred::{DeferredPlace, QueueConfig};
use sluicegate_config::gateway::listener::{AcmeChallenge, TlsVersion};
use sluicegate_config::gateway::route::{Action, Credential, OnLimit, OnMissing};
use sluicegate_config::gateway::settle::{CostSource, Usage};
use sluicegate_config::gateway::tokens::{ModelApi, PriceSource, TokenClasses};
use sluicegate_config::gateway::upstream::Balance;
use sluicegate_config::gateway::{
    AccessLogFormat, GatewayConfig, JwksSource, LoadedGateway, is_gateway, load, load_with_files,
};
use sluicegate_config::problem::with_source;
use sluicegate_config::rules::{Options, Source, load as load_rules};
use sluicegate_config::schema::gateway_schema;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gateway")
}

fn source(text: &str) -> Source {
    Source { name: "gateway.yaml".to_owned(), text: text.to_owned() }
}

fn loaded(text: &str) -> LoadedGateway {
    load(&source(text), Path::new("/etc")).unwrap_or_else(|error| panic!("{error}"))
}

fn problems(text: &str) -> String {
    load(&source(text), Path::new("/etc")).unwrap_err().to_string()
}

#[test]
fn every_key_is_read() {
    let text = fs::read_to_string(folder().join("full.yaml")).unwrap();
    let LoadedGateway { config, warnings, .. } = loaded(&text);
    assert_eq!(warnings, []);
    let addresses: Vec<_> = config.listeners.iter().map(|one| one.address.to_string()).collect();
    assert_eq!(addresses, ["0.0.0.0:80", "0.0.0.0:443", "[::1]:8080"]);
    let tls = config.listeners[1].tls.clone().unwrap();
    assert_eq!(tls.certificates[0].cert, Path::new("/etc/cert.pem"));
    assert_eq!(
        (tls.client_ca.unwrap(), tls.min_version),
        ("/etc/clients.pem".into(), TlsVersion::V13)
    );
    let acme = tls.acme.unwrap();
    assert_eq!((acme.challenge, acme.renew_after_percent), (AcmeChallenge::Http01, 50));
    assert_eq!((acme.state, acme.retry), ("/etc/acme".into(), Duration::from_secs(600)));
    assert_eq!(acme.external_account.unwrap().key, Path::new("/etc/eab.key"));
    assert!(config.listeners[2].redirect_to_https);
    assert_eq!(config.rules, ["/etc/rules.yaml", "/etc/more.yaml"].map(PathBuf::from));
    assert_eq!(config.handover.as_deref(), Some(Path::new("/etc/handover.sock")));
    assert_eq!(config.trusted_proxies.len(), 1);
    assert_eq!((config.access.deny.networks.len(), config.access.deny.files.len()), (1, 1));
    assert_eq!(config.connections.open, Some(100));
    assert_eq!(config.connections.rate.unwrap().count(), 20);
    assert_eq!(config.timeouts.tls_handshake, Duration::from_secs(5));
    assert_eq!((config.header_bytes_max, config.body_bytes_max), (32 << 10, Some(10 << 20)));
    let keys = config.identity.api_keys.unwrap();
    assert_eq!((keys.header.as_deref(), keys.query.as_deref()), (Some("X-Key"), Some("key")));
    assert!(keys.forward);
    let body = config.identity.body;
    assert_eq!((body.bytes_max, body.timeout), (16 << 10, Duration::from_secs(5)));
    let jwt = config.identity.jwt.unwrap();
    assert_eq!(jwt.jwks, JwksSource::Url("https://id.example.com/jwks.json".to_owned()));
    assert_eq!((jwt.audience.len(), jwt.leeway), (2, Duration::ZERO));
    assert_eq!(config.access_log.unwrap().format, AccessLogFormat::Combined);
    let deferred = config.deferred.unwrap();
    assert_eq!(deferred.place, DeferredPlace::File("/etc/deferred.redb".into()));
    assert_eq!((deferred.tickets.as_str(), deferred.bytes_max), ("/tickets", 100 << 20));
    let later = config.routes.iter().find(|route| route.path == "/later").unwrap();
    let expected = QueueConfig {
        body_bytes_max: 2 << 20,
        response_bytes_max: 3 << 20,
        age_max: Duration::from_secs(12 * 3_600),
        count_max: 500,
        identity_count_max: 50,
        identity_bytes_max: 5 << 20,
        attempts_max: 4,
        callbacks: later.queue.callbacks.clone(),
    };
    assert_eq!((later.on_limit, &later.queue), (OnLimit::Queue, &expected));
    assert_eq!(later.queue.callbacks[1].to_string(), "http://10.0.0.7:8080/done");
    let api = &config.upstreams[1];
    assert_eq!((api.name.as_str(), api.servers.len(), api.idle_max), ("api", 2, 64));
    assert_eq!(api.resolvers, ["10.0.0.53:53".parse().unwrap()]);
    assert!(matches!(api.balance, Balance::Hash(_)));
    assert_eq!(api.health.as_ref().unwrap().status, (200, 299));
    assert_eq!(config.upstreams[2].balance, Balance::LeastConnections);
    let route = &config.routes[0];
    let Action::Forward { upstream: 1, strip_prefix, host } = &route.action else { panic!() };
    assert_eq!((strip_prefix.as_deref(), host.as_deref()), (Some("/v1"), Some("internal")));
    assert_eq!((route.require, route.on_limit), (Some(Credential::Jwt), OnLimit::Mark));
    let limit = route.limit.as_ref().unwrap();
    assert_eq!((limit.mapping.descriptors.len(), limit.on_missing), (3, OnMissing::Pass));
    let tokens = &limit.mapping.descriptors[2];
    assert_eq!(tokens.to_string(), "tokens: api_key, hits: json max_tokens or 1000");
    let [free, success, usage, rest] = limit.settle.as_slice() else { panic!() };
    assert_eq!(
        (&free.descriptors[..], &free.usage),
        (&[2][..], &Usage::Cost(CostSource::Fixed(0)))
    );
    assert_eq!(free.status, [(401, 401), (500, 599), (300, 399)]);
    assert_eq!((&success.descriptors[..], &success.usage), (&[0, 1][..], &Usage::Reset));
    assert_eq!(success.headers, [("X-Cache".to_owned(), "HIT".to_owned())]);
    assert_eq!(usage.usage, Usage::Cost(CostSource::Json("usage.total_tokens".into())));
    assert_eq!((rest.descriptors.len(), rest.is_unconditional()), (3, true));
    assert_eq!(route.response_headers.remove, ["Server"]);
    let model = |path: &str| {
        let route = config.routes.iter().find(|route| route.path == path).unwrap();
        route.limit.as_ref().unwrap().tokens.clone().unwrap()
    };
    let tokens = model("/llm/*");
    assert_eq!((tokens.api, tokens.max_output), (ModelApi::OpenAi, 2_048));
    assert_eq!((tokens.body_bytes_max, tokens.stream_usage), (1 << 20, false));
    let Some(PriceSource::Table(prices)) = &tokens.prices else { panic!() };
    let (input, cached, cache_write, output) = (2_500_000, 1_250_000, 3_750_000, 10_000_000);
    let expected = TokenClasses { input, cached, cache_write, output };
    assert_eq!(prices.find("gpt-4o"), Some(&expected));
    let weights = tokens.weights.unwrap();
    let expected = TokenClasses { input: 1_000, cached: 100, cache_write: 1_000, output: 4_000 };
    assert_eq!((weights.find("any"), weights.has_default()), (Some(&expected), true));
    let file = Some(PriceSource::File("/etc/prices.yaml".into()));
    assert_eq!((model("/claude/*").api, model("/claude/*").prices), (ModelApi::Anthropic, file));
    assert_eq!(config.routes[1].hosts, ["old.example.com"]);
    assert_eq!(config.routes[2].action, Action::Redirect { to: "/new".to_owned(), status: 308 });
}

#[test]
fn what_is_left_out_has_the_defaults() {
    let text = "upstreams: { api: http://127.0.0.1:3000 }\nroutes: [{ path: /*, upstream: api }]";
    let config = loaded(text).config;
    let simple = GatewayConfig::simple("127.0.0.1:1".parse().unwrap(), Vec::new(), None);
    let (upstream, default) = (&config.upstreams[0], &simple.upstreams[0]);
    assert_eq!((upstream.timeouts, upstream.eject), (default.timeouts, default.eject));
    let expected =
        GatewayConfig { upstreams: config.upstreams.clone(), listeners: Vec::new(), ..simple };
    assert_eq!(config, expected);
}

#[test]
fn the_former_name_of_a_section_keeps_its_meaning() {
    let text =
        "identity: { json_body: { max_bytes: 1KiB } }\nroutes: [{ path: /*, redirect: /new }]";
    assert_eq!(loaded(text).config.identity.body.bytes_max, 1 << 10);
}

#[test]
fn every_mistake_is_reported_as_written() {
    let mut wrong = Vec::new();
    let mut count = 0;
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if name == "full.yaml" || path.extension().is_none_or(|ending| ending != "yaml") {
            continue;
        }
        count += 1;
        let source = Source { name, text: fs::read_to_string(&path).unwrap() };
        let (problems, warnings) = match load(&source, Path::new("/etc")) {
            Ok(loaded) => (Vec::new(), loaded.warnings),
            Err(invalid) => (invalid.problems.iter().cloned().collect(), invalid.warnings),
        };
        let mut printed: Vec<String> =
            problems.iter().map(|problem| with_source(problem, &source.text)).collect();
        let warning = |problem| format!("warning: {}", with_source(problem, &source.text));
        printed.extend(warnings.iter().map(warning));
        for line in printed.iter().filter_map(|one| one.lines().next()) {
            assert!(line.contains("; ") && !line.ends_with('.'), "no remedy: {line}");
        }
        let printed = printed.concat();
        assert!(!printed.is_empty(), "{} has no mistake", path.display());
        let expected = path.with_extension("txt");
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&expected, &printed).unwrap();
        } else if fs::read_to_string(&expected).unwrap_or_default() != printed {
            wrong.push(format!("{}:\n{printed}", expected.display()));
        }
    }
    assert!(count >= 8, "{count} cases");
    assert!(wrong.is_empty(), "UPDATE=1 writes anew:\n{}", wrong.join("\n"));
}

#[test]
fn files_that_do_not_exist_are_reported_at_their_place() {
    let text = "rules: none.yaml\nupstreams: { api: http://127.0.0.1:3000 }\n\
                routes: [{ path: /*, upstream: api }, { path: /s/*, files: nowhere }]\n";
    assert!(load(&source(text), &folder()).is_ok());
    let invalid = load_with_files(&source(text), &folder()).unwrap_err().to_string();
    let lines: Vec<_> = invalid.lines().collect();
    assert_eq!(lines.len(), 2, "{invalid}");
    assert!(lines[0].starts_with("gateway.yaml:1:8: rules: /"), "{invalid}");
    assert!(lines[0].ends_with("none.yaml: there is no such file; check the path"), "{invalid}");
    assert!(lines[1].starts_with("gateway.yaml:3:60: routes[1].files: /"), "{invalid}");
}

#[test]
fn limits_that_the_rules_do_not_have_are_warnings() {
    let text = "upstreams: { api: http://127.0.0.1:3000 }\nroutes:\n\
                - { path: /a, upstream: api, limit: { domain: shpo, descriptors: [{ user: path }] } }\n\
                - { path: /b, upstream: api, limit: { domain: shop, descriptors: [{ usr: path }, { user: path }] } }\n";
    let rules = "domain: shop\ndescriptors: [{ key: user, limits: { algorithm: token_bucket, rate: 1/s } }]\n";
    let rules = load_rules(&[source(rules)], &Options::default()).unwrap();
    let warnings: Vec<_> =
        loaded(text).check_rules(&rules).warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "gateway.yaml:3:47: routes[0].limit.domain: nothing is limited here, the rules have no such \
             domain, got `shpo`; did you mean `shop`? the rules have `shop`",
            "gateway.yaml:4:67: routes[1].limit.descriptors[0]: has no effect, no rule is for `usr` here; \
             did you mean `user`? rules begin with `user`",
        ]
    );
}

#[test]
fn a_rate_is_no_budget() {
    let text = "upstreams: { api: http://127.0.0.1:3000 }\nroutes:\n\
                - { path: /a, upstream: api, limit: { domain: llm, tokens: { api: openai, max_output: 500 }, \
                descriptors: [{ user: path }, { entries: { team: path }, hits: tokens }, \
                { entries: { slow: path }, hits: output_tokens }, { entries: { fine: path }, hits: tokens }, \
                { entries: { small: path }, hits: tokens }] } }\n";
    let rules = "domain: llm\ndescriptors:\n\
                 - { key: user, limits: { algorithm: token_bucket, rate: 10/day } }\n\
                 - { key: team, limits: { algorithm: token_bucket, rate: 1000000/day } }\n\
                 - { key: slow, limits: { algorithm: token_bucket, rate: 100/m } }\n\
                 - { key: fine, limits: [{ name: m, algorithm: token_bucket, rate: 500/m }, { name: d, algorithm: fixed_window, rate: 5000/day }] }\n\
                 - { key: small, limits: { algorithm: fixed_window, rate: 400/day } }\n";
    let rules = load_rules(&[source(rules)], &Options::default()).unwrap();
    let warnings: Vec<_> =
        loaded(text).check_rules(&rules).warnings.iter().map(ToString::to_string).collect();
    let [rate, burst, window] = warnings.as_slice() else { panic!("{warnings:?}") };
    assert!(rate.contains("`team` has no budget but a rate, got `token_bucket` of `1000000` per `1day`, which refills all the time; write"), "{rate}");
    assert!(burst.contains("`slow` denies every request without a maximum of tokens: it reserves `500`, and `token_bucket` holds `100`; write a larger limit"), "{burst}");
    assert!(window.contains("`small` denies every request"), "{window}");
}

#[test]
fn a_problem_of_a_route_is_at_its_path() {
    let text = "upstreams: { api: http://127.0.0.1:3000 }\nroutes:\n- { path: /a, upstream: api }\n\
                - { upstream: api, path: /a }\n";
    let problem = loaded(text).route_problem(1, "path", "twice; remove one".to_owned());
    assert_eq!(problem.to_string(), "gateway.yaml:4:26: routes[1].path: twice; remove one");
}

#[test]
fn a_file_is_recognised_by_its_keys() {
    assert!(is_gateway(&fs::read_to_string(folder().join("full.yaml")).unwrap()));
    for text in ["", "domain: x\nroutes: []", "[routes]", "{", "descriptors: []"] {
        assert!(!is_gateway(text), "{text}");
    }
}

#[test]
fn nothing_panics_and_problems_are_bounded() {
    for text in
        ["", "5", "[]", "routes", "routes: {}", "upstreams: [x]\nroutes: [[]]", "listen: []"]
    {
        assert!(!problems(text).is_empty(), "{text}");
    }
    let many = format!("routes: [{}]", "{},".repeat(5_000));
    assert!(problems(&many).lines().count() <= 1_001);
}

#[test]
fn the_schema_is_published_as_the_code_makes_it() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/gateway.schema.json");
    let made = gateway_schema();
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &made).unwrap();
    }
    let published = fs::read_to_string(&path).unwrap_or_default();
    assert!(published == made, "with UPDATE=1 {} is written anew", path.display());
    let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
    let draft = compiler.compile("https://json-schema.org/draft/2020-12/schema", &mut schemas);
    schemas.validate(&serde_json::from_str(&made).unwrap(), draft.unwrap()).unwrap();
}
