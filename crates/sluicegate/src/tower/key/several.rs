//! Several keys as one.

use std::io::Write as _;

use ::http::request::Parts;

use super::Identify;

/// By the first that is known: see [`first_of`].
#[derive(Debug, Clone)]
pub struct FirstOf<T>(T);

/// By the first of a tuple that is known.
///
/// ```
/// use http::Request;
/// use sluicegate::tower::key::{Identify, first_of, header, peer};
///
/// // Customers by their key, everybody else by address.
/// let who = first_of((header("x-api-key"), peer()));
///
/// let (request, ()) = Request::builder().header("x-api-key", "k7").body(())?.into_parts();
/// let mut key = Vec::new();
/// who.identify(&request, &mut key);
/// assert_eq!(key, b"0/k7", "the first of both");
/// # Ok::<(), http::Error>(())
/// ```
pub fn first_of<T>(keys: T) -> FirstOf<T>
where
    FirstOf<T>: Identify,
{
    FirstOf(keys)
}

/// Appends a key with its length before it, as `5:alice,`: a netstring.
fn with_length(identify: &impl Identify, request: &Parts, key: &mut Vec<u8>) -> Option<()> {
    let start = key.len();
    identify.identify(request, key)?;
    let length = format!("{}:", key.len() - start);
    key.splice(start..start, length.into_bytes());
    key.push(b',');
    Some(())
}

/// Appends a key with its place before it; leaves nothing behind if it is not known.
fn with_place(
    place: usize,
    identify: &impl Identify,
    request: &Parts,
    key: &mut Vec<u8>,
) -> Option<()> {
    let start = key.len();
    // Writing to a vector cannot fail.
    let _ = write!(key, "{place}/");
    let known = identify.identify(request, key);
    if known.is_none() {
        key.truncate(start);
    }
    known
}

macro_rules! several {
    ($($one:ident $place:tt),+) => {
        /// By all of them: who lacks one is not known.
        impl<$($one: Identify),+> Identify for ($($one,)+) {
            fn identify(&self, request: &Parts, key: &mut Vec<u8>) -> Option<()> {
                $(with_length(&self.$place, request, key)?;)+
                Some(())
            }
        }

        impl<$($one: Identify),+> Identify for FirstOf<($($one,)+)> {
            fn identify(&self, request: &Parts, key: &mut Vec<u8>) -> Option<()> {
                let keys = &self.0;
                None$(.or_else(|| with_place($place, &keys.$place, request, key)))+
            }
        }
    };
}

several!(A 0, B 1);
several!(A 0, B 1, C 2);
several!(A 0, B 1, C 2, D 3);
