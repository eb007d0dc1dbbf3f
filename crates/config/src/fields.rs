//! Reads a mapping: fields are taken by name, each problem is reported at its position, and the
//! fields that were not taken are reported at the end.
//!
//! A [`Value`] is a node with its path; [`Value::fields`] opens a mapping. A [`Field`] defines the
//! name, an example and the parser of a field. To report everything at once, take all fields before
//! returning on an error:
//!
//! ```text
//!   let rate = fields.required(&RATE, report);
//!   let burst = fields.optional(&BURST, report);
//!   fields.finish(report, |key| unknown(key, &known))?;
//!   let (rate, burst) = (rate?, burst?);
//! ```

use std::collections::{HashMap, hash_map};
use std::fmt::{self, Display};

use crate::problem::{Position, Report, Reported, quoted, shortened};
use crate::suggest;
use crate::units::UnitError;
use crate::yaml::{self, Content, Node, Pair};

/// A node of the tree `'t` and its path, which lives on the stack of the code that walks the tree.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Value<'t, 'p> {
    pub(crate) node: &'t Node,
    pub(crate) path: Path<'p>,
}

/// The path to a value inside its document: `limits[1].rate`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Path<'a> {
    Root,
    Key(&'a Self, &'a str),
    Item(&'a Self, usize),
}

/// A field that holds one scalar.
#[derive(Debug)]
pub(crate) struct Field<T> {
    pub(crate) name: &'static str,
    /// An example of a valid value.
    pub(crate) example: &'static str,
    pub(crate) read: fn(&str) -> Result<T, UnitError>,
}

/// The fields of a mapping that is being read.
#[derive(Debug)]
pub(crate) struct Fields<'a> {
    at: Position,
    path: &'a Path<'a>,
    entries: Vec<FieldEntry<'a>>,
}

#[derive(Debug)]
struct FieldEntry<'a> {
    key: &'a str,
    key_at: Position,
    value: &'a Node,
    /// Whether it was merged from another mapping.
    merged: bool,
    taken: bool,
}

/// The index of each key of a mapping. Nearly all mappings are small, and a linear search over a
/// few words is faster than hashing them.
enum KeyIndex<'a> {
    Few,
    Many(HashMap<&'a str, usize>),
}

const FEW_KEYS: usize = 32;

/// Parses the single document of a text; `example` is a valid one.
pub(crate) fn document(text: &str, example: &str, report: &mut Report) -> Result<Node, Reported> {
    match yaml::document(text) {
        Ok(Some(root)) if !root.is_null() => Ok(root),
        Ok(_) => {
            let message = format!("there is nothing to read; write it like `{example}`");
            Err(report.add(Position { line: 1, column: 1 }, Path::Root, message))
        }
        Err(error) => Err(report.add(error.at, Path::Root, error.message)),
    }
}

/// The message for an unknown key.
pub(crate) fn unknown(key: &str, known: &[&str]) -> String {
    let hint = suggest::hint(key, known.iter().copied());
    let (got, known) = (quoted(key), suggest::all_of(known));
    format!("unknown field, got {got}; {hint}the fields here are {known}")
}

