//! Suggests the known word nearest to an unknown one.
//!
//! The distance is the restricted Damerau-Levenshtein distance: a letter omitted, inserted or
//! replaced, or two neighbours swapped, where no letter takes part in two edits. The allowed
//! distance grows with the length of the word; it is zero for a single letter, so `x` does not
//! suggest `s`.

/// The known word nearest to `word`, the first of equally near ones, if any is near enough.
///
/// ```
/// use sluicegate_config::suggest::nearest;
///
/// assert_eq!(nearest("descriptiors", ["domain", "descriptors"]), Some("descriptors"));
/// assert_eq!(nearest("x", ["s", "m"]), None);
/// ```
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    nearest_within(word, known, slips_forgiven)
}

/// The same with another allowed distance, by the number of letters of the shorter word.
///
/// ```
/// use sluicegate_config::suggest::nearest_within;
///
/// assert_eq!(nearest_within("reids", ["redis"], |_| 1), Some("redis"));
/// assert_eq!(nearest_within("rds", ["redis"], |_| 1), None);
/// ```
pub fn nearest_within<'a>(
    word: &str,
    known: impl IntoIterator<Item = &'a str>,
    slips_forgiven: impl Fn(usize) -> usize,
) -> Option<&'a str> {
    let word: Vec<char> = word.chars().flat_map(char::to_lowercase).take(LETTERS_MAX).collect();
    let mut best: Option<(usize, &str)> = None;
    for candidate in known {
        let letters: Vec<char> = candidate.chars().collect();
        let forgiven = slips_forgiven(word.len().min(letters.len()));
        if word.len().abs_diff(letters.len()) > forgiven {
            continue;
        }
        let slips = distance(&word, &letters);
        if slips <= forgiven && best.is_none_or(|(fewest, _)| slips < fewest) {
            best = Some((slips, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// "did you mean `x`? ", or nothing, to be put before the general remedy.
pub(crate) fn hint<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    match nearest(word, known) {
        Some(candidate) => format!("did you mean `{candidate}`? "),
        None => String::new(),
    }
}

/// "`a`, `b` or `c`".
pub(crate) fn one_of(words: &[&str]) -> String {
    listed(words, "or")
}

/// "`a`, `b` and `c`".
pub fn all_of(words: &[&str]) -> String {
    listed(words, "and")
}

fn listed(words: &[&str], joint: &str) -> String {
    let mut list = String::new();
    for (index, word) in words.iter().enumerate() {
        if index > 0 && index + 1 == words.len() {
            list.push_str(&format!(" {joint} "));
        } else if index > 0 {
            list.push_str(", ");
        }
        list.push_str(&format!("`{word}`"));
    }
    list
}

/// Longer than any known word; a longer text is similar to none.
const LETTERS_MAX: usize = 64;

const fn slips_forgiven(letters: usize) -> usize {
    match letters {
        0 | 1 => 0,
        2..=4 => 1,
        5..=7 => 2,
        _ => 3,
    }
}

/// The least number of edits that turn one word into the other.
fn distance(a: &[char], b: &[char]) -> usize {
    // Rows of the usual table: distances of a's first i letters to each beginning of b.
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, &x) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, &y) in b.iter().enumerate() {
            let replaced = last[j] + usize::from(x != y);
            let mut fewest = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && x == b[j - 1] && a[i - 1] == y {
                fewest = fewest.min(before_last[j - 1] + 1);
            }
            row.push(fewest);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn slips(a: &str, b: &str) -> usize {
        let letters = |word: &str| word.chars().collect::<Vec<_>>();
        distance(&letters(a), &letters(b))
    }

    #[test]
    fn slips_are_counted() {
        let table = [
            ("", "", 0),
            ("", "abc", 3),
            ("burst", "burst", 0),
            ("bust", "burst", 1),
            ("bursst", "burst", 1),
            ("birst", "burst", 1),
            ("brust", "burst", 1),
            ("tub", "burst", 4),
            // Restricted: no letter takes part in two edits, so this is 3 and not 2.
            ("ca", "abc", 3),
        ];
        for (a, b, count) in table {
            assert_eq!(slips(a, b), count, "{a} {b}");
            assert_eq!(slips(b, a), count, "{b} {a}");
        }
    }

    #[test]
    fn only_near_words_are_suggested() {
        let algorithms = ["token_bucket", "leaky_bucket", "fixed_window"];
        assert_eq!(nearest("token_buket", algorithms), Some("token_bucket"));
        assert_eq!(nearest("tokenbucket", algorithms), Some("token_bucket"));
        assert_eq!(nearest("TOKEN_BUCKET", algorithms), Some("token_bucket"));
        assert_eq!(nearest("bucket", algorithms), None);
        assert_eq!(nearest("x", ["s", "m"]), None);
        assert_eq!(nearest("S", ["s", "m"]), Some("s"));
        assert_eq!(nearest("", ["s", "m"]), None);
        assert_eq!(nearest("sek", ["s", "sec", "secs"]), Some("sec"));
        assert_eq!(nearest(&"a".repeat(1_000_000), ["aa"]), None);
    }

    #[test]
    fn words_are_listed_as_one_speaks() {
        assert_eq!(one_of(&[]), "");
        assert_eq!(one_of(&["a"]), "`a`");
        assert_eq!(one_of(&["a", "b"]), "`a` or `b`");
        assert_eq!(all_of(&["a", "b", "c"]), "`a`, `b` and `c`");
    }

    proptest! {
        #[test]
        fn distance_is_symmetric_and_bounded(a in "[a-c]{0,8}", b in "[a-c]{0,8}") {
            let count = slips(&a, &b);
            prop_assert_eq!(count, slips(&b, &a));
            prop_assert_eq!(count == 0, a == b);
            prop_assert!(count >= a.len().abs_diff(b.len()) && count <= a.len().max(b.len()));
        }
    }
}
