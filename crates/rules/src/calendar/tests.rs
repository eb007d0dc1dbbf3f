use super::*;
use jiff::tz::TimeZone;
use proptest::prelude::*;

/// A moment written as RFC 3339.
fn at(text: &str) -> Timestamp {
    let moment: jiff::Timestamp = text.parse().unwrap();
    Timestamp::from_micros(u64::try_from(moment.as_microsecond()).unwrap())
}

/// The first four boundaries: the previous window, the current, the next, and where that ends.
fn starts(zone: &str, unit: CalendarUnit, now: &str) -> [Timestamp; 4] {
    let all = Calendar::new(zone, unit).unwrap().starts(at(now));
    [all[0], all[1], all[2], all[3]]
}

fn hours(starts: [Timestamp; 4]) -> [u64; 3] {
    let hours = |from: Timestamp, to: Timestamp| to.since(from).as_micros() / 3_600_000_000;
    let [a, b, c, d] = starts;
    [hours(a, b), hours(b, c), hours(c, d)]
}

const MICROS: u64 = 1_000_000;

#[test]
fn days_in_berlin_have_23_or_25_hours_when_clocks_change() {
    let berlin = |now| starts("Europe/Berlin", CalendarUnit::Day, now);
    let spring = berlin("2026-03-29T12:00:00+02:00");
    assert_eq!(
        spring,
        [
            at("2026-03-28T00:00:00+01:00"),
            at("2026-03-29T00:00:00+01:00"),
            at("2026-03-30T00:00:00+02:00"),
            at("2026-03-31T00:00:00+02:00"),
        ]
    );
    assert_eq!(hours(spring), [24, 23, 24]);
    assert_eq!(hours(berlin("2026-10-25T12:00:00+01:00")), [24, 25, 24]);
    assert_eq!(hours(berlin("2026-10-24T12:00:00+02:00")), [24, 24, 25]);
    assert_eq!(hours(berlin("2026-10-26T12:00:00+01:00")), [25, 24, 24]);
}

#[test]
fn a_window_begins_with_its_first_microsecond() {
    let calendar = Calendar::new("Europe/Berlin", CalendarUnit::Day).unwrap();
    let midnight = at("2026-06-01T00:00:00+02:00");
    assert_eq!(calendar.starts(midnight)[1], midnight);
    let before = midnight.before(Span::from_micros(1));
    assert_eq!(calendar.starts(before)[2], midnight);
}

#[test]
fn a_day_without_a_midnight_begins_at_its_first_moment() {
    let sao_paulo = starts("America/Sao_Paulo", CalendarUnit::Day, "2018-11-04T12:00:00-02:00");
    assert_eq!(sao_paulo[1], at("2018-11-04T01:00:00-02:00"));
    assert_eq!(hours(sao_paulo), [24, 23, 24]);
    let beirut = starts("Asia/Beirut", CalendarUnit::Day, "2022-03-27T12:00:00+03:00");
    assert_eq!(beirut[1], at("2022-03-27T01:00:00+03:00"));
}

#[test]
fn a_day_with_two_midnights_begins_at_the_first() {
    let havana = starts("America/Havana", CalendarUnit::Day, "2026-11-01T12:00:00-05:00");
    assert_eq!(havana[1], at("2026-11-01T00:00:00-04:00"));
    assert_eq!(hours(havana), [24, 25, 24]);
}

#[test]
fn a_clock_turned_back_over_midnight_does_not_turn_back_the_day() {
    // At 00:01 on the 7th clocks showed 23:01 of the 6th again.
    let first = at("2010-11-07T00:00:00-02:30");
    for now in
        ["2010-11-07T00:00:30-02:30", "2010-11-06T23:30:00-03:30", "2010-11-07T00:00:00-03:30"]
    {
        assert_eq!(starts("America/St_Johns", CalendarUnit::Day, now)[1], first, "{now}");
    }
    let before = starts("America/St_Johns", CalendarUnit::Day, "2010-11-06T23:30:00-02:30");
    assert_eq!(before[2], first);
}

