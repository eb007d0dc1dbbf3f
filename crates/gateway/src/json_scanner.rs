//! Finds members of a JSON text that streams by, without a copy of the text.
//!
//! ```text
//!   path usage.total_tokens
//!   {"id":"x","usage":{"input":[1,2],"total_tokens":25},…
//!             ╰ depth 1: `usage` ╰ depth 2: `total_tokens` ── captured until the comma
//! ```
//!
//! Memory is that of the captured values, whatever the length of the text. A member that occurs
//! twice has its last value, as in most parsers. A malformed text has no members. The length of
//! texts is counted by the names of their members, at any depth.

use std::sync::Arc;

/// Bytes of a captured value.
const VALUE_BYTES_MAX: usize = 8 << 10;
/// Open objects and arrays.
const DEPTH_MAX: usize = 128;

/// The names from the root to a member.
pub(crate) type JsonPath = Box<[Box<str>]>;

/// The path of a text, with its names between dots.
pub(crate) fn json_path(text: &str) -> JsonPath {
    text.split('.').map(Box::from).collect()
}

/// A scan of one text.
#[derive(Debug)]
pub(crate) struct JsonScanner {
    paths: Arc<[JsonPath]>,
    state: ScanState,
    /// The open containers, from the root.
    open: Vec<Container>,
    /// How many names of each path the open containers have matched.
    matched: Vec<usize>,
    /// The name that is read, as far as a path could have it.
    name: Vec<u8>,
    name_bytes_max: usize,
    /// Paths whose next name is the last one that was read.
    named: Vec<bool>,
    captures: Vec<Capture>,
    values: Vec<Option<Box<[u8]>>>,
    /// Names of members whose texts are counted.
    text_names: &'static [&'static str],
    /// Bytes of the texts of each of them.
    text_bytes: Vec<u64>,
    /// That of the last name.
    text: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Container {
    Object,
    Array,
}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScanState {
    Value,
    /// A value, or the end of an empty array.
    FirstItem,
    Name,
    /// A name, or the end of an empty object.
    FirstName,
    InName,
    Colon,
    InText,
    /// The character after a backslash, in a text or a name.
    Escaped {
        is_name: bool,
    },
    /// A number or a literal.
    InWord,
    /// A comma, or the end of a container.
    Next,
    /// Only blanks.
    End,
    Malformed,
}

/// A value that is being copied.
#[derive(Debug)]
struct Capture {
    path: usize,
    /// Open containers around it.
    depth: usize,
    bytes: Vec<u8>,
}

impl JsonScanner {
    /// Looks for these members.
    pub(crate) fn new(paths: &Arc<[JsonPath]>) -> Self {
        Self::counting(paths, &[])
    }

