use super::*;
use proptest::prelude::*;

/// A tree on one line: `{"a"@1:1: ["b"@1:5]@1:4}@1:1`; plain scalars without quotes.
fn shown(node: &Node) -> String {
    let Position { line, column } = node.at;
    let content = match &node.content {
        Content::Scalar { text, style: Style::Plain } => text.to_string(),
        Content::Scalar { text, style: Style::Quoted } => format!("{text:?}"),
        Content::Sequence(items) => {
            let items: Vec<_> = items.iter().map(shown).collect();
            format!("[{}]", items.join(", "))
        }
        Content::Mapping(pairs) => {
            let pairs: Vec<_> = pairs
                .iter()
                .map(|Pair { key, value, merged }| {
                    let mark = if *merged { "<" } else { "" };
                    format!("{mark}{}: {}", shown(key), shown(value))
                })
                .collect();
            format!("{{{}}}", pairs.join(", "))
        }
    };
    format!("{content}@{line}:{column}")
}

fn tree(text: &str) -> String {
    match document(text) {
        Ok(Some(root)) => shown(&root),
        Ok(None) => "none".to_owned(),
        Err(Unreadable { at, message }) => format!("{}:{}: {message}", at.line, at.column),
    }
}

#[test]
fn nodes_know_where_they_stand() {
    let table = [
        ("a", "a@1:1"),
        ("'a'", "\"a\"@1:1"),
        ("  \"a\"", "\"a\"@1:3"),
        ("|\n  a\n  b\n", "\"a\\nb\\n\"@2:3"),
        (
            "a: 1\nb:\n  - x\n  - {c: ä, d: e}\n",
            "{a@1:1: 1@1:4, b@2:1: [x@3:5, {c@4:6: ä@4:9, d@4:12: e@4:15}@4:5]@3:3}@1:1",
        ),
        ("- a: 1\n  a: 2\n", "[{a@1:3: 1@1:6, a@2:3: 2@2:6}@1:3]@1:1"),
        (
            "{\"rate\":\"10/s\",\"burst\":5}",
            "{\"rate\"@1:2: \"10/s\"@1:9, \"burst\"@1:16: 5@1:24}@1:1",
        ),
        ("a: &x [1]\nb: *x\n", "{a@1:1: [1@1:8]@1:4, b@2:1: [1@1:8]@1:4}@1:1"),
        ("a: &x 1\nb: &x 2\nc: *x\n", "{a@1:1: 1@1:4, b@2:1: 2@2:4, c@3:1: 2@2:4}@1:1"),
        ("- !!str 5\n- !!int 5\n- ! 5\n", "[\"5\"@1:3, 5@2:3, \"5\"@3:3]@1:1"),
        ("---\na\n...\n", "a@2:1"),
        ("\u{feff}a: b", "{a@1:1: b@1:4}@1:1"),
        ("a:\r\n  b\r\n", "{a@1:1: b@2:3}@1:1"),
        ("", "none"),
        (" \n# nothing\n", "none"),
        ("---\n", "@2:1"),
    ];
    for (text, expected) in table {
        assert_eq!(tree(text), expected, "{text:?}");
    }
}

#[test]
fn mappings_take_over_others() {
    let table = [
        ("{<<: {a: 1}, b: 2}", "{<a@1:7: 1@1:10, b@1:14: 2@1:17}@1:1"),
        ("{b: 2, <<: {b: 1}}", "{b@1:2: 2@1:5, <b@1:13: 1@1:16}@1:1"),
        ("{<<: [{a: 1}, {a: 2}]}", "{<a@1:16: 2@1:19, <a@1:8: 1@1:11}@1:1"),
        ("- &x {a: 1}\n- {<<: *x}", "[{a@1:7: 1@1:10}@1:3, {<a@1:7: 1@1:10}@2:3]@1:1"),
        (
            "- &x {a: 1}\n- &y {<<: *x, b: 2}\n- {<<: *y}",
            "[{a@1:7: 1@1:10}@1:3, {<a@1:7: 1@1:10, b@2:15: 2@2:18}@2:3, {<a@1:7: 1@1:10, <b@2:15: \
             2@2:18}@3:3]@1:1",
        ),
        ("{<<: {}}", "{}@1:1"),
        ("{'<<': {a: 1}}", "{\"<<\"@1:2: {a@1:9: 1@1:12}@1:8}@1:1"),
    ];
    for (text, expected) in table {
        assert_eq!(tree(text), expected, "{text:?}");
    }
    for (text, got, column) in
        [("{<<: 5}", "`5`", 6), ("{<<: }", "nothing", 4), ("{<<: [{}, [a]]}", "a list", 11)]
    {
        let message = format!(
            "1:{column}: map merge requires map or sequence of maps as the value, got {got}; write \
             it like `<<: *base`"
        );
        assert_eq!(tree(text), message);
    }
}

