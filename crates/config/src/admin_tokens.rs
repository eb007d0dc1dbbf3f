//! The file of operators' tokens: names, roles and hashes.
//!
//! ```yaml
//! - { name: alice, role: edit, sha256: 2bb80d53… }
//! - { name: dashboard, role: read, sha256: 9f86d081… }
//! ```

use crate::fields::{Field, Value, unknown};
use crate::hashed_list;
use crate::problem::{Problems, Report, Reported};
use crate::rules::Source;
use crate::units::UnitError;

/// A token of the admin endpoint, known by its hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminTokenConfig {
    /// `name`: the author of changes.
    pub name: Box<str>,
    /// `role`.
    pub role: Role,
    /// `sha256` of the token.
    pub sha256: [u8; 32],
}

/// What a token allows; each role includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Statistics, rules, health; the state of counters.
    Read,
    /// Counters: reset, credit; the load signal.
    Operate,
    /// Rules: edit, roll back, approve; blocks and grants.
    Edit,
}

const EXAMPLE: &str = "- { name: alice, role: edit, sha256: 2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b }";
const ENTRY_EXAMPLE: &str = "{ name: alice, role: edit, sha256: … }";
const NAME: Field<Box<str>> = Field { name: "name", example: "alice", read: name };
const ROLE: Field<Role> = Field { name: "role", example: "edit", read: role };
const SHA256: Field<[u8; 32]> = Field {
    name: "sha256",
    example: "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b",
    read: sha256,
};

/// Reads a file of tokens.
///
/// ```
/// use sluicegate_config::admin_tokens::{self, Role};
/// use sluicegate_config::rules::Source;
///
/// let hash = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";
/// let text = format!("- {{ name: alice, role: operate, sha256: {hash} }}");
/// let tokens = admin_tokens::read(&Source { name: "tokens.yaml".into(), text })?;
/// assert_eq!((&*tokens[0].name, tokens[0].role), ("alice", Role::Operate));
/// # Ok::<(), sluicegate_config::problem::Problems>(())
/// ```
///
/// # Errors
/// When it is not a list of tokens, or two have the same hash.
pub fn read(source: &Source) -> Result<Vec<AdminTokenConfig>, Problems> {
    hashed_list::read(source, EXAMPLE, token, |token| (token.sha256, &token.name))
}

fn token(item: &Value<'_, '_>, report: &mut Report) -> Result<AdminTokenConfig, Reported> {
    let mut fields = item.fields("a token", ENTRY_EXAMPLE, report)?;
    let name = fields.required(&NAME, report);
    let role = fields.required(&ROLE, report);
    let sha256 = fields.required(&SHA256, report);
    fields.finish(report, |key| unknown(key, &[NAME.name, ROLE.name, SHA256.name]))?;
    Ok(AdminTokenConfig { name: name?, role: role?, sha256: sha256? })
}

fn name(text: &str) -> Result<Box<str>, UnitError> {
    /// Names are in logs and in every revision.
    const CHARS_MAX: usize = 64;

    let count = text.chars().count();
    if count == 0 || count > CHARS_MAX || text.chars().any(char::is_control) {
        let message = format!(
            "must have 1 to {CHARS_MAX} visible characters, got {count} characters; write it like `alice`"
        );
        return Err(UnitError::new(message));
    }
    Ok(text.into())
}

fn role(text: &str) -> Result<Role, UnitError> {
    Role::ALL.into_iter().find(|role| role.name() == text).ok_or_else(|| {
        UnitError::new(format!(
            "must be `read`, `operate` or `edit`, got `{text}`; write it like `edit`"
        ))
    })
}

fn sha256(text: &str) -> Result<[u8; 32], UnitError> {
    hashed_list::sha256(text, "sluicegate hash-token NAME --role edit")
}

impl Role {
    /// All roles, the least first.
    pub const ALL: [Self; 3] = [Self::Read, Self::Operate, Self::Edit];

    /// As it is written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Edit => "edit",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

    fn problem(text: &str) -> String {
        let source = Source { name: "tokens.yaml".into(), text: text.to_owned() };
        read(&source).unwrap_err().to_string()
    }

    #[test]
    fn mistakes_are_named_with_place_and_remedy() {
        for (text, expected) in [
            (
                format!("- {{ name: a, sha256: {HASH} }}"),
                "role: is missing; add it, like `role: edit`",
            ),
            (
                format!("- {{ name: a, role: admin, sha256: {HASH} }}"),
                "must be `read`, `operate` or `edit`, got `admin`",
            ),
            (format!("- {{ name: '', role: read, sha256: {HASH} }}"), "1 to 64 visible characters"),
            (
                format!("- {{ name: a, role: read, sha256: {HASH}, plan: x }}"),
                "unknown field, got `plan`",
            ),
            ("- { name: a, role: read, sha256: secret }".to_owned(), "`sluicegate hash-token NAME"),
            (
                format!(
                    "- {{ name: a, role: read, sha256: {HASH} }}\n- {{ name: b, role: read, sha256: {HASH} }}"
                ),
                "tokens.yaml:2:3: [1]: is the key of line 1 again, got `b`",
            ),
        ] {
            let problem = problem(&text);
            assert!(problem.contains(expected), "{text}: {problem}");
        }
    }

    #[test]
    fn a_role_includes_those_before_it() {
        assert!(Role::Read < Role::Operate && Role::Operate < Role::Edit);
    }
}