#[test]
fn a_skipped_day_is_no_window() {
    let apia = |now| starts("Pacific/Apia", CalendarUnit::Day, now);
    let around = [
        at("2011-12-28T00:00:00-10:00"),
        at("2011-12-29T00:00:00-10:00"),
        at("2011-12-31T00:00:00+14:00"),
        at("2012-01-01T00:00:00+14:00"),
    ];
    assert_eq!(apia("2011-12-29T12:00:00-10:00"), around);
    assert_eq!(hours(around), [24, 24, 24]);
    let after = apia("2011-12-31T12:00:00+14:00");
    assert_eq!(after[..3], around[1..]);
    let early = apia("2011-12-28T12:00:00-10:00");
    assert_eq!(early[1..], around[..3]);
    // The month is a day short, and the Monday of the week was there.
    let month = starts("Pacific/Apia", CalendarUnit::Month, "2011-12-15T12:00:00-10:00");
    assert_eq!(hours(month)[1], 30 * 24);
}

#[test]
fn months_are_as_long_as_they_are() {
    let month = |now| hours(starts("UTC", CalendarUnit::Month, now)).map(|hours| hours / 24);
    assert_eq!(month("2026-02-10T00:00:00Z"), [31, 28, 31]);
    assert_eq!(month("2028-02-10T00:00:00Z"), [31, 29, 31]);
    assert_eq!(month("2026-07-31T23:59:59.999999Z"), [30, 31, 31]);
    let berlin = starts("Europe/Berlin", CalendarUnit::Month, "2026-03-01T00:00:00+01:00");
    assert_eq!(hours(berlin)[1], 31 * 24 - 1);
}

#[test]
fn weeks_begin_on_monday() {
    // 2026-11-15 is a Sunday.
    let monday = at("2026-11-09T00:00:00Z");
    for now in ["2026-11-09T00:00:00Z", "2026-11-12T08:00:00Z", "2026-11-15T23:59:59Z"] {
        let week = starts("UTC", CalendarUnit::Week, now);
        assert_eq!(week[1], monday, "{now}");
        assert_eq!(hours(week), [168, 168, 168]);
    }
    let berlin = starts("Europe/Berlin", CalendarUnit::Week, "2026-10-25T12:00:00+01:00");
    assert_eq!(hours(berlin), [168, 169, 168]);
}

#[test]
fn years_begin_in_january_and_some_leap() {
    let year = |now| hours(starts("UTC", CalendarUnit::Year, now)).map(|hours| hours / 24);
    assert_eq!(year("2027-12-31T23:59:59Z"), [365, 365, 366]);
    assert_eq!(year("2028-01-01T00:00:00Z"), [365, 366, 365]);
    let tokyo = starts("Asia/Tokyo", CalendarUnit::Year, "2026-06-01T00:00:00Z");
    assert_eq!(tokyo[1], at("2026-01-01T00:00:00+09:00"));
}

#[test]
fn time_begins_with_the_epoch() {
    let day = 24 * 3_600;
    // (zone, seconds at which its first midnight after the epoch falls)
    let zones = [("UTC", day), ("Asia/Tokyo", day - 9 * 3_600), ("America/New_York", 5 * 3_600)];
    for (zone, second_window) in zones {
        let calendar = Calendar::new(zone, CalendarUnit::Day).unwrap();
        let second = |s: u64| Timestamp::from_micros(s * MICROS);
        let mut first = [Timestamp::EPOCH; EDGES_MAX];
        for (start, days) in first[1..].iter_mut().zip(0u64..) {
            *start = second(second_window + days * day);
        }
        assert_eq!(calendar.starts(Timestamp::EPOCH), first, "{zone}");
        let last_moment = second(second_window).before(Span::from_micros(1));
        assert_eq!(calendar.starts(last_moment), first, "{zone}");
        // From the second window on there is a previous one, the same edges or those after.
        assert_eq!(calendar.starts(second(second_window)), first, "{zone}");
        let third = calendar.starts(second(second_window + day));
        assert_eq!(third[..EDGES_MAX - 1], first[1..], "{zone}");
    }
}

