//! The bytes of a snapshot.
//!
//! ```text
//!   "SLUICEG\n"  version u32  0 u32  hash key 2 × u64  limiters u64
//!   each limiter:  name  bits u64  mode  limits u64, each limit
//!                  each identity: length u32, hash u64, account      then a length of 0
//!   checksum u64 over everything before
//! ```
//!
//! Numbers are little-endian; a text is its length as u64 and its bytes; modes, limits and accounts
//! are encoded by their crates, after their length. Of a hash the lowest 56 bits are known and the
//! `bits` highest, which selected the shard. A throttle is a limiter without limits, whose accounts
//! contain their own (`throttle/shards.rs`).

use std::hash::Hasher;
use std::io::{self, Read, Write};

use siphasher::sip::SipHasher13;
use sluicegate_core::account::Account;
use sluicegate_core::mode::Mode;
use sluicegate_rules::limit::LimitConfig;

use crate::plan::LIMITS_MAX;

pub(super) const MAGIC: [u8; 8] = *b"SLUICEG\n";
pub(super) const VERSION: u32 = 2;
/// Maximum length of a name, limit or account.
const BYTES_MAX: u64 = 1 << 28;

/// One identity.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) hash: u64,
    pub(crate) account: Account,
}

/// Header of a limiter's section.
pub(super) struct Head {
    pub(super) name: String,
    /// How many of the highest bits of its hashes are known.
    pub(super) bits: u32,
    pub(super) mode: Mode,
    pub(super) limits: Vec<LimitConfig>,
}

/// Writer of a snapshot, with the checksum so far.
pub(crate) struct Sink<'a> {
    out: &'a mut dyn Write,
    checksum: SipHasher13,
    pub(super) bytes: u64,
    pub(super) identities: u64,
}

/// Reader of a snapshot, with the checksum so far.
pub(super) struct Source<R> {
    input: R,
    checksum: SipHasher13,
    pub(super) offset: u64,
}

/// Not cryptographic: it detects damage, not malice.
fn checksum() -> SipHasher13 {
    SipHasher13::new_with_keys(0, 0)
}

impl<'a> Sink<'a> {
    pub(super) fn new(out: &'a mut dyn Write) -> Self {
        Self { out, checksum: checksum(), bytes: 0, identities: 0 }
    }

    pub(super) fn header(&mut self, key: [u64; 2], limiters: u64) -> io::Result<()> {
        self.raw(&MAGIC)?;
        self.raw(&VERSION.to_le_bytes())?;
        self.raw(&0u32.to_le_bytes())?;
        for number in [key[0], key[1], limiters] {
            self.number(number)?;
        }
        Ok(())
    }

    /// The start of a limiter.
    pub(crate) fn limiter(
        &mut self,
        name: &str,
        bits: u32,
        mode: Mode,
        limits: &[LimitConfig],
    ) -> io::Result<()> {
        self.framed(name.as_bytes())?;
        self.number(u64::from(bits))?;
        let mut bytes = Vec::new();
        mode.write(&mut bytes);
        self.framed(&bytes)?;
        self.number(limits.len() as u64)?;
        for limit in limits {
            bytes.clear();
            limit.write(&mut bytes);
            self.framed(&bytes)?;
        }
        Ok(())
    }

    /// An identity of the limiter.
    pub(crate) fn entry(&mut self, entry: &Entry) -> io::Result<()> {
        let mut bytes = Vec::new();
        entry.account.write(&mut bytes);
        let Ok(length) = u32::try_from(bytes.len()) else { return Ok(()) };
        self.raw(&length.to_le_bytes())?;
        self.number(entry.hash)?;
        self.raw(&bytes)?;
        self.identities += 1;
        Ok(())
    }

    /// The end of a limiter.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        self.raw(&0u32.to_le_bytes())
    }

    pub(super) fn finish(mut self) -> io::Result<(u64, u64)> {
        let sum = self.checksum.finish();
        self.number(sum)?;
        Ok((self.identities, self.bytes))
    }

    fn framed(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.number(bytes.len() as u64)?;
        self.raw(bytes)
    }

    fn number(&mut self, number: u64) -> io::Result<()> {
        self.raw(&number.to_le_bytes())
    }

    fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.checksum.write(bytes);
        self.bytes += bytes.len() as u64;
        self.out.write_all(bytes)
    }
}

impl<R: Read> Source<R> {
    pub(super) fn new(input: R, offset: u64) -> Self {
        Self { input, checksum: checksum(), offset }
    }

    pub(super) fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.input.read_exact(&mut bytes)?;
        self.seen(&bytes);
        Ok(bytes)
    }

    pub(super) fn number(&mut self) -> io::Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads the header of a limiter; `None` if it is invalid.
    pub(super) fn limiter(&mut self) -> io::Result<Option<Head>> {
        let Ok(name) = String::from_utf8(self.framed()?) else { return Ok(None) };
        let Ok(bits) = u32::try_from(self.number()?) else { return Ok(None) };
        let mode = Mode::read(&mut self.framed()?.as_slice());
        let count = self.number()?;
        if count > LIMITS_MAX as u64 {
            return Ok(None);
        }
        let mut limits = Vec::new();
        for _ in 0..count {
            match LimitConfig::read(&mut self.framed()?.as_slice()) {
                Some(limit) => limits.push(limit),
                None => return Ok(None),
            }
        }
        Ok(mode.map(|mode| Head { name, bits, mode, limits }))
    }

    /// The next identity, `None` at the end; the inner `None` if it is invalid.
    pub(super) fn entry(&mut self) -> io::Result<Option<Option<Entry>>> {
        let length = u32::from_le_bytes(self.array()?);
        if length == 0 {
            return Ok(None);
        }
        let hash = self.number()?;
        let bytes = self.take(u64::from(length))?;
        let mut rest = bytes.as_slice();
        let account = Account::read(&mut rest).filter(|_| rest.is_empty());
        Ok(Some(account.map(|account| Entry { hash, account })))
    }

    /// Whether the next checksum matches the bytes before it.
    pub(super) fn is_intact(&mut self) -> io::Result<bool> {
        let sum = self.checksum.finish();
        Ok(self.number()? == sum)
    }

    /// Whether this is the end.
    pub(super) fn is_over(&mut self) -> io::Result<bool> {
        Ok(self.input.read(&mut [0])? == 0)
    }

    fn framed(&mut self) -> io::Result<Vec<u8>> {
        let length = self.number()?;
        self.take(length)
    }

    fn take(&mut self, length: u64) -> io::Result<Vec<u8>> {
        if length > BYTES_MAX {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // Grows with the data read, not with the announced length.
        let mut bytes = Vec::new();
        self.input.by_ref().take(length).read_to_end(&mut bytes)?;
        if (bytes.len() as u64) < length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.seen(&bytes);
        Ok(bytes)
    }

    fn seen(&mut self, bytes: &[u8]) {
        self.checksum.write(bytes);
        self.offset += bytes.len() as u64;
    }
}