impl<'t: 'p, 'p> Value<'t, 'p> {
    /// The root of a document.
    pub(crate) const fn root(node: &'t Node) -> Self {
        Self { node, path: Path::Root }
    }

    pub(crate) const fn at(&self) -> Position {
        self.node.at
    }

    /// The value of one of this mapping's pairs.
    pub(crate) fn field<'b>(&'b self, pair: &'t Pair) -> Value<'t, 'b> {
        let key = match &pair.key.content {
            Content::Scalar { text, .. } => text,
            Content::Sequence(_) | Content::Mapping(_) => "",
        };
        Value { node: &pair.value, path: Path::Key(&self.path, key) }
    }

    /// Reports a problem with this value.
    pub(crate) fn refuse(&self, report: &mut Report, message: String) -> Reported {
        report.add(self.node.at, self.path, message)
    }

    /// The text of a scalar; `example` is a valid one.
    pub(crate) fn text(&self, example: &str, report: &mut Report) -> Result<&'t str, Reported> {
        self.scalar().ok_or_else(|| {
            let got = self.node.described();
            let message = format!("must be one value, got {got}; write it like `{example}`");
            self.refuse(report, message)
        })
    }

    /// The text of a non-null scalar.
    fn scalar(&self) -> Option<&'t str> {
        match &self.node.content {
            Content::Scalar { text, .. } if !self.node.is_null() => Some(text),
            _ => None,
        }
    }

    /// The value, or the error reported.
    fn check<T>(&self, read: Result<T, UnitError>, report: &mut Report) -> Result<T, Reported> {
        read.map_err(|error| self.refuse(report, error.into_message()))
    }

    /// Parses a scalar.
    pub(crate) fn read<T>(
        &self,
        example: &str,
        read: fn(&str) -> Result<T, UnitError>,
        report: &mut Report,
    ) -> Result<T, Reported> {
        let text = self.text(example, report)?;
        self.check(read(text), report)
    }

    pub(crate) const fn is_list(&self) -> bool {
        matches!(self.node.content, Content::Sequence(_))
    }

    /// The items of a sequence; empty for other types.
    pub(crate) fn items<'b>(&'b self) -> impl ExactSizeIterator<Item = Value<'t, 'b>> {
        let items: &'t [Node] = match &self.node.content {
            Content::Sequence(items) => items,
            Content::Scalar { .. } | Content::Mapping(_) => &[],
        };
        let item = |(index, node)| Value { node, path: Path::Item(&self.path, index) };
        items.iter().enumerate().map(item)
    }

    /// Opens a mapping. `subject` names the expected item, with the article.
    pub(crate) fn fields(
        &self,
        subject: &str,
        example: &str,
        report: &mut Report,
    ) -> Result<Fields<'_>, Reported> {
        let Content::Mapping(pairs) = &self.node.content else {
            let got = self.node.described();
            let message =
                format!("{subject} must be a mapping, got {got}; write it like `{example}`");
            return Err(self.refuse(report, message));
        };
        let mut fields =
            Fields { at: self.node.at, path: &self.path, entries: Vec::with_capacity(pairs.len()) };
        let mut index = KeyIndex::new(pairs.len());
        for Pair { key: key_node, value, merged } in pairs.iter() {
            let Content::Scalar { text: key, .. } = &key_node.content else {
                let got = key_node.described();
                let message =
                    format!("a key must be one word, got {got}; write it like `{example}`");
                report.add(key_node.at, self.path, message);
                continue;
            };
            let entry =
                FieldEntry { key, key_at: key_node.at, value, merged: *merged, taken: false };
            let position = index.of(key, &fields.entries);
            match position.and_then(|position| fields.entries.get_mut(position)) {
                None => fields.entries.push(entry),
                // A written key overrides a merged one, regardless of order.
                Some(first) if first.merged => *first = entry,
                Some(_) if *merged => {}
                Some(first) => {
                    let line = first.key_at.line;
                    let message = format!("is given twice, first on line {line}; remove one");
                    report.add(entry.key_at, Path::Key(&self.path, key), message);
                }
            }
        }
        Ok(fields)
    }
}

impl<'a> KeyIndex<'a> {
    fn new(keys: usize) -> Self {
        if keys <= FEW_KEYS { Self::Few } else { Self::Many(HashMap::with_capacity(keys)) }
    }

    /// Returns the position of an equal key, or records the next position for this one.
    fn of(&mut self, key: &'a str, entries: &[FieldEntry<'a>]) -> Option<usize> {
        match self {
            Self::Few => entries.iter().position(|entry| entry.key == key),
            Self::Many(index) => match index.entry(key) {
                hash_map::Entry::Occupied(position) => Some(*position.get()),
                hash_map::Entry::Vacant(vacant) => {
                    vacant.insert(entries.len());
                    None
                }
            },
        }
    }
}

