//! A log with its format: opened, decompressed, recognised, divided into blocks.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::block::{Block, BlockReader};
use crate::detect::detect;
use crate::format::{Format, FormatError};
use crate::input::{Input, InputPosition};
use crate::parser::LineParser;

/// A log that is read block by block.
///
/// ```no_run
/// use sluicegate_accesslog::{Block, LogFile, Scratch};
///
/// let mut log = LogFile::open("access.log.gz".as_ref(), None)?;
/// let parser = log.parser().clone();
/// let (mut block, mut scratch, mut malformed) = (Block::default(), Scratch::default(), 0);
/// while log.next_block(&mut block)? {
///     for line in block.lines() {
///         match parser.parse(line, &mut scratch) {
///             Ok(Some(record)) => println!("{:?}", record.client_ip),
///             Ok(None) => {}
///             Err(_) => malformed += 1,
///         }
///     }
/// }
/// # Ok::<(), sluicegate_accesslog::LogError>(())
/// ```
#[derive(Debug)]
pub struct LogFile {
    path: PathBuf,
    format: Format,
    parser: LineParser,
    blocks: BlockReader<Input>,
    position: InputPosition,
    /// The first block, which has been read for its head.
    first: Option<Block>,
}

/// A log that cannot be opened or read.
#[derive(Debug)]
pub enum LogError {
    /// Opening or reading fails.
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// The format does not fit, or none is found.
    Format {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: FormatError,
    },
}

impl LogFile {
    /// Opens a log; `-` is standard input. Without a format, its first lines decide.
    ///
    /// # Errors
    /// When the file cannot be read, or the format does not fit.
    pub fn open(path: &Path, format: Option<&Format>) -> Result<Self, LogError> {
        let input = Input::open(path).map_err(|error| io_error(path, error))?;
        Self::new(path, input, format)
    }

    /// A log from anywhere; messages name the path.
    ///
    /// # Errors
    /// As [`LogFile::open`].
    pub fn new(path: &Path, input: Input, format: Option<&Format>) -> Result<Self, LogError> {
        let position = input.position();
        let mut blocks = BlockReader::new(input);
        let mut first = Block::default();
        blocks.next_block(&mut first).map_err(|error| io_error(path, error))?;
        let head = first.as_bytes();
        let opened = format.map_or_else(|| detect(head), |format| Ok(format.clone()));
        let opened = opened.and_then(|format| Ok((LineParser::new(&format, head)?, format)));
        let (parser, format) =
            opened.map_err(|error| LogError::Format { path: path.to_owned(), error })?;
        Ok(Self { path: path.to_owned(), format, parser, blocks, position, first: Some(first) })
    }

    /// The format.
    #[must_use]
    pub const fn format(&self) -> &Format {
        &self.format
    }

    /// The parser of the lines. Clones are independent of the file.
    #[must_use]
    pub const fn parser(&self) -> &LineParser {
        &self.parser
    }

    /// How much of the file is read; clones follow it from another thread.
    #[must_use]
    pub const fn position(&self) -> &InputPosition {
        &self.position
    }

    /// Fills a block with the next lines; `false` at the end.
    ///
    /// # Errors
    /// As [`BlockReader::next_block`].
    pub fn next_block(&mut self, block: &mut Block) -> Result<bool, LogError> {
        if let Some(first) = self.first.take() {
            *block = first;
            if !block.as_bytes().is_empty() {
                return Ok(true);
            }
        }
        self.blocks.next_block(block).map_err(|error| io_error(&self.path, error))
    }
}

fn io_error(path: &Path, error: io::Error) -> LogError {
    LogError::Io { path: path.to_owned(), error }
}

impl fmt::Display for LogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { path, error } => {
                let remedy = match error.kind() {
                    io::ErrorKind::NotFound => "; name an existing file, or `-` for standard input",
                    io::ErrorKind::IsADirectory => "; name its files",
                    io::ErrorKind::UnexpectedEof => "; the file is truncated",
                    _ => "",
                };
                write!(f, "cannot read `{}`: {error}{remedy}", path.display())
            }
            Self::Format { path, error } => write!(f, "`{}`: {error}", path.display()),
        }
    }
}

impl std::error::Error for LogError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { error, .. } => Some(error),
            Self::Format { error, .. } => Some(error),
        }
    }
}
