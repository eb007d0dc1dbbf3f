//! A hash of the configured rules, to compare nodes.

use std::fmt::{self, Write};

use crate::domain::Domain;

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
