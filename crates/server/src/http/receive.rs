//! The body of a request, as one piece of memory.

use std::error::Error;
use std::future::poll_fn;
use std::pin::Pin;

use axum::body::{Body, Bytes};
use bytes::BytesMut;
use http_body::Body as _;

use super::refusal::Refusal;
use super::serve::Late;

/// The longest body of a request.
pub const BODY_BYTES_MAX: usize = 1 << 20;

/// All of it. Nearly always it came with the head, and is not copied.
pub(super) async fn receive(mut body: Body) -> Result<Bytes, Refusal> {
    if body.size_hint().lower() > BODY_BYTES_MAX as u64 {
        return Err(Refusal::too_large(BODY_BYTES_MAX));
    }
    let first = next(&mut body).await?.unwrap_or_default();
    if body.is_end_stream() && first.len() <= BODY_BYTES_MAX {
        return Ok(first);
    }
    let mut all = BytesMut::from(first);
    while let Some(more) = next(&mut body).await? {
        if all.len() + more.len() > BODY_BYTES_MAX {
            return Err(Refusal::too_large(BODY_BYTES_MAX));
        }
        all.extend_from_slice(&more);
    }
    match all.len() <= BODY_BYTES_MAX {
        true => Ok(all.freeze()),
        false => Err(Refusal::too_large(BODY_BYTES_MAX)),
    }
}

async fn next(body: &mut Body) -> Result<Option<Bytes>, Refusal> {
    loop {
        match poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await {
            None => return Ok(None),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => return Ok(Some(data)),
                // Trailers have nothing to tell us.
                Err(_) => continue,
            },
            Some(Err(error)) if is_late(&error) => return Err(Refusal::late()),
            Some(Err(_)) => return Err(Refusal::broken()),
        }
    }
}

fn is_late(error: &axum::Error) -> bool {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.is::<Late>() {
            return true;
        }
        cause = error.source();
    }
    false
}
