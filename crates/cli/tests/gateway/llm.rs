//! Budgets of language models: what requests are charged, however their responses end.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use serde_json::{Value, json};
use sluicegate_testkit::redis::Single;
use sluicegate_testkit::until;

use crate::gateway::Gateway;
use crate::llm_provider::Provider;
use crate::support::http::{Answer, asked_on, get};
use crate::support::{Folder, root, server, sluicegate};
use crate::wire::{exchange, read_head};

const RULES: &str = "domain: llm
descriptors:
  - { key: requests, limits: { name: requests, algorithm: fixed_window, rate: 1000/year } }
  - { key: team, limits: { name: tokens, algorithm: fixed_window, rate: 10000/year } }
  - { key: team, value: small, on_exhausted: end, limits: { name: small, algorithm: fixed_window, rate: 100/year } }
  - { key: team, value: ended, on_exhausted: end, limits: { name: ended, algorithm: fixed_window, rate: 100/year } }
  - { key: team, value: debt, limits: { name: debt, algorithm: fixed_window, rate: 100/year } }
  - { key: organisation, limits: { name: money, algorithm: fixed_window, rate: 1000000/year } }
";

const PRICES: &str = "gpt-4o-mini: { input: 0.15, cached: 0.075, output: 0.60 }\n\"gpt-*\": { input: 2, output: 8 }\n";

