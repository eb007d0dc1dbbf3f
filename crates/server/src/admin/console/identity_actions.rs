//! What an operator does about an identity: block, grant, lift, reset; the forms, and their effect.

use maud::{Markup, html};
use serde::Deserialize;
use serde_json::Value;
use sluicegate::config::overrides::{ChangeSpec, OverrideSpec, OverrideTarget};
use sluicegate::rules::request::{Descriptor, Entry, Request};
use sluicegate::rules::typed::{self, TypedEntry};
use sluicegate::{Checked, Operation, Span, Timestamp};

use super::parts::{Column, empty, table};
use crate::admin::overrides::{Change, OverrideRow, change};
use crate::admin::rules::RulesFailure;
use crate::admin::{AdminInner, Caller, Role};
use crate::logs::rfc3339;

/// What is done about an identity.
#[derive(Debug, Deserialize)]
pub(super) struct IdentityForm {
    pub(super) domain: String,
    /// As people type it.
    pub(super) descriptor: String,
    action: String,
    /// The entry that is blocked.
    #[serde(default)]
    entry: String,
    /// `2`, or `unlimited`.
    #[serde(default)]
    factor: String,
    /// Seconds.
    #[serde(default)]
    length: String,
    #[serde(default)]
    note: String,
    /// The rule of an override that is lifted.
    #[serde(default)]
    rule: String,
}

/// Lengths of overrides.
const LENGTHS: [(u64, &str); 5] = [
    (900, "15 minutes"),
    (3_600, "an hour"),
    (86_400, "a day"),
    (604_800, "a week"),
    (2_592_000, "30 days"),
];
/// Grants.
const FACTORS: [(&str, &str); 5] = [
    ("2", "twice the limits"),
    ("5", "five times the limits"),
    ("10", "ten times the limits"),
    ("0.5", "half of the limits"),
    ("unlimited", "no limit"),
];

/// Does what the form says: what was done, or the reason why it was refused.
pub(super) async fn act(
    admin: &AdminInner,
    caller: &Caller,
    form: &IdentityForm,
) -> Result<String, String> {
    let entries = typed::entries(&form.descriptor)?;
    let borrowed: Vec<Entry<'_>> = entries.iter().map(TypedEntry::entry).collect();
    let descriptors = [Descriptor::of(&borrowed)];
    let request = Request { domain: &form.domain, descriptors: &descriptors, hits: 1 };
    match form.action.as_str() {
        "reset" => {
            if caller.role < Role::Operate {
                return Err(format!("The token `{}` may not reset counters.", caller.name));
            }
            let engine = admin.app.engine();
            let (rules, mut checked) = (engine.snapshot(), Checked::default());
            let applied =
                engine.apply(Operation::Reset, engine.call(&rules, &request), &mut checked);
            applied.await.map_err(|error| error.to_string())?;
            admin.audit(caller, "keys.reset", &format!("{} {}", form.domain, form.descriptor));
            Ok("Reset: every limit of this identity is full.".to_owned())
        }
        "block" => {
            let entry = typed::entries(&form.entry)?;
            add(admin, caller, form, &entry, ChangeSpec::Block).await
        }
        "grant" => {
            let change = match form.factor.parse::<f64>() {
                Ok(factor) if (0.001..=1_000.0).contains(&factor) => {
                    ChangeSpec::Factor((factor * 1_000.0).round() as u64)
                }
                _ => ChangeSpec::Unlimited,
            };
            // An exemption from all rules is an entry of the list, which has one entry.
            let is_listed = change == ChangeSpec::Unlimited;
            let matched = if is_listed { entries.get(..1).unwrap_or_default() } else { &entries };
            add(admin, caller, form, matched, change).await
        }
        "lift" => {
            let entry = typed::entries(&form.entry)?;
            let rule = Some(form.rule.clone()).filter(|rule| !rule.is_empty());
            let target = OverrideTarget { matches: matches(&entry), rule };
            let note = match form.note.trim() {
                "" => format!("lift the override of {}", form.entry),
                note => note.to_owned(),
            };
            let lifted = change(admin, caller, &form.domain, Change::Lift(&target, &note)).await;
            lifted
                .map(|revision| format!("Lifted by revision {}.", revision.number))
                .map_err(RulesFailure::into_message)
        }
        other => Err(format!("There is no action `{other}`.")),
    }
}

