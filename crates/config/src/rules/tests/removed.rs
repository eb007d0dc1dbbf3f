//! Domains that a file removes.

use super::*;

#[test]
fn a_domain_is_removed_by_a_file_that_says_so() {
    let loaded = load(
        &[source("x", "domain: d\nremoved: true\n"), source("y", &one_of("e"))],
        &Options::default(),
    );
    let loaded = loaded.unwrap();
    assert_eq!(loaded.removed, ["d"]);
    assert_eq!(loaded.domains.iter().map(|domain| &*domain.name).collect::<Vec<_>>(), ["e"]);
    assert_eq!(loaded.files, ["y"]);
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
}

fn one_of(domain: &str) -> String {
    format!("domain: {domain}\ndescriptors: [{{ key: k, rate_limit: {{ unit: day }} }}]\n")
        .replace("unit: day", "unit: day, requests_per_unit: 1")
}

#[test]
fn what_is_ambiguous_is_refused_with_a_remedy() {
    for (text, begins) in [
        ("domain: d\nremoved: false\n", "2:10: removed: must be `true`"),
        ("domain: d\nremoved:\n", "2:8: removed: must be `true`"),
        ("domain: d\nremoved: 'true'\n", "2:10: removed: error loading config file: must be"),
        (
            "domain: d\nremoved: true\ndescriptors: []\n",
            "3:14: descriptors: has no meaning in a domain that is removed; delete `descriptors`, or",
        ),
        ("domain: d\nremoved: true\ndeny: [{ key: k }]\n", "3:7: deny: has no meaning"),
    ] {
        let told = told(text);
        assert!(told.len() == 1 && told[0].starts_with(begins), "{text}: {told:?}");
    }
    // It is a key of the whole file.
    assert!(wrong("key: k, removed: true").contains("belongs to the top of the file"));
}

#[test]
fn files_of_one_domain_agree_whether_it_is_removed() {
    let removed = source("old.yaml", "domain: d\nremoved: true\n");
    let limited = source("x", &one_of("d"));
    let options = Options { merge_domains: true, ..Options::default() };
    for (first, second, words) in [
        (&removed, &limited, "has rules here and is removed in `old.yaml` on line 1; delete one"),
        (&limited, &removed, "is removed here and has rules in `x` on line 1; delete one"),
    ] {
        let invalid = load(&[first.clone(), second.clone()], &options).unwrap_err();
        assert!(invalid.to_string().contains(words), "{invalid}");
    }
    let twice = load(&[removed.clone(), removed], &options).unwrap();
    assert_eq!(twice.removed, ["d"]);
}
