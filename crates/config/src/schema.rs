//! The format of a file of rules as a JSON Schema (draft 2020-12), for editors.
//!
//! It is made from the tables that the loader reads by, so that a new key or algorithm is in it at
//! once; what it says in addition is held against the loader by tests. An editor completes keys and
//! words with it, shows what they mean, and marks what is wrong while it is typed. It is published
//! as `docs/rules.schema.json`. To use it, begin a file of rules with
//!
//! ```yaml
//! # yaml-language-server: $schema=rules.schema.json
//! ```
//!
//! where the name is a path from that file, or a URL; or, in the settings of VS Code with its YAML
//! extension, say which files are meant:
//!
//! ```json
//! { "yaml.schemas": { "./docs/rules.schema.json": "rules/**/*.yaml" } }
//! ```
//!
//! **Wider than the loader.** What the loader accepts is valid by the schema, but not the other way
//! round: no schema can tell whether a time zone exists, a regular expression can be compiled, or a
//! limit fits its `consistency`. Only what envoyproxy/ratelimit reads without a word, and the
//! loader with a warning, is refused: a key given twice or at a level where it means nothing. A
//! `<<` is for the editor to resolve.
//!
//! **YAML has types, the loader has none.** `value: 5` is a number to an editor and a text to us,
//! and `unlimited: yes` is true to YAML 1.1 and a text to YAML 1.2. Wherever the loader takes a
//! scalar by its text, the schema takes it as whatever YAML makes of it.
//!
//! **Old editors.** Most read YAML by the rules of draft 7. Apart from `$defs` itself, which is but
//! a place to refer to, nothing here is newer than that.

mod keys;
mod limits;
mod values;

use serde_json::{Map, Value, json};

use crate::rules::keys::Level;

const DRAFT: &str = "https://json-schema.org/draft/2020-12/schema";

const USE: &str = "Made by the code, see crates/config/src/schema.rs. To use it, begin a file of \
                   rules with `# yaml-language-server: $schema=` and the path or URL of this file, \
                   or name both in the setting `yaml.schemas` of VS Code. What Sluicegate accepts is \
                   valid here, but not the other way round: `sluicegate check` knows more.";

/// The schema of a file of rules, as text that ends in a line break.
///
/// ```
/// let schema = sluicegate_config::schema::schema();
/// assert!(schema.contains("\"title\": \"Sluicegate rules\""));
/// assert!(schema.contains("\"token_bucket\""));
/// ```
#[must_use]
pub fn schema() -> String {
    format!("{:#}\n", document())
}

fn document() -> Value {
    let mut root = json!({
        "$schema": DRAFT,
        "$comment": USE,
        "title": "Sluicegate rules",
        "description": "The rules of one domain: who may do how much.",
    });
    extend(&mut root, keys::level(Level::Root));
    extend(&mut root, json!({ "$defs": definitions() }));
    root
}

fn definitions() -> Value {
    let mut definitions = Map::new();
    for (name, level) in [
        ("descriptor", Level::Descriptor),
        ("rate_limit", Level::RateLimit),
        ("entry", Level::Listed),
    ] {
        definitions.insert(name.to_owned(), keys::level(level));
    }
    definitions.insert("limit".to_owned(), limits::limit());
    definitions.extend(limits::algorithms());
    definitions.extend(values::definitions());
    Value::Object(definitions)
}

/// A place among the definitions.
fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/$defs/{name}") })
}

/// Adds the keywords of one schema to another.
fn extend(schema: &mut Value, more: Value) {
    if let (Value::Object(schema), Value::Object(more)) = (schema, more) {
        schema.extend(more);
    }
}

/// A schema with what an editor shows: a sentence, and what good values look like.
fn shown(description: &str, schema: Value, examples: Value) -> Value {
    let mut all = json!({ "description": description });
    extend(&mut all, schema);
    extend(&mut all, json!({ "examples": examples }));
    all
}

/// A condition: where the first holds, the second must hold too.
fn when(condition: Value, then: Value) -> Value {
    json!({ "if": condition, "then": then })
}

#[cfg(test)]
mod tests;