impl<'a> Fields<'a> {
    /// The value of an optional field, of any type.
    pub(crate) fn value(&mut self, name: &str) -> Option<Value<'a, 'a>> {
        let entry = self.entries.iter_mut().find(|entry| entry.key == name)?;
        entry.taken = true;
        let path = Path::Key(self.path, entry.key);
        Some(Value { node: entry.value, path })
    }

    /// All fields in source order, for a mapping with arbitrary keys.
    pub(crate) fn all(&mut self) -> Vec<(&'a str, Value<'a, 'a>)> {
        let path = self.path;
        let all = self.entries.iter_mut().map(|entry| {
            entry.taken = true;
            (entry.key, Value { node: entry.value, path: Path::Key(path, entry.key) })
        });
        all.collect()
    }

    /// The value of an optional field that must not be empty.
    pub(crate) fn filled(
        &mut self,
        name: &str,
        example: &str,
        report: &mut Report,
    ) -> Result<Option<Value<'a, 'a>>, Reported> {
        match self.value(name) {
            Some(value) if value.node.is_null() => {
                let message = format!(
                    "has no value, got nothing; write it like `{name}: {example}`, or remove the \
                     field"
                );
                Err(report.add(self.key_at(name), value.path, message))
            }
            value => Ok(value),
        }
    }

    /// An optional field.
    pub(crate) fn optional<T>(
        &mut self,
        field: &Field<T>,
        report: &mut Report,
    ) -> Result<Option<T>, Reported> {
        match self.filled(field.name, field.example, report)? {
            Some(value) => match value.scalar() {
                Some(text) => value.check((field.read)(text), report).map(Some),
                None => {
                    let example = format!("{}: {}", field.name, field.example);
                    value.text(&example, report).map(|_| None)
                }
            },
            None => Ok(None),
        }
    }

    /// A required field.
    pub(crate) fn required<T>(
        &mut self,
        field: &Field<T>,
        report: &mut Report,
    ) -> Result<T, Reported> {
        match self.optional(field, report)? {
            Some(value) => Ok(value),
            None => {
                let remedy = format!("add it, like `{}: {}`", field.name, field.example);
                Err(self.missing(field.name, &remedy, report))
            }
        }
    }

    /// Reports that a field is missing.
    pub(crate) fn missing(&self, name: &str, remedy: &str, report: &mut Report) -> Reported {
        self.refuse(name, report, format!("is missing; {remedy}"))
    }

    /// Reports a problem with a field: at its value, or at the mapping if it is absent.
    pub(crate) fn refuse(&self, name: &str, report: &mut Report, message: String) -> Reported {
        let entry = self.entries.iter().find(|entry| entry.key == name);
        let at = entry.map_or(self.at, |entry| entry.value.at);
        report.add(at, Path::Key(self.path, name), message)
    }

    /// A field as it was written, for a message about it.
    pub(crate) fn written(&self, name: &str) -> String {
        let entry = self.entries.iter().find(|entry| entry.key == name);
        entry.map_or_else(|| "nothing".to_owned(), |entry| entry.value.described())
    }

    /// Reports every field that was not taken, each with the message that `explain` has for its
    /// key.
    pub(crate) fn finish(
        self,
        report: &mut Report,
        explain: impl Fn(&str) -> String,
    ) -> Result<(), Reported> {
        let mut finished = Ok(());
        for entry in self.entries.iter().filter(|entry| !entry.taken) {
            let full = report.is_full();
            let message = if full { String::new() } else { explain(entry.key) };
            let path = Path::Key(self.path, entry.key);
            finished = Err(report.add(entry.key_at, path, message));
        }
        finished
    }

    fn key_at(&self, name: &str) -> Position {
        let entry = self.entries.iter().find(|entry| entry.key == name);
        entry.map_or(self.at, |entry| entry.key_at)
    }
}

