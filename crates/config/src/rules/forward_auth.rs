//! `forward_auth`: mapping of proxied requests, and the response to the proxy.

use sluicegate_rules::domain::ForwardAuth;
use sluicegate_rules::mapping::{
    self, DESCRIPTORS_MAX, DescriptorMapping, Mapping, Part, PartError, Proxies,
};
use sluicegate_rules::network::Network;

use super::pattern::network_of;
use super::reader::Reader;
use super::{DEPTH_MAX, KEY_CHARS_MAX, VALUE_CHARS_MAX};
use crate::fields::{self, Field, Value, unknown};
use crate::problem::{Position, Problems, Report, Reported, quoted};
use crate::suggest;
use crate::units::{self, UnitError};

/// The parsed section and its position.
pub(super) struct ForwardAuthSource {
    pub(super) auth: ForwardAuth,
    pub(super) source: usize,
    pub(super) at: Position,
    /// The position and path of each descriptor.
    pub(super) descriptors: Vec<(Position, String)>,
}

pub(crate) const TRUSTED_PROXIES: &str = "trusted_proxies";
pub(crate) const DESCRIPTORS: &str = "descriptors";
pub(crate) const HITS: Field<Part> = Field { name: "hits", example: "header X-Cost", read: hits };
pub(crate) const DENY_STATUS: Field<u16> =
    Field { name: "deny_status", example: "403", read: deny_status };

/// The lowest denial status; a proxy admits requests on lower ones.
pub(crate) const STATUS_MIN: u16 = 400;
pub(crate) const STATUS_MAX: u16 = 599;

const EXAMPLE: &str = "{ descriptors: [{ remote_address: client_ip }] }";
const ENTRY_EXAMPLE: &str = "{ remote_address: client_ip }";

/// A descriptor as `forward_auth` writes it, from a text of its own such as an argument.
///
/// ```
/// use sluicegate_config::rules::request_descriptor;
///
/// let descriptor = request_descriptor("--descriptor", "{ plan: header X-Plan or free, ip: client_ip }")?;
/// assert_eq!(descriptor.name(), "plan+ip");
/// assert!(request_descriptor("--descriptor", "{ ip: address }").is_err());
/// # Ok::<(), sluicegate_config::problem::Problems>(())
/// ```
///
/// # Errors
/// Everything that is wrong with it.
pub fn request_descriptor(source_name: &str, text: &str) -> Result<DescriptorMapping, Problems> {
    let mut report = Report::new(source_name);
    let read = fields::document(text, ENTRY_EXAMPLE, &mut report).and_then(|root| {
        descriptor(&Value::root(&root), proxied_part, &mut report).map(|(_, read)| read)
    });
    report.finish(read)
}

/// A part of a request as `forward_auth` writes it, such as `header X-User`.
///
/// ```
/// use sluicegate_config::rules::request_part;
///
/// assert_eq!(request_part("header X-User")?.to_string(), "header X-User");
/// assert!(request_part("ip").unwrap_err().to_string().contains("did you mean `client_ip`?"));
/// # Ok::<(), sluicegate_config::units::UnitError>(())
/// ```
///
/// # Errors
/// When it is invalid, or only the gateway knows it.
pub fn request_part(text: &str) -> Result<Part, UnitError> {
    proxied_part(text)
}

/// The same for the cost of a request, whose literal text is a whole number.
///
/// ```
/// use sluicegate_config::rules::request_hits;
///
/// assert!(request_hits("header X-Cost or 1").is_ok() && request_hits("text many").is_err());
/// ```
///
/// # Errors
/// When it is invalid, only the gateway knows it, or it cannot be a number.
pub fn request_hits(text: &str) -> Result<Part, UnitError> {
    hits(text)
}

impl Reader<'_> {
    pub(super) fn forward_auth(
        &mut self,
        input: &Value<'_, '_>,
    ) -> Result<ForwardAuthSource, Reported> {
        let source = self.source;
        read(input, source, self.report)
    }
}

fn read(
    value: &Value<'_, '_>,
    source: usize,
    report: &mut Report,
) -> Result<ForwardAuthSource, Reported> {
    let mut fields = value.fields("`forward_auth`", EXAMPLE, report)?;
    let proxies = match fields.value(TRUSTED_PROXIES) {
        Some(value) => trusted_proxies(&value, report),
        None => Ok(Proxies::default()),
    };
    let descriptors = match fields.value(DESCRIPTORS) {
        Some(value) => {
            descriptors(&value, |item, report| descriptor(item, proxied_part, report), report)
        }
        None => {
            let remedy = format!("say who asks, like `{DESCRIPTORS}: [{ENTRY_EXAMPLE}]`");
            Err(fields.missing(DESCRIPTORS, &remedy, report))
        }
    };
    let hits = fields.optional(&HITS, report);
    let deny_status = fields.optional(&DENY_STATUS, report);
    let known = [TRUSTED_PROXIES, DESCRIPTORS, HITS.name, DENY_STATUS.name];
    fields.finish(report, |key| unknown(key, &known))?;
    let (origins, descriptors) = descriptors?.into_iter().unzip();
    let mapping = Mapping { descriptors, hits: hits? };
    let auth = ForwardAuth { trusted_proxies: proxies?, mapping, deny_status: deny_status? };
    Ok(ForwardAuthSource { auth, source, at: value.at(), descriptors: origins })
}

