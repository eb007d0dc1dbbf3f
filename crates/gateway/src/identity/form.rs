//! Fields of forms: `application/x-www-form-urlencoded`.
//!
//! ```text
//!   username=alice&password=x     a field has one value,
//!   username=a&username=b         unless a server could read the value of another one
//!   username=a&username[]=b       for it: of the same name, in another case, with the brackets
//!   username=a&USERNAME=b         and dots of arrays and objects, or in the query
//!   a;username=b                  a form that no browser sends has no fields
//! ```

use std::borrow::Cow;

use sluicegate_rules::mapping::decode_form;

use super::json::folded;

/// PHP and others ignore what follows.
const FIELDS_MAX: usize = 1000;
/// The field that names the encoding of the others, which some servers obey.
const CHARSET: &str = "_charset_";

type Pair<'a> = (Cow<'a, str>, Cow<'a, str>);

/// A form that all servers split and decode in the same manner.
#[derive(Debug)]
pub(super) struct Form<'a> {
    body: Vec<Pair<'a>>,
    /// Parameters, which Java and others merge with the fields.
    query: Vec<Pair<'a>>,
}

impl<'a> Form<'a> {
    /// `None` if servers split or decode it differently.
    pub(super) fn parse(body: &'a [u8], query: Option<&'a str>) -> Option<Self> {
        let body = pairs(body)?;
        let query = pairs(query.unwrap_or_default().as_bytes())?;
        let is_utf8 = |(name, value): &Pair<'_>| {
            !may_be(name, CHARSET) || value.is_empty() || value.eq_ignore_ascii_case("utf-8")
        };
        body.iter().chain(&query).all(is_utf8).then_some(Self { body, query })
    }

    /// A field by its name, if there is one that all servers read.
    pub(super) fn field(&self, name: &str) -> Option<Box<str>> {
        let mut all = self.body.iter().filter(|(other, _)| may_be(other, name));
        let (Some((found, value)), None) = (all.next(), all.next()) else { return None };
        let is_in_query = self.query.iter().any(|(other, _)| may_be(other, name));
        // A value may end at a zero byte, or at the end of a line.
        let is_plain = !value.contains(char::is_control);
        (found == name && !is_in_query && is_plain).then(|| Box::from(&**value))
    }
}

/// Names and values, if every server splits and decodes them in the same manner.
fn pairs(text: &[u8]) -> Option<Vec<Pair<'_>>> {
    // A `;` separates fields for some servers. Other bytes depend on the encoding.
    if !text.iter().all(|byte| byte.is_ascii_graphic() && *byte != b';') {
        return None;
    }
    let mut pairs = Vec::new();
    for pair in text.split(|byte| *byte == b'&') {
        let equals = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
        let (name, value) = pair.split_at_checked(equals)?;
        let name = decode_form(name)?;
        // PHP and others end a name at a zero byte.
        if pairs.len() == FIELDS_MAX || name.contains(char::is_control) {
            return None;
        }
        pairs.push((name, decode_form(value.get(1..).unwrap_or_default())?));
    }
    Some(pairs)
}

/// Whether a server could take a field of this name for the wanted one, an object or array that
/// has it, or an element of it.
fn may_be(name: &str, wanted: &str) -> bool {
    let mut names = segments(name);
    let mut wanted_names = segments(wanted);
    let is_part = loop {
        match (names.next(), wanted_names.next()) {
            (Some(one), Some(other)) if folded(one).eq(folded(other)) => {}
            (None, _) => break segments(name).next().is_some(),
            (_, None) => break true,
            _ => break false,
        }
    };
    is_part || underscored(name).eq(underscored(wanted))
}

/// `user[name]`, `user.name` and, in PHP, ` user name` are `user` and `name`.
fn segments(name: &str) -> impl Iterator<Item = &str> {
    let separates = |c: char| matches!(c, '[' | ']' | '.') || c.is_whitespace();
    name.split(separates).filter(|segment| !segment.is_empty())
}

/// The name as PHP writes it, without case.
fn underscored(name: &str) -> impl Iterator<Item = char> {
    segments(name).enumerate().flat_map(|(index, segment)| {
        let underscore = (index > 0).then_some('_');
        underscore.into_iter().chain(folded(segment))
    })
}

