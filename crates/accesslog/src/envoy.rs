//! The default text format of Envoy, and that of Istio, which has more fields.
//!
//! ```text
//! Envoy  [time] "request" status flags received sent duration upstream_time
//!        "x-forwarded-for" "user-agent" "x-request-id" "authority" "upstream"
//! Istio  [time] "request" status flags details termination "failure" received sent duration
//!        upstream_time "x-forwarded-for" … "upstream" cluster local local remote …
//! ```
//!
//! Envoy escapes nothing, so that a quote within a header makes a line malformed.

use sluicegate_core::time::Span;

use crate::parser::LineError;
use crate::record::Record;
use crate::scratch::Arena;
use crate::text::{self, Cursor};
use crate::time::DateCache;

const NO_NUMBER: &str = "neither a number nor `-`, where Envoy has bytes or a duration";

/// Reads a line.
pub(crate) fn parse<'a>(
    line: &'a [u8],
    arena: &mut Arena<'a>,
    dates: &mut DateCache,
) -> Result<Record<'a>, LineError> {
    let mut cursor = Cursor::new(line);
    cursor.skip(b"[", "no `[` before the time")?;
    let time = cursor.until(b']', "no `]` behind the time")?;
    let no_time = LineError::at(1, "no time such as `[2016-04-15T20:17:00.310Z]`");
    let mut record = Record { at: dates.rfc3339(time).ok_or(no_time)?, ..Record::default() };
    cursor.skip(b" ", "no space behind the time")?;
    let request = cursor.quoted("no request line in quotes behind the time")?;
    request.request(&mut record, arena)?;
    let index = cursor.index();
    record.status = text::status(cursor.token())
        .ok_or(LineError::at(index, "the status is not a number of at most three digits"))?;
    cursor.token();
    let is_istio = !cursor.rest().first().is_some_and(u8::is_ascii_digit);
    if is_istio {
        cursor.token();
        cursor.token();
        cursor.quoted("no failure of the upstream in quotes")?;
    }
    number(&mut cursor)?;
    record.bytes = number(&mut cursor)?;
    record.duration = number(&mut cursor)?.map(Span::from_millis);
    number(&mut cursor)?;
    headers(&mut cursor, &mut record, arena)?;
    if is_istio {
        cursor.quoted("no upstream in quotes")?;
        // Cluster, local address of the upstream connection, local address.
        (0..3).for_each(|_| _ = cursor.token());
        record.client_ip = text::peer_address(cursor.token()).or(record.client_ip);
    }
    Ok(record)
}

fn number(cursor: &mut Cursor<'_>) -> Result<Option<u64>, LineError> {
    let index = cursor.index();
    text::optional_number(cursor.token()).ok_or(LineError::at(index, NO_NUMBER))
}

fn headers<'a>(
    cursor: &mut Cursor<'a>,
    record: &mut Record<'a>,
    arena: &mut Arena<'a>,
) -> Result<(), LineError> {
    if let Some(forwarded) = cursor.quoted("no `x-forwarded-for` in quotes")?.text(arena)? {
        record.client_ip = text::last_forwarded(forwarded);
        record.headers.push(("x-forwarded-for", forwarded));
    }
    if let Some(user_agent) = cursor.quoted("no user agent in quotes")?.text(arena)? {
        record.headers.push(("user-agent", user_agent));
    }
    if let Some(request_id) = cursor.quoted("no request id in quotes")?.text(arena)? {
        record.headers.push(("x-request-id", request_id));
    }
    record.host = cursor.quoted("no authority in quotes")?.text(arena)?;
    Ok(())
}
