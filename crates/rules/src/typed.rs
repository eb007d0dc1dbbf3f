//! Descriptors as people type them: `user_id=42,path=/login`.
//!
//! Entries are separated by `,`, key and value by the first `=`. A backslash escapes `,`, `=` and
//! `\`. A value may be empty and may contain `=`.

use crate::request::Entry;

/// A key and a value.
///
/// ```
/// use sluicegate_rules::typed::entries;
///
/// let typed = entries("user_id=42,path=/login")?;
/// assert_eq!((&*typed[1].key, &*typed[1].value), ("path", "/login"));
/// assert!(entries("user_id").unwrap_err().contains("has no `=`"));
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TypedEntry {
    /// The key.
    pub key: String,
    /// The value, which may be empty.
    pub value: String,
}

impl TypedEntry {
    /// The entry of a request.
    #[must_use]
    pub fn entry(&self) -> Entry<'_> {
        Entry::new(&self.key, &self.value)
    }
}

/// Parses a descriptor.
///
/// # Errors
/// What is wrong, with its place and a remedy.
pub fn entries(text: &str) -> Result<Vec<TypedEntry>, String> {
    let wrong = |message: String| format!("descriptor `{text}`: {message}");
    let mut entries = Vec::new();
    let (mut key, mut part) = (None, String::new());
    let mut letters = text.chars().zip(1..);
    loop {
        let next = letters.next();
        match next {
            Some(('\\', position)) => match letters.next() {
                Some((letter @ (',' | '=' | '\\'), _)) => part.push(letter),
                Some((letter, _)) => {
                    return Err(wrong(format!(
                        "`\\{letter}` at character {position} is no escape; a backslash escapes \
                         `,`, `=` and `\\` only"
                    )));
                }
                None => {
                    return Err(wrong(
                        "nothing follows the backslash at the end; for itself write `\\\\`"
                            .to_owned(),
                    ));
                }
            },
            Some(('=', _)) if key.is_none() => key = Some(std::mem::take(&mut part)),
            Some((',', _)) | None => {
                let number = entries.len() + 1;
                let value = std::mem::take(&mut part);
                match key.take() {
                    Some(key) if key.is_empty() => {
                        return Err(wrong(format!("entry {number} has no key; write `key=value`")));
                    }
                    Some(key) => entries.push(TypedEntry { key, value }),
                    None => return Err(wrong(no_value(number, &value))),
                }
                if next.is_none() {
                    return Ok(entries);
                }
            }
            Some((letter, _)) => part.push(letter),
        }
    }
}

fn no_value(number: usize, written: &str) -> String {
    if written.is_empty() {
        return format!(
            "entry {number} is empty; write `key=value`, with commas between entries only"
        );
    }
    format!(
        "entry {number}, `{written}`, has no `=`; write `{written}=value`, or `{written}=` for an \
         empty value"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(String, String)> {
        entries(text).unwrap().into_iter().map(|one| (one.key, one.value)).collect()
    }

    fn pair(key: &str, value: &str) -> (String, String) {
        (key.to_owned(), value.to_owned())
    }

    #[test]
    fn entries_are_parted() {
        assert_eq!(pairs("user_id=42"), [pair("user_id", "42")]);
        assert_eq!(
            pairs("user_id=42,path=/login"),
            [pair("user_id", "42"), pair("path", "/login")]
        );
        assert_eq!(pairs("user_id=,a=b"), [pair("user_id", ""), pair("a", "b")]);
        assert_eq!(pairs("token=YQ=="), [pair("token", "YQ==")]);
        assert_eq!(pairs(r"a\=b=c\,d\=\\"), [pair("a=b", r"c,d=\")]);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        for (text, says) in [
            ("", "descriptor ``: entry 1 is empty"),
            ("user_id", "entry 1, `user_id`, has no `=`; write `user_id=value`"),
            ("a=b,", "entry 2 is empty"),
            ("a=b,,c=d", "entry 2 is empty"),
            ("a=b,=d", "entry 2 has no key"),
            (r"a=\n", r"`\n` at character 3 is no escape"),
            (r"a=b\", "nothing follows the backslash"),
        ] {
            let error = entries(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
