//! The measures against naive ones, and the bounds that the methods promise.

use proptest::prelude::*;
use sluicegate_core::quota::Rate;

use super::*;

fn rate(count: u64, us: u64) -> Rate {
    Rate::new(count, Span::from_micros(us)).unwrap()
}

fn times() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(prop_oneof![Just(0), 0u64..6, 0u64..80], 1..200).prop_map(|pauses| {
        let mut now = 1_000;
        pauses
            .into_iter()
            .map(|pause| {
                now += pause;
                now
            })
            .collect()
    })
}

fn run(rate: Rate, times: &[u64], counting: Counting) -> Vec<Figures> {
    let mut study = Study::new(methods(rate, counting), rate, 1, counting);
    for us in times {
        study.observe(Arrival { at: Timestamp::from_micros(*us), client: 0, cost: 1 });
    }
    study.figures()
}

fn named<'a>(figures: &'a [Figures], name: &str) -> &'a Figures {
    figures.iter().find(|one| one.name == name).unwrap()
}

proptest! {
    #[test]
    fn the_log_is_never_wrong_and_slices_never_admit_wrongly(
        n in 1u64..9, p in 60u64..120, times in times(),
    ) {
        let figures = run(rate(n, p), &times, Counting::Admitted);
        let log = named(&figures, "sliding_log");
        prop_assert_eq!((log.wrong(), log.error_mean()), (0.0, 0.0));
        for one in figures.iter().filter(|one| one.name.contains("slices")) {
            prop_assert_eq!(one.wrongly_admitted, 0, "{}", &one.name);
            prop_assert!(one.peak <= 1.0, "{}", &one.name);
        }
        for one in &figures {
            prop_assert!(one.peak <= 2.0, "{} holds {}", &one.name, one.peak);
            prop_assert_eq!(one.requests, times.len() as u64);
        }
    }

    #[test]
    fn where_all_count_the_truth_is_the_number_of_earlier_requests(
        n in 1u64..9, p in 1u64..80, times in times(),
    ) {
        let figures = run(rate(n, p), &times, Counting::All);
        // A fixed window, counted by hand.
        let (mut admitted, mut wrongly_admitted, mut wrongly_denied) = (0, 0, 0);
        for (index, now) in times.iter().enumerate() {
            let earlier = &times[..index];
            let truth = earlier.iter().filter(|then| *then + p > *now).count() as u64;
            let counted = earlier.iter().filter(|then| *then / p == now / p).count() as u64;
            admitted += u64::from(counted < n);
            wrongly_admitted += u64::from(counted < n && truth >= n);
            wrongly_denied += u64::from(counted >= n && truth < n);
        }
        let fixed = named(&figures, "fixed_window");
        prop_assert_eq!(
            (fixed.admitted, fixed.wrongly_admitted, fixed.wrongly_denied),
            (admitted, wrongly_admitted, wrongly_denied)
        );
    }

    #[test]
    fn a_rolling_window_counts_what_is_less_than_a_window_old(times in times(), p in 1u64..90) {
        let mut window = RollingWindow::default();
        for (index, now) in times.iter().enumerate() {
            let before = times[..index].iter().filter(|then| *then + p > *now).count() as u64;
            let now = Timestamp::from_micros(*now);
            prop_assert_eq!(window.count_and_push(now, Span::from_micros(p)), before);
        }
    }
}

#[test]
fn the_adversary_gets_twice_the_limit_from_two_counts_and_no_more_than_it_from_slices() {
    let runs = adversary(rate(100, 60_000_000));
    let peak = |name: &str| runs.iter().find(|run| run.name == name).unwrap().peak();
    assert_eq!(peak("fixed_window"), 200);
    assert_eq!(peak("sliding_window"), 200);
    assert_eq!(peak("sliding_window, rounding: up"), 199);
    assert_eq!(peak("sliding_log"), 100);
    for slices in [2, 6, 10, 60] {
        assert_eq!(peak(&format!("sliding_window, slices: {slices}")), 100);
    }
}

#[test]
fn invalid_tables_are_reported_with_their_line() {
    for bad in
        ["a\t1\t2", "a\t1\t2\t3\t4\t5\t6\tx", "a\t1\t2\t3\t4\t5\t6\tNaN", "a\t-1\t2\t3\t4\t5\t6\t7"]
    {
        let error = parse_figures(&format!("# comment\n\n{bad}\n")).unwrap_err();
        assert!(error.starts_with("line 3: must be a name and 7 numbers"), "{error}");
    }
}
