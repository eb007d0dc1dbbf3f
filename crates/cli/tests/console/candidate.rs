//! A candidate beside the enforced rules: proposed, watched, activated.

use serde_json::json;

use crate::node::{Node, RULES};
use crate::support::browser::Browser;

/// Saves a stricter limit of users as a candidate; the browser is at its page.
pub(crate) fn propose(node: &Node, browser: &Browser) {
    browser.open(&node.url("/console/edit"));
    browser.wait_for("document.querySelector('#problems .good')");
    browser.fill("#text", &RULES.replace("3/year", "2/year"));
    browser.fill("#note", "one less");
    browser.run("document.querySelector('#activation').value = 'shadow'", &[]);
    browser.submit("button[value=save]");
    assert!(browser.text("[role=status]").contains("candidate, not enforced"));
    browser.wait_for("document.querySelector('#candidate .tiles')");
}

#[test]
fn a_candidate_is_proposed_watched_and_activated() {
    let node = Node::start(&[]);
    let browser = node.browser("/");
    propose(&node, &browser);
    assert!(browser.text("#candidate").contains("No request would newly be denied."));

    // The answers are those of the enforced rules, and the page follows by itself.
    assert_eq!(node.checks("user", "alice", 5), [200, 200, 200, 429, 429]);
    assert_eq!(node.checks("client", "a", 4), [200; 4]);
    let values =
        "[...document.querySelectorAll('#candidate .value')].map((one) => one.innerText).join()";
    // Newly denied, no longer denied, denied by both, allowed by both.
    browser.wait_for(&format!("{values} === '1,0,2,6'"));
    let text = browser.text("#candidate");
    assert!(text.contains("user=alice") && text.contains("shop/user"), "{text}");
    let cells = browser.run(
        "const row = [...document.querySelectorAll('#candidate tbody tr')].find((row) => row.innerText.includes('shop/user'));
         return [...row.querySelectorAll('td.number')].map((cell) => cell.innerText)",
        &[],
    );
    assert_eq!(cells, json!(["5", "3", "1"]));

    // The overview names it.
    let page = browser.address();
    browser.open(&node.url("/"));
    assert!(browser.text("#overview").contains("A candidate runs beside the enforced rules"));
    browser.follow("revision 2");
    assert!(page.contains("number=2"));
    browser.submit("button[value=activate]");
    assert!(browser.text("[role=status]").contains("Saved, and enforced by this node."));
    assert_eq!(
        browser.run("return document.querySelector('#candidate') === null", &[]),
        json!(true)
    );
    assert_eq!(node.checks("user", "bob", 3), [200, 200, 429]);
}
