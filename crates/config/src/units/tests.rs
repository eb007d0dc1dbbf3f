use super::*;
use proptest::prelude::*;
use sluicegate_core::arithmetic::EXACT_MAX;

const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

#[test]
fn durations_are_read() {
    let table = [
        ("1us", 1),
        ("1µs", 1),
        ("1μs", 1),
        ("2 microseconds", 2),
        ("200ms", 200_000),
        ("1 millisecond", 1_000),
        ("30s", 30 * SECOND),
        ("30 sec", 30 * SECOND),
        ("1second", SECOND),
        ("5m", 5 * MINUTE),
        ("5min", 5 * MINUTE),
        ("5 minutes", 5 * MINUTE),
        ("1h", HOUR),
        ("2hr", 2 * HOUR),
        ("2  hours", 2 * HOUR),
        ("1day", DAY),
        ("1d", DAY),
        ("3 days", 3 * DAY),
        ("1w", 7 * DAY),
        ("2weeks", 14 * DAY),
        ("1month", 30 * DAY),
        ("1year", 365 * DAY),
        ("142years", 142 * 365 * DAY),
        (" 1_000 s ", 1_000 * SECOND),
        ("007s", 7 * SECOND),
        ("4503599627370495us", SPAN_MAX.as_micros()),
    ];
    for (text, us) in table {
        assert_eq!(span(text), Ok(Span::from_micros(us)), "{text}");
    }
    assert_eq!(span_or_zero("0s"), Ok(Span::ZERO));
    assert_eq!(span_or_zero("0 years"), Ok(Span::ZERO));
}

#[test]
fn durations_are_refused() {
    let units = "use `us`, `ms`, `s`, `m`, `h`, `day`, `week`, `month` or `year`";
    let like = "write it like `200ms`, `30s` or `1day`";
    let table = [
        ("", format!("must be a whole number and a unit, got ``; {like}")),
        ("s", format!("must be a whole number and a unit, got `s`; {like}")),
        ("-5s", format!("must be a whole number and a unit, got `-5s`; {like}")),
        ("30", format!("has no unit, got `30`; {like}")),
        (
            "1.5h",
            "must be a whole number and a unit, got `1.5h`; write it in a smaller unit, like `90m`"
                .to_owned(),
        ),
        (
            "1h30m",
            "must be one number and one unit, got `1h30m`; write it in the smaller unit, like `90m`"
                .to_owned(),
        ),
        ("5 sek", format!("unknown unit `sek`, got `5 sek`; did you mean `sec`? {units}")),
        ("5S", format!("unknown unit `S`, got `5S`; did you mean `s`? {units}")),
        (
            "5 minuets",
            format!(
                "unknown unit `minuets`, got `5 minuets`; did you mean `minutes`? {units}"
            ),
        ),
        ("5 fortnights", format!("unknown unit `fortnights`, got `5 fortnights`; {units}")),
        (
            "143years",
            "must last at most 142 years, got `143years`; write a shorter time".to_owned(),
        ),
        (
            "4503599627370496us",
            "must last at most 142 years, got `4503599627370496us`; write a shorter time"
                .to_owned(),
        ),
        (
            "9007199254740991years",
            "must last at most 142 years, got `9007199254740991years`; write a shorter time"
                .to_owned(),
        ),
        (
            "99999999999999999999s",
            "has a number that is too large, got `99999999999999999999s`; write at most \
             `9007199254740991`"
                .to_owned(),
        ),
        (
            "1__0s",
            "must have underscores only between digits, got `1__0s`; write it like `1_000`"
                .to_owned(),
        ),
        (
            "_1s",
            "must have underscores only between digits, got `_1s`; write it like `1_000`"
                .to_owned(),
        ),
        ("0s", "must be longer than nothing, got `0s`; write at least `1us`".to_owned()),
    ];
    for (text, message) in table {
        assert_eq!(span(text).unwrap_err().to_string(), message, "{text}");
    }
}