#[cfg(test)]
mod tests {
    use form_urlencoded::{Serializer, parse};
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn field(body: &[u8], query: &str, name: &str) -> Option<Box<str>> {
        Form::parse(body, Some(query))?.field(name)
    }

    #[test]
    fn a_field_that_servers_read_differently_is_missing() {
        for (body, expected) in [
            ("username=alice&password=x", Some("alice")),
            ("password=x&username=alice", Some("alice")),
            ("username=a+b%2Bc%3B%26%3d", Some("a b+c;&=")),
            ("username=a=b", Some("a=b")),
            ("username=caf%C3%A9", Some("café")),
            ("%75sername=alice", Some("alice")),
            ("&&username=alice&", Some("alice")),
            ("username=alice&tag=a&tag=b&tag[]=c&user_id=7&usernames=x", Some("alice")),
            ("_charset_=UTF-8&username=alice", Some("alice")),
            ("username=", Some("")),
            ("username", Some("")),
            ("user=alice", None),
            ("", None),
            // Twice, with the name in another form.
            ("username=a&username=b", None),
            ("username=a&username=a", None),
            ("username=a&username", None),
            ("username=a&%75sername=b", None),
            ("username=a&USERNAME=b", None),
            ("username=a&u%C5%BFername=b", None),
            ("USERNAME=a", None),
            // Arrays and objects.
            ("username[]=a", None),
            ("username=a&username[]=b", None),
            ("username=a&username%5B0%5D=b", None),
            ("username=a&username[x=b", None),
            ("username=a&[username]=b", None),
            ("username=a&username.x=b", None),
            // PHP removes blanks in front, and ends names at a zero byte.
            ("username=a&+username=b", None),
            ("username=a&%20username=b", None),
            ("username=a&username%00x=b", None),
            ("username=a%00b", None),
            ("username=a%0A", None),
            // Another separator, encoding or escape.
            ("x=1;username=b&username=a", None),
            ("username=a;username=b", None),
            ("username=caf%E9", None),
            ("username=caf\u{e9}", None),
            ("%C1%B5sername=b&username=a", None),
            ("_charset_=utf-7&username=a", None),
            ("username=%zz", None),
            ("username=%u0061", None),
            ("x=%&username=a", None),
            ("username=a b", None),
            ("username=a\n", None),
            ("username=a&x=\0", None),
        ] {
            assert_eq!(field(body.as_bytes(), "", "username").as_deref(), expected, "{body}");
        }
        assert_eq!(field(b"username=a\xff", "", "username"), None);
    }

    #[test]
    fn a_field_that_is_in_the_query_too_is_missing() {
        for (query, expected) in [
            ("next=/a&page=2", Some("a")),
            ("username=b", None),
            ("username=a", None),
            ("USERNAME=b", None),
            ("x&user%6eame[]=b", None),
            ("x=1;username=b", None),
            ("x=%zz", None),
            ("_charset_=utf-7", None),
        ] {
            assert_eq!(field(b"username=a", query, "username").as_deref(), expected, "{query}");
            assert_eq!(field(b"", query, "username"), None, "no field of the body");
        }
    }

    #[test]
    fn nested_fields_are_found_by_their_whole_name() {
        for (body, expected) in [
            ("user[name]=a&user[password]=x", Some("a")),
            ("user%5Bname%5D=a&user[remember]=0&user[remember]=1", Some("a")),
            ("user[name]=a&user[name][]=b", None),
            ("user[name]=a&user.name=b", None),
            ("user[name]=a&user[NAME]=b", None),
            ("user[name]=a&user=b", None),
            ("user[name]=a&user[]=b", None),
            ("user[name]=a&user_name=b", None),
            ("user[name]=a&user[name=b", None),
        ] {
            assert_eq!(field(body.as_bytes(), "", "user[name]").as_deref(), expected, "{body}");
        }
        assert_eq!(field(b"user_name=a&user.name=b", "", "user_name"), None);
        assert_eq!(field(b"user_name=a&user+name=b", "", "user_name"), None);
    }

    #[test]
    fn more_fields_than_servers_read_are_none() {
        let body = |others: usize| "x&".repeat(others) + "username=a";
        assert!(field(body(FIELDS_MAX - 1).as_bytes(), "", "username").is_some());
        assert_eq!(field(body(FIELDS_MAX).as_bytes(), "", "username"), None);
    }

