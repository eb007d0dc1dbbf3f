//! What happens when the service cannot be asked.

use std::fmt;
use std::sync::Arc;

use crate::request::Request;

/// What is answered when the service does not answer.
///
/// ```
/// use sluicegate_client::{Client, WhenAway};
///
/// // Readers may go on, writers may not.
/// let policy = WhenAway::local(|request| request == &sluicegate_client::Request::new("readers"));
/// let client = Client::builder("http://127.0.0.1:8080").when_away(policy).build()?;
/// # Ok::<(), sluicegate_client::Error>(())
/// ```
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum WhenAway {
    /// Everything may go, as with Envoy's default: a limiter that is away is no reason to be away too.
    #[default]
    Allow,
    /// Nothing may go.
    Deny,
    /// The caller gets an [`Error`](crate::Error) and decides.
    Error,
    /// This decides, such as a limiter in the process.
    Local(Arc<dyn Fn(&Request) -> bool + Send + Sync>),
}

impl WhenAway {
    /// A decision of your own.
    pub fn local(decide: impl Fn(&Request) -> bool + Send + Sync + 'static) -> Self {
        Self::Local(Arc::new(decide))
    }

    /// Whether this may go; `None` if the caller decides.
    pub(crate) fn allows(&self, request: &Request) -> Option<bool> {
        match self {
            Self::Allow => Some(true),
            Self::Deny => Some(false),
            Self::Error => None,
            Self::Local(decide) => Some(decide(request)),
        }
    }
}

impl fmt::Debug for WhenAway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Allow => "Allow",
            Self::Deny => "Deny",
            Self::Error => "Error",
            Self::Local(_) => "Local(..)",
        })
    }
}