impl Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Key(Self::Root, key) => f.write_str(&shortened(key)),
            Self::Key(parent, key) => write!(f, "{parent}.{}", shortened(key)),
            Self::Item(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units;

    const SIZE: Field<u64> = Field { name: "size", example: "5", read: units::whole };

    /// Reads `{ size, boxes: [{ size }] }` and formats the result.
    fn read(text: &str) -> String {
        let root = yaml::document(text).unwrap().unwrap();
        let mut report = Report::new("x");
        let result = shelf(&Value::root(&root), &mut report);
        match report.finish(result) {
            Ok(sizes) => format!("{sizes:?}"),
            Err(problems) => problems.to_string(),
        }
    }

    fn shelf(value: &Value<'_, '_>, report: &mut Report) -> Result<Vec<u64>, Reported> {
        let mut fields = value.fields("a shelf", "{ size: 5 }", report)?;
        let mut sizes = vec![fields.required(&SIZE, report)];
        if let Ok(Some(boxes)) = fields.filled("boxes", "[{ size: 1 }]", report) {
            for item in boxes.items() {
                let inner = item.fields("a box", "{ size: 1 }", report).map(|mut fields| {
                    let size = fields.optional(&SIZE, report).map(Option::unwrap_or_default);
                    fields.finish(report, |key| unknown(key, &["size"])).and(size)
                });
                sizes.push(inner.and_then(|size| size));
            }
        }
        fields.finish(report, |key| unknown(key, &["size", "boxes"]))?;
        sizes.into_iter().collect()
    }

    #[test]
    fn fields_are_taken_by_name() {
        assert_eq!(read("boxes: [{size: 1}, {}]\nsize: 7"), "[7, 1, 0]");
    }

    #[test]
    fn every_mistake_is_told_where_it_is() {
        let text = "siez: 5\nboxes:\n  - size: big\n    size: 2\n  - 7\n  - size:\n\
                    \x20 - [a]: 1\n    ? {b: 1}\n    : 2\n";
        let expected = [
            "x:1:1: siez: unknown field, got `siez`; did you mean `size`? the fields here are \
             `size` and `boxes`",
            "x:1:1: size: is missing; add it, like `size: 5`",
            "x:3:11: boxes[0].size: must be a whole number, got `big`; write it like `50` or \
             `1_000`",
            "x:4:5: boxes[0].size: is given twice, first on line 3; remove one",
            "x:5:5: boxes[1]: a box must be a mapping, got `7`; write it like `{ size: 1 }`",
            "x:6:5: boxes[2].size: has no value, got nothing; write it like `size: 5`, or remove \
             the field",
            "x:7:5: boxes[3]: a key must be one word, got a list; write it like `{ size: 1 }`",
            "x:8:7: boxes[3]: a key must be one word, got a mapping; write it like `{ size: 1 }`",
        ];
        let told = read(text);
        let mut told: Vec<_> = told.lines().collect();
        told.sort_unstable();
        assert_eq!(told, expected);
    }

    #[test]
    fn what_is_written_counts_more_than_what_is_taken_over() {
        assert_eq!(read("{ <<: { size: 5 } }"), "[5]");
        assert_eq!(read("{ <<: { size: 5 }, size: 7 }"), "[7]");
        assert_eq!(read("{ size: 7, <<: { size: 5 } }"), "[7]");
        assert_eq!(read("{ <<: [{ size: 5 }, { size: 6 }] }"), "[5]");
        let twice = read("{ size: 7, <<: { size: 5 }, size: 8 }");
        assert_eq!(twice, "x:1:29: size: is given twice, first on line 1; remove one");
    }

    #[test]
    fn many_keys_are_looked_up_too() {
        let strangers: String = (0..100).map(|key| format!("k{key}: 1\n")).collect();
        let told = read(&format!("size: 1\n{strangers}k7: 2\n<<: {{ size: 5 }}\n"));
        assert_eq!(told.lines().count(), 101);
        assert!(told.contains("k7: is given twice, first on line 9; remove one"), "{told}");
    }

    #[test]
    fn a_list_is_not_one_value() {
        let told = read("size: [5]");
        assert_eq!(told, "x:1:7: size: must be one value, got a list; write it like `size: 5`");
    }

    #[test]
    fn null_in_quotes_is_a_word() {
        let told = read("size: 'null'");
        assert_eq!(
            told,
            "x:1:7: size: must be a whole number, got `null`; write it like `50` or `1_000`"
        );
    }
}
