//! A part of a request by its configured name: `client_ip`, `header X-User`, `query key or none`.

use std::borrow::Cow;
use std::fmt::{self, Display};
use std::str::FromStr;

use super::attributes::Attributes;
use super::{Unreadable, Why};

/// A part of a request, and its default.
///
/// An empty value counts as missing.
///
/// ```
/// use sluicegate_rules::mapping::{Part, Source};
///
/// let part: Part = "header X-Plan or free".parse()?;
/// assert_eq!(part.source, Source::Header("X-Plan".into()));
/// assert_eq!(part.or.as_deref(), Some("free"));
/// assert_eq!(part.to_string(), "header X-Plan or free");
/// assert!(!part.may_be_number() && "header X-Cost or 5".parse::<Part>()?.may_be_number());
/// # Ok::<(), sluicegate_rules::mapping::PartError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Where the value comes from.
    pub source: Source,
    /// The default value.
    pub or: Option<Box<str>>,
}

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// `client_ip`: the address of the client, as far as proxies are trusted.
    ClientIp,
    /// `method`: `GET`.
    Method,
    /// `scheme`: `https`.
    Scheme,
    /// `host`: in lower case, without a port.
    Host,
    /// `path`: normalized, without needless escapes, empty and dot segments.
    Path,
    /// `uri`: path and query as they came.
    Uri,
    /// `bearer`: the token of `Authorization: Bearer …`.
    Bearer,
    /// `header NAME`: all lines of it, with `, ` between them.
    Header(Box<str>),
    /// `cookie NAME`: the first of this name.
    Cookie(Box<str>),
    /// `query NAME`: the first of this name, without escapes.
    Query(Box<str>),
    /// `jwt CLAIM`: a claim of the verified token, nested ones by dots. Only in the gateway.
    Jwt(Box<str>),
    /// `api_key`: the name of the client's API key. Only in the gateway.
    ApiKey,
    /// `api_key ATTRIBUTE`: an attribute of that key. Only in the gateway.
    ApiKeyAttribute(Box<str>),
    /// `json FIELD`: a field of the body, nested ones by dots. Only in the gateway.
    Json(Box<str>),
    /// `form FIELD`: a field of the body, without escapes. Only in the gateway.
    Form(Box<str>),
    /// `ja4`: the fingerprint of the TLS client. Only in the gateway.
    Ja4,
    /// `asn`: the autonomous system of the client's address. Only in the gateway.
    Asn,
    /// `country` of the client's address, as two letters. Only in the gateway.
    Country,
    /// `path_template`: the path of the route, like `/users/{id}`. Only in the gateway.
    PathTemplate,
    /// `route`: the name of the route. Only in the gateway.
    Route,
    /// `client_certificate`: the subject of the verified certificate. Only in the gateway.
    ClientCertificate,
    /// `tokens`, `input_tokens`, `output_tokens` or `money`: what a request to a language model
    /// costs. Only as hits, and only in the gateway.
    Usage(UsageUnit),
    /// `text …`: always this.
    Text(Box<str>),
}

impl Source {
    /// Whether only the gateway knows it: it verifies credentials, ends TLS and reads bodies.
    ///
    /// ```
    /// use sluicegate_rules::mapping::Source;
    ///
    /// assert!(Source::Jwt("plan".into()).is_gateway_only() && !Source::Path.is_gateway_only());
    /// ```
    #[must_use]
    pub const fn is_gateway_only(&self) -> bool {
        match self {
            Self::Jwt(_)
            | Self::ApiKey
            | Self::ApiKeyAttribute(_)
            | Self::Json(_)
            | Self::Form(_)
            | Self::Ja4
            | Self::Asn
            | Self::Country
            | Self::PathTemplate
            | Self::Route
            | Self::ClientCertificate
            | Self::Usage(_) => true,
            Self::ClientIp
            | Self::Method
            | Self::Scheme
            | Self::Host
            | Self::Path
            | Self::Uri
            | Self::Bearer
            | Self::Header(_)
            | Self::Cookie(_)
            | Self::Query(_)
            | Self::Text(_) => false,
        }
    }
}

/// A unit of the usage of a language model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageUnit {
    /// `tokens`: input and output, by their weights.
    Tokens,
    /// `input_tokens`, those of caches included.
    InputTokens,
    /// `output_tokens`.
    OutputTokens,
    /// `money`: millionths of the currency of the prices.
    Money,
}

