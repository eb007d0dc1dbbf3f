//! Budgets of language models: what a request costs in tokens and in money.
//!
//! ```text
//!   request ── body: model, maximum ── estimate ── reserve
//!                                                    │
//!   response ── JSON: usage ─────────────────────────┤
//!            └─ events: usage, texts that pass ──────┴ settle
//!                  └ beyond the reservation: partial commit; without budget: final events
//! ```
//!
//! Nothing here runs for a route without `tokens`.

mod event_stream;
mod headers;
mod input;
mod meter;
mod prices;
mod request;
mod sse;
mod stream_end;
mod usage;

pub(crate) use self::headers::{TokenHeaders, remove_provider_limits};
pub(crate) use self::meter::{MeteredPiece, TokenMeter, TokenReport, TokenUsage};
pub(crate) use self::prices::{TokenPlan, unusable_files};
pub(crate) use self::request::{TokenRequest, is_metered};
