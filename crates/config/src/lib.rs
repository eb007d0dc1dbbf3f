//! Configuration files: YAML to limits and rules, with every error reported at its position.
//!
//! - [`files::read`] reads the files of a path, [`rules::load`] makes domains of them.
//! - [`limit::limits`] reads the YAML of a limit, or of a list of them.
//! - [`mode::mode`] reads the enforcement mode; [`scenario::scenario`] a scenario of the simulator.
//! - [`overrides::add`] and [`overrides::remove`] edit the overrides in the text of a file.
//! - [`traffic::traffic`] reads built-in traffic.
//! - [`rule_limits::set_limits`] edits the limits of a rule in the text of a file.
//! - [`problem::Problems`] is the error: for each problem its position, the value and the remedy.
//!   [`problem::with_source`] shows the line too.
//! - [`units`] parses and formats durations, rates, percentages and factors; [`quota`] explains in
//!   those terms why core rejects a limit.
//!
//! Text becomes a tree of nodes with positions (`yaml`). Fields are taken from mappings by name
//! (`fields`); a remaining field is an error with the nearest known name (`suggest`). The output of
//! this crate needs no further validation.
//!
//! ```
//! let limits = sluicegate_config::limit::limits(
//!     "rules.yaml",
//!     "- { name: burst, algorithm: token_bucket, rate: 10/s, burst: 50 }\n\
//!      - { name: daily, algorithm: fixed_window, rate: 10000/day, align: calendar }\n",
//! )?;
//! assert_eq!(limits.len(), 2);
//! # Ok::<(), sluicegate_config::problem::Problems>(())
//! ```

#![forbid(unsafe_code)]

pub mod admin_tokens;
mod fields;
pub mod files;
pub mod gateway;
mod hashed_list;
pub mod limit;
pub mod mode;
pub mod overrides;
pub mod problem;
pub mod quota;
pub mod rule_limits;
pub mod rules;
pub mod scenario;
pub mod schema;
pub mod suggest;
mod text_edit;
pub mod traffic;
pub mod units;
pub mod watch;
mod yaml;
