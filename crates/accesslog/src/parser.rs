//! Parses a line into a record, or into the reason for which it is malformed. A malformed line is
//! counted and skipped, so its error is small and allocates nothing.

use std::fmt;

use crate::delimited::Columns;
use crate::format::{Format, FormatError};
use crate::mapping::Mapping;
use crate::record::Record;
use crate::scratch::Scratch;
use crate::{alb, combined, envoy, json, preset};

/// Bytes of a line without its end. Requests of real clients stay far below; a longer line is
/// malformed.
pub const LINE_BYTES_MAX: usize = 256 * 1024;

/// Reads lines of one file. It is immutable, so that threads share it; each has its own
/// [`Scratch`].
///
/// ```
/// use sluicegate_accesslog::{LineParser, Scratch};
///
/// let log = "ip,when,tokens\n192.0.2.7,2023-11-16 18:15:46.6805900,374\n";
/// let format = "csv:time=when,client_ip=ip,hits=tokens".parse()?;
/// let parser = LineParser::new(&format, log.as_bytes())?;
/// let mut scratch = Scratch::default();
/// let mut hits = 0;
/// for line in log.lines() {
///     // The header is a line without a record.
///     if let Some(record) = parser.parse(line.as_bytes(), &mut scratch).unwrap() {
///         hits += record.hits.unwrap_or(1);
///     }
/// }
/// assert_eq!(hits, 374);
/// # Ok::<(), sluicegate_accesslog::FormatError>(())
/// ```
#[derive(Debug, Clone)]
pub struct LineParser {
    syntax: LineSyntax,
}

/// Why a line is not a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineError {
    /// Byte of the line at which reading failed, from 1.
    pub column: usize,
    /// The reason, a constant text: lines with the same mistake have the same reason.
    pub reason: &'static str,
}

/// A format with what the head of the file adds to it.
#[derive(Debug, Clone)]
enum LineSyntax {
    Combined,
    VhostCombined,
    Envoy,
    Alb,
    /// Members by a mapping of the user.
    Json(Mapping),
    /// Members by the names of a product, whose logs may have events other than requests.
    JsonRequests(Mapping),
    Columns(Columns),
}

impl LineParser {
    /// A parser for a file, of which `head` are the first lines: they name the columns of CSV, TSV
    /// and CloudFront. Other formats need none.
    ///
    /// # Errors
    /// When a mapped column is not in the header.
    pub fn new(format: &Format, head: &[u8]) -> Result<Self, FormatError> {
        let syntax = match format {
            Format::Combined => LineSyntax::Combined,
            Format::VhostCombined => LineSyntax::VhostCombined,
            Format::Envoy => LineSyntax::Envoy,
            Format::Alb => LineSyntax::Alb,
            Format::EnvoyJson => LineSyntax::JsonRequests(preset::envoy_json()),
            Format::Caddy => LineSyntax::JsonRequests(preset::caddy()),
            Format::Gateway => LineSyntax::JsonRequests(preset::gateway()),
            Format::Json(mapping) => LineSyntax::Json(mapping.clone()),
            Format::CloudFront => {
                LineSyntax::Columns(Columns::of_cloudfront(preset::cloudfront(), head))
            }
            Format::Csv(mapping) => LineSyntax::Columns(Columns::of_header(mapping, b',', head)?),
            Format::Tsv(mapping) => LineSyntax::Columns(Columns::of_header(mapping, b'\t', head)?),
        };
        Ok(Self { syntax })
    }

    /// Reads a line without its end. A line that has no record by design (the header, a comment,
    /// an empty line) is `None`.
    ///
    /// # Errors
    /// When the line is malformed.
    #[inline]
    pub fn parse<'a>(
        &'a self,
        line: &'a [u8],
        scratch: &'a mut Scratch,
    ) -> Result<Option<Record<'a>>, LineError> {
        if line.len() > LINE_BYTES_MAX {
            return Err(LineError::at(LINE_BYTES_MAX, "the line is longer than 256 KiB"));
        }
        if line.is_empty() {
            return Ok(None);
        }
        let (mut arena, dates) = scratch.for_line(line.len());
        let arena = &mut arena;
        match &self.syntax {
            LineSyntax::Combined => combined::parse(line, arena, dates).map(Some),
            LineSyntax::VhostCombined => combined::parse_vhost(line, arena, dates).map(Some),
            LineSyntax::Envoy => envoy::parse(line, arena, dates).map(Some),
            LineSyntax::Alb => alb::parse(line, arena, dates).map(Some),
            LineSyntax::Json(mapping) => json::parse(mapping, line, arena, dates).map(Some),
            LineSyntax::JsonRequests(mapping) => {
                let record = json::parse(mapping, line, arena, dates)?;
                let is_request =
                    record.method.is_some() || record.uri.is_some() || record.status.is_some();
                if is_request { Ok(Some(record)) } else { Err(LineError::at(0, "no request")) }
            }
            LineSyntax::Columns(columns) => columns.parse(line, arena, dates),
        }
    }
}

// === impl LineError ===

impl LineError {
    /// An error at a byte, from 0.
    pub(crate) const fn at(index: usize, reason: &'static str) -> Self {
        Self { column: index.saturating_add(1), reason }
    }
}

impl fmt::Display for LineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "column {}: {}", self.column, self.reason)
    }
}

impl std::error::Error for LineError {}
