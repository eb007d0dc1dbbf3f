//! The rule of a descriptor: its limits and their settings.

use sluicegate_core::mode::Mode;
use sluicegate_core::time::Span;
use sluicegate_rules::overrides;
use sluicegate_rules::rule::Metadata;
use sluicegate_rules::rule::{
    Consistency, Limits, OnExhausted, OnLimit, OnStoreFailure, Overflow, PRIORITY_MAX, PoolConfig,
    RuleConfig, RuleExtras, SYNC_INTERVAL,
};
use sluicegate_rules::schedule::{Schedule, SchedulePart};

use super::descriptor::Names;
use super::keys::Key;
use super::plans::{PlanRule, PlanRules, PlannedLimits, denied};
use super::rate_limit::RateLimit;
use super::reader::{Found, Reader};
use super::schedule::PlannedPart;
use crate::fields::{Field, Value, unknown};
use crate::mode::mode_of;
use crate::problem::{Position, Reported, quoted};
use crate::units::{self, UnitError, show_span};
use crate::yaml::{Content, Pair};
use crate::{limit, suggest};

/// The settings of limits that are present.
#[derive(Clone)]
struct Settings<'t> {
    mode: Mode,
    consistency: Consistency,
    on_store_failure: Option<OnStoreFailure>,
    on_limit: OnLimit,
    overflow: Overflow,
    cost: u64,
    id: Option<(String, Position)>,
    /// The name of a `rate_limit`.
    name: Option<&'t str>,
    replaces: Vec<(&'t str, Position)>,
    quota_mode: bool,
    detailed_metric: bool,
    metadata: Option<Metadata>,
    priority: Option<u8>,
    pools: Vec<PoolConfig>,
    notify: Vec<u16>,
    on_exhausted: OnExhausted,
}

impl Reader<'_> {
    /// Reads the rule of a descriptor, if it has one.
    pub(super) fn rule<'t>(
        &mut self,
        input: &Value<'t, '_>,
        found: &Found<'t>,
        names: &mut Names,
    ) -> Result<(Option<RuleConfig>, Option<Box<PlanRules>>), Reported> {
        let mut rate_limits = found.earlier.clone();
        rate_limits.extend(found.get(Key::RateLimit));
        let rate_limit = self.rate_limit(input, &rate_limits);
        let limits =
            found.get(Key::Limits).map(|pair| self.planned(&input.field(pair))).transpose();
        let schedule =
            found.get(Key::Schedule).map(|pair| self.schedule(&input.field(pair))).transpose();
        let settings = self.settings(input, found);
        if let (Some(_), Some(pair)) = (found.get(Key::RateLimit), found.get(Key::Limits)) {
            let message = "stands beside `rate_limit`, got both; keep one of them: `rate_limit` \
                           counts as envoyproxy/ratelimit does, `limits` count only what passes";
            return Err(self.refuse_pair(input, pair, message));
        }
        let (rate_limit, limits) = (rate_limit?, limits?);
        let (schedule, mut settings) = (schedule?.unwrap_or_default(), settings?);
        names.on_store_failure = found.get(Key::OnStoreFailure).map(|pair| pair.value.at);
        let limits = match (rate_limit, limits) {
            (Some(rate_limit), _) => {
                let limits = rate_limit.limits.clone();
                self.merge_names(input, found, rate_limit, &mut settings)?;
                PlannedLimits::same(limits)
            }
            (None, Some(limits)) => limits,
            (None, None) => return Ok((None, None)),
        };
        let plans = self.plans_of(&limits, &schedule)?;
        let mut built = |plan: Option<&str>| {
            let rule = scheduled(&limits, &schedule, plan, &settings, names);
            let mut whole = rule.clone();
            // Limits at other times have to fit the settings too.
            let mut fits = self.fit_limits(input, found, &rule);
            for part in rule.schedule().map_or(&[][..], |schedule| &schedule.parts) {
                whole.limits.clone_from(&part.limits);
                fits = fits.and_then(|()| self.fit_limits(input, found, &whole));
            }
            fits.map(|()| rule)
        };
        let rule = built(None)?;
        let Some((key, at, path, names)) = plans else { return Ok((Some(rule), None)) };
        let mut rules = Vec::with_capacity(names.len());
        for (name, at, path) in names {
            rules.push(PlanRule { rule: built(Some(&name))?, name, at, path });
        }
        Ok((Some(rule), Some(Box::new(PlanRules { key, at, path, rules }))))
    }

    /// Reports settings that do not fit limits. Without a limit, nothing has to fit.
    fn fit_limits<'t>(
        &mut self,
        input: &Value<'t, '_>,
        found: &Found<'t>,
        rule: &RuleConfig,
    ) -> Result<(), Reported> {
        let is_word = found.get(Key::RateLimit).is_none()
            && (rule.limits == Limits::Unlimited || rule.limits == denied());
        if is_word { Ok(()) } else { self.fit(input, found, rule) }
    }

    /// The name and the replaced rules of a `rate_limit`, as settings.
    fn merge_names<'t>(
        &mut self,
        input: &Value<'t, '_>,
        found: &Found<'t>,
        rate_limit: RateLimit<'t>,
        settings: &mut Settings<'t>,
    ) -> Result<(), Reported> {
        let RateLimit { name, replaces, .. } = rate_limit;
        if !name.is_empty() && settings.id.is_some() {
            let message = "stands beside `rate_limit.name`, got both; keep one of them";
            return Err(self.refuse_key(input, found, Key::Id, message));
        }
        if !replaces.is_empty() && !settings.replaces.is_empty() {
            let message = "stands beside `rate_limit.replaces`, got both; keep one of them";
            return Err(self.refuse_key(input, found, Key::Replaces, message));
        }
        settings.replaces.extend(replaces);
        if !name.is_empty() {
            settings.name = Some(name);
        }
        Ok(())
    }
}

