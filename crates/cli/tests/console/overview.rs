//! Figures of the overview and of a rule: those of the requests that were sent.

use crate::node::Node;

#[test]
fn the_overview_follows_the_traffic_and_its_figures_are_exact() {
    let node = Node::start(&[]);
    let browser = node.browser("/");
    browser.wait_for("document.querySelector('#overview .value').innerText === '0'");
    browser.wait_for("document.querySelector('[data-connection]').innerText === 'Live.'");
    assert!(browser.text("main").contains("No rule has denied a request in the last hour."));

    assert_eq!(node.checks("user", "mallory", 43).iter().filter(|one| **one == 429).count(), 40);
    assert_eq!(node.checks("client", "a", 100).iter().filter(|one| **one == 200).count(), 100);
    // The page follows by itself: requests, allowed, denied.
    let values = "[...document.querySelectorAll('#overview .value')].slice(0, 4).map((one) => one.innerText).join()";
    browser.wait_for(&format!("{values} === '143,103,40,0'"));
    browser.wait_for("document.querySelector('#overview svg path.line.denied')");

    browser.follow("shop/user");
    browser.wait_for("document.querySelector('#rule .value').innerText === '43'");
    let tiles = browser.run(
        "return [...document.querySelectorAll('#rule .tiles .value')].slice(0, 5).map((one) => one.innerText)",
        &[],
    );
    assert_eq!(tiles, serde_json::json!(["43", "40", "0", "1", "1"]));
    let text = browser.text("main");
    assert!(text.contains("too little traffic to judge"), "{text}");
    assert!(text.contains("user=mallory"), "{text}");

    // With other limits, on the same requests.
    browser.fill("#limits", "{ algorithm: fixed_window, rate: 30/year }");
    browser.submit("section[aria-label='What if'] button");
    let trial = browser.text("[aria-label='Rules on recent requests'] tbody");
    let trial = trial.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(trial.ends_with("not seen 43 40 (93 %) 13 (30 %) 1 of 1 → 1 of 1"), "{trial}");
    browser.fill("#limits", "{ algorithm: fixed_window, rate: many }");
    browser.submit("section[aria-label='What if'] button");
    assert!(browser.text("[role=alert]").contains("must be a number per time, got `many`"));
}

#[test]
fn an_explanation_names_the_rule_and_why_others_do_not_match() {
    let node = Node::start(&[]);
    let browser = node.browser("/console/explain");
    browser.fill("#descriptors", "user=alice\nusr=alice");
    browser.submit("main button");
    let text = browser.text("main");
    assert!(text.contains("3 left of `fixed_window`"), "{text}");
    assert!(text.contains("no rule"), "{text}");
    browser.fill("#descriptors", "user");
    browser.submit("main button");
    assert!(browser.text("[role=alert]").contains("has no `=`; write `user=value`"));
}