#[test]
fn null_is_null_only_bare() {
    for text in ["~", "null", "Null", "NULL", "---\n", "!!null null"] {
        assert!(document(text).unwrap().unwrap().is_null(), "{text:?}");
    }
    for text in ["'~'", "\"null\"", "''", "nUll", "!!str null", "[]", "{}", "0", "|\n null"] {
        assert!(!document(text).unwrap().unwrap().is_null(), "{text:?}");
    }
}

#[test]
fn what_is_not_read_says_why() {
    let hint = "check the indentation, quotes and brackets before this place";
    let table = [
        (
            "[1, 2",
            format!("1:6: not YAML: while parsing a flow sequence, expected ',' or ']'; {hint}"),
        ),
        (
            "a: b: c",
            format!("1:5: not YAML: mapping values are not allowed in this context; {hint}"),
        ),
        ("a: *b", format!("1:4: not YAML: while parsing node, found unknown anchor; {hint}")),
        (
            "a\n---\nb\n",
            "2:1: a second document begins here and only one is read; remove the line `---`"
                .to_owned(),
        ),
        (
            "&a [*a]",
            "1:5: an alias cannot stand inside what it refers to; write the value out".to_owned(),
        ),
        ("a: !rate 5", "1:4: a tag has no meaning here, got `!rate`; remove it".to_owned()),
        (
            "a: !!set {b}",
            "1:4: a tag has no meaning here, got `tag:yaml.org,2002:set`; remove it".to_owned(),
        ),
        (
            "a: b\r\nc: d\u{0}e",
            "2:5: a character that YAML forbids, got `\\u{0}`; remove it, or write it escaped in \
             double quotes"
                .to_owned(),
        ),
    ];
    for (text, expected) in table {
        assert_eq!(tree(text), expected, "{text:?}");
    }
}

#[test]
fn documents_come_in_order() {
    let roots: Vec<_> = documents("a\n---\nb\n---\n")
        .unwrap()
        .iter()
        .map(|document| shown(&document.root))
        .collect();
    assert_eq!(roots, ["a@1:1", "b@3:1", "@5:1"]);
    assert!(documents("--- &a x\n--- *a\n").is_err(), "an anchor ends with its document");
}

#[test]
fn depth_is_bounded() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(documents(&nested(DEPTH_MAX)).is_ok());
    let message = "nested more than 64 deep; write it flatter";
    assert_eq!(tree(&nested(DEPTH_MAX + 1)), format!("1:65: {message}"));
    let dashes = format!("{}x", "- ".repeat(100_000));
    assert_eq!(tree(&dashes), format!("1:129: {message}"));
    // An alias has the depth of its node.
    let aliases = |depth: usize| {
        format!("- &a {}\n- {}*a{}", nested(60), "[".repeat(depth), "]".repeat(depth))
    };
    assert!(documents(&aliases(3)).is_ok());
    assert!(tree(&aliases(4)).ends_with(message));
}

