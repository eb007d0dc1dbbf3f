//! Thresholds of budgets, from the gateway: of plain hits, and of costs that responses settle.

use serde_json::json;

use crate::gateway::Gateway;
use crate::support::Folder;
use crate::support::http::get;
use crate::support::receiver::WebhookReceiver;
use crate::support::upstream::Upstream;

const RULES: &str = "domain: llm
descriptors:
  - key: team
    notify: [80%]
    limits: { name: tokens, algorithm: fixed_window, rate: 1000/year }
    pools: [{ name: credits, limits: { name: credits, algorithm: fixed_window, rate: 500/year } }]
";

#[test]
fn a_settled_cost_reaches_a_threshold_and_is_charged_to_its_pool() {
    let (folder, receiver) = (Folder::new(), WebhookReceiver::answering(&[]));
    let upstream = Upstream::answering(|request: axum::extract::Request| async move {
        let cost = request.headers().get("x-want").cloned();
        [("x-cost", cost.unwrap_or_else(|| axum::http::HeaderValue::from_static("0")))]
    });
    folder.file("rules.yaml", RULES);
    let config = folder.file(
        "gateway.yaml",
        &format!(
            "webhook: http://{}/\nrules: rules.yaml\nlimit_headers: true\nupstreams: {{ app: http://{} }}\nroutes:
  - path: /*
    upstream: app
    limit:
      domain: llm
      descriptors: [{{ entries: {{ team: text search }}, hits: header X-Estimate }}]
      settle: [{{ cost: header X-Cost }}]
",
            receiver.address, upstream.address
        ),
    );
    let gateway = Gateway::start(&["--config", &config]);
    let send = |estimate: &str, cost: &str| {
        let headers = [("x-estimate", estimate.as_bytes()), ("x-want", cost.as_bytes())];
        let answer = get(&gateway.address, "/", &headers);
        (answer.status, answer.header("x-ratelimit-remaining").unwrap().to_owned())
    };
    // The estimate is above the threshold, the cost is not.
    assert_eq!(send("900", "700"), (200, "100".to_owned()));
    assert_eq!(send("200", "200"), (200, "100".to_owned()));
    let data = receiver.next().json()["data"].clone();
    assert_eq!((&data["used"], &data["threshold"]), (&json!(900), &json!(80)), "{data}");
    // 100 are left, so this one draws from the credits and is settled there, into debt.
    assert_eq!(send("450", "600"), (200, "50".to_owned()));
    let data = receiver.next().json()["data"].clone();
    assert_eq!((&data["pool"], &data["used"]), (&json!("credits"), &json!(600)), "{data}");
    assert_eq!(send("100", "100"), (200, "0".to_owned()), "of the first pool, which has its rest");
    assert!(receiver.is_empty());
}
