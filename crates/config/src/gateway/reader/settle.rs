//! `settle` of a limit, and descriptors with a cost of their own.

use sluicegate_rules::mapping::DescriptorMapping;

use super::{GatewayReader, is_mapping, parse};
use crate::fields::{Fields, Value};
use crate::gateway::route_keys::{DESCRIPTOR, SETTLE};
use crate::gateway::settle::{CostSource, SettleCase, Usage};
use crate::problem::{Position, Report, Reported, quoted};
use crate::rules::forward_auth::{self, PositionedDescriptor};
use crate::suggest;
use crate::units::{self, UnitError};

/// A descriptor: its entries, or a mapping with these and hits of its own.
pub(super) fn descriptor(
    item: &Value<'_, '_>,
    report: &mut Report,
) -> Result<PositionedDescriptor, Reported> {
    let read = forward_auth::part;
    let mut fields = item.fields(DESCRIPTOR.subject, DESCRIPTOR.example, report)?;
    // A key of the rules may have this name.
    let entries = match fields.value("entries") {
        Some(entries) if is_mapping(&entries) => entries,
        _ => return forward_auth::descriptor(item, read, report),
    };
    let ((at, path), mut descriptor) = forward_auth::descriptor(&entries, read, report)?;
    let hits = crate::fields::Field {
        name: "hits",
        example: DESCRIPTOR.example_of("hits"),
        read: |text| forward_auth::number_part(text, forward_auth::descriptor_hits),
    };
    let own = fields.optional(&hits, report);
    fields.finish(report, |key| crate::fields::unknown(key, &DESCRIPTOR.names()))?;
    descriptor.hits = own?;
    Ok(((at, path), descriptor))
}