    /// The same, and counts the texts of members with these names.
    pub(crate) fn counting(paths: &Arc<[JsonPath]>, text_names: &'static [&'static str]) -> Self {
        let names = paths.iter().flatten().map(|name| name.len());
        let names = names.chain(text_names.iter().map(|name| name.len()));
        let longest = names.max().unwrap_or(0);
        Self {
            paths: paths.clone(),
            state: ScanState::Value,
            open: Vec::new(),
            matched: vec![0; paths.len()],
            name: Vec::new(),
            name_bytes_max: longest,
            named: vec![false; paths.len()],
            captures: Vec::new(),
            values: vec![None; paths.len()],
            text_names,
            text_bytes: vec![0; text_names.len()],
            text: None,
        }
    }

    /// Begins with another text.
    pub(crate) fn restart(&mut self) {
        self.state = ScanState::Value;
        self.open.clear();
        self.matched.fill(0);
        self.named.fill(false);
        self.captures.clear();
        self.values.fill(None);
        self.text_bytes.fill(0);
        self.text = None;
    }

    /// Bytes of the texts of a name, as they are written, without the backslashes of escapes.
    pub(crate) fn text_bytes(&self, name: usize) -> u64 {
        self.text_bytes.get(name).copied().unwrap_or(0)
    }

    /// Reads the next piece.
    pub(crate) fn read(&mut self, piece: &[u8]) {
        for byte in piece {
            if self.state == ScanState::Malformed {
                return;
            }
            self.step(*byte);
        }
    }

    /// The text of a member, if it was complete: a number without its blanks, a text with its
    /// quotes.
    pub(crate) fn value(&self, path: usize) -> Option<&[u8]> {
        self.values.get(path)?.as_deref()
    }

    fn step(&mut self, byte: u8) {
        // The end of a number or literal belongs to what follows it.
        if self.state == ScanState::InWord {
            if !matches!(byte, b',' | b'}' | b']' | b' ' | b'\t' | b'\n' | b'\r') {
                return self.copy(byte);
            }
            self.end_value();
        }
        match (self.state, byte) {
            (ScanState::InName | ScanState::InText | ScanState::Escaped { .. }, _) => {
                self.step_in_text(byte)
            }
            (_, b' ' | b'\t' | b'\n' | b'\r') => self.copy(byte),
            (ScanState::Value | ScanState::FirstItem, b'{' | b'[') => self.open(byte),
            (ScanState::FirstItem, b']') => self.close(byte, Container::Array),
            (ScanState::Value | ScanState::FirstItem, b'"') => {
                self.begin_value(byte, ScanState::InText)
            }
            (ScanState::Value | ScanState::FirstItem, b'-' | b'0'..=b'9' | b't' | b'f' | b'n') => {
                self.begin_value(byte, ScanState::InWord);
            }
            (ScanState::FirstName, b'}') => self.close(byte, Container::Object),
            (ScanState::FirstName | ScanState::Name, b'"') => {
                self.name.clear();
                self.copy(byte);
                self.state = ScanState::InName;
            }
            (ScanState::Colon, b':') => {
                self.copy(byte);
                self.state = ScanState::Value;
            }
            (ScanState::Next, b',') => {
                self.copy(byte);
                self.state = match self.open.last() {
                    Some(Container::Object) => ScanState::Name,
                    _ => ScanState::Value,
                };
            }
            (ScanState::Next, b'}') => self.close(byte, Container::Object),
            (ScanState::Next, b']') => self.close(byte, Container::Array),
            _ => self.fail(),
        }
    }

    fn step_in_text(&mut self, byte: u8) {
        self.copy(byte);
        if let Some(bytes) = self.text.and_then(|text| self.text_bytes.get_mut(text)) {
            *bytes += u64::from(match self.state {
                ScanState::InText => !matches!(byte, b'"' | b'\\'),
                ScanState::Escaped { is_name: false } => byte != b'u',
                _ => false,
            });
        }
        match (self.state, byte) {
            (ScanState::InText, b'"') => self.end_value(),
            (ScanState::InText, b'\\') => self.state = ScanState::Escaped { is_name: false },
            (ScanState::InName, b'"') => self.end_name(),
            (ScanState::InName, b'\\') => {
                // No path has names with escapes.
                self.name.resize(self.name_bytes_max.saturating_add(1), b'\\');
                self.state = ScanState::Escaped { is_name: true };
            }
            (ScanState::InName, _) if self.name.len() <= self.name_bytes_max => {
                self.name.push(byte)
            }
            (ScanState::Escaped { is_name: true }, _) => self.state = ScanState::InName,
            (ScanState::Escaped { is_name: false }, _) => self.state = ScanState::InText,
            _ => {}
        }
    }

    fn end_name(&mut self) {
        let depth = self.open.len();
        for (index, path) in self.paths.iter().enumerate() {
            let is_next = self.matched[index] + 1 == depth;
            let name = path.get(depth.saturating_sub(1)).map(|name| name.as_bytes());
            self.named[index] = is_next && name == Some(self.name.as_slice());
        }
        self.text = self.text_names.iter().position(|name| name.as_bytes() == self.name);
        self.state = ScanState::Colon;
    }

    fn begin_value(&mut self, byte: u8, state: ScanState) {
        self.begin_captures();
        self.copy(byte);
        self.state = state;
    }

    /// Begins to copy the value of a member that a path names.
    fn begin_captures(&mut self) {
        let depth = self.open.len();
        for (path, named) in self.named.iter_mut().enumerate() {
            if *named && self.paths[path].len() == depth {
                *named = false;
                self.captures.push(Capture { path, depth, bytes: Vec::new() });
            }
        }
    }

    fn end_value(&mut self) {
        let depth = self.open.len();
        for capture in self.captures.extract_if(.., |capture| capture.depth == depth) {
            let is_whole = capture.bytes.len() <= VALUE_BYTES_MAX;
            self.values[capture.path] = is_whole.then(|| capture.bytes.into());
        }
        self.named.fill(false);
        self.text = None;
        self.state = if depth == 0 { ScanState::End } else { ScanState::Next };
    }

    fn open(&mut self, byte: u8) {
        self.begin_captures();
        self.copy(byte);
        if self.open.len() == DEPTH_MAX {
            return self.fail();
        }
        for (matched, named) in self.matched.iter_mut().zip(&mut self.named) {
            *matched += usize::from(std::mem::take(named));
        }
        let (container, state) = match byte {
            b'{' => (Container::Object, ScanState::FirstName),
            _ => (Container::Array, ScanState::FirstItem),
        };
        self.open.push(container);
        self.state = state;
    }

    fn close(&mut self, byte: u8, container: Container) {
        self.copy(byte);
        if self.open.pop() != Some(container) {
            return self.fail();
        }
        let names = self.open.len().saturating_sub(1);
        self.matched.iter_mut().for_each(|matched| *matched = (*matched).min(names));
        self.end_value();
    }

    fn copy(&mut self, byte: u8) {
        for capture in &mut self.captures {
            // One more than the bound says that it was too long.
            if capture.bytes.len() <= VALUE_BYTES_MAX {
                capture.bytes.push(byte);
            }
        }
    }

    fn fail(&mut self) {
        self.state = ScanState::Malformed;
        self.captures.clear();
        self.values.fill(None);
        self.text_bytes.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn scanned(pieces: &[&[u8]], paths: &[&str]) -> Vec<Option<String>> {
        let paths: Arc<[JsonPath]> = paths.iter().map(|path| json_path(path)).collect();
        let mut scanner = JsonScanner::new(&paths);
        pieces.iter().for_each(|piece| scanner.read(piece));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (0..paths.len()).map(|path| scanner.value(path).map(text)).collect()
    }

    fn value(text: &str, path: &str) -> Option<String> {
        scanned(&[text.as_bytes()], &[path]).remove(0)
    }

    #[test]
    fn members_are_found_where_they_are() {
        let text = r#" {"a":1,"usage":{"x":{"total":7},"list":[{"total":8}],"total":25 ,"t":"é\""},"total":9}"#;
        for (path, expected) in [
            ("usage.total", Some("25")),
            ("total", Some("9")),
            ("usage.x.total", Some("7")),
            ("usage.x", Some(r#"{"total":7}"#)),
            ("usage.list", Some(r#"[{"total":8}]"#)),
            ("usage.list.total", None),
            ("usage.t", Some(r#""é\"""#)),
            ("x.total", None),
            ("usage.totals", None),
            ("usage.tota", None),
        ] {
            assert_eq!(value(text, path).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn a_value_that_is_cut_is_none() {
        assert_eq!(value(r#"{"cost":12"#, "cost"), None);
        assert_eq!(value(r#"{"cost":12}"#, "cost").as_deref(), Some("12"));
        assert_eq!(value(r#"{"cost":12,"te"#, "cost").as_deref(), Some("12"));
        assert_eq!(value(r#"{"cost":{"a":1}"#, "cost").as_deref(), Some(r#"{"a":1}"#));
        assert_eq!(value(r#"{"cost":{"a":1"#, "cost"), None);
    }

    #[test]
    fn a_malformed_text_has_no_members() {
        for text in [
            r#"{"cost":1]"#,
            r#"{"cost":1} x"#,
            r#"{"cost":1,}"#,
            r#"{"cost":1 2}"#,
            r#"{cost:1}"#,
            r#"{"cost":}"#,
            r#"[{"cost":1}]"#,
            r#""cost""#,
            "cost",
            "",
        ] {
            assert_eq!(value(text, "cost"), None, "{text}");
        }
        let deep = format!(r#"{{"cost":1,"x":{}"#, "[".repeat(DEPTH_MAX));
        assert_eq!(value(&deep, "cost"), None);
    }

    #[test]
    fn values_and_names_are_bounded_and_the_last_one_counts() {
        let long = format!(r#"{{"a":"{}","b":1,"{}":2}}"#, "x".repeat(9_000), "n".repeat(9_000));
        assert_eq!(value(&long, "a"), None);
        assert_eq!(value(&long, "b").as_deref(), Some("1"));
        assert_eq!(value(r#"{"a":1,"a":2}"#, "a").as_deref(), Some("2"));
        assert_eq!(value(r#"{"\u0061":1}"#, "a"), None, "names are compared as written");
    }

    #[test]
    fn texts_are_counted_by_the_names_of_their_members() {
        let paths: Arc<[JsonPath]> = Arc::new([json_path("id")]);
        let mut scanner = JsonScanner::counting(&paths, &["content", "delta"]);
        let text = r#"{"content":"ab","x":{"content":"c\"\u00e9","y":"no","delta":{"content":"d"}},
            "list":[{"content":"e","content":[{"text":"no"}]}],"id":7}"#;
        for cut in [1, 7, 1_000] {
            text.as_bytes().chunks(cut).for_each(|piece| scanner.read(piece));
            assert_eq!((scanner.text_bytes(0), scanner.text_bytes(1)), (10, 0), "{cut}");
            assert_eq!(scanner.value(0), Some(&b"7"[..]));
            scanner.restart();
            assert_eq!((scanner.text_bytes(0), scanner.value(0)), (0, None));
        }
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            Just(Value::from(-1.5)),
            r#"[a-c"\\ ,:{}\[\]é]{0,5}"#.prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map("[a-c]", inner, 0..4)
                    .prop_map(|members| members.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_pieces_have_the_members_that_a_parser_finds(
            value in values(), path in "[a-c](\\.[a-c]){0,2}", cut in 1_usize..9, pretty: bool,
        ) {
            let value = json!({ "a": value, "b": { "c": 1 } });
            let text = if pretty { format!("{value:#}") } else { value.to_string() };
            let pieces: Vec<&[u8]> = text.as_bytes().chunks(cut).collect();
            let found = scanned(&pieces, &[&path]).remove(0);
            let found = found.map(|text| serde_json::from_str::<Value>(&text).unwrap());
            let mut names = path.split('.');
            let expected = names.try_fold(&value, |value, name| value.as_object()?.get(name));
            prop_assert_eq!(found.as_ref(), expected);
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), cut in 1_usize..9) {
            let pieces: Vec<&[u8]> = bytes.chunks(cut).collect();
            scanned(&pieces, &["a.b", "a"]);
        }
    }
}
