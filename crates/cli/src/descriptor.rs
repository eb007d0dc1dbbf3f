//! Descriptors on the command line: `user_id=42,path=/login`.
//!
//! Entries are separated by `,`, key and value by the first `=`. A backslash escapes `,`, `=` and
//! `\`. A value may be empty and may contain `=`.

use sluicegate_rules::request::Override;
use sluicegate_rules::unit::Unit;

/// A key and a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TypedEntry {
    pub(crate) key: String,
    pub(crate) value: String,
}

/// Parses a descriptor.
pub(crate) fn entries(text: &str) -> Result<Vec<TypedEntry>, String> {
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

/// Parses a limit override: `5/minute`.
pub(crate) fn limit(text: &str) -> Result<Override, String> {
    let units = || Unit::ALL.map(Unit::name).join("`, `");
    let read = |text: &str| {
        let (number, unit) = text.split_once('/')?;
        let requests_per_unit = number.trim().parse().ok()?;
        Some(Override { requests_per_unit, unit: Unit::of(unit.trim())? })
    };
    read(text).ok_or_else(|| {
        format!(
            "must be a number of at most 32 bits per unit, got `{text}`; write it like `5/minute`, \
             with one of `{}`",
            units()
        )
    })
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

    #[test]
    fn a_limit_is_a_number_per_unit() {
        let five = Override { requests_per_unit: 5, unit: Unit::Minute };
        assert_eq!(limit("5/minute"), Ok(five));
        assert_eq!(limit("5 / MINUTE"), Ok(five));
        for text in ["5", "5/fortnight", "-1/minute", "4294967296/minute", "5/m"] {
            assert!(limit(text).is_err(), "{text}");
        }
    }
}