#[test]
fn unknown_zones_are_refused_by_name() {
    for name in ["", "Mars/Olympus", "Europe/Berlin ", "+02:00", "Etc/Unknown", "../passwd", "\0"] {
        let error = Calendar::new(name, CalendarUnit::Day).unwrap_err();
        assert_eq!(error.to_string(), format!("unknown time zone `{name}`"));
    }
    assert!(Calendar::new("europe/berlin", CalendarUnit::Day).is_ok(), "case does not matter");
}

const UNITS: [CalendarUnit; 4] =
    [CalendarUnit::Day, CalendarUnit::Week, CalendarUnit::Month, CalendarUnit::Year];

const ZONES: [&str; 15] = [
    "UTC",
    "Europe/Berlin",
    "America/Sao_Paulo",
    "America/St_Johns",
    "Pacific/Apia",
    "Asia/Beirut",
    "Pacific/Kiritimati",
    "Pacific/Pago_Pago",
    "Africa/Cairo",
    "Antarctica/Troll",
    "Australia/Lord_Howe",
    "America/Nuuk",
    "Asia/Kathmandu",
    "Pacific/Kwajalein",
    "Africa/Monrovia",
];

/// What must hold of the boundaries around any moment.
fn check(calendar: &Calendar, now: Timestamp) {
    let starts = calendar.starts(now);
    let [a, b, c, ..] = starts;
    assert!(starts.is_sorted_by(|one, other| one < other), "{starts:?}");
    let first = a == Timestamp::EPOCH && now < b;
    assert!(first || (b <= now && now < c), "{now:?} {starts:?}");
    // Nothing was longer than the bound, so `edges` did not have to stretch it.
    let longest = calendar.unit.longest();
    assert_eq!(Edges::new(starts, longest), Ok(calendar.edges(now)));
    // Boundaries are the same for every moment of a window.
    let (into, last) = if first { (a, b) } else { (b, c) };
    assert_eq!(calendar.starts(into), starts);
    assert_eq!(calendar.starts(last.before(Span::from_micros(1))), starts);
}

#[test]
fn every_transition_of_every_zone_keeps_the_bounds() {
    let day = Span::from_secs(DAY_S);
    for name in jiff::tz::db().available() {
        let Ok(zone) = TimeZone::get(name.as_str()) else {
            continue;
        };
        let now_max = jiff::Timestamp::from_second(4_503_599_627).unwrap();
        let transitions = zone.following(jiff::Timestamp::UNIX_EPOCH);
        // Rules of the far future repeat each year.
        let horizon = jiff::Timestamp::from_second(2_300_000_000).unwrap().min(now_max);
        let mut near: Vec<Timestamp> = transitions
            .map(|transition| transition.timestamp())
            .take_while(|at| *at < horizon)
            .filter_map(|at| u64::try_from(at.as_microsecond()).ok().map(Timestamp::from_micros))
            .collect();
        near.extend([Timestamp::EPOCH, NOW_MAX, Timestamp::MAX]);
        let calendar =
            Calendar { zone: Zone::new(name.as_str()).unwrap(), unit: CalendarUnit::Day };
        for at in near {
            for now in [at.before(day), at.before(Span::from_micros(1)), at, at.after(day)] {
                check(&calendar, now.min(NOW_MAX));
            }
        }
    }
}

proptest! {
    #[test]
    fn boundaries_ascend_around_now(
        us in 0..=NOW_MAX.as_micros(),
        unit in prop::sample::select(&UNITS[..]),
        zone in prop::sample::select(&ZONES[..]),
    ) {
        let calendar = Calendar::new(zone, unit).unwrap();
        check(&calendar, Timestamp::from_micros(us));
        check(&calendar, Timestamp::from_micros(us % (400 * DAY_S * MICROS)));
        let _ = calendar.edges(Timestamp::from_micros(us.saturating_mul(2)));
    }
}
