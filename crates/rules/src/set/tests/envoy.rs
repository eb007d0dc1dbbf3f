//! What envoyproxy/ratelimit's files mean: key and value are one text there, `key_value`.

use super::*;
use crate::domain::Counter;

fn envoy(descriptors: Vec<DescriptorConfig>) -> RuleSet {
    compiled(Joint::Joined, descriptors)
}

#[test]
fn exactly_then_the_first_glob_of_the_file_then_the_key_alone() {
    let set = envoy(vec![
        limited(1, any("path")),
        limited(2, text("path", "/a*")),
        limited(3, text("path", "/ab*")),
        limited(4, text("path", "/abc")),
        limited(5, text("path", "*.jpg")),
        limited(6, text("path", "/x*y*z")),
    ]);
    check(
        &set,
        &[
            ("path=/abc", 4),
            ("path=/abd", 2),
            ("path=/a", 2),
            ("path=/a.jpg", 2),
            ("path=/b.jpg", 5),
            ("path=/xyz", 6),
            ("path=/x1y2z", 6),
            ("path=/xz", 1),
            ("path=/ab*", 3),
            ("path=", 1),
            ("Path=/abc", 0),
        ],
    );
}

#[test]
fn the_order_of_globs_holds_however_many_there_are() {
    for many in [2, 8, 9, 40] {
        let letter = |no: u32| char::from(b'a' + (no % 26) as u8);
        let mut level: Vec<DescriptorConfig> = (0..many)
            .map(|no| limited(100 + no, text("p", &format!("{}{no}*", letter(no)))))
            .collect();
        level.insert(0, limited(1, text("p", "a0x*")));
        level.push(limited(2, text("p", "*")));
        level.push(limited(3, text("p", "*z")));
        let set = envoy(level);
        check(&set, &[("p=a0xy", 1), ("p=a0y", 100), ("p=b1", 101), ("p=zz", 2), ("p=", 2)]);
    }
}

#[test]
fn only_rules_of_the_same_depth_apply() {
    let set = envoy(vec![above(
        limited(1, any("a")),
        vec![above(any("b"), vec![limited(3, any("c"))]), limited(4, text("b", "leaf"))],
    )]);
    check(
        &set,
        &[
            ("a=1", 1),
            ("a=1 b=2", 0),
            ("a=1 b=2 c=3", 3),
            ("a=1 b=2 c=3 e=4", 0),
            ("a=1 b=leaf", 4),
            ("a=1 b=leaf c=3", 0),
            ("a=1 x=2", 0),
            ("b=2", 0),
        ],
    );
}

#[test]
fn there_is_no_turning_back() {
    let set = envoy(vec![
        above(text("a", "1"), vec![limited(1, any("b"))]),
        above(text("a", "2*"), vec![limited(2, any("b"))]),
        above(any("a"), vec![limited(3, any("b")), limited(4, any("c"))]),
    ]);
    check(
        &set,
        &[
            ("a=1 b=x", 1),
            ("a=1 c=x", 0),
            ("a=22 b=x", 2),
            ("a=22 c=x", 0),
            ("a=3 c=x", 4),
            ("a=1", 0),
        ],
    );
}

#[test]
fn an_exact_node_without_a_limit_lets_pass() {
    let set = envoy(vec![limited(1, any("user")), text("user", "admin"), text("user", "bot*")]);
    check(&set, &[("user=admin", 0), ("user=bot7", 0), ("user=other", 1)]);
}

#[test]
fn values_have_counters_of_their_own() {
    let set = envoy(vec![limited(1, any("user")), limited(2, text("path", "/a*"))]);
    assert_eq!(identity(&set, "user=1"), identity(&set, "user=1"));
    assert_ne!(identity(&set, "user=1"), identity(&set, "user=2"));
    assert_ne!(identity(&set, "path=/a1"), identity(&set, "path=/a2"));
}

#[test]
fn a_shared_glob_has_one_counter_also_further_up() {
    let shared = |node: DescriptorConfig| DescriptorConfig { counter: Counter::Shared, ..node };
    let set = envoy(vec![
        above(shared(text("path", "/a*")), vec![limited(1, any("user"))]),
        shared(limited(2, text("path", "/b*"))),
    ]);
    assert_eq!(identity(&set, "path=/b1"), identity(&set, "path=/b2"));
    assert_eq!(identity(&set, "path=/b1"), identity(&set, "path=/b*"));
    assert_eq!(identity(&set, "path=/a1 user=7"), identity(&set, "path=/a2 user=7"));
    assert_ne!(identity(&set, "path=/a1 user=7"), identity(&set, "path=/a1 user=8"));
}

