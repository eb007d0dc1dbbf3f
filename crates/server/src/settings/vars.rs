//! Values of flags and environment variables, and a reader that collects all errors.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::go_values;
use super::service_links::is_service_link;

/// The service link that every pod has.
const POD: &str = "KUBERNETES_SERVICE_HOST";

/// Environment variables, overridden by flags. Service links of Kubernetes and Docker are ignored.
///
/// ```
/// use sluicegate_server::settings::Vars;
///
/// let mut vars = Vars::new([("SLUICEGATE_HTTP", "127.0.0.1:1"), ("PORT", "2")]);
/// vars.set_flag("--http", "127.0.0.1:3");
/// assert_eq!(vars.get("SLUICEGATE_HTTP"), Some("127.0.0.1:3"));
///
/// let vars = Vars::new([("SLUICEGATE_PORT", "tcp://10.0.0.7:8081")]);
/// assert_eq!(vars.get("SLUICEGATE_PORT"), None);
/// ```
#[derive(Debug, Clone, Default)]
pub struct Vars {
    all: BTreeMap<String, Var>,
    is_pod: bool,
}

#[derive(Debug, Clone)]
struct Var {
    text: String,
    /// The flag that set it; `None` if the environment did.
    flag: Option<&'static str>,
}

/// Parses values and collects errors.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    vars: &'a Vars,
    pub(super) errors: Vec<String>,
}

impl Vars {
    /// The variables of this process, except those that are not UTF-8.
    #[must_use]
    pub fn from_env() -> Self {
        let all = std::env::vars_os();
        Self::new(
            all.filter_map(|(name, text)| {
                Some((name.into_string().ok()?, text.into_string().ok()?))
            }),
        )
    }

    /// Variables by name.
    pub fn new(all: impl IntoIterator<Item = (impl Into<String>, impl Into<String>)>) -> Self {
        let all = all.into_iter().map(|(name, text)| (name.into(), text.into()));
        let mut is_pod = false;
        let all = all.inspect(|(name, _): &(String, String)| is_pod |= name == POD);
        let all = all.filter(|(name, text): &(String, String)| !is_service_link(name, text));
        let all = all.map(|(name, text)| (name, Var { text, flag: None })).collect();
        Self { all, is_pod }
    }

    /// Sets the value of a flag in place of its variable: `SLUICEGATE_HTTP` for `--http`.
    pub fn set_flag(&mut self, flag: &'static str, text: impl Into<String>) {
        let name = flag.trim_start_matches('-').replace('-', "_").to_ascii_uppercase();
        let var = Var { text: text.into(), flag: Some(flag) };
        self.all.insert(format!("SLUICEGATE_{name}"), var);
    }

    /// Removes the value of a variable that the settings do not know.
    ///
    /// ```
    /// use sluicegate_server::settings::Vars;
    ///
    /// let mut vars = Vars::new([("SLUICEGATE_UPSTREAM", "http://127.0.0.1:3000")]);
    /// assert_eq!(vars.take("SLUICEGATE_UPSTREAM").as_deref(), Some("http://127.0.0.1:3000"));
    /// assert_eq!(vars.get("SLUICEGATE_UPSTREAM"), None);
    /// ```
    pub fn take(&mut self, name: &str) -> Option<String> {
        self.all.remove(name).map(|var| var.text).filter(|text| !text.is_empty())
    }

    /// The value; `None` if it is empty, or blank in a variable of OpenTelemetry.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        let text = self.all.get(name)?.text.as_str();
        let is_telemetry = name.starts_with("OTEL_") || name.starts_with("TRACING_");
        let value = if is_telemetry { text.trim() } else { text };
        (!value.is_empty()).then_some(text)
    }

    /// Names with a value.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.all.keys().map(String::as_str).filter(|name| self.get(name).is_some())
    }

    /// Names that are set to nothing.
    pub(super) fn empty_names(&self) -> impl Iterator<Item = &str> {
        self.all.keys().map(String::as_str).filter(|name| self.get(name).is_none())
    }

    /// Whether this process runs in a pod of Kubernetes.
    pub(super) const fn is_pod(&self) -> bool {
        self.is_pod
    }

    /// The flag or variable that set a value.
    pub(super) fn source<'n>(&self, name: &'n str) -> &'n str {
        self.all.get(name).and_then(|var| var.flag).unwrap_or(name)
    }
}