/// The rule of a plan, or of all others, with its schedule.
fn scheduled(
    limits: &PlannedLimits,
    schedule: &[PlannedPart],
    plan: Option<&str>,
    settings: &Settings<'_>,
    names: &mut Names,
) -> RuleConfig {
    let limits = limits.of(plan).clone();
    let parts: Vec<SchedulePart> = schedule
        .iter()
        .map(|part| SchedulePart {
            period: part.period.clone(),
            limits: part.limits.of(plan).clone(),
        })
        .collect();
    let mut rule = made(RuleConfig::new(limits.clone()), settings.clone(), names);
    if parts.iter().any(|part| matches!(part.limits, Limits::Native(_))) {
        let default = RuleConfig::new(Limits::Native(Box::default())).on_store_failure;
        rule.on_store_failure = settings.on_store_failure.unwrap_or(default);
    }
    if !parts.is_empty() {
        let schedule = Schedule { parts, otherwise: limits, in_force: None };
        rule.rare.get_or_insert_default().schedule = Some(schedule);
    } else if rule.limits == Limits::Unlimited {
        overrides::set_limits(&mut rule, Limits::Unlimited);
    }
    rule
}

/// Applies the settings to a rule.
fn made(mut rule: RuleConfig, settings: Settings<'_>, names: &mut Names) -> RuleConfig {
    let Settings { replaces, metadata, priority, pools, notify, on_exhausted, id, .. } = settings;
    rule.mode = settings.mode;
    rule.consistency = settings.consistency;
    rule.on_store_failure = settings.on_store_failure.unwrap_or(rule.on_store_failure);
    rule.on_limit = settings.on_limit;
    rule.overflow = settings.overflow;
    rule.cost = settings.cost;
    rule.quota_mode = settings.quota_mode;
    rule.detailed_metric = settings.detailed_metric;
    names.id = id.as_ref().map(|(_, at)| *at);
    names.replaces = replaces.iter().map(|(_, at)| *at).collect();
    rule.name = settings.name.map(Box::from).or_else(|| id.map(|(id, _)| id.into()));
    let replaces = replaces.into_iter().map(|(name, _)| name.into()).collect();
    let rare = RuleExtras {
        replaces,
        metadata,
        priority,
        pools,
        notify,
        on_exhausted,
        ..Default::default()
    };
    rule.rare = (rare != RuleExtras::default()).then(|| Box::new(rare));
    rule
}