impl GatewayReader<'_> {
    /// The cases, in their order.
    pub(super) fn settle(
        &mut self,
        value: &Value<'_, '_>,
        descriptors: &[DescriptorMapping],
    ) -> Vec<SettleCase> {
        if !value.is_list() || value.items().len() == 0 {
            let got = value.node.described();
            let example = SETTLE.example;
            let message =
                format!("must be a list of cases, got {got}; write it like `[{example}]`");
            value.refuse(self.report, message);
            return Vec::new();
        }
        let names: Vec<String> = descriptors.iter().map(DescriptorMapping::name).collect();
        let mut cases: Vec<SettleCase> = Vec::new();
        for item in value.items() {
            let Some(case) = self.case(&item, &names) else { continue };
            self.warn_of_unreachable(&case, &cases, (item.at(), item.path.to_string()));
            cases.push(case);
        }
        cases
    }

    fn case(&mut self, value: &Value<'_, '_>, names: &[String]) -> Option<SettleCase> {
        let mut fields = self.open(value, &SETTLE)?;
        let descriptors = match self.value(&mut fields, &SETTLE, "descriptor") {
            None => (0..names.len()).collect(),
            Some(value) => {
                let example = SETTLE.example_of("descriptor");
                let read = self.one_or_many(&value, example, |reader, item| {
                    Some(reader.descriptors_named(item, names))
                });
                read.concat()
            }
        };
        let status = self.value(&mut fields, &SETTLE, "status").map(|value| {
            self.one_or_many(&value, "[401, 403]", |reader, item| {
                item.read("2xx", parse::status_class, reader.report).ok()
            })
        });
        let headers = self.value(&mut fields, &SETTLE, "header");
        let headers = headers.map(|value| self.header_values(&value));
        let usage = self.usage(&mut fields);
        self.close(fields, &SETTLE);
        // A condition that cannot be read must not look like none.
        let is_unread = status.as_ref().is_some_and(Vec::is_empty)
            || headers.as_ref().is_some_and(Vec::is_empty);
        let (status, headers) = (status.unwrap_or_default(), headers.unwrap_or_default());
        let usage = usage.filter(|_| !is_unread)?;
        Some(SettleCase { descriptors, status, headers, usage })
    }

    /// The descriptors of a name; several may have it.
    fn descriptors_named(&mut self, value: &Value<'_, '_>, names: &[String]) -> Vec<usize> {
        let Ok(name) = value.text("tokens", self.report) else { return Vec::new() };
        let named = names.iter().enumerate().filter(|(_, known)| *known == name);
        let found: Vec<usize> = named.map(|(index, _)| index).collect();
        if found.is_empty() {
            let known: Vec<&str> = names.iter().map(String::as_str).collect();
            let (got, hint) = (quoted(name), suggest::hint(name, known.iter().copied()));
            let all = suggest::all_of(&known);
            let message =
                format!("no descriptor has these keys, got {got}; {hint}the descriptors are {all}");
            value.refuse(self.report, message);
        }
        found
    }

    fn header_values(&mut self, value: &Value<'_, '_>) -> Vec<(String, String)> {
        let example = SETTLE.example_of("header");
        let Ok(mut pairs) = value.fields("`header`", example, self.report) else {
            return Vec::new();
        };
        let mut all = Vec::new();
        for (name, value) in pairs.all() {
            if let Err(error) = parse::header_name(name) {
                value.refuse(self.report, error.into_message());
            }
            if let Ok(text) = value.read("HIT", parse::header_value, self.report) {
                all.push((name.to_owned(), text.trim().to_owned()));
            }
        }
        if all.is_empty() {
            let message = format!("must name a header, got nothing; write it like `{example}`");
            value.refuse(self.report, message);
        }
        all
    }

    fn usage(&mut self, fields: &mut Fields<'_>) -> Option<Usage> {
        let cost = self.get(fields, &SETTLE, "cost", cost);
        let reset = self.get(fields, &SETTLE, "reset", units::truth);
        let is_written = fields.written("cost") != "nothing";
        match (cost, reset) {
            (None, Some(true)) if !is_written => Some(Usage::Reset),
            (Some(cost), None | Some(false)) => Some(Usage::Cost(cost)),
            (_, Some(true)) => {
                let message = "stands beside `cost`, got both; keep one of them".to_owned();
                fields.refuse("reset", self.report, message);
                None
            }
            _ => {
                if !is_written {
                    let remedy =
                        "say what the request costs, like `cost: 0`, or write `reset: true`";
                    fields.missing("cost", remedy, self.report);
                }
                None
            }
        }
    }

    /// A case after one that fits everything never applies.
    fn warn_of_unreachable(
        &mut self,
        case: &SettleCase,
        before: &[SettleCase],
        (at, path): (Position, String),
    ) {
        let is_decided = |index: &usize| {
            before.iter().any(|one| one.is_unconditional() && one.descriptors.contains(index))
        };
        if !case.descriptors.is_empty() && case.descriptors.iter().all(is_decided) {
            let message = "never applies, a case before it fits every response; put this one first, or \
                           remove it";
            self.report.warn(at, path, message.to_owned());
        }
    }
}

/// Where a cost comes from.
fn cost(text: &str) -> Result<CostSource, UnitError> {
    const WORDS: [&str; 4] = ["header", "json", "bytes", "duration"];
    if text.trim().starts_with(|first: char| first.is_ascii_digit() || first == '-') {
        return parse::cost(text).map(CostSource::Fixed);
    }
    let (word, name) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
    let name = name.trim();
    match (word, name) {
        ("bytes", "") => return Ok(CostSource::Bytes),
        ("duration", "") => return Ok(CostSource::Duration),
        ("header", name) if parse::is_token(name) => return Ok(CostSource::Header(name.into())),
        ("json", name) if is_field(name) => return Ok(CostSource::Json(name.into())),
        _ => {}
    }
    let hint = match WORDS.contains(&word) {
        true => String::new(),
        false => suggest::hint(word, WORDS),
    };
    let got = quoted(text);
    Err(UnitError::new(format!(
        "is no cost of a response, got {got}; {hint}write a number, `header X-Cost`, `json \
         usage.total_tokens`, `bytes` or `duration`"
    )))
}

/// Whether a text is the path of a field.
fn is_field(text: &str) -> bool {
    text.split('.').all(|name| !name.is_empty() && !name.contains(char::is_whitespace))
}
