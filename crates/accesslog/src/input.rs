//! The bytes of a log: a file or standard input, decompressed if it is compressed. The first bytes
//! decide, not the name.

use std::fs::File;
use std::io::{self, Chain, Cursor, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use flate2::read::MultiGzDecoder;

/// Bytes that are read at once before decompression.
const READ_BYTES: usize = 128 * 1024;
/// Bytes that identify a compression.
const MAGIC_BYTES: usize = 6;

/// A log as a stream of text.
///
/// ```
/// use std::io::Read;
///
/// let mut text = String::new();
/// sluicegate_accesslog::Input::new(&b"a log"[..])?.read_to_string(&mut text)?;
/// assert_eq!(text, "a log");
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Input {
    text: Box<dyn Read + Send>,
    position: InputPosition,
}

/// How much of a file is read, for progress bars. Clones share the count.
#[derive(Debug, Clone, Default)]
pub struct InputPosition {
    read: Arc<AtomicU64>,
    size: Option<u64>,
}

/// Counts what is read, compressed.
#[derive(Debug)]
struct Counted<R> {
    source: R,
    read: Arc<AtomicU64>,
}

impl Input {
    /// Opens a file, or standard input if the path is `-`.
    ///
    /// # Errors
    /// When the file cannot be opened, or its compression is not supported.
    pub fn open(path: &Path) -> io::Result<Self> {
        if path.as_os_str() == "-" {
            return Self::sized(io::stdin(), None);
        }
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        // A pipe has no size.
        Self::sized(file, metadata.is_file().then_some(metadata.len()))
    }

    /// Text or compressed text from anywhere.
    ///
    /// # Errors
    /// When the first bytes cannot be read, or the compression is not supported.
    pub fn new(source: impl Read + Send + 'static) -> io::Result<Self> {
        Self::sized(source, None)
    }

    fn sized(source: impl Read + Send + 'static, size: Option<u64>) -> io::Result<Self> {
        let position = InputPosition { size, ..InputPosition::default() };
        let mut source = Counted { source, read: position.read.clone() };
        let mut magic = Vec::with_capacity(MAGIC_BYTES);
        source.by_ref().take(MAGIC_BYTES as u64).read_to_end(&mut magic)?;
        let text: Box<dyn Read + Send> = match Compression::of(&magic) {
            None => Box::new(whole(magic, source)),
            Some(Compression::Gzip) => {
                let compressed = io::BufReader::with_capacity(READ_BYTES, whole(magic, source));
                Box::new(MultiGzDecoder::new(compressed))
            }
            Some(Compression::Zstd) => Box::new(zstd::Decoder::new(whole(magic, source))?),
            Some(Compression::Unsupported(name, command)) => {
                return Err(io::Error::new(
                    io::ErrorKind::Unsupported,
                    format!(
                        "compressed with {name}, which is not supported; pipe `{command} FILE`"
                    ),
                ));
            }
        };
        Ok(Self { text, position })
    }

    /// How much of the file is read.
    #[must_use]
    pub fn position(&self) -> InputPosition {
        self.position.clone()
    }
}

fn whole<R: Read>(magic: Vec<u8>, source: R) -> Chain<Cursor<Vec<u8>>, R> {
    Cursor::new(magic).chain(source)
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.text.read(buffer)
    }
}

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Input").field("position", &self.position).finish_non_exhaustive()
    }
}

impl InputPosition {
    /// Bytes of the file that are read, compressed if it is.
    #[must_use]
    pub fn read(&self) -> u64 {
        self.read.load(Relaxed)
    }

    /// Size of the file; `None` for a pipe.
    #[must_use]
    pub const fn size(&self) -> Option<u64> {
        self.size
    }
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(buffer)?;
        self.read.fetch_add(u64::try_from(count).unwrap_or(0), Relaxed);
        Ok(count)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Compression {
    Gzip,
    Zstd,
    /// Its name, and the command that decompresses it.
    Unsupported(&'static str, &'static str),
}

impl Compression {
    const fn of(magic: &[u8]) -> Option<Self> {
        match magic {
            [0x1F, 0x8B, 0x08, ..] => Some(Self::Gzip),
            // A frame, or a frame of metadata before it.
            [0x28, 0xB5, 0x2F, 0xFD, ..] | [0x50..=0x5F, 0x2A, 0x4D, 0x18, ..] => Some(Self::Zstd),
            [0xFD, b'7', b'z', b'X', b'Z', 0, ..] => Some(Self::Unsupported("xz", "xz -dc")),
            [b'B', b'Z', b'h', b'1'..=b'9', ..] => Some(Self::Unsupported("bzip2", "bzip2 -dc")),
            [0x04, 0x22, 0x4D, 0x18, ..] => Some(Self::Unsupported("lz4", "lz4 -dc")),
            [b'P', b'K', 0x03, 0x04, ..] => Some(Self::Unsupported("zip", "unzip -p")),
            _ => None,
        }
    }
}
