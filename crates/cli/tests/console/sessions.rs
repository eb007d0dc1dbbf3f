//! Login with a token, what a role may do, and logout.

use crate::node::{Node, RULES};
use crate::support::Folder;

/// A file with the tokens `reader` and `editor`, whose secrets are `secret of` their names.
fn tokens(folder: &Folder) -> String {
    let mut lines = String::new();
    for (name, role) in [("reader", "read"), ("editor", "edit")] {
        let hashed = crate::support::sluicegate(
            &["hash-token", name, "--role", role],
            &format!("secret of {name}\n"),
        );
        assert_eq!(hashed.code, 0, "{}", hashed.stderr);
        lines += &hashed.stdout;
    }
    folder.file("tokens.yaml", &lines)
}

#[test]
fn a_browser_logs_in_sees_what_its_role_allows_and_logs_out() {
    let folder = Folder::new();
    let tokens = tokens(&folder);
    let node = Node::start(&["--admin-tokens", &tokens]);
    let browser = node.browser("/console/edit");
    assert!(browser.address().contains("/console/login?next="));
    browser.fill("#token", "a guess");
    browser.submit("button");
    assert!(browser.text("[role=alert]").contains("not a token of this node"));
    assert!(!browser.address().contains("guess"));
    browser.fill("#token", "secret of reader");
    browser.submit("button");
    assert!(browser.address().ends_with("/console/edit"), "{}", browser.address());
    let text = browser.text("main");
    assert!(text.contains("may read the rules and not change them"), "{text}");
    assert_eq!(
        browser.run("return document.querySelectorAll('button[value=save]').length", &[]),
        0
    );
    let cookies = browser.run("return document.cookie", &[]);
    assert_eq!(cookies, "", "no script reads the session");

    browser.submit(".caller button");
    assert!(browser.address().contains("/console/login"));
    browser.open(&node.url("/console/edit"));
    assert!(browser.address().contains("/console/login"), "the session has ended");
    browser.fill("#token", "secret of editor");
    browser.submit("button");
    browser.fill("#text", &RULES.replace("3/year", "4/year"));
    browser.fill("#note", "one more");
    browser.submit("button[value=save]");
    assert!(browser.text("main").contains("editor"));
}
