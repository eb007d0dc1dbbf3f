//! Results of the simulator for people and programs: text, JSON, plots and reports.

mod examples;
mod page;
mod plot;
mod text;

pub use examples::{EXAMPLES, ScenarioExample};
pub use page::{run_report, seeds_report, sweep_report};
pub use plot::{sweep_plot, timeline_plot};
pub use text::{describe_fault, run_json, run_text, runs_json, seeds_text, sweep_text, worst};
