//! Where the service answers otherwise than envoyproxy/ratelimit did, and why.

/// A reason, and the calls that get another answer for it.
pub(crate) struct Departure {
    #[expect(dead_code, reason = "it is here to be read")]
    why: &'static str,
    /// The fields that differ; everything beside them is the same. Without any, the answers have nothing in common.
    pub(crate) only: &'static [&'static str],
    /// The case, and the places of the calls in it.
    pub(crate) calls: &'static [(&'static str, &'static [usize])],
}

pub(crate) const DEPARTURES: &[Departure] = &[
    Departure {
        why: "a later version tells that a quota is used up, and denies when all of them are; so do we",
        only: &["overallCode", "code", "durationUntilReset", "status"],
        calls: &[
            ("config/force-start-modes", &[1]),
            ("headers/global-quota", &[1, 2, 3, 4]),
            ("headers/quota", &[1, 2, 3, 4, 5, 7, 8]),
            ("metadata/global-quota", &[1, 2, 3, 4]),
            ("metadata/quota", &[1, 2, 3, 4, 5]),
            ("metrics/traffic", &[16]),
            ("modes/both-global", &[1, 3, 7]),
            ("modes/global-quota", &[1, 2, 4, 5, 7, 11, 12, 14, 15]),
            ("modes/global-shadow", &[6]),
            ("modes/quota-names", &[0]),
            ("modes/rule-quota", &[1, 2, 4, 5, 6]),
        ],
    },
    Departure {
        why: "a limit that comes with the request has a counter of its own here",
        only: &["overallCode", "code", "limitRemaining"],
        calls: &[
            ("redis/duplicates-override", &[0]),
            ("redis/override-and-rule-one-counter", &[1, 2, 4, 5]),
        ],
    },
    Departure {
        why: "different identities have counters of their own here, however they are written",
        only: &["limitRemaining"],
        calls: &[("redis/counter-text-collision", &[1, 4])],
    },
    Departure {
        why: "a unit that does not exist is refused here; there it ends the process, or over `/json` the connection",
        only: &[],
        calls: &[
            ("grpc/override-unit-0", &[0]),
            ("grpc/override-unit-8", &[0]),
            ("grpc/override-unit-99", &[0]),
            ("grpc/override-unit-minus", &[0]),
            ("json/override-limit", &[9, 10]),
            ("json/override-unit", &[21, 23, 27, 28, 29, 30]),
        ],
    },
    Departure {
        why: "more hits than Redis can add are only many here; there they are given back, or an error to whoever comes after them",
        only: &[],
        calls: &[
            ("grpc/hits-descriptor", &[7, 9, 10, 11, 12]),
            ("grpc/hits-overflow-beside-others", &[0]),
            ("grpc/hits-wrap-is-a-refund", &[1, 2, 3, 4]),
            ("json/hits-descriptor", &[36, 37, 39, 41]),
        ],
    },
    Departure {
        why: "a later version of Envoy's messages has hits that are given back, and so have we",
        only: &["limitRemaining"],
        calls: &[("grpc/negative-hits", &[1])],
    },
    Departure {
        why: "the same, by a name that was unknown",
        only: &[],
        calls: &[("json/unknown-fields", &[3, 4])],
    },
    Departure {
        why: "bytes that are no request are the fault of who sent them; there they are one of the server",
        only: &[],
        calls: &[("grpc/errors", &[4, 5, 6])],
    },
    Departure {
        why: "a body of 5 MB and a request of 300 descriptors are too large here",
        only: &[],
        calls: &[("json/big-body", &[1, 2])],
    },
    Departure {
        why: "a variable that is empty is as good as none here; there it is a name of no letters, or the end",
        only: &["key"],
        calls: &[("headers/renamed-empty", &[0])],
    },
    Departure { why: "the same at the start", only: &[], calls: &[("modes/bool-empty", &[0])] },
];