#[test]
fn rates_are_read() {
    use CalendarUnit::{Day, Month, Week, Year};
    let table = [
        ("10/s", 10, SECOND, None),
        ("600/m", 600, MINUTE, None),
        ("10 / s", 10, SECOND, None),
        ("10000/day", 10_000, DAY, Some(Day)),
        ("1_000_000/day", 1_000_000, DAY, Some(Day)),
        ("5/1 day", 5, DAY, Some(Day)),
        ("5/24h", 5, DAY, None),
        ("5/7days", 5, 7 * DAY, None),
        ("5/week", 5, 7 * DAY, Some(Week)),
        ("5 per month", 5, 30 * DAY, Some(Month)),
        ("5/year", 5, 365 * DAY, Some(Year)),
        ("5/2years", 5, 730 * DAY, None),
        ("5 per 30s", 5, 30 * SECOND, None),
        ("5per 30s", 5, 30 * SECOND, None),
        ("5 per30s", 5, 30 * SECOND, None),
        ("5/30s", 5, 30 * SECOND, None),
        ("5 / 30 s", 5, 30 * SECOND, None),
        ("10 per second", 10, SECOND, None),
        ("0/s", 0, SECOND, None),
        ("9007199254740991/us", EXACT_MAX, 1, None),
    ];
    for (text, count, period, calendar) in table {
        let period = Span::from_micros(period);
        let expected = WrittenRate { count, period, calendar };
        assert_eq!(rate(text), Ok(expected), "{text}");
    }
}

#[test]
fn rates_are_refused() {
    let units = "use `us`, `ms`, `s`, `m`, `h`, `day`, `week`, `month` or `year`";
    let like = "write it like `10/s`, `600/m` or `5 per 30s`";
    let table = [
        ("", format!("must be a number per time, got ``; {like}")),
        ("10", format!("must be a number per time, got `10`; {like}")),
        ("10s", format!("must be a number per time, got `10s`; {like}")),
        ("10 persons", format!("must be a number per time, got `10 persons`; {like}")),
        ("ten/s", format!("must be a number per time, got `ten/s`; {like}")),
        ("-1/s", format!("must be a number per time, got `-1/s`; {like}")),
        ("10,000/day", format!("must be a number per time, got `10,000/day`; {like}")),
        (
            "0.5/s",
            "must be a whole number per time, got `0.5/s`; write it over a longer time, like `1/2s`"
                .to_owned(),
        ),
        ("10/x", format!("unknown unit `x`, got `10/x`; {units}")),
        ("10/dya", format!("unknown unit `dya`, got `10/dya`; did you mean `day`? {units}")),
        ("10/", format!("must be a whole number and a unit, got `10/`; {like}")),
        ("10/5", format!("has no unit, got `10/5`; {like}")),
        ("10/0s", format!("must be per a time longer than nothing, got `10/0s`; {like}")),
        (
            "10/200years",
            "must last at most 142 years, got `10/200years`; write a shorter time".to_owned(),
        ),
        (
            "9007199254740992/s",
            "has a number that is too large, got `9007199254740992/s`; write at most \
             `9007199254740991`"
                .to_owned(),
        ),
    ];
    for (text, message) in table {
        assert_eq!(rate(text).unwrap_err().to_string(), message, "{text}");
    }
}

#[test]
fn numbers_percentages_and_factors_are_read() {
    assert_eq!(whole("0"), Ok(0));
    assert_eq!(whole("1_000_000"), Ok(1_000_000));
    assert_eq!(whole("9007199254740991"), Ok(EXACT_MAX));
    assert_eq!(percent("10%"), Ok(10));
    assert_eq!(percent(" 1_000 % "), Ok(1_000));
    for (text, thousandths) in
        [("2x", 2_000), ("1.5x", 1_500), ("2", 2_000), ("0.001 x", 1), ("1.25", 1_250)]
    {
        assert_eq!(factor(text), Ok(thousandths), "{text}");
    }
    assert_eq!((decimal("3"), decimal("2.5"), decimal("0")), (Ok(3_000), Ok(2_500), Ok(0)));
    assert_eq!((truth("true"), truth("False")), (Ok(true), Ok(false)));
}

