//! An identity that is blocked, granted more, reset, and let go again.

use crate::node::Node;

#[test]
fn an_identity_is_blocked_with_an_end_and_let_go_again() {
    let node = Node::start(&[]);
    assert_eq!(node.checks("user", "mallory", 5), [200, 200, 200, 429, 429]);
    let browser = node.browser("/console/identities?key=user");
    browser.wait_for("document.querySelector('#identities table')");
    browser.follow("user=mallory");
    let text = browser.text("main");
    assert!(text.contains("is denied"), "{text}");

    // Without a note the browser does not send the form.
    browser.click("button[value=block]");
    assert!(browser.text("main").contains("neither blocked nor granted"));
    browser.fill("#block-note", "credential stuffing");
    browser.submit("button[value=block]");
    assert!(browser.text("[role=status]").contains("ed, until "), "{}", browser.text("main"));
    let blocked = browser.text("section, main");
    assert!(blocked.contains("credential stuffing") && blocked.contains("blocked"), "{blocked}");
    browser.submit("button[value=reset]");
    assert!(browser.text("[role=status]").starts_with("Reset"));
    assert_eq!(node.check("user", "mallory"), 429, "blocked, though the limit is full");
    assert_eq!(node.check("user", "alice"), 200);

    assert!(browser.text("main").contains("is denied by the block"), "{}", browser.text("main"));
    browser.follow("Explain a request of it");
    assert!(browser.text("main").contains("credential stuffing"), "{}", browser.text("main"));
    browser.open(&node.url("/console/revision?number=1"));
    let warning = browser.text("main .warning");
    assert!(warning.contains("shop user=mallory: blocked (credential stuffing)"), "{warning}");
    browser.open(&node.url("/console/identity?domain=shop&descriptor=user%3Dmallory"));
    browser.submit("button[value=lift]");
    assert!(browser.text("[role=status]").starts_with("Lifted"));
    assert_eq!(node.checks("user", "mallory", 4), [200, 200, 200, 429]);
}

#[test]
fn a_grant_multiplies_the_limits_of_one_identity() {
    let node = Node::start(&[]);
    let browser = node.browser("/console/identities");
    browser.fill("#descriptor", "user=acme");
    browser.submit("form[action='/console/identity'] button");
    browser.fill("#grant-note", "sale");
    browser.submit("button[value=grant]");
    assert!(browser.text("[role=status]").contains("ed, until "), "{}", browser.text("main"));
    assert_eq!(node.checks("user", "acme", 7), [200, 200, 200, 200, 200, 200, 429]);
    assert_eq!(node.checks("user", "other", 4), [200, 200, 200, 429]);
}
