//! Parameters of the query of a request.

use axum::http::StatusCode;
use axum::response::Response;

use super::super::{error, shown};

/// The parameters, each at most once.
#[derive(Debug)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads a query that may have these parameters.
    pub(super) fn read(text: Option<&str>, known: &[&str]) -> Result<Self, Box<Response>> {
        let pairs = form_urlencoded::parse(text.unwrap_or_default().as_bytes());
        let pairs: Vec<(String, String)> = pairs.into_owned().collect();
        for (index, (name, _)) in pairs.iter().enumerate() {
            if !known.contains(&name.as_str()) {
                let all = known.join("`, `");
                return Err(refuse(&format!(
                    "unknown parameter `{}`; there are `{all}`",
                    shown(name)
                )));
            }
            if pairs[..index].iter().any(|(other, _)| other == name) {
                return Err(refuse(&format!(
                    "the parameter `{name}` is given twice; give it once"
                )));
            }
        }
        Ok(Self(pairs))
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }

    /// A number from 0 to `max`.
    pub(super) fn number(
        &self,
        name: &str,
        max: usize,
        default: usize,
    ) -> Result<usize, Box<Response>> {
        let Some(text) = self.get(name) else { return Ok(default) };
        text.parse().ok().filter(|number| *number <= max).ok_or_else(|| {
            refuse(&format!("`{name}` must be a number from 0 to {max}, got `{}`", shown(text)))
        })
    }

    /// One of some words.
    pub(super) fn choice<T: Copy>(
        &self,
        name: &str,
        choices: &[(&str, T)],
    ) -> Result<Option<T>, Box<Response>> {
        let Some(text) = self.get(name) else { return Ok(None) };
        let found = choices.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        found.map(Some).ok_or_else(|| {
            refuse(&format!("`{name}` must be `{}`, got `{}`", words.join("`, `"), shown(text)))
        })
    }
}

pub(super) fn refuse(message: &str) -> Box<Response> {
    Box::new(error(StatusCode::BAD_REQUEST, "bad_request", message))
}
