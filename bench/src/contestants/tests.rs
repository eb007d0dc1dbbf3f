//! Every peer limits what it is told to limit: otherwise its speed means nothing.

use std::time::Duration;

use crate::cell::Rule;
use crate::contestant::Contestant;
use crate::ids;

use super::governor::Governor;
use super::limitador::Limitador;
use super::throttlecrab::{Adaptive, Periodic};

fn admits_the_burst_of_each_id_and_no_more<C: Contestant>() {
    let contestant = C::new(Rule { period: Duration::from_secs(60), burst: 3 }, 2);
    for id in &ids::build(2) {
        let answers: Vec<bool> = (0..5).map(|_| contestant.check(id)).collect();
        assert_eq!(answers, [true, true, true, false, false], "{id}");
    }
}

#[test]
fn governor() {
    admits_the_burst_of_each_id_and_no_more::<Governor>();
}

#[test]
fn throttlecrab() {
    admits_the_burst_of_each_id_and_no_more::<Adaptive>();
    admits_the_burst_of_each_id_and_no_more::<Periodic>();
}

#[test]
fn limitador() {
    admits_the_burst_of_each_id_and_no_more::<Limitador>();
}