fn config(folder: &Folder, provider: &str, api: &str) -> String {
    folder.file("rules.yaml", RULES);
    folder.file("prices.yaml", PRICES);
    let text = format!(
        "rules: rules.yaml\naccess_log: json\nupstreams: {{ model: {{ servers: \"http://{provider}\", eject: {{ failures: 0 }} }} }}
routes:
  - path: /*
    upstream: model
    limit:
      domain: llm
      tokens: {{ api: {api}, max_output: 10, max_body: 64KiB, prices: prices.yaml }}
      descriptors:
        - {{ requests: header X-Team or a }}
        - {{ entries: {{ team: header X-Team or a }}, hits: tokens }}
        - {{ entries: {{ organisation: header X-Org or a }}, hits: money }}
"
    );
    folder.file("gateway.yaml", &text)
}

fn started(folder: &Folder, provider: &Provider, api: &str, more: &[&str]) -> Gateway {
    let config = config(folder, &provider.address, api);
    Gateway::start(&[&["--config", &config], more].concat())
}

/// A request of 15 input tokens by the estimate, with these members.
fn request(more: Value) -> Value {
    let content = "x".repeat(30);
    let mut body =
        json!({ "model": "gpt-4o-mini", "messages": [{ "role": "user", "content": content }] });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn text_of(path: &str, headers: &[(&str, &str)], body: &str) -> String {
    let mut head = format!(
        "POST {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-type: application/json\r\n"
    );
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    format!("{head}content-length: {}\r\n\r\n{body}", body.len())
}

fn ask(gateway: &Gateway, path: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
    let text = text_of(path, headers, &body.to_string());
    asked_on(TcpStream::connect(&gateway.address).unwrap(), text.as_bytes())
}

/// The same, where the response may break off before it is sent.
fn try_ask(gateway: &Gateway, path: &str, headers: &[(&str, &str)], body: &Value) -> String {
    exchange(&gateway.address, text_of(path, headers, &body.to_string()).as_bytes())
}

/// The remaining tokens of a team, by a request that costs none.
fn left(gateway: &Gateway, team: &str) -> u64 {
    let answer = get(&gateway.address, "/v1/models", &[("x-team", team.as_bytes())]);
    assert_eq!(answer.status, 200, "{answer:?}");
    let left = answer.header("x-ratelimit-remaining-tokens");
    let left = left.or(answer.header("anthropic-ratelimit-tokens-remaining"));
    left.unwrap().parse().unwrap()
}

/// The line of the log of the next request to a model.
fn logged(gateway: &mut Gateway) -> Value {
    serde_json::from_str(&gateway.process.says("tokens_from")).unwrap()
}

const CHAT: &str = "/v1/chat/completions";

#[test]
fn a_request_is_charged_what_it_has_used() {
    let (folder, provider) = (Folder::new(), Provider::start());
    let mut gateway = started(&folder, &provider, "openai", &[]);
    let (whole, stream) =
        (json!({ "max_tokens": 50 }), json!({ "max_tokens": 50, "stream": true }));
    let own = json!({ "stream": true, "stream_options": { "include_usage": true } });
    let cases: &[(&str, &str, &Value, u64, &str)] = &[
        (CHAT, "", &whole, 32, "reported"),
        (CHAT, "", &stream, 32, "reported"),
        (CHAT, "crlf pieces=3", &stream, 32, "reported"),
        (CHAT, "", &own, 32, "reported"),
        ("/v1/responses", "pieces=7", &stream, 32, "reported"),
        (CHAT, "tokens=300", &stream, 312, "reported"),
        // Nothing is reported: the estimate.
        (CHAT, "usage=none", &whole, 65, "estimated"),
        (CHAT, "usage=none", &stream, 65, "estimated"),
        (CHAT, "usage={\"prompt_tokens\":0,\"completion_tokens\":0}", &stream, 65, "estimated"),
        // The provider breaks off.
        (CHAT, "abort=10", &stream, 25, "partial"),
        (CHAT, "abort=0", &stream, 15, "partial"),
        // It lies.
        (
            CHAT,
            "usage={\"prompt_tokens\":12,\"completion_tokens\":9}",
            &stream,
            32,
            "underreported",
        ),
        (CHAT, "usage={\"prompt_tokens\":12,\"completion_tokens\":10}", &stream, 22, "reported"),
        (
            CHAT,
            "usage={\"prompt_tokens\":12,\"completion_tokens\":0}",
            &stream,
            32,
            "underreported",
        ),
        (CHAT, "usage={\"prompt_tokens\":12,\"completion_tokens\":1}", &whole, 37, "underreported"),
        (CHAT, "usage={\"prompt_tokens\":-5,\"completion_tokens\":-7}", &stream, 65, "invalid"),
        (CHAT, "usage={\"prompt_tokens\":12,\"completion_tokens\":1.5}", &whole, 62, "invalid"),
        (
            CHAT,
            "usage={\"prompt_tokens\":99999999999999,\"completion_tokens\":20}",
            &stream,
            35,
            "invalid",
        ),
        (CHAT, "usage={\"prompt_tokens\":12,\"completion_tokens\":1e9}", &stream, 62, "invalid"),
        // It bills no errors.
        (CHAT, "status=500", &whole, 0, "failed"),
    ];
    for (path, behaviour, more, expected, report) in cases {
        let before = left(&gateway, "a");
        let answer = try_ask(&gateway, path, &[("x-do", behaviour)], &request((*more).clone()));
        let line = logged(&mut gateway);
        assert_eq!(
            before - left(&gateway, "a"),
            *expected,
            "{path} {behaviour}: {line} {answer:?}"
        );
        assert_eq!(line["tokens_from"], *report, "{path} {behaviour}");
        assert_eq!(line["settled"]["team"], *expected, "{path} {behaviour}");
    }
    let metric = |name: &str| gateway.metric(name).unwrap();
    let report = |report: &str| {
        metric(&format!(r#"sluicegate_gateway_llm_reports_total{{route="/*",report="{report}"}}"#))
    };
    assert_eq!((report("underreported").as_str(), report("invalid").as_str()), ("3", "4"));
    let output = metric(r#"sluicegate_gateway_llm_tokens_total{route="/*",class="output"}"#);
    assert!(output.parse::<u64>().unwrap() > 500, "{output}");
    // Requests of one each, those without a body too: as many as were asked.
    let answer = ask(&gateway, CHAT, &[], &request(whole.clone()));
    let requests = answer.header("x-ratelimit-remaining-requests").unwrap();
    assert_eq!(requests.parse::<usize>().unwrap(), 1_000 - cases.len() * 3 - 1);
}

#[test]
fn a_client_that_goes_away_is_charged_what_has_passed() {
    let (folder, provider) = (Folder::new(), Provider::start());
    let mut gateway = started(&folder, &provider, "openai", &[]);
    for (stream, behaviour, reads, expected) in [
        (true, "wait=10", true, 25),
        // The provider goes on with a response that is no stream.
        (false, "hang", false, 65),
    ] {
        let body = request(json!({ "max_tokens": 50, "stream": stream })).to_string();
        let before = left(&gateway, "a");
        let mut client = TcpStream::connect(&gateway.address).unwrap();
        let text = text_of(CHAT, &[("x-do", behaviour)], &body);
        client.write_all(text.as_bytes()).unwrap();
        if reads {
            read_head(&mut client);
            let mut read = String::new();
            while read.matches("word").count() < 10 {
                let mut piece = [0; 1_000];
                let length = client.read(&mut piece).unwrap();
                read.push_str(&String::from_utf8_lossy(&piece[..length]));
            }
        } else {
            until("the provider has the request", || (provider.last_body() == body).then_some(()));
        }
        drop(client);
        let line = logged(&mut gateway);
        assert_eq!(line["settled"]["team"], expected, "{line}");
        assert_eq!(before - left(&gateway, "a"), expected, "{line}");
    }
    until("the provider's requests are cancelled", || {
        (*provider.cancelled.lock().unwrap() == 2).then_some(())
    });
}

#[test]
fn the_usage_is_requested_and_hidden_from_clients_that_did_not_ask() {
    let (folder, provider) = (Folder::new(), Provider::start());
    let gateway = started(&folder, &provider, "openai", &[]);
    let body =
        r#"{ "stream" : true, "model":"gpt-4o","messages":[{"role":"user","content":"é\u00e9"}] }"#;
    let text = text_of(CHAT, &[], body);
    let answer = asked_on(TcpStream::connect(&gateway.address).unwrap(), text.as_bytes());
    let added = r#""stream_options":{"include_usage":true},"#;
    assert_eq!(provider.last_body(), format!("{{{added}{}", &body[1..]));
    assert_eq!(answer.body.matches("data: ").count(), 22, "20 words, the reason, the end");
    assert!(!answer.body.contains("usage") && answer.body.ends_with("data: [DONE]\n\n"));
    let body = request(json!({ "stream": true, "stream_options": { "include_usage": true } }));
    let answer = ask(&gateway, CHAT, &[], &body);
    assert_eq!(provider.last_body(), body.to_string());
    assert!(answer.body.contains(r#""total_tokens":32"#), "{answer:?}");
    let body = request(json!({ "stream": false }));
    ask(&gateway, CHAT, &[], &body);
    assert_eq!(provider.last_body(), body.to_string());
}

#[test]
fn a_stream_without_budget_is_ended_or_goes_into_debt() {
    let (folder, provider) = (Folder::new(), Provider::start());
    let mut gateway = started(&folder, &provider, "openai", &[]);
    let long = request(json!({ "stream": true }));
    let ask_as = |gateway: &Gateway, team: &str, behaviour: &str| {
        ask(gateway, CHAT, &[("x-team", team), ("x-do", behaviour)], &long)
    };
    let answer = ask_as(&gateway, "small", "tokens=100000");
    let words = answer.body.matches("word").count();
    assert!((86..86 + 64).contains(&words), "{words}");
    let mut events = answer.body.trim_end().rsplit("\n\n");
    assert_eq!(events.next(), Some("data: [DONE]"));
    let last: Value = serde_json::from_str(&events.next().unwrap()["data: ".len()..]).unwrap();
    assert_eq!(last["choices"][0]["finish_reason"], "length", "{last}");
    assert_eq!((&last["id"], &last["object"]), (&"c1".into(), &"chat.completion.chunk".into()));
    let line = logged(&mut gateway);
    assert_eq!((&line["stream_ended"], &line["tokens_from"]), (&true.into(), &"partial".into()));
    assert_eq!(line["settled"]["team"], 15 + words, "{line}");
    until("the provider's request is cancelled", || {
        (*provider.cancelled.lock().unwrap() == 1).then_some(())
    });
    assert_eq!(left(&gateway, "small"), 0);
    let ended = gateway.metric(r#"sluicegate_gateway_llm_streams_ended_total{route="/*"}"#);
    assert_eq!(ended.as_deref(), Some("1"));
    assert_eq!(ask_as(&gateway, "small", "").status, 429);
    // By default it finishes; the budget is in debt.
    let answer = ask_as(&gateway, "debt", "tokens=300");
    assert_eq!(answer.body.matches("word").count(), 300);
    assert_eq!(logged(&mut gateway)["settled"]["team"], 312);
    assert_eq!((left(&gateway, "debt"), ask_as(&gateway, "debt", "").status), (0, 429));
}

#[test]
fn streams_of_other_apis_end_in_their_way() {
    let (folder, provider) = (Folder::new(), Provider::start());
    let gateway = started(&folder, &provider, "anthropic", &[]);
    let headers = [("x-team", "small"), ("x-do", "tokens=100000")];
    let body = request(json!({ "stream": true }));
    let answer = ask(&gateway, "/v1/messages", &headers, &body);
    let end = r#"event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"max_tokens","stop_sequence":null},"usage":{"output_tokens":"#;
    let words = answer.body.matches("word").count();
    let end =
        format!("{end}{words}}}}}\n\nevent: message_stop\ndata: {{\"type\":\"message_stop\"}}\n\n");
    assert!(answer.body.ends_with(&end), "{}", &answer.body[answer.body.len() - 400..]);
    let folder = Folder::new();
    let gateway = started(&folder, &provider, "openai", &[]);
    let answer = ask(
        &gateway,
        "/v1/responses",
        &headers,
        &json!({ "model": "gpt-5", "input": "x", "stream": true }),
    );
    let (_, last) = answer.body.trim_end().rsplit_once("data: ").unwrap();
    let last: Value = serde_json::from_str(last).unwrap();
    assert_eq!(last["type"], "response.incomplete");
    assert_eq!(last["response"]["id"], "r1");
    assert_eq!(last["response"]["incomplete_details"]["reason"], "max_output_tokens");
}

#[test]
fn anthropic_is_charged_by_its_usage() {
    let (folder, provider) = (Folder::new(), Provider::start());
    let mut gateway = started(&folder, &provider, "anthropic", &[]);
    for (stream, behaviour, expected) in [
        (true, "pieces=5", 32),
        (false, "", 32),
        (true, "abort=12", 12 + 10),
        (true, "abort=1", 12 + 1),
    ] {
        let body = request(json!({ "max_tokens": 50, "stream": stream }));
        let before = left(&gateway, "a");
        try_ask(&gateway, "/v1/messages", &[("x-do", behaviour)], &body);
        assert_eq!(provider.last_body(), body.to_string(), "nothing is added");
        let line = logged(&mut gateway);
        assert_eq!(before - left(&gateway, "a"), expected, "{behaviour}: {line}");
    }
    let answer = ask(&gateway, "/v1/messages", &[], &request(json!({})));
    for kind in ["tokens", "requests"] {
        let header = |figure| answer.header(&format!("anthropic-ratelimit-{kind}-{figure}"));
        assert!(header("limit").is_some() && header("reset").unwrap().ends_with('Z'));
    }
    let body = request(json!({ "max_tokens": 200 }));
    let denied = ask(&gateway, "/v1/messages", &[("x-team", "small")], &body);
    let error: Value = serde_json::from_str(&denied.body).unwrap();
    assert_eq!((denied.status, &error["type"]), (429, &"error".into()));
    assert_eq!(error["error"]["type"], "rate_limit_error");
}

#[test]
fn denials_have_the_form_of_the_api() {
    let (folder, provider) = (Folder::new(), Provider::start());
    let gateway = started(&folder, &provider, "openai", &[]);
    let answer = ask(&gateway, CHAT, &[("x-team", "small")], &request(json!({})));
    assert_eq!(answer.header("x-ratelimit-limit-tokens"), Some("100"));
    assert_eq!(answer.header("x-ratelimit-remaining-tokens"), Some("75"), "the estimate is held");
    let reset = answer.header("x-ratelimit-reset-tokens").unwrap();
    assert!(reset.contains('h') && reset.ends_with('s'), "{reset}");
    assert_eq!(answer.header("x-ratelimit-limit-requests"), Some("1000"));
    let denied = ask(&gateway, CHAT, &[("x-team", "small")], &request(json!({ "max_tokens": 70 })));
    let error: Value = serde_json::from_str(&denied.body).unwrap();
    assert_eq!((denied.status, &error["error"]["type"]), (429, &"insufficient_quota".into()));
    assert_eq!(denied.header("x-should-retry"), Some("false"));
    assert_eq!(denied.header("x-ratelimit-remaining-tokens"), Some("68"));
    assert!(denied.header("retry-after").is_some());
    let never = ask(&gateway, CHAT, &[("x-team", "small")], &request(json!({ "max_tokens": 101 })));
    let error: Value = serde_json::from_str(&never.body).unwrap();
    assert_eq!(error["error"]["code"], "rate_limit_exceeded");
    assert!(error["error"]["message"].as_str().unwrap().contains("100"), "{error}");
    // Nothing of the denied ones is charged.
    assert_eq!(left(&gateway, "small"), 68);
}

#[test]
fn money_is_exact_and_models_have_prices() {
    let (folder, provider) = (Folder::new(), Provider::start());
    let mut gateway = started(&folder, &provider, "openai", &[]);
    for (model, usage, expected) in [
        // 12 · 0.15 + 20 · 0.60 = 13.8
        ("gpt-4o-mini", "{\"prompt_tokens\":12,\"completion_tokens\":20}", 14),
        // 4 · 0.15 + 8 · 0.075 + 20 · 0.60 = 13.2
        (
            "gpt-4o-mini",
            "{\"prompt_tokens\":12,\"completion_tokens\":20,\"prompt_tokens_details\":{\"cached_tokens\":8}}",
            14,
        ),
        ("gpt-5", "{\"prompt_tokens\":12,\"completion_tokens\":20}", 184),
    ] {
        let body = request(json!({ "model": model }));
        ask(&gateway, CHAT, &[("x-do", &format!("usage={usage}"))], &body);
        let line = logged(&mut gateway);
        assert_eq!(
            (&line["settled"]["organisation"], &line["model"]),
            (&expected.into(), &model.into())
        );
        assert_eq!(line["money"], expected);
    }
    let before = provider.requests.lock().unwrap().len();
    for (body, code) in [
        (request(json!({ "model": "claude" })).to_string(), "unknown_model"),
        (r#"{"messages":[]}"#.to_owned(), "unknown_model"),
        (r#"{"model":"gpt-4o","model":"x"}"#.to_owned(), "tokens_unreadable"),
        (r#"{"model":"gpt-4o","Max_Tokens":1}"#.to_owned(), "tokens_unreadable"),
        ("{".to_owned(), "tokens_unreadable"),
    ] {
        let text = text_of(CHAT, &[], &body);
        let answer = asked_on(TcpStream::connect(&gateway.address).unwrap(), text.as_bytes());
        assert!(answer.status == 400 && answer.body.contains(code), "{body}: {answer:?}");
    }
    let long = request(json!({ "x": "y".repeat(70_000) }));
    assert_eq!(ask(&gateway, CHAT, &[], &long).status, 413);
    let text = text_of(CHAT, &[], "model=x").replace("application/json", "text/plain");
    let answer = asked_on(TcpStream::connect(&gateway.address).unwrap(), text.as_bytes());
    assert!(answer.status == 400 && answer.body.contains("tokens_unreadable"), "{answer:?}");
    assert_eq!(provider.requests.lock().unwrap().len(), before, "none of them is forwarded");
    // A changed price applies to the next request.
    folder.file("prices.yaml", "\"*\": { input: 1, output: 1 }\n");
    until("the prices are read again", || {
        (ask(&gateway, CHAT, &[], &request(json!({ "model": "claude" }))).status == 200)
            .then_some(())
    });
    assert_eq!(logged(&mut gateway)["money"], 32);
}

#[test]
fn budgets_are_shared_through_a_store() {
    let (folder, provider, redis) = (Folder::new(), Provider::start(), Single::start());
    let [mut first, second] =
        [(); 2].map(|()| started(&folder, &provider, "openai", &["--store", redis.url()]));
    let stream = request(json!({ "stream": true, "max_tokens": 50 }));
    for (behaviour, expected) in
        [("", 32), ("usage=none", 65), ("abort=10", 25), ("tokens=300", 312)]
    {
        let before = left(&second, "a");
        try_ask(&first, CHAT, &[("x-do", behaviour)], &stream);
        assert_eq!(logged(&mut first)["settled"]["team"], expected);
        // Twice: the estimate passes this number once, too.
        for _ in 0..2 {
            until("it is settled", || (before - left(&second, "a") == expected).then_some(()));
        }
    }
    let headers = [("x-team", "small"), ("x-do", "tokens=1000000")];
    let answer = ask(&first, CHAT, &headers, &request(json!({ "stream": true })));
    assert!(answer.body.ends_with("data: [DONE]\n\n") && answer.body.contains("\"length\""));
    let line = logged(&mut first);
    assert_eq!(line["stream_ended"], true, "{line}");
    until("the budget is used up", || (left(&second, "small") == 0).then_some(()));
    assert_eq!(ask(&second, CHAT, &[("x-team", "small")], &stream).status, 429);
}

#[test]
fn the_official_clients_work_through_it() {
    let (folder, provider) = (Folder::new(), Provider::start());
    for api in ["openai", "anthropic"] {
        let gateway = started(&folder, &provider, api, &[]);
        let script = root().join("crates/cli/tests/gateway/llm.py");
        let url = format!("http://{}", gateway.address);
        let mut command = Command::new(server("model-python"));
        let run = command.arg(&script).args([api, &url]).output().unwrap();
        let (said, errors) =
            (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
        assert_eq!(said, "ok\n", "{api}: {errors}");
    }
}

#[test]
fn check_says_how_tokens_are_counted() {
    let folder = Folder::new();
    let config = config(&folder, "127.0.0.1:1", "openai");
    let checked = sluicegate(&["check", &config], "");
    let expected = "team: header X-Team or a, hits: tokens; organisation: header X-Org or a, hits: money, tokens of openai, 10 without a maximum, 2 prices, other models are refused";
    assert!(checked.stdout.contains(expected), "{}{}", checked.stdout, checked.stderr);
    folder.file("prices.yaml", "gpt: { input: -1, output: 2 }\n");
    let checked = sluicegate(&["check", &config], "");
    let expected = "routes[0].limit.tokens.prices: prices.yaml:1:15: gpt.input: must be a number with at most six decimals, got `-1`";
    let said = checked.stdout + &checked.stderr;
    assert!(
        checked.code == 1
            && said.replace(folder.path(), "").replace("/prices", "prices").contains(expected),
        "{said}"
    );
}