impl<'a> Reader<'a> {
    pub(super) const fn new(vars: &'a Vars) -> Self {
        Self { vars, errors: Vec::new() }
    }

    pub(super) fn text(&self, name: &str) -> Option<&'a str> {
        self.vars.get(name)
    }

    /// The flag or variable that set the value.
    pub(super) fn source<'n>(&self, name: &'n str) -> &'n str {
        self.vars.source(name)
    }

    pub(super) fn path(&self, name: &str) -> Option<PathBuf> {
        self.text(name).map(PathBuf::from)
    }

    pub(super) fn boolean(&mut self, name: &str) -> Option<bool> {
        self.read(name, "`true` or `false`", go_values::parse_bool)
    }

    pub(super) fn is_true(&mut self, name: &str) -> bool {
        self.boolean(name).unwrap_or(false)
    }

    /// An integer from `min` to `max`.
    pub(super) fn number(&mut self, name: &str, min: u64, max: u64) -> Option<u64> {
        let read = |text: &str| text.parse().ok().filter(|number| (min..=max).contains(number));
        self.read(name, &format!("a whole number from {min} to {max}"), read)
    }

    /// A number from 0 to 1.
    pub(super) fn ratio(&mut self, name: &str) -> Option<f32> {
        let read = |text: &str| text.parse().ok().filter(|ratio| (0.0..=1.0).contains(ratio));
        self.read(name, "a number from 0 to 1, such as `0.8`", read)
    }

    /// A duration in Go's format.
    pub(super) fn duration(&mut self, name: &str) -> Option<Duration> {
        self.read(name, "a time such as `90s`, `1h30m` or `500ms`", go_values::parse_duration)
    }

    /// A number of bytes, with an optional unit; at least `min`.
    pub(super) fn size(&mut self, name: &str, min: usize) -> Option<usize> {
        let read = |text: &str| {
            let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
            let unit: usize = match text.get(digits.len()..)?.trim_start() {
                "" | "B" => 1,
                "KiB" => 1 << 10,
                "MiB" => 1 << 20,
                "GiB" => 1 << 30,
                _ => return None,
            };
            let bytes = digits.parse::<usize>().ok()?.checked_mul(unit)?;
            Some(bytes).filter(|bytes| *bytes >= min)
        };
        let expected = format!("at least {} MiB, written `64MiB`, `1GiB` or in bytes", min >> 20);
        self.read(name, &expected, read)
    }

    /// A socket address.
    pub(super) fn address(&mut self, name: &str) -> Option<SocketAddr> {
        let read = |text: &str| SocketAddr::from_str(text).ok();
        self.read(name, "an address and a port, such as `127.0.0.1:8080` or `[::1]:0`", read)
    }

    pub(super) fn host(&mut self, name: &str) -> Option<IpAddr> {
        let read = |text: &str| match text {
            "localhost" => Some(IpAddr::from([127, 0, 0, 1])),
            text => text.parse().ok(),
        };
        self.read(name, "an IP address, such as `0.0.0.0`", read)
    }

    /// One of several words, in any case.
    pub(super) fn choice<T: Copy>(&mut self, name: &str, choices: &[(&str, T)]) -> Option<T> {
        let words: Vec<String> = choices.iter().map(|(word, _)| format!("`{word}`")).collect();
        let read = |text: &str| {
            let found = choices.iter().find(|(word, _)| word.eq_ignore_ascii_case(text));
            found.map(|(_, choice)| *choice)
        };
        self.read(name, &format!("one of {}", words.join(", ")), read)
    }

    /// Parses a value, or records what was expected.
    pub(super) fn read<T>(
        &mut self,
        name: &str,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let text = self.vars.get(name)?;
        let parse = |trimmed: &str| {
            parse(trimmed).ok_or_else(|| format!("must be {expected}, got `{text}`"))
        };
        self.check(name, parse)
    }

    /// Parses a value, or records the parser's error.
    pub(super) fn check<T>(
        &mut self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let parsed = parse(self.vars.get(name)?.trim());
        let source = self.vars.source(name);
        parsed.map_err(|error| self.errors.push(format!("{source}: {error}"))).ok()
    }
}
