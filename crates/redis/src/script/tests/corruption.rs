//! Random corruption of records and sets: bytes, edits, wrong types, foreign members.

use proptest::prelude::*;

use super::anything::{Event, Turn, turn};

/// The corrupted identity.
pub(super) const VICTIM: usize = 0;

/// One step of a history.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Turn(Turn),
    Damage(Damage),
}

/// A corruption.
#[derive(Debug, Clone)]
pub(super) enum Damage {
    /// Any bytes in index of the record.
    Bytes(Vec<u8>),
    /// Words in the letters of records, behind the fingerprint of the limits.
    Words { epoch: String, words: String },
    /// A piece of the record is replaced, as far into it as `at` of 1,000.
    Edit { at: usize, remove: usize, with: String },
    /// Another type in index of the record (0) or of a set beside it.
    Type { index: usize, kind: &'static str },
    /// A member that is added to a set.
    Member { set: usize, score: String, name: Vec<u8> },
    /// All members of a set get another score.
    Scores { set: usize, score: String },
    /// A set is removed, and the record stays.
    NoSet { set: usize },
}

/// Sets beside the record of one identity, at most.
const SETS: usize = 4;

pub(super) fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => turn().prop_map(|turn| Step::Turn(apart(turn))),
        2 => damage().prop_map(Step::Damage),
    ]
}

fn damage() -> impl Strategy<Value = Damage> {
    let set = || 1..=SETS;
    prop_oneof![
        1 => prop::collection::vec(any::<u8>(), 0..40).prop_map(Damage::Bytes),
        3 => (number(), "[-0-9@:+~,eshx/#d* .]{0,40}")
            .prop_map(|(epoch, words)| Damage::Words { epoch, words }),
        3 => (number(), cells()).prop_map(|(epoch, words)| Damage::Words { epoch, words }),
        6 => (0..1_000usize, 0..12usize, edit())
            .prop_map(|(at, remove, with)| Damage::Edit { at, remove, with }),
        2 => (0..=SETS, prop::sample::select(&["HSET", "RPUSH", "SET", "ZADD", "SADD"][..]))
            .prop_map(|(index, kind)| Damage::Type { index, kind }),
        4 => (set(), score(), member())
            .prop_map(|(set, score, name)| Damage::Member { set, score, name }),
        1 => (set(), score()).prop_map(|(set, score)| Damage::Scores { set, score }),
        1 => set().prop_map(|set| Damage::NoSet { set }),
    ]
}

/// Numbers of any size, in digits.
fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => (0..20u64).prop_map(|number| number.to_string()),
        2 => (0..63u32).prop_map(|bits| (1u64 << bits).to_string()),
        2 => (1_790_000_000_000_000..1_800_000_000_000_000u64).prop_map(|number| number.to_string()),
        1 => "[0-9]{17,30}",
        1 => Just("9".repeat(400)),
    ]
}

/// Cells of every form, with numbers of any size.
fn cells() -> impl Strategy<Value = String> {
    let forms = [
        "N",
        "N+N",
        "N+N,eN",
        "N,sN,hN",
        "N@N",
        "-N@N",
        "N@N,sN",
        "N:N:N",
        "N:N:N:N",
        "N:N:N:N:N:N",
        "N~N~N",
        "N+N~N+N~N",
        "N:N",
        "xN",
        "-",
        "N/N",
        "N@N/N@N",
        "-/N",
        "N/-",
        "N:N:N:N:N:N/N:N:N:N:N:N",
        "#00000000000000a1:N:N:N:N",
        "@N,N,N,01",
        "N ",
        " N",
    ];
    let form = prop::sample::select(forms.to_vec());
    let cell = (form, prop::collection::vec(number(), 12)).prop_map(|(form, numbers)| {
        let mut numbers = numbers.into_iter();
        let letters = form.chars().map(|letter| match letter {
            'N' => numbers.next().unwrap_or_default(),
            letter => letter.to_string(),
        });
        letters.collect::<String>()
    });
    prop::collection::vec(cell, 1..4).prop_map(|cells| cells.join(" "))
}

fn edit() -> impl Strategy<Value = String> {
    prop_oneof![number(), "[-0-9@:+~,eshx/#d* .]{0,4}"]
}

fn score() -> impl Strategy<Value = String> {
    let odd = ["inf", "-inf", "-1", "0.5", "1e300", "1e17", "0"];
    prop_oneof![
        prop::sample::select(odd.to_vec()).prop_map(str::to_owned),
        (0..20_000_000u64).prop_map(|score| score.to_string()),
        (1_790_000_000_000_000..1_800_000_000_000_000u64).prop_map(|score| score.to_string()),
    ]
}

fn member() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..20),
        "[0-9a-f]{1,16}(\\*[0-9]{1,3})?".prop_map(String::into_bytes),
        (number(), number()).prop_map(|(at, weight)| format!("{at}-00000-{weight}").into_bytes()),
        number().prop_map(|slots| format!("00000000000000a1*{slots}").into_bytes()),
        "[-0-9d*]{0,12}".prop_map(String::into_bytes),
    ]
}

/// Separates the victim from other identities: only the latter are in the model.
fn apart(mut turn: Turn) -> Turn {
    match &mut turn.event {
        Event::Asks(requests) => {
            for asked in requests {
                let is_victim = asked.parts.first().is_some_and(|part| part.key == VICTIM);
                asked.parts.retain(|part| (part.key == VICTIM) == is_victim);
            }
        }
        Event::Long { keys, .. } if keys.len() > 1 => keys.retain(|key| *key != VICTIM),
        _ => {}
    }
    turn
}
