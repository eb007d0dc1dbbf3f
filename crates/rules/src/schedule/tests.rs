//! The periods of a year, minute by minute, against a naive definition.

use jiff::civil::DateTime;

use super::*;
use crate::zone::moment_of;

/// Minutes of a year from the first of January 2026, UTC.
fn minutes_of_2026() -> impl Iterator<Item = Timestamp> {
    let start = moment_of("2026-01-01T00:00:00Z").unwrap();
    (0..366 * 1_440).map(move |minute| start.after(Span::from_secs(minute * 60)))
}

/// What a clock shows that is put forward, but stands still when others are put back: a period
/// holds from when it first shows the begin until it first shows the end.
fn monotone_clock(zone: &Zone) -> impl FnMut(Timestamp) -> DateTime + use<'_> {
    let mut latest = DateTime::MIN;
    move |now| {
        latest = latest.max(zone.civil(seconds(now)));
        latest
    }
}

/// Whether a period holds at a civil time: without zones this is a comparison of two times.
fn naive(period: &Period, shown: DateTime) -> bool {
    let minute = u16::try_from(i32::from(shown.hour()) * 60 + i32::from(shown.minute())).unwrap();
    let today = usize::try_from(shown.weekday().to_monday_zero_offset()).unwrap();
    let within =
        |day: usize, minute| period.days[day % 7] && (period.from..period.end()).contains(&minute);
    within(today, minute) || within(today + 6, minute + DAY_MINUTES)
}

const WEEKDAYS: [bool; 7] = [true, true, true, true, true, false, false];

fn periods(zone: &Zone) -> Vec<Period> {
    let period = |days, from, until| Period { days, from, until, zone: zone.clone() };
    vec![
        period(WEEKDAYS, 540, 1_080),
        period([true; 7], 0, DAY_MINUTES),
        period([true; 7], 22 * 60, 6 * 60),
        period([false, false, false, false, false, false, true], 60, 150),
        period([false, false, false, false, false, true, true], 135, 165),
        period([false, false, false, false, true, false, true], 150, 30),
    ]
}

#[test]
fn periods_are_those_of_a_clock_that_is_never_put_back() {
    for name in ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe"] {
        let zone = Zone::new(name).unwrap();
        let mut clock = monotone_clock(&zone);
        // Between two edges nothing changes.
        let mut all: Vec<_> = periods(&zone).into_iter().map(|one| (one, None, false)).collect();
        for now in minutes_of_2026() {
            let shown = clock(now);
            for (period, edge, holds) in &mut all {
                if edge.is_none_or(|edge| edge <= now) {
                    *edge = period.next_edge(now);
                    *holds = period.holds(now);
                }
                assert_eq!(*holds, naive(period, shown), "{period} at {shown}");
            }
        }
    }
}

#[test]
fn the_next_change_is_the_first_minute_with_another_part() {
    for name in ["Europe/Berlin", "Australia/Lord_Howe"] {
        let zone = Zone::new(name).unwrap();
        let part = |period| SchedulePart { period, limits: Limits::Unlimited };
        let parts = periods(&zone).into_iter().filter(|one| one.until != DAY_MINUTES).map(part);
        let (parts, otherwise) = (parts.collect(), Limits::Unlimited);
        let schedule = Schedule { parts, otherwise, in_force: None };
        let mut expected = schedule.at(minutes_of_2026().next().unwrap());
        for now in minutes_of_2026().take(100 * 1_440) {
            let part = schedule.part_at(now);
            match expected.until {
                Some(until) if now < until => assert_eq!(part, expected.part, "{name}"),
                Some(until) => {
                    assert_eq!(now, until, "{name}");
                    assert_ne!(part, expected.part, "{name}");
                    expected = schedule.at(now);
                }
                None => panic!("{name}: it changes every day"),
            }
        }
    }
}

#[test]
fn clocks_that_change_within_a_period() {
    let period = |from, until| Period {
        days: [true; 7],
        from,
        until,
        zone: Zone::new("Europe/Berlin").unwrap(),
    };
    let holds = |period: &Period, at: &str| period.holds(moment_of(at).unwrap());
    // 2026-03-29: 01:59:59 is followed by 03:00:00.
    let early = period(60, 150);
    assert!(holds(&early, "2026-03-29T00:59:59Z") && !holds(&early, "2026-03-29T01:00:00Z"));
    let skipped = period(135, 165);
    assert_eq!(skipped.next_edge(moment_of("2026-03-28T12:00:00Z").unwrap()), {
        moment_of("2026-03-30T02:15:00+02:00")
    });
    // 2026-10-25: 02:59:59 is followed by 02:00:00.
    assert!(holds(&early, "2026-10-25T00:29:59Z") && !holds(&early, "2026-10-25T00:30:00Z"));
    assert!(!holds(&early, "2026-10-25T01:15:00Z"), "the second 02:15");
    let late = period(150, 300);
    assert!(holds(&late, "2026-10-25T00:30:00Z") && holds(&late, "2026-10-25T01:15:00Z"));
}

#[test]
fn a_schedule_without_changes_is_resolved_again_all_the_same() {
    let zone = Zone::utc();
    let period = Period { days: [true; 7], from: 0, until: DAY_MINUTES, zone };
    let parts = vec![SchedulePart { period, limits: Limits::Unlimited }];
    let schedule = Schedule { parts, otherwise: Limits::Unlimited, in_force: None };
    let now = moment_of("2026-11-19T12:00:00Z").unwrap();
    assert_eq!(schedule.at(now), InForce { part: Some(0), until: None });
    assert_eq!(Schedule::next(schedule.at(now), now), now.after(AHEAD));
}

#[test]
fn periods_are_written_shortly() {
    let table = [
        (
            [true, false, true, true, false, false, true],
            540,
            1_080,
            "mon,wed-thu,sun 09:00-18:00 UTC",
        ),
        ([true; 7], 1_320, 360, "daily 22:00-06:00 UTC"),
        (
            [false, false, false, false, false, true, true],
            0,
            DAY_MINUTES,
            "sat-sun 00:00-24:00 UTC",
        ),
    ];
    for (days, from, until, text) in table {
        assert_eq!(Period { days, from, until, zone: Zone::utc() }.to_string(), text);
    }
}
