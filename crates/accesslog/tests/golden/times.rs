//! Times of mapped columns.

use super::*;

fn time_of(format: &str, value: &str) -> Option<Timestamp> {
    let parser = LineParser::new(&format.parse().unwrap(), b"").unwrap();
    parser.parse(value.as_bytes(), &mut Scratch::default()).ok().flatten().map(|record| record.at)
}

#[test]
fn forms_of_times() {
    let cases = [
        ("2023-11-16T18:15:46Z", "2023-11-16T18:15:46Z"),
        ("2023-11-16T18:15:46.5Z", "2023-11-16T18:15:46.5Z"),
        ("2023-11-16 18:15:46.6805900", "2023-11-16T18:15:46.680590Z"),
        ("2023-11-16 18:15:46.123456789", "2023-11-16T18:15:46.123456Z"),
        ("2023-11-16T18:15:46", "2023-11-16T18:15:46Z"),
        ("2023-11-16T18:15:46+01:30", "2023-11-16T16:45:46Z"),
        ("2023-11-16T18:15:46.25-0800", "2023-11-17T02:15:46.25Z"),
        ("2023-11-16 18:15:46+00:00", "2023-11-16T18:15:46Z"),
        ("2024-02-29t00:00:00z", "2024-02-29T00:00:00Z"),
        ("16/Nov/2023:18:15:46 +0100", "2023-11-16T17:15:46Z"),
        (" 2023-11-16T18:15:46Z ", "2023-11-16T18:15:46Z"),
    ];
    for (text, expected) in cases {
        assert_eq!(time_of("csv:time=1", text), Some(at(expected)), "{text}");
    }
    let not_times = [
        "2023-02-29T00:00:00Z",
        "2023-13-01 00:00:00",
        "2023-11-16T24:00:00Z",
        "2023-11-16T18:60:46Z",
        "1969-12-31T23:59:59Z",
        "2200-01-01T00:00:00Z",
        "soon",
        "16/Nov/2023:18:15",
        "1e400",
        "99999999999999999999",
        "0x10",
        "-1",
        "1.5.5",
        "NaN",
    ];
    for text in not_times {
        assert_eq!(time_of("csv:time=1", text), None, "{text}");
    }
}

#[test]
fn numbers_since_1970_by_magnitude_and_by_unit() {
    let expected = Some(Timestamp::from_micros(1_700_000_000_123_456));
    let whole = Some(Timestamp::from_micros(1_700_000_000_000_000));
    let millis = Some(Timestamp::from_micros(1_700_000_000_123_000));
    for (format, text, expected) in [
        ("time", "1700000000", whole),
        ("time", "1700000000.123456", expected),
        ("time", "1700000000.1234567", expected),
        ("time", "1700000000123", millis),
        ("time", "1700000000123.456", expected),
        ("time", "1700000000123456", expected),
        ("time", "1700000000123456789", expected),
        ("time_s", "1700000000.123456", expected),
        ("time_ms", "1700000000123.456", expected),
        ("time_us", "1700000000123456", expected),
        ("time_ns", "1700000000123456789", expected),
        // With a unit, small numbers are small.
        ("time_ms", "1500", Some(Timestamp::from_micros(1_500_000))),
        ("time", "1500", Some(Timestamp::from_micros(1_500_000_000))),
        // With a unit, a date is none.
        ("time_ms", "2023-11-16T18:15:46Z", None),
    ] {
        assert_eq!(time_of(&format!("csv:{format}=1"), text), expected, "{format}={text}");
        let line = format!("{{\"t\":{text}}}");
        if expected.is_some() && text.len() < 18 {
            assert_eq!(time_of(&format!("json:{format}=t"), &line), expected, "{format}={line}");
        }
    }
}

#[test]
fn a_cached_date_is_that_of_the_line() {
    let parser = LineParser::new(&"csv:time=1".parse().unwrap(), b"").unwrap();
    let mut scratch = Scratch::default();
    let texts = [
        "16/Nov/2023:18:15:46 +0100",
        "16/Nov/2023:18:15:47 +0100",
        "16/Nov/2023:18:15:46 +0200",
        "16/Nov/2023:18:16:46 +0200",
        "17/Nov/2023:18:16:46 +0200",
        "16/Nov/2023:18:15:46 +0100",
        "16/Nox/2023:18:15:46 +0100",
        "16/Nov/2023:18:15:48 +0100",
        "2023-11-16T18:15:46Z",
        "2023-11-17T18:15:46Z",
        "2023-11-31T18:15:46Z",
        "2023-11-17T18:15:47Z",
    ];
    for text in texts {
        let cached = parser.parse(text.as_bytes(), &mut scratch).map(|r| r.unwrap().at);
        let fresh = parser.parse(text.as_bytes(), &mut Scratch::default()).map(|r| r.unwrap().at);
        assert_eq!(cached, fresh, "{text}");
    }
}
