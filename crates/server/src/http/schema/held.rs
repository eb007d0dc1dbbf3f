//! What is reserved, settled and waited for.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Descriptor, Status};

/// May this go, though what it really uses is known only later?
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Reserves {
    /// Whose rules.
    pub domain: String,
    /// Who wants what. One with `hits` of its own is settled with those, whatever is committed.
    pub descriptors: Vec<Descriptor>,
    /// The estimate; 1 unless told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hits: Option<u64>,
    /// After which time it is given back by itself: 60,000 unless told, a day at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
}

/// It may, and is reserved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Reserved {
    /// `true`.
    pub allowed: bool,
    /// What was said of each descriptor, in their order.
    pub statuses: Vec<Status>,
    /// Its name, by which it is settled: up to 8,192 of the characters `A-Z a-z 0-9 - _`.
    pub reservation: String,
    /// After which time it is given back by itself.
    pub expires_after_ms: u64,
}

/// What was really used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Commits {
    /// Of which reservation.
    pub reservation: String,
    /// How much: nothing, less than was reserved, or more.
    pub hits: u64,
}

/// What is not needed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Cancels {
    /// Which reservation.
    pub reservation: String,
}

/// It is settled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Settled {
    /// How much was given back, by the limit that gave back least.
    pub returned: u64,
    /// How each descriptor stands now, in their order.
    pub statuses: Vec<Status>,
}

/// May this go, if it waits for its turn?
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Waits {
    /// Whose rules.
    pub domain: String,
    /// Who wants what.
    pub descriptors: Vec<Descriptor>,
    /// How many hits; 1 unless told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hits: Option<u64>,
    /// How long it would wait: 30,000 unless told, ten minutes at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// It may go now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Waited {
    /// `true`.
    pub allowed: bool,
    /// What was said of each descriptor, in their order.
    pub statuses: Vec<Status>,
    /// How long it took.
    pub waited_ms: u64,
    /// Where a slot of a concurrency limit came with the turn: its name, by which it is given back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reservation: Option<String>,
}