// === settings ===

pub(crate) const ID: Field<String> = Field { name: "id", example: "login", read: limit::name };
pub(crate) const COST: Field<u64> = Field { name: "cost", example: "5", read: cost };
pub(crate) const PRIORITY: Field<u8> = Field { name: "priority", example: "7", read: priority };
pub(crate) const ON_STORE_FAILURE: Field<OnStoreFailure> = Field {
    name: "on_store_failure",
    example: "local",
    read: |text| units::choice(text, &ON_STORE_FAILURES),
};
pub(crate) const ON_LIMIT: Field<OnLimit> =
    Field { name: "on_limit", example: "deny", read: |text| units::choice(text, &ON_LIMITS) };
pub(crate) const ON_EXHAUSTED: Field<OnExhausted> = Field {
    name: "on_exhausted",
    example: "end",
    read: |text| units::choice(text, &ON_EXHAUSTED_WORDS),
};
pub(crate) const OVERFLOW: Field<Overflow> =
    Field { name: "overflow", example: "shared", read: |text| units::choice(text, &OVERFLOWS) };

pub(crate) const ON_STORE_FAILURES: [(&str, OnStoreFailure); 4] = [
    ("local", OnStoreFailure::Local),
    ("allow", OnStoreFailure::Allow),
    ("deny", OnStoreFailure::Deny),
    ("error", OnStoreFailure::Error),
];
pub(crate) const ON_LIMITS: [(&str, OnLimit); 3] =
    [("deny", OnLimit::Deny), ("shape", OnLimit::Shape), ("queue", OnLimit::Queue)];
pub(crate) const ON_EXHAUSTED_WORDS: [(&str, OnExhausted); 2] =
    [("debt", OnExhausted::Debt), ("end", OnExhausted::End)];
pub(crate) const OVERFLOWS: [(&str, Overflow); 3] =
    [("shared", Overflow::Shared), ("deny", Overflow::Deny), ("allow", Overflow::Allow)];

pub(crate) const SYNC: Field<Span> =
    Field { name: "sync_interval", example: "50ms", read: sync_interval };
pub(crate) const HOT_KEYS: Field<Consistency> = Field {
    name: "hot_keys",
    example: "leased",
    read: |text| units::choice(text, &HOT_KEYS_WORDS),
};
pub(crate) const HOT_KEYS_WORDS: [(&str, Consistency); 2] =
    [("leased", Consistency::StrictUntilHot), ("strict", Consistency::Strict)];

fn cost(text: &str) -> Result<u64, UnitError> {
    match units::whole(text)? {
        0 => {
            let got = quoted(text);
            Err(UnitError::new(format!(
                "must be at least `1`, got {got}; a hit that weighs nothing needs no limit"
            )))
        }
        cost => Ok(cost),
    }
}

fn priority(text: &str) -> Result<u8, UnitError> {
    let priority = u8::try_from(units::whole(text)?).ok().filter(|one| *one <= PRIORITY_MAX);
    priority.ok_or_else(|| {
        let got = quoted(text);
        UnitError::new(format!("must be from `0` to `{PRIORITY_MAX}`, got {got}; `9` goes first"))
    })
}

/// Bounds of the sync interval: shorter ones saturate the nodes, longer ones leave counts stale.
const SYNC_SHORTEST: Span = Span::from_millis(1);
const SYNC_LONGEST: Span = Span::from_secs(60);

fn sync_interval(text: &str) -> Result<Span, UnitError> {
    let span = units::span(text)?;
    if (SYNC_SHORTEST..=SYNC_LONGEST).contains(&span) {
        return Ok(span);
    }
    let (shortest, longest) = (show_span(SYNC_SHORTEST), show_span(SYNC_LONGEST));
    let got = quoted(text);
    Err(UnitError::new(format!(
        "must last from `{shortest}` to `{longest}`, got {got}; leave it out for `100ms`"
    )))
}

