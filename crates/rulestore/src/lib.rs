//! Revisions of rule sets: in files, or in PostgreSQL.
//!
//! ```text
//!   propose / rollback ──> validate ──> decide (ledger) ──> commit (backend) ──> source ──> engine
//!   approve, withdraw,                     one rule for         files, or
//!   due activations                        all backends         PostgreSQL
//! ```
//!
//! A revision is a whole set of files with author, time and note. Revisions are append-only;
//! exactly one is active. A change names the revision that it is based on, and is refused when
//! another one is active by then. The store knows rules as texts and how to validate them; it knows
//! no engine, no protocol and no counter.

mod check;
mod digest;
mod edit;
mod error;
mod files;
mod ledger;
mod postgres;
mod revision;
mod shared;
mod source;
mod store;
mod transfer;
mod unified;

pub use check::{CheckedRules, FILE_COUNT_MAX, SET_BYTES_MAX, check};
pub use edit::{Activation, Proposal};
pub use error::{Conflict, ReadOnly, StoreError};
pub use files::FilesOptions;
pub use postgres::{PostgresOptions, PostgresUrl, UrlError};
pub use revision::{NodeInfo, Revision, RevisionKind, RevisionState, StoredRevision};
pub use shared::StoreStatus;
pub use source::StoreSource;
pub use store::{Clock, Overview, RuleStore, StoreEvent, StoreOptions};
pub use transfer::{ImportError, export, import};
pub use unified::unified_diff;
