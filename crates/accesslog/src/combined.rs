//! The common and the combined format of Apache and nginx, and what is usually added to them.
//!
//! ```text
//! [vhost:port] address ident user [time] "request" status bytes ["referer" "user agent" [...]]
//! ```
//!
//! Of further fields only `"$http_x_forwarded_for"` is read, with which the format `main` of
//! nginx's packages ends.

use memchr::memchr;

use crate::parser::LineError;
use crate::record::Record;
use crate::scratch::Arena;
use crate::text::{self, Cursor};
use crate::time::{COMMON_BYTES, DateCache};

const NO_TIME: &str = "no time such as `[17/May/2015:10:05:03 +0000]`";
const NO_REQUEST: &str = "no request line in quotes behind the time";

/// Reads a line of the common or the combined format.
#[inline]
pub(crate) fn parse<'a>(
    line: &'a [u8],
    arena: &mut Arena<'a>,
    dates: &mut DateCache,
) -> Result<Record<'a>, LineError> {
    parse_from(Cursor::new(line), arena, dates)
}

/// The same behind the virtual host, as Apache's `vhost_combined`.
pub(crate) fn parse_vhost<'a>(
    line: &'a [u8],
    arena: &mut Arena<'a>,
    dates: &mut DateCache,
) -> Result<Record<'a>, LineError> {
    let mut cursor = Cursor::new(line);
    let host = text::present(cursor.token());
    Ok(Record { host, ..parse_from(cursor, arena, dates)? })
}

#[inline]
fn parse_from<'a>(
    mut cursor: Cursor<'a>,
    arena: &mut Arena<'a>,
    dates: &mut DateCache,
) -> Result<Record<'a>, LineError> {
    let client_ip = text::address(cursor.token());
    let mut record = Record { client_ip, ..Record::default() };
    if cursor.rest().starts_with(b"- - [") {
        cursor.advance(4);
    } else {
        cursor.token();
        record.user = user(&mut cursor)?;
    }
    let time = cursor.rest().get(1..).and_then(|rest| rest.first_chunk::<COMMON_BYTES>());
    record.at = time.and_then(|time| dates.common(time)).ok_or_else(|| cursor.fail(NO_TIME))?;
    cursor.advance(1 + COMMON_BYTES);
    cursor.skip(b"] ", "no `]` and space behind the time")?;
    cursor.quoted(NO_REQUEST)?.request(&mut record, arena)?;
    let index = cursor.index();
    record.status = text::status(cursor.token())
        .ok_or(LineError::at(index, "the status is not a number of at most three digits"))?;
    let index = cursor.index();
    record.bytes = text::optional_number(cursor.token())
        .ok_or(LineError::at(index, "the size of the response is neither a number nor `-`"))?;
    if cursor.rest().first() == Some(&b'"') {
        headers(&mut cursor, &mut record, arena)?;
    }
    Ok(record)
}

/// The user, up to the time. Names may have spaces and brackets, so the time has to be a time.
fn user<'a>(cursor: &mut Cursor<'a>) -> Result<Option<&'a [u8]>, LineError> {
    let (rest, mut from) = (cursor.rest(), 0);
    while let Some(found) = memchr(b'[', &rest[from..]) {
        let bracket = from + found;
        if rest.get(bracket + 1 + COMMON_BYTES) == Some(&b']') && rest[..bracket].ends_with(b" ") {
            cursor.advance(bracket);
            return Ok(text::present(&rest[..bracket - 1]));
        }
        from = bracket + 1;
    }
    Err(cursor.fail(NO_TIME))
}

#[inline]
fn headers<'a>(
    cursor: &mut Cursor<'a>,
    record: &mut Record<'a>,
    arena: &mut Arena<'a>,
) -> Result<(), LineError> {
    if let Some(referer) = cursor.quoted("no referer")?.text(arena)? {
        record.headers.push(("referer", referer));
    }
    if cursor.rest().first() != Some(&b'"') {
        return Ok(());
    }
    if let Some(user_agent) = cursor.quoted("no user agent")?.text(arena)? {
        record.headers.push(("user-agent", user_agent));
    }
    if cursor.rest().first() == Some(&b'"') {
        // Any field may stand here, so what is not a list of addresses is left alone.
        let forwarded = cursor.quoted("no further field")?.raw();
        let is_address = |part: &[u8]| text::peer_address(part.trim_ascii()).is_some();
        if forwarded.split(|byte| *byte == b',').all(is_address) {
            record.headers.push(("x-forwarded-for", forwarded));
        }
    }
    Ok(())
}
