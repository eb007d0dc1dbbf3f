//! Chooses the server of a request.
//!
//! Only usable servers are chosen: those that their checks find healthy and that are not ejected.
//! If none is usable, all are: a wrong check must not take the upstream down, and the error of a
//! server that was tried is better than none.
//!
//! Hashing is by rendezvous: every server has a score for a key, and the best one wins. A server
//! that is added takes the keys it scores best for, about one in n; no other key moves. It needs
//! no table, so ejections need no rebuild.

use std::hash::Hasher;
use std::sync::Arc;

use siphasher::sip::SipHasher13;

use super::server::Server;

/// How servers are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Choice {
    /// In turn.
    Turn(usize),
    /// The fewest requests in flight; in turn among equals.
    LeastLoaded(usize),
    /// By the hash of a key.
    Key(u64),
}

/// Chooses a server, but not `tried`.
pub(super) fn choose<'a>(
    servers: &'a [Arc<Server>],
    choice: Choice,
    tried: Option<&Arc<Server>>,
) -> Option<&'a Arc<Server>> {
    let is_tried = |server: &Arc<Server>| tried.is_some_and(|tried| Arc::ptr_eq(server, tried));
    let is_usable = |server: &Arc<Server>| !is_tried(server) && server.is_usable();
    select(servers, choice, is_usable)
        .or_else(|| select(servers, choice, |server| !is_tried(server)))
}

fn select(
    servers: &[Arc<Server>],
    choice: Choice,
    is_candidate: impl Fn(&Arc<Server>) -> bool,
) -> Option<&Arc<Server>> {
    let candidates = || servers.iter().filter(|server| is_candidate(server));
    match choice {
        Choice::Turn(turn) => {
            let next = servers.get(turn % servers.len().max(1))?;
            if is_candidate(next) {
                return Some(next);
            }
            // The share of a server that is not a candidate goes to all others alike.
            let count = candidates().count();
            candidates().nth(turn / servers.len() % count.max(1))
        }
        Choice::LeastLoaded(turn) => {
            let start = turn % servers.len().max(1);
            let (before, behind) = servers.split_at(start);
            let rotated = behind.iter().chain(before).filter(|server| is_candidate(server));
            rotated.min_by_key(|server| server.requests_in_flight())
        }
        Choice::Key(key) => candidates().max_by_key(|server| score(key, server.identity_hash())),
    }
}

/// The hash of a key or of a server's name: the same in every gateway.
pub(crate) fn stable_hash(bytes: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(bytes);
    hasher.finish()
}

/// Score of a server for a key (the finalizer of MurmurHash3).
const fn score(key: u64, server: u64) -> u64 {
    let mut score = key ^ server;
    score = (score ^ (score >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    score = (score ^ (score >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    score ^ (score >> 33)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;
    use tokio::time::Instant;

    use super::*;
    use crate::upstream::server::tests::server;

    fn servers(count: usize) -> Vec<Arc<Server>> {
        (0..count).map(|index| server(&format!("http://10.0.0.{}:80", index + 1))).collect()
    }

    fn label(chosen: Option<&Arc<Server>>) -> String {
        chosen.map(|server| server.label().to_owned()).unwrap_or_default()
    }

    #[tokio::test]
    async fn turns_are_shared_by_usable_servers() {
        let servers = servers(3);
        servers[1].set_down(true);
        let mut counts = HashMap::new();
        for turn in 0..600 {
            *counts.entry(label(choose(&servers, Choice::Turn(turn), None))).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 2);
        assert_eq!(counts["http://10.0.0.1:80"], 300);
        assert_eq!(counts["http://10.0.0.3:80"], 300);
    }

    #[tokio::test]
    async fn the_least_loaded_server_is_chosen() {
        let servers = servers(3);
        let first = servers[0].begin_request();
        let third = servers[2].begin_request();
        assert_eq!(label(choose(&servers, Choice::LeastLoaded(7), None)), "http://10.0.0.2:80");
        let second = servers[1].begin_request();
        drop(third);
        assert_eq!(label(choose(&servers, Choice::LeastLoaded(0), None)), "http://10.0.0.3:80");
        drop((first, second));
        assert_eq!(label(choose(&servers, Choice::LeastLoaded(1), None)), "http://10.0.0.2:80");
    }

    #[tokio::test]
    async fn all_unhealthy_servers_are_tried_anyway() {
        let servers = servers(2);
        servers.iter().for_each(|server| server.set_down(true));
        for choice in [Choice::Turn(0), Choice::LeastLoaded(0), Choice::Key(7)] {
            let first = choose(&servers, choice, None).unwrap();
            let second = choose(&servers, choice, Some(first)).unwrap();
            assert_ne!(first.label(), second.label());
        }
    }

    #[tokio::test]
    async fn a_single_server_has_no_second() {
        let servers = servers(1);
        assert!(choose(&servers, Choice::Turn(0), Some(&servers[0])).is_none());
        assert!(choose(&[], Choice::Turn(3), None).is_none());
        assert!(choose(&[], Choice::LeastLoaded(3), None).is_none());
    }

    #[tokio::test]
    async fn an_ejected_server_is_back_after_its_time() {
        tokio::time::pause();
        let servers = servers(2);
        servers[0].eject_until(Instant::now() + std::time::Duration::from_secs(10));
        assert_eq!(label(choose(&servers, Choice::Turn(0), None)), "http://10.0.0.2:80");
        tokio::time::advance(std::time::Duration::from_secs(11)).await;
        assert_eq!(label(choose(&servers, Choice::Turn(0), None)), "http://10.0.0.1:80");
    }

    proptest! {
        /// Keys move to the new server only, and about one in n does.
        #[test]
        fn a_server_that_is_added_moves_its_share_of_keys(count in 1_usize..20, salt: u64) {
            const KEYS: u32 = 4_000;

            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let _entered = runtime.enter();
            let all = servers(count + 1);
            let (added, before) = all.split_last().unwrap();
            let mut moved = 0;
            for key in 0..KEYS {
                let key = Choice::Key(stable_hash(format!("{salt}/{key}").as_bytes()));
                let (old, new) = (choose(before, key, None), choose(&all, key, None));
                if label(old) != label(new) {
                    prop_assert_eq!(label(new), added.label());
                    moved += 1;
                }
            }
            let expected = f64::from(KEYS) / (count as f64 + 1.0);
            // Six standard deviations of a binomial distribution.
            let tolerance = 6.0 * expected.sqrt();
            prop_assert!((f64::from(moved) - expected).abs() < tolerance, "{moved} of {expected}");
        }

        /// Keys of a server that fails go to others; all other keys stay.
        #[test]
        fn a_server_that_fails_moves_its_own_keys_only(count in 2_usize..12, failed: usize) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let _entered = runtime.enter();
            let servers = servers(count);
            let keys = (0..500_u64).map(|key| Choice::Key(stable_hash(&key.to_be_bytes())));
            let before: Vec<_> =
                keys.clone().map(|key| label(choose(&servers, key, None))).collect();
            let failed = &servers[failed % count];
            failed.set_down(true);
            for (key, before) in keys.zip(before) {
                let after = label(choose(&servers, key, None));
                prop_assert_ne!(&after, failed.label());
                prop_assert!(before == failed.label() || before == after);
            }
        }
    }
}
