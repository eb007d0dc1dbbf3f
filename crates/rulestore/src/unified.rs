//! Unified diffs of two sets of files.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

use similar::TextDiff;
use sluicegate_config::rules::Source;

/// Time for the shortest diff of a file; a longer diff is taken after it.
const TIMEOUT: Duration = Duration::from_millis(200);
const CONTEXT_LINES: usize = 3;

/// A unified diff, file by file, of what differs.
///
/// ```
/// use sluicegate_config::rules::Source;
/// use sluicegate_rulestore::unified_diff;
///
/// let files = |text: &str| vec![Source { name: "shop.yaml".to_owned(), text: text.to_owned() }];
/// let diff = unified_diff(&files("domain: shop\n"), &files("domain: web\n"));
/// assert_eq!(diff, "--- a/shop.yaml\n+++ b/shop.yaml\n@@ -1 +1 @@\n-domain: shop\n+domain: web\n");
/// ```
#[must_use]
pub fn unified_diff(old: &[Source], new: &[Source]) -> String {
    let text_of = |set: &[Source], name: &str| {
        set.iter().find(|source| source.name == name).map(|source| source.text.clone())
    };
    let names: BTreeSet<&str> = old.iter().chain(new).map(|source| source.name.as_str()).collect();
    let mut out = String::new();
    for name in names {
        let (before, after) = (text_of(old, name), text_of(new, name));
        if before == after {
            continue;
        }
        let from = before.as_ref().map_or("/dev/null".to_owned(), |_| format!("a/{name}"));
        let to = after.as_ref().map_or("/dev/null".to_owned(), |_| format!("b/{name}"));
        let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
        if before.is_empty() && after.is_empty() {
            let _ = writeln!(out, "--- {from}\n+++ {to}");
            continue;
        }
        let diff = TextDiff::configure().timeout(TIMEOUT).diff_lines(&before, &after);
        let _ =
            write!(out, "{}", diff.unified_diff().context_radius(CONTEXT_LINES).header(&from, &to));
    }
    out
}