/// One network, or a list of them.
fn trusted_proxies(value: &Value<'_, '_>, report: &mut Report) -> Result<Proxies, Reported> {
    let network = |value: &Value<'_, '_>, report: &mut Report| -> Result<Network, Reported> {
        let text = value.text("10.0.0.0/8", report)?;
        network_of(text).map_err(|message| value.refuse(report, message))
    };
    if !value.is_list() {
        return Ok(Proxies::new(vec![network(value, report)?]));
    }
    let items = value.items();
    if items.len() == 0 {
        let message = "must hold at least one network, got none; leave it out for this machine only, or write it \
                       like `[127.0.0.0/8, 10.0.0.0/8]`";
        return Err(value.refuse(report, message.to_owned()));
    }
    let read: Vec<_> = items.map(|item| network(&item, report)).collect();
    read.into_iter().collect::<Result<_, _>>().map(Proxies::new)
}

/// Reads a part of a request; which parts there are depends on who sees the request.
pub(crate) type PartReader = fn(&str) -> Result<Part, UnitError>;

pub(crate) type PositionedDescriptor = ((Position, String), DescriptorMapping);

/// A list of descriptors.
pub(crate) fn descriptors(
    list: &Value<'_, '_>,
    read: impl Fn(&Value<'_, '_>, &mut Report) -> Result<PositionedDescriptor, Reported>,
    report: &mut Report,
) -> Result<Vec<PositionedDescriptor>, Reported> {
    if !list.is_list() {
        let got = list.node.described();
        let message = format!("must be a list, got {got}; write it like `[{ENTRY_EXAMPLE}]`");
        return Err(list.refuse(report, message));
    }
    let items = list.items();
    let count = items.len();
    if count == 0 || count > DESCRIPTORS_MAX {
        let message = format!(
            "must hold from `1` to `{DESCRIPTORS_MAX}` descriptors, got {count}; write it like `[{ENTRY_EXAMPLE}]`"
        );
        return Err(list.refuse(report, message));
    }
    let read: Vec<_> = items.map(|item| read(&item, report)).collect();
    read.into_iter().collect()
}

/// A descriptor: keys with parts of a request, in their order.
pub(crate) fn descriptor(
    item: &Value<'_, '_>,
    read_part: PartReader,
    report: &mut Report,
) -> Result<PositionedDescriptor, Reported> {
    let mut fields = item.fields("a descriptor", ENTRY_EXAMPLE, report)?;
    let mut entries = Vec::new();
    let mut read = Ok(());
    for (key, value) in fields.all() {
        match entry(key, &value, read_part, report) {
            Ok(part) => entries.push((key.into(), part)),
            Err(reported) => read = Err(reported),
        }
    }
    read?;
    if entries.is_empty() || entries.len() > DEPTH_MAX {
        let message = format!(
            "must have from `1` to `{DEPTH_MAX}` entries, got {}; write it like `{ENTRY_EXAMPLE}`",
            entries.len()
        );
        return Err(item.refuse(report, message));
    }
    Ok(((item.at(), item.path.to_string()), entries.into()))
}

fn entry(
    key: &str,
    value: &Value<'_, '_>,
    read: PartReader,
    report: &mut Report,
) -> Result<Part, Reported> {
    if key.is_empty() || key.contains('*') || key.chars().count() > KEY_CHARS_MAX {
        let message = format!(
            "must be a key of the rules, at most {KEY_CHARS_MAX} characters without `*`, got {}; write it \
             like `{ENTRY_EXAMPLE}`",
            quoted(key)
        );
        return Err(value.refuse(report, message));
    }
    value.read("remote_address: client_ip", read, report)
}

fn hits(text: &str) -> Result<Part, UnitError> {
    number_part(text, proxied_part)
}

/// A part that may be a number.
pub(crate) fn number_part(text: &str, read: PartReader) -> Result<Part, UnitError> {
    let part = read(text)?;
    if part.may_be_number() {
        return Ok(part);
    }
    let got = quoted(text);
    let message =
        format!("must come to a whole number, got {got}; write it like `header X-Cost or 1`");
    Err(UnitError::new(message))
}

