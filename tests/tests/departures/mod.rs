//! Where we answer otherwise than envoyproxy/ratelimit did, and why.

/// Why, and which cases.
const DEPARTURES: &[(&str, &[&str])] = &[
    (
        "a later version takes any number of stars anywhere, and so do we",
        &[
            "glob/double",
            "glob/double-trailing",
            "glob/leading",
            "glob/middle",
            "glob/middle-and-end",
            "glob/slash",
            "glob/star-in-key-middle",
            "glob/star-in-key-with-star-value",
            "glob/star-in-key-with-value",
            "glob/two-ends",
            "glob/two-middle",
            "share/double-star",
            "share/key-star-with-value",
            "share/star-front",
            "share/star-middle",
            "share/two-stars",
        ],
    ),
    (
        "a later version says `containing`, since stars may stand anywhere, and so do we",
        &[
            "order/share-before-children",
            "share/empty",
            "share/no-rate-limit",
            "share/no-star",
            "share/none",
        ],
    ),
    (
        "a later version has metadata, and so do we",
        &[
            "metadata/at-root",
            "metadata/big",
            "metadata/bool-key",
            "metadata/date",
            "metadata/detailed_metric",
            "metadata/empty",
            "metadata/float",
            "metadata/glob",
            "metadata/in-rate_limit",
            "metadata/int",
            "metadata/int-key",
            "metadata/list",
            "metadata/list-of-map",
            "metadata/map",
            "metadata/nan",
            "metadata/nested",
            "metadata/no-rate-limit",
            "metadata/null",
            "metadata/string",
            "metadata/unknown-key-inside",
            "metadata/valid-key-inside",
            "metadata/value_to_metric",
        ],
    ),
    (
        "a later version tells that a quota is used up, and denies when all of them are; so do we",
        &["flag/quota-over", "service/quota-mix"],
    ),
    (
        "different identities have counters of their own here, however they are written",
        &["match/ambiguous-share-counter", "match/cache-key-collision-depth"],
    ),
    (
        "a limit that comes with the request has a counter of its own here",
        &["override/same-counter-as-config"],
    ),
    (
        "a unit that does not exist is refused here, whatever the domain; there it ends the process, where the domain is known",
        &["override/unknown-domain"],
    ),
    ("nothing is nested so deeply here", &["file/deep-block-200", "file/depth-9000"]),
    (
        "the parser here is one of YAML 1.2, there one of 1.1: tabs, line ends and directives",
        &[
            "file/ls-newline",
            "file/nel-newline",
            "file/tab-after-colon",
            "file/tab-before-comment",
            "file/tab-blank-line",
            "file/unknown-directive",
            "file/yaml-directive-12",
        ],
    ),
    (
        "tags have no meaning here, except those that say what is there anyway",
        &[
            "file/percent-tag-unknown",
            "file/tag-directive",
            "keyname/binary-tag",
            "keyname/custom-tag",
            "keyname/float-tag",
            "type/rpu-float-tag",
            "value/binary-tag",
            "value/bool-tag-on-word",
            "value/custom-tag",
            "value/float-tag",
            "value/int-tag-on-word",
            "value/timestamp-tag",
        ],
    ),
    (
        "of an entry without a value, metrics say here what was configured",
        &[
            "match/empty-value-hits-trailing-underscore-key",
            "stat/detailed-parent-share-value-empty",
            "stat/trailing-underscore-key",
        ],
    ),
    ("what cannot be printed is shown escaped here", &["unit/bad-nul-in-quotes"]),
];

/// Why a case gets another answer here.
pub(crate) fn reason(name: &str) -> Option<&'static str> {
    DEPARTURES.iter().find(|(_, names)| names.contains(&name)).map(|(why, _)| *why)
}

/// All of them.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    DEPARTURES.iter().flat_map(|(_, names)| names.iter().copied())
}
