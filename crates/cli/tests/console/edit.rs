//! Rules edited in the browser: validated while they are typed, previewed, saved, enforced, rolled
//! back.

use std::fs;

use crate::node::{Node, RULES};

#[test]
fn an_edit_is_validated_previewed_saved_enforced_and_rolled_back() {
    let node = Node::start(&[]);
    assert_eq!(node.checks("user", "alice", 4), [200, 200, 200, 429]);
    let browser = node.browser("/console/rules");
    browser.follow("Edit the rules");
    browser.wait_for("document.querySelector('#problems .good')");

    // A mistake is named while it is typed, with its line; its button selects the line.
    browser.fill("#text", &RULES.replace("3/year", "five"));
    browser.wait_for("document.querySelector('#problems .problem')");
    let problem = browser.text("#problems");
    assert!(problem.contains("line 5"), "{problem}");
    assert!(problem.contains("must be a number per time, got `five`"), "{problem}");
    browser.click("#problems button");
    let selected = browser.run(
        "const t = document.activeElement; return t.value.slice(t.selectionStart, t.selectionEnd)",
        &[],
    );
    assert_eq!(selected, "    limits: { algorithm: fixed_window, rate: five }");

    // A save is refused, and the text stays.
    browser.fill("#note", "more for everybody");
    browser.submit("button[value=save]");
    assert!(browser.text("[role=alert]").contains("The rules are invalid"));
    assert!(
        browser
            .run("return document.querySelector('#text').value", &[])
            .as_str()
            .unwrap()
            .contains("five")
    );

    browser.fill("#text", &RULES.replace("3/year", "5/year"));
    browser.submit("button[value=check]");
    let preview = browser.text("section[aria-label=Preview]");
    assert!(
        preview.contains("+    limits: { algorithm: fixed_window, rate: 5/year }"),
        "{preview}"
    );
    assert!(preview.contains("shop/user"), "{preview}");
    // Alice had four requests, of which the fourth was denied and would be allowed.
    let trial = browser.text("[aria-label='Rules on recent requests'] tbody");
    let trial = trial.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(trial.ends_with("not seen 4 1 (25 %) 0 (0 %) 1 of 1 → 0 of 1"), "{trial}");
    assert_eq!(node.check("user", "alice"), 429, "a preview changes nothing");

    browser.fill("#note", "more for everybody");
    browser.submit("button[value=save]");
    assert!(browser.text("[role=status]").contains("Saved, and enforced by this node."));
    // What was used stays used.
    assert_eq!(node.checks("user", "alice", 3), [200, 200, 429]);
    let written = fs::read_to_string(format!("{}/shop.yaml", node.rules.path())).unwrap();
    assert_eq!(written, RULES.replace("3/year", "5/year"));

    browser.follow("Revisions");
    let text = browser.text("main");
    assert!(text.contains("more for everybody") && text.contains("local"), "{text}");
    browser.follow("1");
    browser.fill("#note", "too much");
    browser.submit("button[value=rollback]");
    assert!(browser.text("main").contains("restores revision 1"));
    assert_eq!(node.check("user", "bob"), 200);
    assert_eq!(node.checks("user", "bob", 3), [200, 200, 429]);
    browser.open(&node.url("/console/audit"));
    let audit = browser.text("main");
    assert!(audit.contains("rules.propose") && audit.contains("rules.rollback"), "{audit}");
}

#[test]
fn a_conflict_names_the_newer_revision_and_has_a_way_on() {
    let node = Node::start(&[]);
    let browser = node.browser("/console/edit");
    browser.wait_for("document.querySelector('#problems .good')");
    // A second editor saves first.
    let other = node.browser("/console/edit");
    other.fill("#text", &RULES.replace("3/year", "7/year"));
    other.fill("#note", "the first edit");
    other.submit("button[value=save]");
    assert!(other.text("[role=status]").contains("Saved"));

    browser.fill("#text", &RULES.replace("3/year", "9/year"));
    browser.fill("#note", "the second edit");
    browser.submit("button[value=save]");
    let refusal = browser.text("[role=alert]");
    assert!(refusal.contains("the first edit") && refusal.contains("revision 2"), "{refusal}");
    let text = browser.run("return document.querySelector('#text').value", &[]);
    assert!(text.as_str().unwrap().contains("9/year"), "the text is not lost");
    // Compared with the first edit, and saved over it.
    browser.submit("button[value=rebase]");
    let preview = browser.text("section[aria-label=Preview]");
    assert!(
        preview.contains("-    limits: { algorithm: fixed_window, rate: 7/year }"),
        "{preview}"
    );
    browser.submit("button[value=save]");
    assert!(browser.text("[role=status]").contains("Saved, and enforced"));
    assert_eq!(node.checks("user", "carol", 10).iter().filter(|one| **one == 200).count(), 9);
}

#[test]
fn a_refused_save_forgets_nothing_of_the_form() {
    let node = Node::start(&[]);
    let browser = node.browser("/console/edit");
    browser.fill("#text", &RULES.replace("3/year", "2/year"));
    browser.fill("#note", "less");
    browser.run("document.querySelector('#activation').value = 'at'", &[]);
    browser.fill("#at", "tomorrow");
    browser.submit("button[value=save]");
    assert!(browser.text("[role=alert]").contains("2026-12-24T18:00:00Z, got `tomorrow`"));
    let form = "return ['activation', 'at', 'note'].map((id) => document.getElementById(id).value)";
    assert_eq!(browser.run(form, &[]), serde_json::json!(["at", "tomorrow", "less"]));
    assert_eq!(node.checks("user", "alice", 4), [200, 200, 200, 429], "nothing is enforced");
}
