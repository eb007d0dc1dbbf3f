//! The schema that is published: it is what the code makes, it is a schema, and an editor has
//! something to show at every place.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

use std::fs;
use std::path::Path;

use boon::{Compiler, Schemas};
use serde_json::Value;

/// The keywords that editors know: those of draft 7, and `$defs`.
const KEYWORDS: &str = "$comment $defs $ref $schema additionalProperties allOf anyOf const \
                        description else enum examples if items maxItems maxLength maxProperties \
                        maximum minItems minLength minProperties minimum not oneOf pattern \
                        properties propertyNames required then title type";

fn schema() -> Value {
    serde_json::from_str(&sluicegate_config::schema::schema()).unwrap()
}

#[test]
fn it_is_published_as_the_code_makes_it() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/rules.schema.json");
    let made = sluicegate_config::schema::schema();
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, &made).unwrap();
    }
    let published = fs::read_to_string(&path).unwrap_or_default();
    let differs = published.lines().zip(made.lines()).find(|(said, says)| said != says);
    assert!(published == made, "{differs:#?}; with UPDATE=1 {} is written anew", path.display());
}

#[test]
fn it_is_a_schema_of_draft_2020_12() {
    let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
    let draft = compiler.compile("https://json-schema.org/draft/2020-12/schema", &mut schemas);
    let draft = draft.unwrap();
    assert_eq!(schema()["$schema"], "https://json-schema.org/draft/2020-12/schema");
    schemas.validate(&schema(), draft).unwrap();
    assert!(schemas.validate(&serde_json::json!({ "type": "objekt" }), draft).is_err());
}

/// A schema within the schema.
struct Part<'s> {
    /// The way to it.
    at: String,
    schema: &'s Value,
    /// Whether an editor shows it: it is a property, and not one that a condition speaks of again.
    shows: bool,
}

fn parts<'s>(part: Part<'s>, all: &mut Vec<Part<'s>>) {
    for (keyword, below) in part.schema.as_object().into_iter().flatten() {
        let named: Vec<(String, &Value)> = match (&**keyword, below) {
            ("properties" | "$defs", Value::Object(named)) => {
                named.iter().map(|(name, below)| (format!("{keyword}/{name}"), below)).collect()
            }
            ("allOf" | "anyOf" | "oneOf", Value::Array(list)) => {
                let place = |(index, below)| (format!("{keyword}/{index}"), below);
                list.iter().enumerate().map(place).collect()
            }
            ("if" | "then" | "else" | "not" | "items", below) => vec![(keyword.clone(), below)],
            _ => continue,
        };
        for (name, schema) in named {
            let at = format!("{}/{name}", part.at);
            let condition =
                ["/if", "/then", "/else", "/not", "/allOf"].iter().any(|c| at.contains(c));
            parts(Part { at, schema, shows: keyword == "properties" && !condition }, all);
        }
    }
    all.push(part);
}

fn all_parts(schema: &Value) -> Vec<Part<'_>> {
    let mut all = Vec::new();
    parts(Part { at: "#".to_owned(), schema, shows: false }, &mut all);
    all
}

#[test]
fn every_key_is_described_by_a_sentence_with_good_examples() {
    let schema = schema();
    let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
    compiler.add_resource("rules.json", schema.clone()).unwrap();
    let shown: Vec<_> = all_parts(&schema).into_iter().filter(|part| part.shows).collect();
    assert!(shown.len() > 60, "{}", shown.len());
    for Part { at, schema, .. } in shown {
        let description = schema["description"].as_str().unwrap_or_else(|| panic!("{at}"));
        assert!(description.ends_with('.') && !description.contains('\n'), "{at}: {description}");
        let examples = schema["examples"].as_array().unwrap_or_else(|| panic!("{at}"));
        assert!(!examples.is_empty(), "{at}");
        let own = compiler.compile(&format!("rules.json{at}"), &mut schemas).unwrap();
        for example in examples {
            schemas.validate(example, own).unwrap_or_else(|error| panic!("{at}: {error}"));
        }
    }
}

#[test]
fn it_uses_no_keyword_that_editors_do_not_know() {
    let schema = schema();
    for Part { at, schema, .. } in all_parts(&schema) {
        for (keyword, _) in schema.as_object().into_iter().flatten() {
            assert!(KEYWORDS.split(' ').any(|known| known == keyword), "{at}: {keyword}");
        }
    }
}
