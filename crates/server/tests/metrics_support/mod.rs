//! Prometheus' text format, read strictly: whatever a scraper could object to is a panic.

use std::collections::{BTreeMap, HashSet};

pub(crate) type Labels = BTreeMap<String, String>;

/// A page that was read.
#[derive(Debug, Default)]
pub(crate) struct Scrape {
    /// The kind of each family.
    pub(crate) kinds: BTreeMap<String, String>,
    pub(crate) samples: Vec<Sample>,
}

#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) labels: Labels,
    pub(crate) value: f64,
}

impl Scrape {
    pub(crate) fn read(text: &str) -> Self {
        assert!(text.ends_with('\n'), "the last line does not end");
        let mut scrape = Self::default();
        let mut family = (String::new(), String::new());
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, help) = help.split_once(' ').expect("help without a text");
                assert!(is_name(name) && !help.is_empty(), "{line}");
                let kind = lines.next().and_then(|line| line.strip_prefix("# TYPE "));
                let (named, kind) = kind.and_then(|kind| kind.split_once(' ')).expect("no type");
                assert_eq!(named, name, "the type of another family");
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{kind}");
                let before = scrape.kinds.insert(name.to_owned(), kind.to_owned());
                assert_eq!(before, None, "{name} comes twice");
                family = (name.to_owned(), kind.to_owned());
            } else {
                let sample = Sample::read(line);
                assert!(sample.belongs_to(&family.0, &family.1), "{line} in {}", family.0);
                scrape.samples.push(sample);
            }
        }
        scrape.check_series();
        scrape.check_histograms();
        scrape
    }

    /// The value of the only sample with this name and these labels among others.
    pub(crate) fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let found: Vec<&Sample> = self.with(name, labels).collect();
        assert!(found.len() < 2, "{name} {labels:?} is not one: {found:?}");
        found.first().map(|sample| sample.value)
    }

    /// The samples with this name and these labels among others.
    pub(crate) fn with(
        &self,
        name: &str,
        labels: &[(&str, &str)],
    ) -> impl Iterator<Item = &Sample> {
        let has = |sample: &Sample, (label, value): &(&str, &str)| {
            sample.labels.get(*label).is_some_and(|found| found == value)
        };
        let all = self.samples.iter().filter(move |sample| sample.name == name);
        all.filter(move |sample| labels.iter().all(|label| has(sample, label)))
    }

    fn check_series(&self) {
        let mut seen = HashSet::new();
        for sample in &self.samples {
            assert!(seen.insert((&sample.name, &sample.labels)), "twice: {sample:?}");
            assert!(sample.value.is_finite() && sample.value >= 0.0, "{sample:?}");
        }
    }

    /// Buckets go up to `+Inf`, each with at least as many as the one before; the last has as many as there are.
    fn check_histograms(&self) {
        for name in self.kinds.iter().filter(|(_, kind)| *kind == "histogram").map(|(name, _)| name)
        {
            let mut all: BTreeMap<Labels, Vec<(f64, f64)>> = BTreeMap::new();
            for sample in self.with(&format!("{name}_bucket"), &[]) {
                let mut labels = sample.labels.clone();
                let most: f64 = labels.remove("le").expect("a bucket without le").parse().unwrap();
                all.entry(labels).or_default().push((most, sample.value));
            }
            assert_eq!(all.len(), self.with(&format!("{name}_count"), &[]).count());
            assert_eq!(all.len(), self.with(&format!("{name}_sum"), &[]).count());
            for (labels, buckets) in all {
                let ascending = buckets.windows(2).all(|pair| pair[0].0 < pair[1].0);
                let growing = buckets.windows(2).all(|pair| pair[0].1 <= pair[1].1);
                assert!(ascending && growing, "{name} {labels:?}: {buckets:?}");
                let count =
                    self.with(&format!("{name}_count"), &[]).find(|one| one.labels == labels);
                let count = count.expect("buckets without a count").value;
                assert_eq!(buckets.last(), Some(&(f64::INFINITY, count)), "{name} {labels:?}");
            }
        }
    }
}

impl Sample {
    fn read(line: &str) -> Self {
        let end = line.find(['{', ' ']).expect("a sample without a value");
        let (name, mut rest) = line.split_at(end);
        assert!(is_name(name), "{line}");
        let mut labels = Labels::new();
        if let Some(braced) = rest.strip_prefix('{') {
            rest = braced;
            loop {
                let (label, behind) = rest.split_once("=\"").expect("a label without a value");
                assert!(is_name(label) && !label.contains(':'), "{line}");
                let (value, behind) = quoted(behind);
                assert!(!value.is_empty(), "an empty label is none: {line}");
                assert_eq!(labels.insert(label.to_owned(), value), None, "{label} twice: {line}");
                match behind.strip_prefix(',') {
                    Some(more) => rest = more,
                    None => break rest = behind.strip_prefix('}').expect("no closing brace"),
                }
            }
        }
        let value = rest.strip_prefix(' ').expect("no blank before the value");
        let value = value.parse().unwrap_or_else(|_| panic!("no number: {line}"));
        Self { name: name.to_owned(), labels, value }
    }

    fn belongs_to(&self, family: &str, kind: &str) -> bool {
        match kind {
            "histogram" => {
                let ending = self.name.strip_prefix(family);
                ending.is_some_and(|ending| ["_bucket", "_sum", "_count"].contains(&ending))
            }
            _ => self.name == family,
        }
    }
}

/// A value up to its closing quote, and what is behind it.
fn quoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (value, &text[at + 1..]),
            '\\' => value.push(match letters.next().expect("an escape of nothing").1 {
                '\\' => '\\',
                '"' => '"',
                'n' => '\n',
                other => panic!("no such escape: {other}"),
            }),
            other => value.push(other),
        }
    }
    panic!("no closing quote: {text}");
}

fn is_name(text: &str) -> bool {
    let letter = |letter: char| letter.is_ascii_alphabetic() || "_:".contains(letter);
    text.starts_with(letter) && text.chars().all(|one| letter(one) || one.is_ascii_digit())
}