async fn add(
    admin: &AdminInner,
    caller: &Caller,
    form: &IdentityForm,
    matched: &[TypedEntry],
    change_spec: ChangeSpec,
) -> Result<String, String> {
    let seconds =
        form.length.parse().ok().filter(|seconds| LENGTHS.iter().any(|(one, _)| one == seconds));
    let seconds = seconds.ok_or("Choose how long it lasts.")?;
    let until = admin.app.engine().now().after(Span::from_secs(seconds));
    let done = if change_spec == ChangeSpec::Block { "Blocked" } else { "Granted" };
    let target = OverrideTarget { matches: matches(matched), rule: None };
    let note = form.note.trim().to_owned();
    let spec = OverrideSpec { target, change: change_spec, until, note };
    let added = change(admin, caller, &form.domain, Change::Add(&spec)).await;
    added
        .map(|revision| {
            format!("{done}, until {}, by revision {}.", rfc3339(until), revision.number)
        })
        .map_err(RulesFailure::into_message)
}

fn matches(entries: &[TypedEntry]) -> Vec<(String, Value)> {
    entries.iter().map(|one| (one.key.clone(), one.value.clone().into())).collect()
}

pub(super) fn in_force(
    domain: &str,
    typed: &str,
    overrides: &[OverrideRow],
    now: Timestamp,
    caller: &Caller,
) -> Markup {
    if overrides.is_empty() {
        return empty("This identity is neither blocked nor granted other limits.");
    }
    html! {
        (table("Blocks and grants", None, &[Column::Text("Whom"), Column::Text("What"), Column::Text("Until"), Column::Text("Note"), Column::Text("Action")], &html! {
                    @for row in overrides {
                        tr {
                            th scope="row" { code { (row.matches_text()) } @if let Some(rule) = &row.rule { ", rule " (rule) } }
                            td { (row.change_text()) @if !row.is_in_force(now) { " (has ended)" } }
                            td { (rfc3339(row.until)) }
                            td { (row.note) }
                            td {
                                @if caller.role >= Role::Edit {
                                    form.inline method="post" action="/console/identity" {
                                        input type="hidden" name="domain" value=(domain);
                                        input type="hidden" name="descriptor" value=(typed);
                                        input type="hidden" name="entry" value=(row.matches_text());
                                        input type="hidden" name="rule" value=(row.rule.as_deref().unwrap_or_default());
                                        button name="action" value="lift" { "Lift" }
                                    }
                                }
                            }
                        }
                    }
                }))
    }
}

pub(super) fn override_forms(domain: &str, typed: &str, entries: &[TypedEntry]) -> Markup {
    let hidden = html! {
        input type="hidden" name="domain" value=(domain);
        input type="hidden" name="descriptor" value=(typed);
    };
    let length = |id: &str| {
        html! {
            div {
                label for=(id) { "For" }
                select id=(id) name="length" {
                    @for (seconds, text) in LENGTHS { option value=(seconds) selected[seconds == 3_600] { (text) } }
                }
            }
        }
    };
    let note = |id: &str| {
        html! {
            div {
                label for=(id) { "Note " span.hint { "why; required" } }
                input id=(id) name="note" required maxlength="500" size="40";
            }
        }
    };
    html! {
        h3 { "Block" }
        form.row method="post" action="/console/identity" {
            (hidden)
            div {
                label for="entry" { "Requests with" }
                select id="entry" name="entry" required {
                    // With several entries the identity is a choice.
                    @if entries.len() > 1 { option value="" { "choose an entry" } }
                    @for one in entries { option value=(super::typed_entry(one)) { (one.key) "=" (one.value) } }
                }
            }
            (length("block-length")) (note("block-note"))
            button.danger name="action" value="block" { "Block" }
        }
        h3 { "Grant other limits" }
        form.row method="post" action="/console/identity" {
            (hidden)
            div {
                label for="factor" { "Limits" }
                select id="factor" name="factor" { @for (value, text) in FACTORS { option value=(value) { (text) } } }
            }
            (length("grant-length")) (note("grant-note"))
            button name="action" value="grant" { "Grant" }
        }
    }
}

pub(super) fn reset_form(domain: &str, typed: &str) -> Markup {
    html! {
        h2 { "Counters" }
        form.row method="post" action="/console/identity" {
            input type="hidden" name="domain" value=(domain);
            input type="hidden" name="descriptor" value=(typed);
            button name="action" value="reset" { "Reset its limits" }
        }
    }
}