#[test]
fn numbers_percentages_and_factors_are_refused() {
    for text in ["", "a", "-1", "+1", "1.0", "1e3", "0x10", "1 000", "１"] {
        let message =
            format!("must be a whole number, got `{text}`; write it like `50` or `1_000`");
        assert_eq!(whole(text).unwrap_err().to_string(), message);
    }
    assert_eq!(
        whole("18446744073709551616").unwrap_err().to_string(),
        "has a number that is too large, got `18446744073709551616`; write at most \
         `9007199254740991`"
    );
    for text in ["", "%", "10", "1.5%", "-1%", "ten%", "10%%"] {
        let message = format!("must be a whole percentage, got `{text}`; write it like `10%`");
        assert_eq!(percent(text).unwrap_err().to_string(), message);
    }
    for text in
        ["", "x", "1.x", ".5x", "1.2345", "-1", "2xx", "1_0", "1.2.3", "9007199254740991000x"]
    {
        let message = factor(text).unwrap_err().to_string();
        let numbers = format!(
            "must be a number with at most three decimals, got `{text}`; write it like `2x` or \
             `1.5x`"
        );
        let large = format!(
            "has a number that is too large, got `{text}`; write at most `9007199254740991`"
        );
        assert!(message == numbers || message == large, "{message}");
    }
    assert_eq!(
        decimal("three").unwrap_err().to_string(),
        "must be a number with at most three decimals, got `three`; write it like `3` or `2.5`"
    );
    assert_eq!(
        truth("yes").unwrap_err().to_string(),
        "must be `true` or `false`, got `yes`; write one of these"
    );
    assert_eq!(
        truth("ture").unwrap_err().to_string(),
        "must be `true` or `false`, got `ture`; did you mean `true`? write one of these"
    );
}

#[test]
fn numbers_are_shown_as_they_are_written() {
    let table = [
        (0, "0s"),
        (1, "1us"),
        (1_500, "1500us"),
        (200_000, "200ms"),
        (90 * SECOND, "90s"),
        (120 * SECOND, "2m"),
        (36 * HOUR, "36h"),
        (DAY, "1day"),
        (30 * DAY, "30days"),
        (365 * DAY, "1year"),
        (730 * DAY, "2years"),
    ];
    for (us, text) in table {
        assert_eq!(show_span(Span::from_micros(us)), text);
    }
    assert_eq!(show_longest(SPAN_MAX), "142years");
    assert_eq!(show_longest(Span::from_secs(3_600)), "1h");
    assert_eq!(show_rate(5, Span::from_micros(DAY)), "5/day");
    assert_eq!(show_rate(5, Span::from_secs(10)), "5/10s");
    assert_eq!(show_rate(5, Span::from_secs(1)), "5/s");
    for (thousandths, text) in [(0, "0"), (1, "0.001"), (1_500, "1.5"), (100_000, "100")] {
        assert_eq!(show_factor(thousandths), text);
    }
}

proptest! {
    #[test]
    fn what_is_shown_can_be_read(
        us in 1..=SPAN_MAX.as_micros(),
        unit in 0..UNITS.len(),
        count in 0..=EXACT_MAX,
    ) {
        // Round lengths too, not only odd ones.
        let unit = UNITS[unit].micros;
        for us in [us, (us / unit * unit).max(unit), (us % 1_000 + 1) * unit] {
            let length = Span::from_micros(us.min(SPAN_MAX.as_micros()));
            prop_assert_eq!(span(&show_span(length)), Ok(length));
            let written = rate(&show_rate(count, length)).unwrap();
            prop_assert_eq!((written.count(), written.period()), (count, length));
            prop_assert!(written.to_rate().is_ok());
        }
        prop_assert_eq!(decimal(&show_factor(count)), Ok(count));
    }

    #[test]
    fn no_text_panics(text in "\\PC*|[0-9_. ]{0,25}(/|per|%|x)?[a-zµ0-9 ]{0,10}") {
        let _ = (span(&text), span_or_zero(&text), rate(&text), whole(&text));
        let _ = (percent(&text), factor(&text), decimal(&text), truth(&text));
    }
}
