//! Compares the schema of a gateway's file with its reader.

use std::path::Path;
use std::sync::LazyLock;

use boon::{Compiler, SchemaIndex, Schemas};
use serde_json::{Value, json};

use super::typed::{self, Types};
use crate::gateway::keys::{GATEWAY, Kind, Section};
use crate::gateway::load;
use crate::rules::Source;

const FULL: &str = include_str!("../../../tests/gateway/full.yaml");

static SCHEMA: LazyLock<(Schemas, SchemaIndex)> = LazyLock::new(|| {
    let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
    let document = serde_json::from_str(&crate::schema::gateway_schema()).unwrap();
    compiler.add_resource("gateway.json", document).unwrap();
    let index = compiler.compile("gateway.json", &mut schemas).unwrap();
    (schemas, index)
});

fn loads(text: &str) -> bool {
    let source = Source { name: "x.yaml".to_owned(), text: text.to_owned() };
    load(&source, Path::new("/")).is_ok()
}

fn valid(text: &str, types: Types) -> Result<(), String> {
    let value = typed::json(text, types).ok_or("no YAML")?;
    let (schemas, index) = &*SCHEMA;
    schemas.validate(&value, *index).map_err(|error| format!("{types:?} {error}\n{text}"))
}

/// The sections of a table, each once.
fn sections(section: &'static Section, all: &mut Vec<&'static Section>) {
    fn below(kind: &'static Kind, all: &mut Vec<&'static Section>) {
        match kind {
            Kind::Section(section) => sections(section, all),
            Kind::OneOrMany(one) | Kind::List(one) | Kind::Named(one) => below(one, all),
            Kind::Either(kinds) => kinds.iter().for_each(|one| below(one, all)),
            _ => {}
        }
    }
    if !all.contains(&section) {
        all.push(section);
        section.keys.iter().for_each(|key| below(&key.kind, all));
    }
}

#[test]
fn the_full_file_has_every_key_and_is_valid() {
    assert!(loads(FULL));
    valid(FULL, Types::Yaml12).and_then(|()| valid(FULL, Types::Yaml11)).unwrap();
    let mut all = Vec::new();
    sections(&GATEWAY, &mut all);
    assert!(all.len() > 20, "{}", all.len());
    for section in all {
        for key in section.keys {
            let written = FULL.contains(&format!("{}:", key.name));
            assert!(written, "`{}` of {} is not in full.yaml", key.name, section.subject);
            let described = key.description.ends_with('.') && !key.example.is_empty();
            assert!(described, "describe `{}` of {}", key.name, section.subject);
        }
        for required in section.required {
            assert!(section.names().contains(required), "{required}");
        }
    }
}

/// Values that replace each value of the file.
fn replacements() -> Vec<Value> {
    let texts = ["", "x", "5", "10s", "10/s", "50%", "64KiB", "/x", "http://x", "1.3", "api"];
    let mut all: Vec<Value> = texts.iter().map(|text| json!(text)).collect();
    all.extend([json!(0), json!(7), json!(-1), json!(1.5), json!(true), json!(null)]);
    all.extend([json!([]), json!({}), json!([{}]), json!(["x"]), json!({ "x": "y" })]);
    all
}

/// Pointers to all values below one.
fn pointers(value: &Value, at: &str, all: &mut Vec<String>) {
    all.push(at.to_owned());
    match value {
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(i, one)| pointers(one, &format!("{at}/{i}"), all));
        }
        Value::Object(map) => {
            for (key, one) in map {
                let key = key.replace('~', "~0").replace('/', "~1");
                pointers(one, &format!("{at}/{key}"), all);
            }
        }
        _ => {}
    }
}

#[test]
fn what_the_reader_accepts_is_valid() {
    let full = typed::json(FULL, Types::Yaml12).unwrap();
    let mut all = Vec::new();
    pointers(&full, "", &mut all);
    let (mut accepted, mut refused) = (0, 0);
    for pointer in &all {
        for replacement in replacements() {
            let mut changed = full.clone();
            *changed.pointer_mut(pointer).unwrap() = replacement;
            let text = changed.to_string();
            if loads(&text) {
                accepted += 1;
                valid(&text, Types::Yaml12).unwrap_or_else(|error| panic!("{pointer}: {error}"));
            } else {
                refused += 1;
            }
        }
    }
    assert!(accepted > 300 && refused > 1_000, "{accepted} accepted, {refused} refused");
}

#[test]
fn an_unknown_key_is_invalid_everywhere() {
    let full = typed::json(FULL, Types::Yaml12).unwrap();
    let mut all = Vec::new();
    pointers(&full, "", &mut all);
    for pointer in all {
        let mut changed = full.clone();
        let Some(Value::Object(map)) = changed.pointer_mut(&pointer) else { continue };
        map.insert("stranger".to_owned(), json!([[]]));
        let text = changed.to_string();
        assert!(!loads(&text) && valid(&text, Types::Yaml12).is_err(), "{pointer}");
    }
}

/// A row for each key below a path.
fn rows(section: &'static Section, path: &str, all: &mut Vec<String>) {
    fn below(kind: &'static Kind, path: &str, all: &mut Vec<String>) {
        match kind {
            Kind::Section(section) => rows(section, &format!("{path}."), all),
            Kind::OneOrMany(one) | Kind::List(one) => below(one, &format!("{path}[]"), all),
            Kind::Named(one) => below(one, &format!("{path}.NAME"), all),
            Kind::Either(kinds) => kinds.iter().for_each(|one| below(one, path, all)),
            _ => {}
        }
    }
    for key in section.keys {
        let path = format!("{path}{}", key.name);
        all.push(format!("| `{path}` | `{}` | {} |\n", key.example, key.description));
        below(&key.kind, &path, all);
    }
}

#[test]
fn the_guide_lists_every_key() {
    const BEGIN: &str = "<!-- keys: generated from crates/config/src/gateway/keys.rs -->\n";
    const END: &str = "<!-- end of keys -->";
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/gateway.md");
    let text = std::fs::read_to_string(&guide).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let mut all = vec!["\n| key | example | meaning |\n|---|---|---|\n".to_owned()];
    rows(&GATEWAY, "", &mut all);
    let made = format!("{before}{BEGIN}{}\n{END}{after}", all.concat());
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&guide, &made).unwrap();
    }
    assert!(text == made || std::env::var_os("UPDATE").is_some(), "UPDATE=1 writes the table anew");
}

#[test]
fn files_of_the_guide_are_valid() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/gateway.md");
    let text = std::fs::read_to_string(guide).unwrap();
    let blocks = text.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    // Others show a part of a file.
    let files: Vec<&str> = blocks.filter(|block| block.contains("\nroutes:")).collect();
    assert!(!files.is_empty());
    for file in files {
        let source = Source { name: "gateway.yaml".to_owned(), text: file.to_owned() };
        let loaded = load(&source, Path::new("/"));
        assert!(loaded.is_ok(), "{}\n{file}", loaded.unwrap_err());
        valid(file, Types::Yaml12).unwrap();
    }
}
