//! The `Date` of responses, formatted once a second.

use std::cell::RefCell;
use std::io::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use httpdate::HttpDate;

/// `Sun, 06 Nov 1994 08:49:37 GMT`.
const DATE_BYTES: usize = 29;

struct FormattedDate {
    secs: u64,
    text: [u8; DATE_BYTES],
}

thread_local! {
    static DATE: RefCell<FormattedDate> =
        const { RefCell::new(FormattedDate { secs: u64::MAX, text: [0; DATE_BYTES] }) };
}

/// Writes the line of the date.
#[expect(clippy::disallowed_methods, reason = "a date for people; nothing is decided by it")]
pub(super) fn write_date(out: &mut Vec<u8>) {
    let now = SystemTime::now();
    let secs = now.duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs());
    DATE.with_borrow_mut(|date| {
        if date.secs != secs {
            date.secs = secs;
            // Every date has this length.
            let _ = write!(&mut date.text[..], "{}", HttpDate::from(now));
        }
        out.extend_from_slice(b"date: ");
        out.extend_from_slice(&date.text);
        out.extend_from_slice(b"\r\n");
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "compared with the system's clock")]
    fn a_date_is_that_of_now() {
        let before = SystemTime::now();
        let mut out = Vec::new();
        write_date(&mut out);
        let text = String::from_utf8(out).unwrap();
        let text = text.strip_prefix("date: ").unwrap().strip_suffix("\r\n").unwrap();
        let date = httpdate::parse_http_date(text).unwrap();
        let since = |time: SystemTime| time.duration_since(UNIX_EPOCH).unwrap().as_secs();
        assert!((since(before)..=since(SystemTime::now())).contains(&since(date)), "{text}");
    }
}