impl Reader<'_> {
    /// Reads all settings of limits, so that each error is reported.
    fn settings<'t>(
        &mut self,
        input: &Value<'t, '_>,
        found: &Found<'t>,
    ) -> Result<Settings<'t>, Reported> {
        let mode = self.mode(input, found);
        let consistency = self.consistency(input, found);
        let on_store_failure = self.setting(input, found, Key::OnStoreFailure, &ON_STORE_FAILURE);
        let on_limit = self.setting(input, found, Key::OnLimit, &ON_LIMIT);
        let on_exhausted = self.setting(input, found, Key::OnExhausted, &ON_EXHAUSTED);
        let overflow = self.setting(input, found, Key::Overflow, &OVERFLOW);
        let priority = self.setting(input, found, Key::Priority, &PRIORITY);
        let cost = self.setting(input, found, Key::Cost, &COST);
        let id = self.setting(input, found, Key::Id, &ID);
        let replaces = match found.get(Key::Replaces) {
            Some(pair) => self.ids(&input.field(pair)),
            None => Ok(Vec::new()),
        };
        let quota_mode = self.flag(input, found, Key::QuotaMode);
        let detailed_metric = self.flag(input, found, Key::DetailedMetric);
        let metadata = match found.get(Key::Metadata) {
            Some(pair) => self.metadata(&input.field(pair)),
            None => Ok(None),
        };
        let pools = match found.get(Key::Pools) {
            Some(pair) => self.pools(&input.field(pair)),
            None => Ok(Vec::new()),
        };
        let notify = match found.get(Key::Notify) {
            Some(pair) => self.notify(&input.field(pair)),
            None => Ok(Vec::new()),
        };
        let id_at = found.get(Key::Id).map_or(input.at(), |pair| pair.value.at);
        Ok(Settings {
            mode: mode?,
            consistency: consistency?,
            on_store_failure: on_store_failure?,
            on_limit: on_limit?.unwrap_or_default(),
            overflow: overflow?.unwrap_or_default(),
            cost: cost?.unwrap_or(1),
            id: id?.map(|id| (id, id_at)),
            name: None,
            replaces: replaces?,
            quota_mode: quota_mode?,
            detailed_metric: detailed_metric?,
            metadata: metadata?,
            priority: priority?,
            pools: pools?,
            notify: notify?,
            on_exhausted: on_exhausted?.unwrap_or_default(),
        })
    }

    /// A setting that is one word or number.
    fn setting<'t, T>(
        &mut self,
        input: &Value<'t, '_>,
        found: &Found<'t>,
        key: Key,
        field: &Field<T>,
    ) -> Result<Option<T>, Reported> {
        let Some(pair) = found.get(key) else { return Ok(None) };
        let example = || format!("{}: {}", field.name, field.example);
        let below = input.field(pair);
        let read = match &pair.value.content {
            Content::Scalar { text, .. } if !pair.value.is_null() => (field.read)(text),
            _ => return Err(self.not_one(&below, &example())),
        };
        read.map(Some).map_err(|error| self.refuse(&below, error.into_message()))
    }

    fn not_one(&mut self, input: &Value<'_, '_>, example: &str) -> Reported {
        let got = input.node.described();
        self.refuse(input, format!("must be one value, got {got}; write it like `{example}`"))
    }

    fn mode<'t>(&mut self, input: &Value<'t, '_>, found: &Found<'t>) -> Result<Mode, Reported> {
        let shadow = self.flag(input, found, Key::ShadowMode);
        let Some(pair) = found.get(Key::Mode) else {
            return shadow.map(|shadow| if shadow { Mode::Shadow } else { Mode::Hard });
        };
        let mode = mode_of(&input.field(pair), self.report);
        if found.get(Key::ShadowMode).is_some() {
            let message = "stands beside `shadow_mode`, got both; keep one of them";
            return Err(self.refuse_pair(input, pair, message));
        }
        mode
    }

    fn consistency<'t>(
        &mut self,
        input: &Value<'t, '_>,
        found: &Found<'t>,
    ) -> Result<Consistency, Reported> {
        let Some(pair) = found.get(Key::Consistency) else { return Ok(Consistency::Strict) };
        let below = input.field(pair);
        match &pair.value.content {
            Content::Scalar { text, .. } if !pair.value.is_null() => match &**text {
                "strict" => Ok(Consistency::Strict),
                "leased" => Ok(Consistency::Leased),
                "eventual" => Ok(Consistency::Eventual { sync_interval: SYNC_INTERVAL }),
                other => Err(self.refuse(&below, unknown_consistency(&quoted(other), other))),
            },
            Content::Mapping(pairs) => self.detailed(&below, pairs),
            _ => {
                let got = pair.value.described();
                Err(self.refuse(&below, unknown_consistency(&got, "")))
            }
        }
    }

    /// `{ eventual: { sync_interval } }` or `{ strict: { hot_keys } }`.
    fn detailed<'t>(
        &mut self,
        input: &Value<'t, '_>,
        pairs: &'t [Pair],
    ) -> Result<Consistency, Reported> {
        let [pair] = pairs else {
            return Err(self.refuse(input, unknown_consistency("a mapping", "")));
        };
        let Content::Scalar { text, .. } = &pair.key.content else {
            return Err(self.refuse(input, unknown_consistency("a mapping", "")));
        };
        let below = input.field(pair);
        match &**text {
            "eventual" => {
                let interval = self.detail(&below, "`eventual`", &SYNC)?;
                Ok(Consistency::Eventual { sync_interval: interval.unwrap_or(SYNC_INTERVAL) })
            }
            "strict" => Ok(self.detail(&below, "`strict`", &HOT_KEYS)?.unwrap_or_default()),
            "leased" => {
                let message = "takes no value, got one; write just `consistency: leased`";
                Err(self.refuse_pair(input, pair, message))
            }
            other => {
                let message = unknown_consistency(&quoted(other), other);
                Err(self.refuse_pair(input, pair, &message))
            }
        }
    }

    /// Reads the single option of a consistency mode.
    fn detail<T>(
        &mut self,
        input: &Value<'_, '_>,
        called: &str,
        field: &Field<T>,
    ) -> Result<Option<T>, Reported> {
        if input.node.is_null() {
            return Ok(None);
        }
        let value = input;
        let reported = |_reported| Reported;
        let example = format!("{{ {}: {} }}", field.name, field.example);
        let mut fields = value.fields(called, &example, self.report).map_err(reported)?;
        let read = fields.optional(field, self.report);
        fields.finish(self.report, |key| unknown(key, &[field.name])).map_err(reported)?;
        read.map_err(reported)
    }

    /// The ids of `replaces` in the native form.
    fn ids<'t>(&mut self, list: &Value<'t, '_>) -> Result<Vec<(&'t str, Position)>, Reported> {
        const EXAMPLE: &str = "replaces: [login]";
        if !list.is_list() {
            let got = list.node.described();
            let message = format!("must be a list of ids, got {got}; write it like `{EXAMPLE}`");
            return Err(self.refuse(list, message));
        }
        let mut ids = Vec::new();
        let mut read = Ok(());
        for item in list.items() {
            match self.filled(&item, EXAMPLE) {
                Ok(id) => ids.push((id, item.at())),
                Err(reported) => read = Err(reported),
            }
        }
        read.map(|()| ids)
    }
}

fn unknown_consistency(got: &str, word: &str) -> String {
    let hint = suggest::hint(word, ["strict", "leased", "eventual"]);
    format!(
        "unknown consistency, got {got}; {hint}write `strict`, `leased`, `eventual`, `{{ eventual: \
         {{ sync_interval: 50ms }} }}` or `{{ strict: {{ hot_keys: leased }} }}`"
    )
}