impl UsageUnit {
    /// As it is written.
    ///
    /// ```
    /// use sluicegate_rules::mapping::{Part, Source, UsageUnit};
    ///
    /// let part: Part = UsageUnit::Money.name().parse()?;
    /// assert_eq!(part.source, Source::Usage(UsageUnit::Money));
    /// # Ok::<(), sluicegate_rules::mapping::PartError>(())
    /// ```
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tokens => "tokens",
            Self::InputTokens => "input_tokens",
            Self::OutputTokens => "output_tokens",
            Self::Money => "money",
        }
    }
}

/// Why a text names no part of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PartError {
    /// It begins with another word than the [known ones](Part::WORDS).
    Unknown {
        /// The word.
        word: String,
    },
    /// The keyword requires a name.
    NoName {
        /// The word.
        word: &'static str,
    },
    /// No header, cookie or parameter can have this name.
    BadName {
        /// The word.
        word: &'static str,
        /// The name.
        name: String,
    },
    /// Unexpected text that is not `or …` follows.
    Stray {
        /// The unexpected text.
        text: String,
    },
    /// No text follows `or` or `text`.
    NoText {
        /// The word.
        word: &'static str,
    },
}

impl Part {
    /// The words that a part may begin with; the last four have something behind them.
    pub const WORDS: [&'static str; 11] = [
        "client_ip",
        "method",
        "scheme",
        "host",
        "path",
        "uri",
        "bearer",
        "header",
        "cookie",
        "query",
        "text",
    ];

    /// The words of parts that [only the gateway knows](Source::is_gateway_only); the first three
    /// have a name behind them, `api_key` may have one.
    pub const GATEWAY_WORDS: [&'static str; 10] = [
        "jwt",
        "json",
        "form",
        "api_key",
        "ja4",
        "asn",
        "country",
        "path_template",
        "route",
        "client_certificate",
    ];

    /// The words of hits that are [units of usage](UsageUnit).
    pub const USAGE_WORDS: [&'static str; 4] = ["tokens", "input_tokens", "output_tokens", "money"];

    /// The value in a request.
    ///
    /// # Errors
    /// When the part is not valid.
    pub fn value<'a>(
        &'a self,
        request: &Attributes<'a>,
    ) -> Result<Option<Cow<'a, str>>, Unreadable> {
        let value = request.part(&self.source).map_err(|why| Unreadable::new(self, why))?;
        Ok(value.filter(|value| !value.is_empty()).or_else(|| self.or.as_deref().map(Cow::from)))
    }

    /// Whether its literal text, if any, is a whole number, as hits must be.
    #[must_use]
    pub fn may_be_number(&self) -> bool {
        let literal = match &self.source {
            Source::Text(text) => Some(text),
            _ => self.or.as_ref(),
        };
        literal.is_none_or(|text| number(text).is_some())
    }
}

/// Parses an unambiguous whole number.
pub(super) fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}

impl From<Source> for Part {
    fn from(source: Source) -> Self {
        Self { source, or: None }
    }
}

impl FromStr for Part {
    type Err = PartError;

    fn from_str(text: &str) -> Result<Self, PartError> {
        let (word, rest) = first_word(text);
        let plain = |source: Source| Ok((source, rest));
        let named = |word: &'static str, source: fn(Box<str>) -> Source| {
            let (name, rest) = first_word(rest);
            if name.is_empty() || (name == "or" && !rest.is_empty()) {
                return Err(PartError::NoName { word });
            }
            let letter = match word {
                "query" => is_in_query,
                "jwt" | "json" | "form" | "api_key" => is_in_field,
                _ => is_in_token,
            };
            if !name.bytes().all(letter) {
                return Err(PartError::BadName { word, name: name.to_owned() });
            }
            Ok((source(name.into()), rest))
        };
        let (source, rest) = match word {
            "client_ip" => plain(Source::ClientIp),
            "method" => plain(Source::Method),
            "scheme" => plain(Source::Scheme),
            "host" => plain(Source::Host),
            "path" => plain(Source::Path),
            "uri" => plain(Source::Uri),
            "bearer" => plain(Source::Bearer),
            "header" => named("header", Source::Header),
            "cookie" => named("cookie", Source::Cookie),
            "query" => named("query", Source::Query),
            "jwt" => named("jwt", Source::Jwt),
            "json" => named("json", Source::Json),
            "form" => named("form", Source::Form),
            "api_key" if matches!(first_word(rest).0, "" | "or") => plain(Source::ApiKey),
            "api_key" => named("api_key", Source::ApiKeyAttribute),
            "ja4" => plain(Source::Ja4),
            "asn" => plain(Source::Asn),
            "country" => plain(Source::Country),
            "path_template" => plain(Source::PathTemplate),
            "route" => plain(Source::Route),
            "client_certificate" => plain(Source::ClientCertificate),
            "tokens" => plain(Source::Usage(UsageUnit::Tokens)),
            "input_tokens" => plain(Source::Usage(UsageUnit::InputTokens)),
            "output_tokens" => plain(Source::Usage(UsageUnit::OutputTokens)),
            "money" => plain(Source::Usage(UsageUnit::Money)),
            "text" if rest.is_empty() => Err(PartError::NoText { word: "text" }),
            "text" => Ok((Source::Text(rest.into()), "")),
            _ => Err(PartError::Unknown { word: word.to_owned() }),
        }?;
        match first_word(rest) {
            ("", _) => Ok(source.into()),
            ("or", "") => Err(PartError::NoText { word: "or" }),
            ("or", text) => Ok(Self { source, or: Some(text.into()) }),
            _ => Err(PartError::Stray { text: rest.to_owned() }),
        }
    }
}

