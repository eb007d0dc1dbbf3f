//! Parameters of limits as the scripts take them.

use sluicegate_core::mode::EnforcedLimit;
use sluicegate_core::parameters::KernelKind;
use sluicegate_core::record::Layout;

/// The parameters of some limits: a kind of one byte, and whole numbers of eight bytes, lowest
/// first, which a script unpacks in one call.
#[derive(Debug)]
pub(crate) struct ScriptParams {
    pub(crate) layout: Layout,
    bytes: Vec<u8>,
    rule: Option<usize>,
}

const ENFORCED: u8 = 1;
const ELASTIC: u8 = 2;

impl ScriptParams {
    /// The parameters of limits of these names.
    pub(crate) fn new<'a>(
        limits: &[EnforcedLimit],
        names: impl IntoIterator<Item = Option<&'a str>>,
    ) -> Self {
        let layout = Layout::named(limits, names);
        let mut bytes = layout.fingerprint().as_bytes().to_vec();
        bytes.push(u8::try_from(limits.len()).unwrap_or(u8::MAX));
        for limit in limits {
            let flags = |is_set, flag| if is_set { flag } else { 0 };
            bytes.push(flags(limit.is_enforced(), ENFORCED) | flags(limit.is_elastic(), ELASTIC));
            for stage in limit.stages() {
                let (kind, numbers) = stage.parameters();
                bytes.push(kind_code(kind));
                bytes.extend(numbers.into_iter().flat_map(u64::to_le_bytes));
            }
        }
        let mut rules = limits.iter().map(EnforcedLimit::rule);
        let rule = rules.next().or(Some(0)).filter(|first| rules.all(|rule| rule == *first));
        Self { layout, bytes, rule }
    }

    /// The bytes that the script takes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Number of sorted sets beside a record.
    pub(crate) const fn sets(&self) -> usize {
        self.layout.sets()
    }

    /// Identifies the limits and their mode.
    pub(crate) fn fingerprint(&self) -> &str {
        self.layout.fingerprint()
    }

    /// The rule of all limits, if it is one: the script only compares it with that of other parts.
    pub(crate) const fn rule(&self) -> Option<usize> {
        self.rule
    }
}

/// The code of a kernel in the scripts.
const fn kind_code(kind: KernelKind) -> u8 {
    match kind {
        KernelKind::Open => 0,
        KernelKind::Closed => 1,
        KernelKind::Gcra => 2,
        KernelKind::Periodic => 3,
        KernelKind::SlidingWindow => 4,
        KernelKind::SlidingLog => 5,
        KernelKind::WarmUp => 6,
        KernelKind::Slots => 7,
        KernelKind::Tally => 8,
    }
}
