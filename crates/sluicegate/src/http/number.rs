//! Numbers as text, without the detour by `fmt`: there are several in the head of every answer.

use http::HeaderValue;

/// Hands over the decimal digits of a number.
pub(super) fn with_digits<R>(mut number: u64, take: impl FnOnce(&str) -> R) -> R {
    const DIGITS_MAX: usize = 20;

    let mut digits = [b'0'; DIGITS_MAX];
    let mut from = DIGITS_MAX;
    loop {
        from -= 1;
        // Below ten, and there are as many places as a number can have digits.
        digits[from] += (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    take(str::from_utf8(&digits[from..]).unwrap_or_default())
}

/// A number as the value of a header.
pub(super) fn header(number: u64) -> HeaderValue {
    with_digits(number, HeaderValue::from_str).unwrap_or_else(|_| number.into())
}

#[cfg(test)]
mod tests {
    use super::{header, with_digits};

    #[test]
    fn digits_are_those_of_the_number() {
        let mut number = u64::MAX;
        while number > 0 {
            for near in [number, number - 1, number.saturating_add(1)] {
                assert_eq!(with_digits(near, str::to_owned), near.to_string());
            }
            number /= 3;
        }
        assert_eq!(header(0), "0");
    }
}
