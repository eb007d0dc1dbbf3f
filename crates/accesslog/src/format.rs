//! Formats of access logs, and their names on the command line.

use std::fmt;
use std::str::FromStr;

use crate::mapping::Mapping;

/// A format of an access log.
///
/// ```
/// use sluicegate_accesslog::Format;
///
/// assert_eq!("nginx".parse(), Ok(Format::Combined));
/// let format: Format = "csv:time=TIMESTAMP,hits=ContextTokens".parse()?;
/// assert_eq!(format.to_string(), "csv:time=TIMESTAMP,hits=ContextTokens");
/// # Ok::<(), sluicegate_accesslog::FormatError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Format {
    /// The combined format of nginx and Apache, with or without further fields, and the common
    /// format, which ends before the referer.
    Combined,
    /// The same behind the virtual host.
    VhostCombined,
    /// The default text format of Envoy, and that of Istio.
    Envoy,
    /// JSON of Envoy, with the usual names.
    EnvoyJson,
    /// JSON of Caddy.
    Caddy,
    /// JSON of `sluicegate gateway`.
    Gateway,
    /// Standard logs of AWS CloudFront.
    CloudFront,
    /// AWS Application Load Balancer.
    Alb,
    /// Columns separated by commas.
    Csv(Mapping),
    /// Columns separated by tabs.
    Tsv(Mapping),
    /// A JSON object in each line.
    Json(Mapping),
}

/// A format that is unknown, incomplete or does not fit the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormatError(String);

/// The names of formats without a mapping, the first of each as it is written.
const NAMES: [(&str, Format); 14] = [
    ("combined", Format::Combined),
    ("vhost_combined", Format::VhostCombined),
    ("envoy", Format::Envoy),
    ("envoy-json", Format::EnvoyJson),
    ("caddy", Format::Caddy),
    ("gateway", Format::Gateway),
    ("cloudfront", Format::CloudFront),
    ("alb", Format::Alb),
    ("common", Format::Combined),
    ("nginx", Format::Combined),
    ("apache", Format::Combined),
    ("istio", Format::Envoy),
    ("istio-json", Format::EnvoyJson),
    ("sluicegate", Format::Gateway),
];

impl Format {
    /// What a user can write as a format, for help texts and messages.
    pub const SYNTAX: &str = "`combined` (also `common`, `nginx`, `apache`), `vhost_combined`, \
        `envoy`, `envoy-json`, `caddy`, `gateway`, `cloudfront`, `alb`, or columns by name, such as \
        `csv:time=TIMESTAMP,client_ip=ip`, `tsv:…` or `json:time=ts,client_ip=request.remote_ip`";
}

impl FromStr for Format {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        if let Some((_, format)) = NAMES.iter().find(|(name, _)| *name == text) {
            return Ok(format.clone());
        }
        match text.split_once(':') {
            Some(("csv", mapping)) => mapping.parse().map(Self::Csv),
            Some(("tsv", mapping)) => mapping.parse().map(Self::Tsv),
            Some(("json", mapping)) => mapping.parse().map(Self::Json),
            _ if matches!(text, "csv" | "tsv" | "json") => {
                let remedy =
                    format!("name the columns, such as `{text}:time=TIMESTAMP,client_ip=ip`");
                Err(FormatError::new(format!("`{text}` has columns of any meaning; {remedy}")))
            }
            _ => Err(FormatError::new(format!("no format `{text}`; use {}", Self::SYNTAX))),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Csv(mapping) => write!(f, "csv:{mapping}"),
            Self::Tsv(mapping) => write!(f, "tsv:{mapping}"),
            Self::Json(mapping) => write!(f, "json:{mapping}"),
            _ => {
                let name = NAMES.iter().find(|(_, format)| format == self).map(|(name, _)| *name);
                f.write_str(name.unwrap_or_default())
            }
        }
    }
}

impl FormatError {
    pub(crate) const fn new(message: String) -> Self {
        Self(message)
    }
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for FormatError {}
