//! Requests of logs by client, for what needs no rules.

use std::collections::HashMap;
use std::io;

use foldhash::fast::RandomState;
use sluicegate_rules::mapping::Part;

use super::counts::LineCounts;
use super::mapping::LogMapping;
use super::{LogError, LogInput, ReadProgress};
use crate::arrival::{Arrival, Client};

/// The traffic of logs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoggedTraffic {
    /// All requests of a client, in the order of time.
    pub arrivals: Vec<Arrival>,
    /// The clients, by their number.
    pub clients: Vec<Client>,
    /// Lines of the logs. Requests without a client are those that miss a part.
    pub lines: LineCounts,
}

/// What identifies a client, and the cost of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientParts {
    /// The part of a request that is its client, such as `client_ip` or `header X-User`.
    pub client: Part,
    /// The part that is its cost; by default that of the log, or one.
    pub hits: Option<Part>,
}

impl LogInput {
    /// Reads all requests by client.
    ///
    /// # Errors
    /// When a log cannot be read.
    pub fn traffic(
        &self,
        parts: &ClientParts,
        progress: impl FnMut(ReadProgress),
    ) -> Result<LoggedTraffic, LogError> {
        let mut arrivals = Vec::new();
        let (clients, lines) = self.each_arrival(parts, progress, |arrival| {
            arrivals.push(arrival);
            Ok(())
        })?;
        Ok(LoggedTraffic { arrivals, clients, lines })
    }

    /// Calls `each` with all requests by client, in the order of time; the clients by their
    /// number, and the counts of lines. Memory is bounded by the clients.
    ///
    /// # Errors
    /// When a log cannot be read, or `each` fails.
    pub fn each_arrival(
        &self,
        parts: &ClientParts,
        progress: impl FnMut(ReadProgress),
        mut each: impl FnMut(Arrival) -> io::Result<()>,
    ) -> Result<(Vec<Client>, LineCounts), LogError> {
        let mut mapping = LogMapping::of_part(parts.client.clone());
        if let Some(hits) = &parts.hits {
            mapping = mapping.with_hits(hits.clone());
        }
        let mut numbers: HashMap<Box<str>, u32, RandomState> = HashMap::default();
        let lines = self.read(&[mapping], None, progress, |requests| {
            for request in requests.iter() {
                let Some(name) = request.first_value() else { continue };
                let client = match numbers.get(name) {
                    Some(number) => *number,
                    None => {
                        let number = u32::try_from(numbers.len()).map_err(io::Error::other)?;
                        numbers.insert(name.into(), number);
                        number
                    }
                };
                let cost = u32::try_from(request.hits()).unwrap_or(u32::MAX);
                each(Arrival { at: request.at, client, cost })?;
            }
            Ok(())
        })?;
        let mut named: Vec<_> = numbers.into_iter().collect();
        named.sort_unstable_by_key(|(_, number)| *number);
        let clients =
            named.into_iter().map(|(name, _)| Client { name: name.into(), is_abuser: None });
        Ok((clients.collect(), lines))
    }
}