#[test]
fn nothing_known_nothing_limited() {
    let set = envoy(vec![limited(1, any("a")), limited(2, any(""))]);
    assert!(set.find("other", &entries("a=1")).is_none());
    check(&set, &[("", 0), ("b=1", 0), ("a=", 1)]);
    assert!(set.domain("").is_none());
}

#[test]
fn an_entry_without_a_value() {
    let set = envoy(vec![limited(1, any("a")), limited(2, any("b_")), limited(3, text("c", "*"))]);
    check(&set, &[("a=", 1), ("b=", 2), ("b_=", 2), ("b_=x", 2), ("b=x", 0), ("c=", 3)]);
}

#[test]
fn a_key_and_a_value_are_one_text() {
    let set = envoy(vec![
        limited(1, text("a", "b_c")),
        limited(2, text("x", "*")),
        limited(3, any("key_only")),
        limited(4, text("k", "v")),
    ]);
    check(
        &set,
        &[
            ("a=b_c", 1),
            ("a_b=c", 1),
            ("x=1", 2),
            ("x_y=1", 2),
            ("xy=1", 0),
            ("key=only", 3),
            ("key_only=1", 3),
            // The key alone is looked up as well, and that may be a key and a value.
            ("k_v=anything", 4),
        ],
    );
    assert_ne!(identity(&set, "a=b_c"), identity(&set, "a_b=c"), "matched alike, counted apart");
}

#[test]
fn they_are_two_texts_in_our_own_form() {
    let set = compiled(
        Joint::Apart,
        vec![
            limited(1, text("a", "b_c")),
            limited(5, text("a_b", "c")),
            limited(2, text("x", "*")),
            limited(3, any("key_only")),
            limited(4, text("k", "v")),
        ],
    );
    check(
        &set,
        &[
            ("a=b_c", 1),
            ("a_b=c", 5),
            ("x=1", 2),
            ("x_y=1", 0),
            ("key=only", 0),
            ("key_only=1", 3),
            ("k_v=anything", 0),
        ],
    );
}

#[test]
fn a_star_in_a_key_is_one_only_there() {
    let level = || {
        vec![
            limited(1, any("a*")),
            limited(2, text("b*", "x")),
            limited(3, text("c*", "y*")),
            limited(4, text("*", "z*")),
        ]
    };
    let joined = [("ab=1", 1), ("a=", 1), ("bb=x", 2), ("bb=y", 0), ("cc=yy", 3), ("q=zz", 4)];
    check(&envoy(level()), &joined);
    let set = compiled(Joint::Apart, level());
    check(&set, &joined.map(|(written, _)| (written, 0)));
    check(&set, &[("a*=1", 1), ("b*=x", 2), ("c*=yy", 3), ("*=z", 4)]);
}

#[test]
fn what_matches_the_same_is_there_twice() {
    let twice =
        |one: DescriptorConfig, other: DescriptorConfig| refused(Joint::Joined, vec![one, other]);
    assert_eq!(twice(text("a", "b"), text("a", "b")), "duplicate descriptor `a=b`");
    assert_eq!(twice(any("a"), any("a")), "duplicate descriptor `a`");
    let split = || (text("a", "b_c"), text("a_b", "c"));
    assert!(twice(split().0, split().1).starts_with("duplicate descriptor `a"));
    assert!(twice(any("a_b"), text("a", "b")).starts_with("duplicate descriptor `a"));
    compiled(Joint::Apart, vec![split().0, split().1]);
    compiled(Joint::Apart, vec![any("a_b"), text("a", "b")]);
    assert_eq!(
        refused(Joint::Apart, vec![text("a", "b*"), any("c"), text("a", "b*")]),
        "duplicate descriptor `a=b*`"
    );
    // A different node with the same text is between them.
    assert_eq!(
        refused(Joint::Apart, vec![split().0, split().1, split().0]),
        "duplicate descriptor `a=b_c`"
    );
    let below = |node: DescriptorConfig| above(node, vec![any("x")]);
    compiled(Joint::Joined, vec![below(text("a", "1")), below(text("a", "2"))]);
}
