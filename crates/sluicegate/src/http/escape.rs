//! Percent-encoding, for what a header cannot hold.

/// Appends the bytes as `%XX`.
pub(super) fn push_percent(bytes: &[u8], out: &mut String) {
    for byte in bytes {
        out.push('%');
        for digit in [byte >> 4, byte & 15] {
            let digit = char::from_digit(digit.into(), 16).unwrap_or('0');
            out.push(digit.to_ascii_uppercase());
        }
    }
}
