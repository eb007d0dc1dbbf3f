//! One short script for each algorithm, and one for the sliding window with slices.

use crate::script::Script;

/// An example as in its file.
#[derive(Debug, Clone, Copy)]
pub struct Example {
    /// The algorithm it shows; `sliding_slices` is `sliding_window` with `slices`.
    pub algorithm: &'static str,
    /// The script.
    pub text: &'static str,
}

macro_rules! example {
    ($name:literal) => {
        Example { algorithm: $name, text: include_str!(concat!("../examples/", $name, ".txt")) }
    };
}

/// All examples, in the order of the guide.
pub const EXAMPLES: [Example; 12] = [
    example!("token_bucket"),
    example!("leaky_bucket"),
    example!("fixed_window"),
    example!("sliding_log"),
    example!("sliding_window"),
    example!("sliding_slices"),
    example!("smooth_bursty"),
    example!("warm_up"),
    example!("cycle"),
    example!("concurrency"),
    example!("tally"),
    example!("unlimited"),
];

impl Example {
    /// The example of an algorithm.
    ///
    /// ```
    /// assert!(sluicegate_lab::examples::Example::of("cycle").is_some());
    /// ```
    #[must_use]
    pub fn of(algorithm: &str) -> Option<Self> {
        EXAMPLES.into_iter().find(|example| example.algorithm == algorithm)
    }

    /// The parsed example.
    ///
    /// # Errors
    /// Never while the tests pass: the examples are part of this crate.
    pub fn script(&self) -> Result<Script, Vec<String>> {
        Script::parse(self.algorithm, self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_example_says_what_happens() {
        for example in EXAMPLES {
            let script = example.script().unwrap();
            assert_eq!(script.check(), Vec::<String>::new(), "{}", example.algorithm);
            assert!(!script.title.is_empty());
        }
    }
}
