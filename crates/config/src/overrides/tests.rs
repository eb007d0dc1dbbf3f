//! Edits of texts: what is added and removed leaves everything else as it was.

use proptest::prelude::*;

use super::*;

fn target(user: &str) -> OverrideTarget {
    OverrideTarget { matches: vec![("user".to_owned(), json!(user))], rule: None }
}

fn spec(user: &str, change: ChangeSpec) -> OverrideSpec {
    let until = Timestamp::from_micros(1_796_083_200_000_000);
    OverrideSpec { target: target(user), change, until, note: "ticket: 4711 # \"x\"".to_owned() }
}

const LINE: &str = "{ match: { \"user\": \"eve\" }, block: true, until: 2026-12-01T00:00:00Z, note: \
                    \"ticket: 4711 # \\\"x\\\"\" }";

#[test]
fn an_override_is_added_where_the_list_ends() {
    const ONE: &str = "{ match: { user: bob }, block: true, until: 2026-12-01T00:00:00Z, note: n }";
    let table = [
        ("domain: d\n".to_owned(), format!("domain: d\noverrides:\n  - {LINE}\n")),
        ("domain: d".to_owned(), format!("domain: d\noverrides:\n  - {LINE}")),
        ("domain: d\r\n".to_owned(), format!("domain: d\r\noverrides:\r\n  - {LINE}\r\n")),
        ("domain: d\noverrides: # none\n".to_owned(), format!("domain: d\noverrides: # none\n- {LINE}\n")),
        ("overrides: []\ndomain: d\n".to_owned(), format!("overrides: [{LINE}]\ndomain: d\n")),
        (
            format!("overrides:\n  # first\n  - {ONE} # why\n    # deeper\n\n  # last\n\ndomain: d # end\n"),
            format!("overrides:\n  # first\n  - {ONE} # why\n    # deeper\n  - {LINE}\n\n  # last\n\ndomain: d # end\n"),
        ),
        (
            "domain: d\noverrides:\n- match:\n    user: bob\n  block: true\n  until: 2026-12-01T00:00:00Z\n\n  note: >-\n    # long\n    text"
                .to_owned(),
            format!("domain: d\noverrides:\n- match:\n    user: bob\n  block: true\n  until: 2026-12-01T00:00:00Z\n\n  note: >-\n    # long\n    text\n- {LINE}"),
        ),
    ];
    let eve = spec("eve", ChangeSpec::Block);
    for (before, after) in table {
        assert_eq!(add(&before, &eve).as_ref(), Ok(&after), "{before}");
        assert_eq!(remove(&after, &eve.target), Ok(before));
    }
}

#[test]
fn an_override_of_the_same_target_is_replaced() {
    let text = "overrides:\n  # a\n  - match: { user: eve }\n    factor: 2\n    until: 2026-12-01T00:00:00Z\n    \
                note: n\n  # b\ndomain: d\n";
    let added = add(text, &spec("eve", ChangeSpec::Block)).unwrap();
    assert_eq!(added, format!("overrides:\n  # a\n  - {LINE}\n  # b\ndomain: d\n"));
    let free = spec("eve", ChangeSpec::Unlimited);
    assert!(add(&added, &free).unwrap().contains("unlimited: true"));
    let mut of_rule = free;
    of_rule.target.rule = Some("user".to_owned());
    assert_eq!(add(&added, &of_rule).unwrap().matches("\n  - ").count(), 2, "another target");
}

#[test]
fn every_change_can_be_written() {
    let limits = json!([{ "algorithm": "token_bucket", "rate": "10/s", "burst": 5 }]);
    let changes = [
        ChangeSpec::Factor(2_500),
        ChangeSpec::Limits(limits),
        ChangeSpec::Limits(json!("deny")),
        ChangeSpec::Unlimited,
    ];
    for change in changes {
        let one = spec("acme*", change);
        let added = add("domain: d\n", &one).unwrap();
        assert_eq!(remove(&added, &one.target).unwrap(), "domain: d\n", "{added}");
    }
    let matches = vec![("ip".to_owned(), json!({ "cidr": ["10.0.0.0/8", "::1"] }))];
    let network = OverrideSpec {
        target: OverrideTarget { matches, rule: None },
        ..spec("", ChangeSpec::Block)
    };
    assert!(
        add("domain: d\n", &network).unwrap().contains("{ \"cidr\": [\"10.0.0.0/8\", \"::1\"] }")
    );
}