/// A part that a service behind a proxy can know.
fn proxied_part(text: &str) -> Result<Part, UnitError> {
    let part = part_of(text, &Part::WORDS)?;
    if !part.source.is_gateway_only() {
        return Ok(part);
    }
    let got = quoted(text);
    Err(UnitError::new(format!(
        "only `sluicegate gateway` knows this part, got {got}; let the proxy verify it and send a \
         header, like `header X-Plan`, or write it in the file of a gateway"
    )))
}

/// A part that a gateway can know.
pub(crate) fn part(text: &str) -> Result<Part, UnitError> {
    let part = part_of(text, &[&Part::WORDS[..], &Part::GATEWAY_WORDS].concat())?;
    if !matches!(part.source, mapping::Source::Usage(_)) {
        return Ok(part);
    }
    let got = quoted(text);
    Err(UnitError::new(format!(
        "is a cost and no part of a request, got {got}; write it as `hits` of a descriptor with `entries`"
    )))
}

/// A cost of a descriptor that a gateway can know.
pub(crate) fn descriptor_hits(text: &str) -> Result<Part, UnitError> {
    let words = [&Part::WORDS[..], &Part::GATEWAY_WORDS, &Part::USAGE_WORDS].concat();
    part_of(text, &words)
}

/// A part of a request, as it is named; messages suggest these words.
fn part_of(text: &str, words: &[&str]) -> Result<Part, UnitError> {
    let parsed: Result<Part, PartError> = text.parse();
    let got = quoted(text);
    let message = match parsed {
        Ok(part) if text.chars().count() <= VALUE_CHARS_MAX => return Ok(part),
        Ok(_) => format!(
            "must have at most {VALUE_CHARS_MAX} characters, got {got}; write a shorter one"
        ),
        Err(PartError::Unknown { word }) => {
            let (hint, all) = (meant(&word, words), suggest::one_of(words));
            format!("unknown part of a request, got {got}; {hint}write {all}")
        }
        Err(PartError::NoName { word }) => {
            let example = example(word);
            format!("needs a name behind `{word}`, got {got}; write it like `{word} {example}`")
        }
        Err(PartError::BadName { word, name }) => {
            let (name, example) = (quoted(&name), example(word));
            let noun = if word == "query" { "parameter" } else { word };
            format!(
                "no {noun} can have the name {name}, got {got}; write it like `{word} {example}`"
            )
        }
        Err(PartError::NoText { word: "or" }) => {
            format!("needs a text behind `or`, got {got}; write it like `header X-Plan or free`")
        }
        Err(PartError::NoText { .. }) => {
            format!("needs a text behind `text`, got {got}; write it like `text everybody`")
        }
        Err(PartError::Stray { text }) => {
            let stray = quoted(&text);
            format!(
                "{stray} is too much, got {got}; remove it, or write `or` before what stands for a missing part"
            )
        }
        Err(other) => format!("{other}, got {got}; write it like `header X-User`"),
    };
    Err(UnitError::new(message))
}

fn example(word: &str) -> &'static str {
    match word {
        "header" => "X-User",
        "cookie" => "session",
        "jwt" => "sub",
        "json" => "model",
        "form" => "username",
        _ => "key",
    }
}

/// Common synonyms that edit distance does not find.
const SYNONYMS: [(&str, &str); 14] = [
    ("ip", "client_ip"),
    ("remote_address", "client_ip"),
    ("remote_addr", "client_ip"),
    ("address", "client_ip"),
    ("client", "client_ip"),
    ("url", "uri"),
    ("proto", "scheme"),
    ("protocol", "scheme"),
    ("hostname", "host"),
    ("token", "bearer"),
    ("authorization", "bearer"),
    ("param", "query"),
    ("parameter", "query"),
    ("literal", "text"),
];

fn meant(word: &str, words: &[&str]) -> String {
    let lowered = word.to_lowercase();
    let known = SYNONYMS.iter().find(|(warn_or_refuse, _)| *warn_or_refuse == lowered);
    known.map_or_else(
        || suggest::hint(word, words.iter().copied()),
        |(_, meant)| format!("did you mean `{meant}`? "),
    )
}

fn deny_status(text: &str) -> Result<u16, UnitError> {
    let number = units::whole(text)?;
    let status = u16::try_from(number).ok();
    status.filter(|status| (STATUS_MIN..=STATUS_MAX).contains(status)).ok_or_else(|| {
        let got = quoted(text);
        UnitError::new(format!(
            "must be a status from `{STATUS_MIN}` to `{STATUS_MAX}`, got {got}; write `429`, or `403` for nginx"
        ))
    })
}
