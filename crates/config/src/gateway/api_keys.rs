//! The file of API keys: names, hashes and attributes.
//!
//! ```yaml
//! - { name: acme, sha256: 2bb80d53…, plan: pro }
//! ```

use crate::fields::{Field, Value};
use crate::hashed_list;
use crate::problem::{Problems, Report, Reported};
use crate::rules::Source;
use crate::units::UnitError;

/// An API key, known by its hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKeyConfig {
    /// `name`: the identity of its clients.
    pub name: Box<str>,
    /// `sha256` of the key.
    pub sha256: [u8; 32],
    /// All further fields.
    pub attributes: Vec<(Box<str>, Box<str>)>,
}

const EXAMPLE: &str = "- { name: acme, sha256: 2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b, plan: pro }";
const ENTRY_EXAMPLE: &str = "{ name: acme, sha256: …, plan: pro }";
const NAME: Field<Box<str>> = Field { name: "name", example: "acme", read: name };
const SHA256: Field<[u8; 32]> = Field {
    name: "sha256",
    example: "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b",
    read: sha256,
};

/// Reads a file of API keys.
///
/// ```
/// use sluicegate_config::gateway::api_keys;
/// use sluicegate_config::rules::Source;
///
/// let hash = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
/// let text = format!("- {{ name: acme, sha256: {hash}, plan: pro }}");
/// let keys = api_keys::read(&Source { name: "keys.yaml".into(), text })?;
/// assert_eq!(&*keys[0].name, "acme");
/// assert_eq!(keys[0].attributes, [("plan".into(), "pro".into())]);
/// # Ok::<(), sluicegate_config::problem::Problems>(())
/// ```
///
/// # Errors
/// When it is not a list of keys, or two have the same hash.
pub fn read(source: &Source) -> Result<Vec<ApiKeyConfig>, Problems> {
    hashed_list::read(source, EXAMPLE, key, |key| (key.sha256, &key.name))
}

fn key(item: &Value<'_, '_>, report: &mut Report) -> Result<ApiKeyConfig, Reported> {
    let mut fields = item.fields("a key", ENTRY_EXAMPLE, report)?;
    let name = fields.required(&NAME, report);
    let sha256 = fields.required(&SHA256, report);
    let mut attributes = Ok(Vec::new());
    let further =
        fields.all().into_iter().filter(|(key, _)| ![NAME.name, SHA256.name].contains(key));
    for (key, value) in further {
        match (&mut attributes, value.text("pro", report)) {
            (Ok(attributes), Ok(text)) => attributes.push((key.into(), text.into())),
            (_, Err(reported)) => attributes = Err(reported),
            (Err(_), Ok(_)) => {}
        }
    }
    Ok(ApiKeyConfig { name: name?, sha256: sha256?, attributes: attributes? })
}

fn name(text: &str) -> Result<Box<str>, UnitError> {
    if text.is_empty() {
        return Err(UnitError::new("must not be empty; write it like `acme`".to_owned()));
    }
    Ok(text.into())
}

fn sha256(text: &str) -> Result<[u8; 32], UnitError> {
    hashed_list::sha256(text, "sluicegate gateway hash-key NAME")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

    fn keys(text: &str) -> Result<Vec<ApiKeyConfig>, String> {
        let source = Source { name: "keys.yaml".into(), text: text.to_owned() };
        read(&source).map_err(|problems| problems.to_string())
    }

    #[test]
    fn every_further_field_is_an_attribute() {
        let keys = keys(&format!("- {{ name: acme, sha256: {HASH}, plan: pro, seats: 3 }}"));
        let keys = keys.unwrap();
        assert_eq!((&*keys[0].name, keys[0].sha256[0], keys[0].sha256[31]), ("acme", 0x2b, 0x5b));
        let attributes = [("plan".into(), "pro".into()), ("seats".into(), "3".into())];
        assert_eq!(keys[0].attributes, attributes);
    }

    #[test]
    fn no_key_is_an_empty_list() {
        assert_eq!(keys("[]").unwrap(), []);
    }

    #[test]
    fn mistakes_are_named_with_place_and_remedy() {
        for (text, expected) in [
            ("", "there is nothing to read"),
            ("name: a", "must be a list of keys"),
            ("- { name: a }", "sha256"),
            ("- { sha256: x, name: a }", "must be 64 hexadecimal digits, got 1 characters"),
            (&format!("- {{ sha256: {HASH} }}"), "name"),
            (&format!("- {{ name: a, sha256: {} }}", HASH.replace('2', "x")), "hexadecimal"),
            (&format!("- {{ name: a, sha256: {HASH}, plan: [] }}"), "must be one value"),
            (
                &format!("- {{ name: a, sha256: {HASH} }}\n- {{ name: b, sha256: {HASH} }}"),
                "keys.yaml:2:3: [1]: is the key of line 1 again, got `b`",
            ),
        ] {
            let problem = keys(text).unwrap_err();
            assert!(problem.contains(expected), "{text}: {problem}");
        }
    }

    #[test]
    fn a_key_in_place_of_its_hash_is_not_repeated() {
        assert!(!keys("- { name: a, sha256: secret-key }").unwrap_err().contains("secret-key"));
    }
}