#[test]
fn what_cannot_be_edited_is_refused() {
    let eve = spec("eve", ChangeSpec::Block);
    let one = "{ match: { user: bob }, block: true, until: 2026-12-01T00:00:00Z, note: n }";
    let table = [
        ("{ domain: d }\n".to_owned(), "the file does not have its keys at the beginning of lines"),
        (
            format!("domain: d\noverrides: [{one}]\n"),
            "`overrides` is not a list with a line of its own",
        ),
        ("domain: d\n---\ndomain: e\n".to_owned(), "the file does not have its keys"),
        ("domian: d\n".to_owned(), "rules:1:1"),
    ];
    for (text, message) in table {
        let error = add(&text, &eve).unwrap_err().to_string();
        assert!(error.starts_with(message), "{text}\n{error}");
    }
    assert_eq!(remove("domain: d\n", &eve.target), Err(EditError::Missing));
    let mut wrong = eve;
    wrong.note = String::new();
    assert!(matches!(add("domain: d\n", &wrong), Err(EditError::InvalidOverride(_))));
}

/// Files with comments, blank lines and overrides of several notations.
fn any_file() -> impl Strategy<Value = String> {
    let one = |user: &'static str| {
        prop_oneof![
            Just(format!(
                "- {{ match: {{ user: {user} }}, block: true, until: 2026-12-01T00:00:00Z, note: n }}"
            )),
            Just(format!(
                "- match: {{ user: {user} }} # x\n@  factor: 2\n@  # y\n@  until: 2026-12-01T00:00:00Z\n\n@  note: n"
            )),
        ]
    };
    let between = || {
        prop_oneof![
            Just(""),
            Just("\n"),
            Just("# comment\n"),
            Just("@# inner\n"),
            Just("@    # deep\n")
        ]
    };
    let items = (one("a"), between(), one("b"), between(), one("c"), between(), 0..4_usize);
    let rest = "descriptors:\n  # users\n  - key: user\n    rate_limit: { unit: hour, requests_per_unit: 5 }\n";
    (items, prop_oneof![Just("  "), Just(""), Just("      ")], any::<(bool, bool, bool)>())
        .prop_map(move |((a, s, b, t, c, u, count), indent, (first, is_cut, crlf))| {
            let all = [(a, s), (b, t), (c, u)];
            let mut list = String::new();
            for (item, after) in all.iter().take(count) {
                list += &format!("@{item}\n{after}");
            }
            let list = if count == 0 { String::new() } else { format!("overrides:\n{list}") };
            let list = list.replace('@', indent);
            let mut text = match first {
                true => format!("# top\n{list}domain: d # d\n{rest}"),
                false => format!("domain: d # d\n{rest}\n{list}"),
            };
            if is_cut && !text.trim_end().ends_with('#') {
                text.truncate(text.trim_end_matches('\n').len());
            }
            if crlf { text.replace('\n', "\r\n") } else { text }
        })
}

proptest! {
    #[test]
    fn what_is_added_and_removed_leaves_no_trace(text in any_file(), user in "[a-c]|[ -~]{1,12}|\\PC{1,6}") {
        prop_assert!(parsed(&text).is_ok(), "{}", text);
        let one = spec(&user, ChangeSpec::Block);
        let is_new = !["a", "b", "c"].contains(&&*user) || !text.contains(&format!("user: {user} }}"));
        let added = match add(&text, &one) {
            Ok(added) => added,
            Err(error) => return Err(TestCaseError::fail(format!("{error}\n{text}"))),
        };
        prop_assert!(parsed(&added).is_ok(), "{}", added);
        if is_new {
            prop_assert_eq!(remove(&added, &one.target), Ok(text));
        } else {
            prop_assert!(remove(&added, &one.target).is_ok(), "{}", added);
        }
    }
}
