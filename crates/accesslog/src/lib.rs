//! Access logs as records: what a proxy, load balancer or CDN has written of each request.
//!
//! ```text
//!   LogFile ─> input (file, standard input; gzip, zstd) ─> blocks of whole lines
//!        └───> detect ─> LineParser: line ─> combined, envoy, alb, json, delimited ─> Record
//! ```
//!
//! Blocks are read by one thread; lines are parsed by any number of them, each with its own
//! [`Scratch`]. A malformed line is a [`LineError`], never fatal.
//!
//! - [`Record`]: a request, as far as its line describes it.
//! - [`Format`], [`Mapping`]: formats and their names; [`detect`] finds the format of a file.
//! - [`LineParser`]: from a line to a record.
//! - [`LogFile`], [`Input`], [`BlockReader`]: files, decompression, lines.

mod alb;
mod block;
mod combined;
mod delimited;
mod detect;
mod envoy;
mod format;
mod input;
mod json;
mod log_file;
mod mapping;
mod parser;
mod preset;
mod record;
mod scratch;
mod target;
mod text;
mod time;

pub use block::{BLOCK_BYTES, Block, BlockReader, Lines};
pub use detect::detect;
pub use format::{Format, FormatError};
pub use input::{Input, InputPosition};
pub use log_file::{LogError, LogFile};
pub use mapping::Mapping;
pub use parser::{LINE_BYTES_MAX, LineError, LineParser};
pub use record::{Headers, Record};
pub use scratch::Scratch;
