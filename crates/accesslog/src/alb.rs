//! The format of AWS Application Load Balancers.
//!
//! ```text
//! type time elb client:port target:port request_time target_time response_time elb_status
//! target_status received sent "request" "user agent" cipher protocol target_group "trace id"
//! "domain" "certificate" priority creation_time …
//! ```
//!
//! The time of a line is that of the response; the creation time is that of the request.

use sluicegate_core::time::Span;

use crate::parser::LineError;
use crate::record::Record;
use crate::scratch::Arena;
use crate::text::{self, Cursor, Url};
use crate::time::{self, DateCache, TimeUnit};

const TYPES: [&[u8]; 6] = [b"http", b"https", b"h2", b"grpcs", b"ws", b"wss"];

/// Reads a line.
pub(crate) fn parse<'a>(
    line: &'a [u8],
    arena: &mut Arena<'a>,
    dates: &mut DateCache,
) -> Result<Record<'a>, LineError> {
    let mut cursor = Cursor::new(line);
    let kind = cursor.token();
    if !TYPES.contains(&kind) {
        return Err(LineError::at(0, "not `http`, `https`, `h2`, `grpcs`, `ws` or `wss`"));
    }
    let index = cursor.index();
    let no_time = LineError::at(index, "no time such as `2018-07-02T22:23:00.186641Z`");
    let responded = dates.rfc3339(cursor.token()).ok_or(no_time)?;
    cursor.token();
    let client_ip = text::peer_address(cursor.token());
    let mut record =
        Record { at: responded, client_ip, scheme: Some(text::scheme(kind)), ..Record::default() };
    cursor.token();
    record.duration = duration(&mut cursor)?;
    let index = cursor.index();
    record.status = text::status(cursor.token())
        .ok_or(LineError::at(index, "the status is not a number of at most three digits"))?;
    // Status of the target, received bytes.
    (0..2).for_each(|_| _ = cursor.token());
    let index = cursor.index();
    record.bytes = text::optional_number(cursor.token())
        .ok_or(LineError::at(index, "the size of the response is neither a number nor `-`"))?;
    cursor.quoted("no request line in quotes")?.request(&mut record, arena)?;
    if let Some(url) = record.uri.and_then(Url::parse) {
        (record.scheme, record.host, record.uri) =
            (Some(url.scheme), Some(url.host), Some(url.uri));
    }
    if let Some(user_agent) = cursor.quoted("no user agent in quotes")?.text(arena)? {
        record.headers.push(("user-agent", user_agent));
    }
    // Cipher, protocol, target group; then trace, domain and certificate.
    (0..3).for_each(|_| _ = cursor.token());
    if let Some(trace) = cursor.quoted("no trace id in quotes")?.text(arena)? {
        record.headers.push(("x-amzn-trace-id", trace));
    }
    cursor.quoted("no domain in quotes")?;
    cursor.quoted("no certificate in quotes")?;
    cursor.token();
    // Absent in lines of the first years.
    record.at = dates.rfc3339(cursor.token()).unwrap_or(responded);
    Ok(record)
}

/// The sum of three parts; -1 stands for one that did not happen.
fn duration(cursor: &mut Cursor<'_>) -> Result<Option<Span>, LineError> {
    let mut total = Some(Span::ZERO);
    for _ in 0..3 {
        let index = cursor.index();
        let part = match cursor.token() {
            b"-1" | b"-" => None,
            part => Some(
                time::duration(part, TimeUnit::Seconds)
                    .ok_or(LineError::at(index, "the processing time is not a number"))?,
            ),
        };
        total = total.zip(part).map(|(total, part)| {
            Span::from_micros(total.as_micros().saturating_add(part.as_micros()))
        });
    }
    Ok(total)
}
