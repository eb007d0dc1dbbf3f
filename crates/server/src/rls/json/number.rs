//! Integers in every notation of JSON.

/// Parses `1`, but also `1.0`, `10e-1` and `0.1e1`; `None` for `1.5` and for invalid JSON such as
/// `01` or `+1`. Works on digits, so nothing is rounded.
pub(super) fn whole(text: &str) -> Option<i128> {
    // Digits of `u64::MAX`; longer numbers would be expanded only to be rejected.
    const DIGITS_MAX: i64 = 20;
    let (positive, rest) = text.strip_prefix('-').map_or((true, text), |rest| (false, rest));
    let (digits, exponent) = rest.split_once(['e', 'E']).unwrap_or((rest, "0"));
    let (before, after) = digits.split_once('.').unwrap_or((digits, "0"));
    let signless = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    let zero_too_many = before.len() > 1 && before.starts_with('0');
    if zero_too_many || ![before, after, signless].into_iter().all(is_digits) {
        return None;
    }
    let (before, after) = (before.trim_start_matches('0'), after.trim_end_matches('0'));
    if before.is_empty() && after.is_empty() {
        return Some(0);
    }
    let exponent = i64::from(exponent.parse::<i32>().ok()?);
    let mut digits = [before, after].concat();
    // Zeros to append, or to remove if negative.
    let shift = exponent - i64::try_from(after.len()).ok()?;
    if shift >= 0 {
        let length = i64::try_from(before.len()).ok()? + exponent;
        let zeros = usize::try_from(shift).ok().filter(|_| length <= DIGITS_MAX)?;
        digits.extend(std::iter::repeat_n('0', zeros));
    } else {
        let whole = digits.len().checked_sub(usize::try_from(-shift).ok()?)?;
        if digits.bytes().skip(whole).any(|digit| digit != b'0') {
            return None;
        }
        digits.truncate(whole);
    }
    let number = i128::from(digits.parse::<u64>().ok()?);
    Some(if positive { number } else { -number })
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_that_are_whole_however_they_are_written() {
        let numbers = [
            ("0", 0),
            ("-0", 0),
            ("-0.00e-7", 0),
            ("0e99999999999", 0),
            ("1.0", 1),
            ("1E0", 1),
            ("1e+1", 10),
            ("10e-1", 1),
            ("0.1e1", 1),
            ("0.001e4", 10),
            ("1.50e1", 15),
            ("-12.0", -12),
            ("18446744073709551615", i128::from(u64::MAX)),
            ("1.8446744073709551615e19", i128::from(u64::MAX)),
            ("100000000000000000000000000e-26", 1),
        ];
        for (text, number) in numbers {
            assert_eq!(whole(text), Some(number), "{text}");
        }
    }

    #[test]
    fn what_is_none() {
        let no_numbers =
            "|-|+1|01|-01|00|1.|.1|1e|1e+|1e1.0|1e1e1|--1|0x1| 1|1 |NaN|true|null|1_0|١|1,0";
        let no_whole_ones =
            "1.5|1e-1|-0.5|1.05e1|10e-2|1e-2147483648|0.5e-2147483648|1e-99999999999";
        let too_large = "18446744073709551616|1e20|1e2147483647|1e2147483648|-1e20";
        for text in
            [no_numbers, no_whole_ones, too_large].into_iter().flat_map(|all| all.split('|'))
        {
            assert_eq!(whole(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn moving_the_point_there_and_back_changes_nothing(number: u64, places in 0_usize..=20) {
            let zeros = "0".repeat(if number > 0 { places } else { 0 });
            prop_assert_eq!(whole(&format!("{number}{zeros}e-{places}")), Some(number.into()));
            let padded = format!("{number:0>width$}", width = places + 1);
            let (before, after) = padded.split_at(padded.len() - places);
            let point = if after.is_empty() { "" } else { "." };
            prop_assert_eq!(whole(&format!("{before}{point}{after}e{places}")), Some(number.into()));
        }

        #[test]
        fn whatever_is_one_is_what_a_floating_number_comes_near(text in "-?[0-9]{1,9}(\\.[0-9]{1,9})?([eE][-+]?[0-9])?") {
            let near: f64 = text.parse().map_err(|_| TestCaseError::fail("no number at all"))?;
            if let Some(number) = whole(&text) {
                prop_assert!((near - number as f64).abs() <= near.abs() * 1e-15);
            }
        }
    }
}