/// The first word, and the rest behind the blanks after it.
fn first_word(text: &str) -> (&str, &str) {
    let text = text.trim();
    text.split_once(char::is_whitespace)
        .map_or((text, ""), |(word, rest)| (word, rest.trim_start()))
}

/// Whether a byte is valid in names of headers and cookies.
const fn is_in_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'!' | b'#'
                | b'$'
                | b'%'
                | b'&'
                | b'\''
                | b'*'
                | b'+'
                | b'-'
                | b'.'
                | b'^'
                | b'_'
                | b'`'
                | b'|'
                | b'~'
        )
}

/// Whether a byte is valid in decoded names of parameters.
const fn is_in_query(byte: u8) -> bool {
    !matches!(byte, b'&' | b'=' | b'#' | b'%' | b'+') && byte > b' ' && byte != 0x7f
}

/// Whether a byte is valid in names of claims and fields: those of URLs are common.
const fn is_in_field(byte: u8) -> bool {
    byte > b' ' && byte != 0x7f
}

impl Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)?;
        self.or.iter().try_for_each(|text| write!(f, " or {text}"))
    }
}

impl Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ClientIp => f.write_str("client_ip"),
            Self::Method => f.write_str("method"),
            Self::Scheme => f.write_str("scheme"),
            Self::Host => f.write_str("host"),
            Self::Path => f.write_str("path"),
            Self::Uri => f.write_str("uri"),
            Self::Bearer => f.write_str("bearer"),
            Self::Header(name) => write!(f, "header {name}"),
            Self::Cookie(name) => write!(f, "cookie {name}"),
            Self::Query(name) => write!(f, "query {name}"),
            Self::Jwt(claim) => write!(f, "jwt {claim}"),
            Self::ApiKey => f.write_str("api_key"),
            Self::ApiKeyAttribute(name) => write!(f, "api_key {name}"),
            Self::Json(field) => write!(f, "json {field}"),
            Self::Form(field) => write!(f, "form {field}"),
            Self::Ja4 => f.write_str("ja4"),
            Self::Asn => f.write_str("asn"),
            Self::Country => f.write_str("country"),
            Self::PathTemplate => f.write_str("path_template"),
            Self::Route => f.write_str("route"),
            Self::ClientCertificate => f.write_str("client_certificate"),
            Self::Usage(unit) => f.write_str(unit.name()),
            Self::Text(text) => write!(f, "text {text}"),
        }
    }
}

impl Display for PartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { word } => write!(f, "`{word}` is no part of a request"),
            Self::NoName { word } => write!(f, "`{word}` needs a name behind it"),
            Self::BadName { word, name } => write!(f, "no {word} has the name `{name}`"),
            Self::Stray { text } => write!(f, "`{text}` is too much; only `or …` may stand there"),
            Self::NoText { word } => write!(f, "`{word}` needs a text behind it"),
        }
    }
}

impl std::error::Error for PartError {}

impl Why {
    /// Bytes as text.
    pub(super) fn text(bytes: &[u8]) -> Result<&str, Self> {
        std::str::from_utf8(bytes).map_err(|_| Self::NotText)
    }
}
