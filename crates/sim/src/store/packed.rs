//! `struct.unpack` of Redis' Lua, as far as scripts use it: little endian, unsigned integers (`B`,
//! `I<n>`) and strings (`c<n>`).

/// An unpacked value.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Unpacked {
    /// A number, as in Lua.
    Number(f64),
    /// A string.
    Text(Vec<u8>),
}

/// Unpacks the values of a format from a 1-based position; returns the position after them too.
///
/// # Errors
/// For an unsupported format or too few bytes.
pub(super) fn unpack(
    format: &[u8],
    bytes: &[u8],
    from: usize,
) -> Result<(Vec<Unpacked>, usize), String> {
    let mut at = from.checked_sub(1).ok_or("offset must be at least 1")?;
    let mut found = Vec::new();
    let mut letters = format.iter().peekable();
    while let Some(letter) = letters.next() {
        let mut size = 0usize;
        while let Some(digit) = letters.next_if(|next| next.is_ascii_digit()) {
            size = size * 10 + usize::from(digit - b'0');
        }
        let size = match letter {
            b'<' => continue,
            b'B' => 1,
            b'I' if (1..=8).contains(&size) => size,
            b'c' if size > 0 => size,
            other => {
                let other = char::from(*other);
                return Err(format!("struct.unpack: add `{other}` to store/packed.rs"));
            }
        };
        let part = bytes.get(at..at + size).ok_or("data string too short")?;
        at += size;
        found.push(match letter {
            b'c' => Unpacked::Text(part.to_vec()),
            _ => {
                let mut whole = [0; 8];
                whole[..size].copy_from_slice(part);
                Unpacked::Number(u64::from_le_bytes(whole) as f64)
            }
        });
    }
    Ok((found, at + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_texts_are_read() {
        let bytes = [7, 1, 2, 0, 0, b'a', b'b'];
        let found = unpack(b"<BI2I2c2", &bytes, 1).unwrap();
        let numbers = [7.0, 513.0, 0.0].map(Unpacked::Number);
        assert_eq!(found.0[..3], numbers);
        assert_eq!((&found.0[3], found.1), (&Unpacked::Text(b"ab".to_vec()), 8));
        assert!(unpack(b"<I4", &bytes, 5).is_err());
        assert!(unpack(b"<d", &bytes, 1).is_err());
    }
}