#[test]
fn nodes_are_bounded_and_aliases_count_in_full() {
    let mut laughs = "- &a0 [ha]\n".to_owned();
    for level in 1..=30 {
        let before = level - 1;
        laughs.push_str(&format!("- &a{level} [{}]\n", vec![format!("*a{before}"); 9].join(", ")));
    }
    let message = "values, each alias counted as all that it stands for; split the file, or write \
                   fewer aliases of aliases";
    assert!(tree(&laughs).ends_with(&format!("more than 16000000 {message}")), "{}", tree(&laughs));

    let within = |text: &str| match documents_within(text, 1_000) {
        Ok(_) => String::new(),
        Err(error) => error.message,
    };
    let list = |items: usize| format!("[{}]", "a,".repeat(items));
    assert_eq!(within(&list(999)), "");
    assert_eq!(within(&list(1_000)), format!("more than 1000 {message}"));
    // Also over several documents.
    assert_eq!(within(&"--- a\n".repeat(1_001)), format!("more than 1000 {message}"));
    // Merged pairs count where they are merged.
    let merged = |times: usize| {
        let base: String = (0..100).map(|key| format!("k{key}: v, ")).collect();
        format!("- &b {{{base}}}\n{}", "- { <<: *b }\n".repeat(times))
    };
    assert_eq!(within(&merged(3)), "");
    assert_eq!(within(&merged(4)), format!("more than 1000 {message}"));
    // A long scalar is shared, not copied: 100,000 aliases of a mebibyte.
    let long = format!("- &a {}\n{}", "x".repeat(1 << 20), "- *a\n".repeat(100_000));
    assert!(documents(&long).is_ok());
}

#[test]
fn text_is_bounded() {
    let long = " ".repeat(TEXT_BYTES_MAX + 1);
    assert_eq!(tree(&long), "1:1: longer than 64 MiB; split the file");
    assert_eq!(tree(&long[1..]), "none");
}

/// Pieces that mean something to a YAML parser, put together at random.
fn yamlish() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        ":",
        " ",
        "\n",
        "-",
        "- ",
        "? ",
        ": ",
        ", ",
        "a",
        "b: c",
        "&a ",
        "*a",
        "!t ",
        "!!str ",
        "|",
        "|2-\n",
        ">",
        "\"",
        "'",
        "#",
        " #x\n",
        "%",
        "%YAML 1.2\n",
        "%TAG ! x:\n",
        "---",
        "...",
        "---\n",
        "...\n",
        "\t",
        "\r",
        "\r\n",
        "\u{feff}",
        "\0",
        "é",
        "\u{85}",
        "\u{2028}",
        "\\",
        "\\x41",
        "\\u1F",
        "0",
        "~",
        "  ",
        "    ",
        "@",
        "`",
        "<<",
        "<<: ",
        "=",
        "😀",
        "\"a\\\n",
        "a: &x [1]\n",
        "*x\n",
        "!<tag:x>",
        "!",
        "!!",
        "&",
        "*",
        "|+",
        ">-9\n",
        "?",
        ":a",
    ]);
    prop::collection::vec(pieces, 0..24).prop_map(|pieces| pieces.concat())
}

/// Invariants of every tree: positions within the text, depth within the bound.
fn check(text: &str) {
    fn walk(node: &Node, depth: usize, lines: usize) {
        assert!(depth <= DEPTH_MAX && (1..=lines).contains(&node.at.line) && node.at.column > 0);
        match &node.content {
            Content::Scalar { .. } => {}
            Content::Sequence(items) => items.iter().for_each(|item| walk(item, depth + 1, lines)),
            Content::Mapping(pairs) => pairs.iter().for_each(|Pair { key, value, .. }| {
                walk(key, depth + 1, lines);
                walk(value, depth + 1, lines);
            }),
        }
    }
    let lines = text.matches(['\n', '\r']).count() + 2;
    match documents(text) {
        Ok(documents) => documents.iter().for_each(|document| walk(&document.root, 0, lines)),
        Err(error) => {
            assert!((1..=lines).contains(&error.at.line) && !error.message.contains('\n'))
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        check(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn no_text_panics(text in any::<String>()) {
        check(&text);
    }

    #[test]
    fn no_yamlish_text_panics(text in yamlish()) {
        check(&text);
    }
}