    /// The keys by which PHP finds a field.
    fn php(name: &str) -> Vec<String> {
        let name = name.trim_start_matches(' ').split('\0').next().unwrap();
        let (base, keys) = match name.split_once('[') {
            Some((base, keys)) if keys.contains(']') => (base, Some(keys)),
            _ => (name, None),
        };
        let base = base.replace([' ', '.', '['], "_");
        let keys = keys.into_iter().flat_map(|keys| keys.split("][").map(str::to_owned));
        let keys = keys.map(|key| key.split(']').next().unwrap().to_owned());
        [base].into_iter().chain(keys).collect()
    }

    /// What servers of different kinds read.
    fn readings(body: &[u8], query: &str, wanted: &str) -> Vec<Option<String>> {
        let pairs = |text: &[u8]| parse(text).into_owned().collect::<Vec<_>>();
        let by = |text: &[u8], is: &dyn Fn(&str) -> bool| {
            let found = pairs(text).into_iter().filter(|(name, _)| is(name));
            found.map(|(_, value)| value).collect::<Vec<_>>()
        };
        let exact = |name: &str| name == wanted;
        let any_case = |name: &str| name.to_lowercase() == wanted.to_lowercase();
        let by_php = |name: &str| {
            let (name, wanted) = (php(name), php(wanted));
            name.starts_with(&wanted) || wanted.starts_with(&name)
        };
        let semicolons: Vec<u8> =
            body.iter().map(|byte| if *byte == b';' { b'&' } else { *byte }).collect();
        let merged = [query.as_bytes(), b"&", body].concat();
        vec![
            by(body, &exact).into_iter().next(),
            by(body, &exact).pop(),
            by(&semicolons, &exact).pop(),
            by(&semicolons, &exact).into_iter().next(),
            by(body, &any_case).into_iter().next(),
            by(body, &any_case).pop(),
            by(body, &by_php).pop(),
            by(&merged, &exact).into_iter().next(),
        ]
    }

    const NAMES: &str = "(username|username|%75sername|USERNAME|username\\[\\]|\\+username|username%00|x|\
                         user(name|_name|\\.name|\\[name\\]|\\[NAME\\]|\\[name|\\[x\\]|)|[a-z%+;\\[\\]._]{0,4})";
    const VALUES: &str = "([a-c]|[a-c]|[a-c]{0,2}|[a-c]{0,2}|%C3%A9|%ff|%zz|a;username=b)";

    proptest! {
        #[test]
        fn a_field_is_what_every_server_reads(
            pairs in vec((NAMES, VALUES), 1..4), query in vec((NAMES, VALUES), 0..2),
        ) {
            let written = |pairs: &[(String, String)]| {
                let pairs: Vec<_> = pairs.iter().map(|(name, value)| format!("{name}={value}")).collect();
                pairs.join("&")
            };
            let (body, query) = (written(&pairs), written(&query));
            for wanted in ["username", "user[name]", "user_name", "user.name"] {
                if let Some(value) = field(body.as_bytes(), &query, wanted) {
                    for reading in readings(body.as_bytes(), &query, wanted) {
                        prop_assert_eq!(reading.as_deref(), Some(&*value), "{} ? {}", body, query);
                    }
                }
            }
        }

        #[test]
        fn a_field_of_a_browser_is_what_was_typed(
            value in "\\PC{0,20}", others in vec(("[a-m]{1,8}(\\[\\])?", "\\PC{0,8}"), 0..8), at in 0_usize..8,
        ) {
            let mut fields = others;
            fields.insert(at.min(fields.len()), ("username".to_owned(), value.clone()));
            let body = Serializer::new(String::new()).extend_pairs(fields).finish();
            let read = field(body.as_bytes(), "page=2", "username");
            prop_assert_eq!(read.as_deref(), Some(&*value));
        }

        #[test]
        fn any_bytes_are_read_or_refused(body in vec(any::<u8>(), 0..64), query in "\\PC{0,16}") {
            for name in ["a", "a[b]", "[]", "é"] {
                let read = field(&body, &query, name);
                prop_assert!(read.is_none_or(|value| value.len() <= body.len()));
            }
        }
    }
}
