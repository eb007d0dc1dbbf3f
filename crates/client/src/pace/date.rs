//! HTTP's dates, in the form of today and in the two old ones that a recipient has to know (RFC 9110, 5.6.7).

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Seconds since the UNIX epoch.
///
/// ```text
///   Sun, 06 Nov 1994 08:49:37 GMT    Sunday, 06-Nov-94 08:49:37 GMT    Sun Nov  6 08:49:37 1994
/// ```
/// All three have the same parts; of the numbers, the day always comes before the year.
pub(super) fn unix_seconds(date: &str) -> Option<u64> {
    let parts = || date.split([' ', ',', '-']).filter(|part| !part.is_empty());
    let mut numbers = parts().filter_map(|part| part.parse::<u64>().ok());
    let (day, year) = (numbers.next()?, numbers.next()?);
    // Two digits are of the years that are nearest: no server told the time before 1970.
    let year = if year < 70 {
        year + 2000
    } else if year < 100 {
        year + 1900
    } else {
        year
    };
    let month = parts().find_map(|part| MONTHS.iter().position(|month| *month == part))?;
    let seconds = of_day(parts().find(|part| part.contains(':'))?)?;
    let is_date = (1..=31).contains(&day) && (1970..=9999).contains(&year);
    is_date.then(|| days(year, month as u64 + 1, day) * 86_400 + seconds)
}

/// Seconds since midnight.
fn of_day(time: &str) -> Option<u64> {
    let mut parts = time.split(':').map(|part| part.parse::<u64>().ok());
    let (hours, minutes, seconds) = (parts.next()??, parts.next()??, parts.next()??);
    // There can be a leap second.
    let is_time = hours < 24 && minutes < 60 && seconds <= 60 && parts.next().is_none();
    is_time.then_some(hours * 3_600 + minutes * 60 + seconds)
}

/// Days since the epoch; years begin in March here, so that the leap day is their last.
const fn days(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let before_year = year * 365 + year / 4 - year / 100 + year / 400;
    let before_month = (month * 153 + 2) / 5;
    /// The 1st of March of the year 0 is so long before the epoch.
    const TO_EPOCH: u64 = 719_469;
    before_year + before_month + day - TO_EPOCH
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_forms_of_one_moment() {
        for date in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            assert_eq!(unix_seconds(date), Some(784_111_777), "{date}");
        }
        assert_eq!(unix_seconds("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(unix_seconds("Tue, 29 Feb 2028 23:59:60 GMT"), Some(1_835_481_600));
        assert_eq!(unix_seconds("Mon, 01 Mar 2100 00:00:00 GMT"), Some(4_107_542_400));
    }

    #[test]
    fn what_is_no_date() {
        for no in [
            "",
            "soon",
            "Sun, 06 Nov 1994",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 99999999999999999999 08:49:37 GMT",
            "Sun, 06 Nov 1969 08:49:37 GMT",
            "Sun, 06 Nev 1994 08:49:37 GMT",
            "06 06 06 :::",
        ] {
            assert_eq!(unix_seconds(no), None, "{no}");
        }
    }
}
