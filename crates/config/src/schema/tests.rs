//! Compares the schema with the loader.

mod gateway;
mod pages;
mod probes;
mod random;
mod typed;

use std::sync::LazyLock;

use boon::{Compiler, SchemaIndex, Schemas};
use serde_json::Value;

use self::typed::Types;
use crate::limit::algorithms::FORMS;
use crate::limit::{ALGORITHM, NAME};
use crate::rules::{Options, Source, load};

static SCHEMA: LazyLock<(Schemas, SchemaIndex)> = LazyLock::new(|| {
    let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
    let document = serde_json::from_str(&super::schema()).unwrap();
    compiler.add_resource("rules.json", document).unwrap();
    let index = compiler.compile("rules.json", &mut schemas).unwrap();
    (schemas, index)
});

/// The loader's result for a file.
#[derive(Debug, PartialEq, Eq)]
enum Judged {
    Loads,
    /// Loads with a warning about a key without effect at its level; the schema rejects it.
    Misplaced,
    Refused,
}

fn judged(text: &str) -> Judged {
    let source = Source { name: "x.yaml".to_owned(), text: text.to_owned() };
    match load(&[source], &Options::default()) {
        Ok(loaded) => {
            let misplaced = |message: String| message.contains(": has no effect here, `");
            let any = loaded.warnings.iter().any(|warning| misplaced(warning.to_string()));
            if any { Judged::Misplaced } else { Judged::Loads }
        }
        Err(_) => Judged::Refused,
    }
}

/// Whether a text is a file of rules to the loader.
fn loads(text: &str) -> bool {
    judged(text) != Judged::Refused
}

/// Validates against the schema; returns the errors.
fn valid(text: &str, types: Types) -> Result<(), String> {
    let value = typed::json(text, types).ok_or("no YAML")?;
    let (schemas, index) = &*SCHEMA;
    schemas.validate(&value, *index).map_err(|error| format!("{types:?} {error}\n{text}"))
}

/// Whether it is one by the schema, however YAML types its scalars.
fn valid_by_any(text: &str) -> Result<(), String> {
    valid(text, Types::Yaml12).and_then(|()| valid(text, Types::Yaml11))
}

/// A file with one descriptor that has one limit.
fn with_limit(limit: &str) -> String {
    format!("{{ domain: shop, descriptors: [{{ key: user_id, limits: {{ {limit} }} }}] }}")
}

/// A limit with the fields, each with its example.
fn limit<'n>(algorithm: &str, names: impl IntoIterator<Item = &'n str>) -> String {
    let mut text = format!("algorithm: {algorithm}");
    for name in names {
        let example = match name {
            "align" => "calendar".to_owned(),
            "rate" if algorithm == "fixed_window" => "10/day".to_owned(),
            _ => example(name),
        };
        text.push_str(&format!(", {name}: {example}"));
    }
    text
}

/// The example of a field.
fn example(name: &str) -> String {
    let known = super::limits::fields();
    let (_, field) = known.iter().find(|(known, _)| *known == name).unwrap();
    field["examples"][0].to_string()
}

#[test]
fn every_algorithm_is_described_with_all_its_fields() {
    let algorithms = super::limits::algorithms();
    assert_eq!(algorithms.len(), FORMS.len());
    for form in &FORMS {
        let algorithm = &algorithms[form.name];
        assert_ne!(algorithm["description"], "", "describe `{}`", form.name);
        let mut names: Vec<&str> = vec![ALGORITHM.name, NAME.name];
        names.extend(form.fields);
        let properties = algorithm["properties"].as_object().unwrap();
        assert_eq!(properties.keys().collect::<Vec<_>>(), names);
        for name in names {
            assert!(properties[name].is_object(), "describe `{name}` of `{}`", form.name);
        }
    }
    let definitions = super::definitions();
    let known = definitions.as_object().unwrap();
    assert_eq!(known.len(), FORMS.len() + 10, "an algorithm has the name of something else");
}

#[test]
fn an_algorithm_has_its_own_fields_and_no_others() {
    let all: Vec<&str> = crate::limit::algorithms::known::field_names();
    for form in &FORMS {
        // `rates` replaces `rate`, and `slices` replace `rounding`.
        let replaced = |name: &&str| !matches!(*name, "rates" | "rounding");
        let own = || form.fields.iter().copied().filter(replaced);
        let good = limit(form.name, own());
        assert!(loads(&with_limit(&good)), "{good}");
        valid_by_any(&with_limit(&good)).unwrap();
        for stranger in all.iter().filter(|name| !form.fields.contains(name)).skip(2) {
            let text = with_limit(&format!("{good}, {stranger}: {}", example(stranger)));
            assert!(!loads(&text) && valid(&text, Types::Yaml12).is_err(), "{text}");
        }
        for stranger in ["limit: 5", "Rate: 5/s", "window: 5s", "<<<: 5", "5: 5"] {
            let text = with_limit(&format!("{good}, {stranger}"));
            assert!(!loads(&text) && valid(&text, Types::Yaml12).is_err(), "{text}");
        }
    }
}

#[test]
fn an_algorithm_needs_what_the_loader_needs() {
    for form in &FORMS {
        let subsets = 1_usize << form.fields.len();
        for subset in 0..subsets {
            let chosen = form.fields.iter().enumerate().filter(|(at, _)| subset >> at & 1 == 1);
            let text = with_limit(&limit(form.name, chosen.map(|(_, name)| *name)));
            assert_eq!(loads(&text), valid(&text, Types::Yaml12).is_ok(), "{text}");
        }
    }
}

#[test]
fn what_is_left_out_of_an_algorithm_is_told() {
    for limit in ["rate: 5/s", "algorithm: tokenbucket, rate: 5/s", "algorithm: [tally]", ""] {
        let text = with_limit(limit);
        assert!(!loads(&text) && valid(&text, Types::Yaml12).is_err(), "{text}");
    }
}

#[test]
fn letters_of_units_are_those_that_go_takes_for_them() {
    use sluicegate_rules::unit::Unit;
    for letter in ('\0'..=char::MAX).filter(|letter| !letter.is_ascii()) {
        let upper: String = letter.to_uppercase().collect();
        let ascii = upper.is_ascii() && !upper.is_empty();
        let within = |unit: Unit| unit.name().to_uppercase().contains(&upper);
        if ascii && Unit::ALL.into_iter().any(within) {
            assert!(matches!(letter, 'ſ' | 'ı'), "{letter} is {upper}");
        }
    }
}

#[test]
fn numbers_and_words_may_be_texts() {
    let text = "{ domain: 5, descriptors: [{ key: 1, value: 5, limits: { algorithm: unlimited, \
                name: 2.5 }, id: true }, { key: ~x, value: ~ }, { key: yes, regex: 5, rate_limit: \
                { unit: MiNuTe, requests_per_unit: 1_000 } }, { key: 1.5, value: null }] }";
    assert!(loads(text));
    valid_by_any(text).unwrap();
    let json: Value = typed::json(text, Types::Yaml12).unwrap();
    assert_eq!(json["descriptors"][2]["rate_limit"]["requests_per_unit"], "1_000");
}
