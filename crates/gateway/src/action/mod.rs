//! Routes that the gateway answers itself: redirects, files and fixed responses.

pub(crate) mod files;
mod redirect;

use std::io;
use std::path::PathBuf;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, LOCATION};
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode};
use sluicegate_config::gateway::route::Action;

use self::redirect::RedirectTarget;
use crate::body::ResponseBody;
use crate::error::ProxyError;

/// An action without an upstream, compiled.
#[derive(Debug)]
pub(crate) enum OwnAction {
    Redirect { to: RedirectTarget, status: StatusCode },
    Files { root: PathBuf, index: Option<String>, prefix: String },
    Respond { status: StatusCode, body: Bytes, content_type: HeaderValue },
}

impl OwnAction {
    /// Compiles the action of a route with this path; `None` if it forwards.
    ///
    /// # Errors
    /// When it cannot be executed.
    pub(crate) fn new(action: &Action, path: &str) -> Result<Option<Self>, String> {
        let status =
            |code: u16| StatusCode::from_u16(code).map_err(|_| format!("`{code}` is not a status"));
        Ok(Some(match action {
            Action::Forward { .. } => return Ok(None),
            Action::Redirect { to, status: code } => {
                Self::Redirect { to: RedirectTarget::new(to)?, status: status(*code)? }
            }
            Action::Files { root, index } => {
                let found = root.canonicalize().and_then(|root| match root.is_dir() {
                    true => Ok(root),
                    false => Err(io::ErrorKind::NotADirectory.into()),
                });
                let root = found.map_err(|error| {
                    format!("files: cannot use `{}`: {error}; name a directory", root.display())
                })?;
                let prefix = path.strip_suffix("/*").unwrap_or_default().to_owned();
                Self::Files { root, index: index.clone(), prefix }
            }
            Action::Respond { status: code, body, content_type } => {
                let malformed = |_| format!("`{content_type}` is not the type of a body");
                Self::Respond {
                    status: status(*code)?,
                    body: Bytes::from(body.clone()),
                    content_type: content_type.parse().map_err(malformed)?,
                }
            }
        }))
    }

    /// The response to a request.
    pub(crate) async fn respond(&self, head: &Parts) -> Result<Response<ResponseBody>, ProxyError> {
        match self {
            Self::Redirect { to, status } => {
                let malformed = |_| ProxyError::BadRequest("The path is malformed.");
                let location = to.location(&head.uri);
                let mut response = Response::new(ResponseBody::empty());
                *response.status_mut() = *status;
                let location = HeaderValue::try_from(location).map_err(malformed)?;
                response.headers_mut().insert(LOCATION, location);
                Ok(response)
            }
            Self::Files { root, index, prefix } => {
                files::respond(root, index.as_deref(), prefix, head).await
            }
            Self::Respond { status, body, content_type } => {
                let mut response = Response::new(ResponseBody::full(body.clone()));
                *response.status_mut() = *status;
                if !body.is_empty() {
                    response.headers_mut().insert(CONTENT_TYPE, content_type.clone());
                }
                Ok(response)
            }
        }
    }
}
