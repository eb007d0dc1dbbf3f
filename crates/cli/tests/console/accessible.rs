//! All pages under axe-core, light and dark, wide and on a phone; with the keyboard alone.

use std::fs;

use serde_json::{Value, json};

use crate::candidate;
use crate::node::Node;
use crate::support::server;

const PAGES: [&str; 10] = [
    "/",
    "/console/rules",
    "/console/rule?id=shop%2Fuser",
    "/console/identities",
    "/console/identity?domain=shop&descriptor=user%3Dmallory",
    "/console/explain?domain=shop&descriptors=user%3Dmallory&hits=1",
    "/console/edit",
    "/console/revisions",
    "/console/revision?number=1",
    "/console/audit",
];

#[test]
fn axe_finds_nothing_serious_on_any_page() {
    let axe = fs::read_to_string(server("axe.js")).unwrap();
    let node = Node::start(&[]);
    let browser = node.browser("/");
    candidate::propose(&node, &browser);
    node.checks("user", "mallory", 9);
    browser.open(&node.url("/"));
    browser.wait_for("document.querySelectorAll('#overview svg').length > 0");
    let mut found = Vec::new();
    for page in PAGES.into_iter().chain([
        "/console/nodes",
        "/console/rule?id=none",
        "/console/revision?number=2",
    ]) {
        for (width, scheme) in [(1200, "light"), (400, "dark")] {
            browser.resize(width, 900);
            browser.emulate_scheme(scheme);
            browser.open(&node.url(page));
            let results = browser.run_async(
                &format!("{axe}\naxe.run(document, {{ resultTypes: ['violations'] }}).then((r) => done(r.violations));"),
                &[],
            );
            for one in results.as_array().unwrap() {
                let impact = one["impact"].as_str().unwrap_or_default();
                if matches!(impact, "serious" | "critical" | "moderate") {
                    let nodes: Vec<&Value> =
                        one["nodes"].as_array().unwrap().iter().map(|node| &node["html"]).collect();
                    found.push(format!("{page} {scheme}: {} {} {nodes:?}", one["id"], one["help"]));
                }
            }
            let overflow = browser.run(
                "return document.documentElement.scrollWidth - document.documentElement.clientWidth",
                &[],
            );
            assert_eq!(overflow, json!(0), "{page} is wider than a window of {width}");
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn nothing_is_loaded_from_elsewhere_and_the_policy_blocks_nothing() {
    let node = Node::start(&[]);
    let browser = node.browser("/");
    for page in PAGES {
        browser.open(&node.url(page));
        let loaded = browser.run(
            "return performance.getEntriesByType('resource').map((one) => new URL(one.name).host)
                .filter((host) => host !== location.host)",
            &[],
        );
        assert_eq!(loaded, json!([]), "{page}");
    }
    let errors = browser.severe_log_lines();
    assert!(errors.is_empty(), "{errors:?}");
}

#[test]
fn a_keyboard_is_enough_to_edit_a_rule() {
    const TAB: &str = "\u{e004}";
    let node = Node::start(&[]);
    let browser = node.browser("/console/edit");
    browser.wait_for("document.querySelector('#problems .good')");
    browser.press(TAB);
    assert_eq!(browser.run("return document.activeElement.textContent", &[]), "Skip to content");
    browser.press("\u{e007}");
    browser.press(TAB);
    assert_eq!(browser.run("return document.activeElement.id", &[]), "text");
    let outline = browser.run("return getComputedStyle(document.activeElement).outlineStyle", &[]);
    assert_eq!(outline, "solid", "the focus is visible");
}
