//! `settle`: what a request costs by its response.

/// A case of `settle`: responses that it fits, and what they cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettleCase {
    /// `descriptor`: indices in the mapping.
    pub descriptors: Vec<usize>,
    /// `status`: ranges; any if there are none.
    pub status: Vec<(u16, u16)>,
    /// `header`: names and values of the response, all of which it must have.
    pub headers: Vec<(String, String)>,
    /// `cost` or `reset`.
    pub usage: Usage,
}

/// What a descriptor is charged in the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Usage {
    /// `cost`.
    Cost(CostSource),
    /// `reset`: nothing, and its limits are full again.
    Reset,
}

/// Where the cost of a response comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CostSource {
    /// This many hits.
    Fixed(u64),
    /// `header NAME` of the response.
    Header(Box<str>),
    /// `json FIELD` of its body, nested ones by dots.
    Json(Box<str>),
    /// `bytes` of its body.
    Bytes,
    /// `duration` in milliseconds, from the head of the request to the end of the response.
    Duration,
}

impl SettleCase {
    /// Whether it fits every response.
    #[must_use]
    pub const fn is_unconditional(&self) -> bool {
        self.status.is_empty() && self.headers.is_empty()
    }

    /// Whether a status is one of its own.
    ///
    /// ```
    /// use sluicegate_config::gateway::settle::{SettleCase, Usage};
    ///
    /// let status = vec![(401, 401), (500, 599)];
    /// let case =
    ///     SettleCase { descriptors: vec![0], status, headers: Vec::new(), usage: Usage::Reset };
    /// assert!(case.has_status(503) && !case.has_status(403));
    /// ```
    #[must_use]
    pub fn has_status(&self, status: u16) -> bool {
        self.status.iter().any(|(first, last)| (*first..=*last).contains(&status))
    }
}
