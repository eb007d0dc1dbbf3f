//! A replay in several threads, which divide the requests by a value that all their counters
//! depend on.
//!
//! Every thread has an engine of its own, goes through all requests in the order of time, and
//! decides those of its shard. So the result is that of one thread, where requests that share a
//! counter always share the value: each descriptor has an entry with the same part of the request,
//! and no rule has one counter for several values of it.

use std::hash::RandomState;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use sluicegate::rules::domain::{Counter, DescriptorConfig, Domain, Joint};
use sluicegate::rules::mapping::Part;

use super::json::ReplayOutput;
use super::run::{ReplayState, ReplayedRules};
use crate::log_input::batch::ShardKey;
use crate::log_input::counts::LineCounts;
use crate::log_input::mapping::LogMapping;
use crate::log_input::order::OrderedRequests;
use crate::log_input::{LogError, LogInput, ReadProgress};

/// Batches that wait for a shard.
const QUEUE_MAX: usize = 16;

/// A shard of a replay.
#[derive(Debug)]
pub(super) struct Shard(ReplayState);

/// Position of the value by which requests can be sharded; `None` if they cannot be.
pub(super) fn shard_key(
    rules: &ReplayedRules,
    against: Option<&ReplayedRules>,
    mappings: &[LogMapping],
) -> Option<ShardKey> {
    let first = mappings.first()?.mapping.descriptors.first()?;
    let is_key = |part: &Part| {
        let sides = std::iter::once(rules).chain(against);
        let is_in_all = mappings.iter().all(|mapping| {
            let mut descriptors = mapping.mapping.descriptors.iter();
            descriptors.all(|one| one.entries.iter().any(|(_, other)| other == part))
        });
        is_in_all && sides.into_iter().all(|side| counts_each_value(side, part))
    };
    let (_, part) = first.entries.iter().find(|(_, part)| is_key(part))?;
    let entries = mappings.iter().map(|mapping| {
        let descriptors = mapping.mapping.descriptors.iter();
        let at = descriptors.map(|one| one.entries.iter().position(|(_, other)| other == part));
        at.collect::<Option<Vec<_>>>()
    });
    Some(ShardKey { entries: entries.collect::<Option<_>>()?, hasher: RandomState::new() })
}

/// Whether no counter of the rules is that of several values of a part.
fn counts_each_value(side: &ReplayedRules, part: &Part) -> bool {
    let descriptors = &side.mapping.mapping.descriptors;
    let keys: Vec<&str> = descriptors
        .iter()
        .flat_map(|one| one.entries.iter().filter(|(_, other)| other == part))
        .map(|(key, _)| &**key)
        .collect();
    let domain = side.domains.iter().find(|domain| domain.name == side.mapping.domain);
    domain.is_none_or(|domain| domain.overrides.is_empty() && counts_each(domain, &keys))
}

fn counts_each(domain: &Domain, keys: &[&str]) -> bool {
    fn all(nodes: &[DescriptorConfig], is_key: &impl Fn(&str) -> bool) -> bool {
        nodes.iter().all(|node| {
            let is_each = node.counter == Counter::PerValue || !is_key(&node.key);
            is_each && all(&node.descriptors, is_key)
        })
    }
    // Joined keys may match nodes of other keys.
    all(&domain.descriptors, &|key| domain.joint == Joint::Joined || keys.contains(&key))
}

/// Reads logs through the shards; the result of all.
pub(super) fn run(
    shards: Vec<Shard>,
    input: &LogInput,
    (mappings, key): (&[LogMapping], &ShardKey),
    progress: impl FnMut(ReadProgress),
) -> Result<(LineCounts, ReplayState), LogError> {
    let count = shards.len();
    thread::scope(|scope| {
        let (mut queues, mut threads) = (Vec::new(), Vec::new());
        for (index, shard) in shards.into_iter().enumerate() {
            let (queue, requests) = sync_channel(QUEUE_MAX);
            queues.push(queue);
            threads.push(scope.spawn(move || shard.run(&requests, mappings, (index, count))));
        }
        let lines = input.read(mappings, Some(key), progress, |requests| {
            let ended = |_| io::Error::other("a thread of the replay ended");
            queues.iter().try_for_each(|queue: &SyncSender<OrderedRequests>| {
                queue.send(requests.clone()).map_err(ended)
            })
        });
        drop(queues);
        let mut states = Vec::new();
        for thread in threads {
            states.push(thread.join().map_err(|_| LogError::Ended)?.map_err(LogError::Stopped)?);
        }
        let mut states = states.into_iter();
        let mut all = states.next().ok_or(LogError::Ended)?;
        states.for_each(|state| all.merge(state));
        Ok((lines?, all))
    })
}

impl Shard {
    pub(super) const fn new(state: ReplayState) -> Self {
        Self(state)
    }

    /// Decides its requests until there are no more.
    fn run(
        self,
        queue: &Receiver<OrderedRequests>,
        mappings: &[LogMapping],
        (index, count): (usize, usize),
    ) -> io::Result<ReplayState> {
        let (Self(mut state), mut output) = (self, ReplayOutput::default());
        while let Ok(requests) = queue.recv() {
            for request in requests.iter().filter(|one| one.shard() as usize % count == index) {
                state.decide(mappings, &request, &mut output)?;
            }
        }
        Ok(state)
    }
}

#[cfg(test)]
mod tests {
    use sluicegate_config::rules::{Options, Source, load, request_descriptor};

    use super::*;

    fn key(rules: &str, descriptors: &[&str]) -> Option<Vec<Vec<usize>>> {
        let source = Source { name: "rules".to_owned(), text: rules.to_owned() };
        let domains = load(&[source], &Options::default()).unwrap().domains;
        let descriptors = descriptors.iter().map(|text| request_descriptor("test", text).unwrap());
        let mapping = LogMapping {
            domain: "api".to_owned(),
            mapping: sluicegate::rules::mapping::Mapping {
                descriptors: descriptors.collect(),
                hits: None,
            },
        };
        let side = ReplayedRules { domains, mapping: mapping.clone() };
        shard_key(&side, None, &[mapping]).map(|key| key.entries)
    }

    const EACH: &str = "domain: api\ndescriptors:\n\
        - { key: ip, rate_limit: { unit: day, requests_per_unit: 1 } }\n\
        - { key: path, descriptors: [{ key: ip, rate_limit: { unit: day, requests_per_unit: 1 } }] }\n";

    #[test]
    fn requests_are_divided_by_a_part_that_all_descriptors_have() {
        assert_eq!(key(EACH, &["{ ip: client_ip }"]), Some(vec![vec![0]]));
        let both = ["{ ip: client_ip }", "{ path: path, ip: client_ip }"];
        assert_eq!(key(EACH, &both), Some(vec![vec![0, 1]]));
        assert_eq!(key(EACH, &["{ ip: client_ip }", "{ path: path }"]), None);
    }

    #[test]
    fn values_that_share_a_counter_do_not_divide_requests() {
        let networks = "domain: api\ndescriptors:\n\
            - { key: ip, prefix: { v4: 24, v6: 48 }, limits: { algorithm: fixed_window, rate: 1/day } }\n";
        assert_eq!(key(networks, &["{ ip: client_ip }"]), None);
    }
}
