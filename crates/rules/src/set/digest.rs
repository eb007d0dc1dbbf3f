//! A hash of the configured rules, to compare nodes.

use std::fmt::{self, Write};

use super::RuleSet;
use crate::domain::Domain;

impl RuleSet {
    /// A hash of the configuration, to compare nodes of one version. Names and order of files do
    /// not change it.
    ///
    /// ```
    /// use sluicegate_rules::domain::Domain;
    /// use sluicegate_rules::set::RuleSet;
    ///
    /// let rules = |names: [&str; 2]| RuleSet::new(names.map(Domain::new).to_vec());
    /// assert_eq!(rules(["shop", "web"])?.digest(), rules(["web", "shop"])?.digest());
    /// assert_ne!(rules(["shop", "web"])?.digest(), rules(["shop", "api"])?.digest());
    /// # Ok::<(), sluicegate_rules::set::RuleSetError>(())
    /// ```
    #[must_use]
    pub fn digest(&self) -> u64 {
        // A sum does not depend on the order, and names of domains are unique.
        self.digests.iter().copied().fold(0, u64::wrapping_add)
    }

    /// The names of all domains, each with a hash of its configuration.
    pub fn domain_digests(&self) -> impl ExactSizeIterator<Item = (&str, u64)> {
        self.domains().zip(self.digests.iter().copied())
    }
}

/// Hashes a domain.
pub(super) fn of(domain: &Domain) -> u64 {
    let mut hash = Fnv1a::default();
    // The debug format has every field, also those that are added later. It cannot fail.
    let _ = write!(hash, "{domain:?}");
    hash.0
}

/// FNV-1a with 64 bits: the same in every process and version of the compiler.
struct Fnv1a(u64);

impl Default for Fnv1a {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Write for Fnv1a {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Ok(())
    }
}
