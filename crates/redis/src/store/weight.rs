//! Weight of a hit on a node that has a share of a limit.
//!
//! On a node with a quarter of a limit a hit weighs four: the limit stays as configured, and a
//! quarter of it passes. Weights have fractions and charges do not; the rounding error is carried
//! to the next hit of the identity.

use std::sync::atomic::{AtomicU32, Ordering};

/// Weight of a hit in 65,536ths; at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Weight(u64);

/// A weight of one.
const ONE: u64 = 1 << 16;
/// Upper bound on nodes.
const NODES_MAX: u64 = 1 << 20;

/// Demand of one node and of all nodes in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NodeDemand {
    pub(super) own: u64,
    /// Of all nodes; never 0.
    pub(super) sum: u64,
    /// Nodes of the round.
    pub(super) nodes: u64,
    /// Nodes now: those that joined since have an even share too.
    pub(super) live: u64,
}

impl Weight {
    /// An even share.
    pub(crate) fn even(nodes: u64) -> Self {
        Self(ONE * nodes.clamp(1, NODES_MAX))
    }

    /// A quarter of the limit is split evenly and the rest by demand, so that a node always has
    /// quota for new demand.
    ///
    /// The shares of all nodes of a round, `1/4n + 3/4 own/sum`, add up to at most 1, less the
    /// rounding up of each weight.
    pub(super) fn by_demand(demand: NodeDemand) -> Self {
        let NodeDemand { own, sum, nodes, live } = demand;
        let (sum, nodes) = (u128::from(sum.max(1)), u128::from(nodes.clamp(1, NODES_MAX)));
        let (own, live) = (u128::from(own).min(sum), u128::from(live.min(NODES_MAX)));
        // Each factor has at most 64, 20 and 17 bits.
        let whole = u128::from(4 * ONE) * sum * live.max(nodes);
        let part = sum + 3 * nodes * own;
        Self(u64::try_from(whole.div_ceil(part)).unwrap_or(u64::MAX).max(ONE))
    }

    /// The weight under one limit. By demand a node may have as little as a quarter of an even
    /// share. If that is less than one hit, the split is even: then at most the limit passes, or
    /// one hit per node.
    pub(crate) fn for_limit(self, capacity: u64, cost: u64, nodes: u64) -> Self {
        let least = cost.max(1).saturating_mul(nodes.max(1)).saturating_mul(4);
        if capacity >= least { self } else { Self::even(nodes) }
    }

    pub(super) const fn bits(self) -> u64 {
        self.0
    }

    pub(super) const fn from_bits(bits: u64) -> Self {
        Self(if bits < ONE { ONE } else { bits })
    }

    /// A weighted cost, rounded down: a refund never exceeds the charge.
    pub(crate) fn whole(self, cost: u64) -> u64 {
        split(cost, self).0
    }

    /// The share of this node in the remaining quota of a limit.
    pub(crate) fn part_of(self, remaining: i64) -> i64 {
        let part = (i128::from(remaining) * i128::from(ONE)).div_euclid(i128::from(self.0));
        i64::try_from(part).unwrap_or(remaining)
    }
}

/// Separate rounding errors; identities that share one even out.
const CARRIES: usize = 1_024;

/// Fractions not charged yet, by hash of the identity, in 2³²nds.
#[derive(Debug)]
pub(super) struct Carries {
    parts: Box<[AtomicU32]>,
}

impl Carries {
    /// Charge of an admitted hit: on average its weight, and never off by more than one.
    pub(super) fn charge(&self, hash: u64, cost: u64, weight: Weight) -> u64 {
        let (whole, rest) = split(cost, weight);
        if rest == 0 {
            return whole;
        }
        let was = self.carry(hash).fetch_add(rest, Ordering::Relaxed);
        whole.saturating_add(u64::from(was.checked_add(rest).is_none()))
    }

    /// Charge of a hit that is admitted now.
    pub(super) fn would_charge(&self, hash: u64, cost: u64, weight: Weight) -> u64 {
        let (whole, rest) = split(cost, weight);
        let is_full = self.carry(hash).load(Ordering::Relaxed).checked_add(rest).is_none();
        whole.saturating_add(u64::from(is_full))
    }

    fn carry(&self, hash: u64) -> &AtomicU32 {
        &self.parts[hash as usize % CARRIES]
    }
}

impl Default for Carries {
    fn default() -> Self {
        Self { parts: (0..CARRIES).map(|_| AtomicU32::new(0)).collect() }
    }
}

/// The whole part of a weighted cost, and the fraction in 2³²nds.
fn split(cost: u64, weight: Weight) -> (u64, u32) {
    let all = u128::from(cost) * u128::from(weight.0);
    let whole = u64::try_from(all / u128::from(ONE)).unwrap_or(u64::MAX);
    let rest = (all % u128::from(ONE)) as u32;
    (whole, rest << 16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// As much as one, for sums of shares.
    const WHOLE: u128 = 1 << 100;

    /// Rounded up, so that a sum of at most 1 is conclusive.
    fn share(weight: Weight) -> u128 {
        (WHOLE * u128::from(ONE) / u128::from(weight.0)).min(WHOLE)
    }

    fn all_shares(demands: &[u64], live: u64) -> Vec<u128> {
        let (sum, nodes) = (demands.iter().sum(), demands.len() as u64);
        let of = |own: &u64| Weight::by_demand(NodeDemand { own: *own, sum, nodes, live });
        demands.iter().map(|own| share(of(own))).collect()
    }

    #[test]
    fn nine_to_one_is_nearly_so() {
        let [busy, idle] = all_shares(&[9_000, 1_000], 2)[..] else { unreachable!() };
        // 1/8 + 3/4 * 9/10, and 1/8 + 3/4 * 1/10.
        assert_eq!((busy * 1_000 / WHOLE, idle * 1_000 / WHOLE), (799, 199));
        // A node that joined since has a third.
        let [busy, idle] = all_shares(&[9_000, 1_000], 3)[..] else { unreachable!() };
        assert!(busy + idle + WHOLE / 3 <= WHOLE);
    }

    #[test]
    fn equal_demand_is_an_even_split() {
        for nodes in 1..200_u64 {
            let shared = NodeDemand { own: 7_000, sum: 7_000 * nodes, nodes, live: nodes };
            assert_eq!(Weight::by_demand(shared), Weight::even(nodes));
        }
        assert_eq!(Weight::even(0), Weight::even(1));
    }

    #[test]
    fn what_is_left_is_told_in_the_same_measure() {
        assert_eq!(Weight::even(4).part_of(10), 2);
        assert_eq!(Weight::even(4).part_of(-1), -1);
        assert_eq!(Weight::even(1).part_of(i64::MIN), i64::MIN);
    }

    proptest! {
        #[test]
        fn shares_add_up_to_one_at_most_and_nobody_is_left_with_nothing(
            demands in prop::collection::vec(prop_oneof![0..50_000_u64, 0..1_u64 << 40], 1..40),
            came in 0..20_u64,
        ) {
            prop_assume!(demands.iter().sum::<u64>() > 0);
            let nodes = demands.len() as u64;
            let live = nodes + came;
            let shares = all_shares(&demands, live);
            let newcomers = share(Weight::even(live)) * u128::from(came);
            prop_assert!(shares.iter().sum::<u128>() + newcomers <= WHOLE);
            let quarter = WHOLE / 4 / u128::from(live);
            prop_assert!(shares.iter().all(|share| *share + 1 >= quarter), "{shares:?}");
            // Rounding takes at most a 65,536th of each share.
            let lost = WHOLE * u128::from(nodes) / u128::from(live) - shares.iter().sum::<u128>();
            prop_assert!(lost <= WHOLE / u128::from(ONE) + u128::from(nodes), "{lost}");
        }

        /// Admissions never exceed the limit plus one, or one hit of each node.
        #[test]
        fn small_limits_are_not_divided_into_less_than_one(
            demands in prop::collection::vec(prop_oneof![0..3_u64, 0..50_000_u64], 1..12),
            limit in 1..200_u64,
        ) {
            prop_assume!(demands.iter().sum::<u64>() > 0);
            let (sum, nodes) = (demands.iter().sum(), demands.len() as u64);
            let mut passed = 0;
            for own in &demands {
                let weight = Weight::by_demand(NodeDemand { own: *own, sum, nodes, live: nodes });
                let weight = weight.for_limit(limit, 1, nodes);
                let (carries, mut left) = (Carries::default(), limit);
                loop {
                    let charge = carries.would_charge(0, 1, weight).min(limit);
                    let Some(after) = left.checked_sub(charge) else { break };
                    carries.charge(0, 1, weight);
                    (left, passed) = (after, passed + 1);
                }
            }
            prop_assert!(passed <= (limit + 1).max(nodes), "{passed} of {limit} on {nodes} nodes");
        }

        #[test]
        fn charges_are_off_by_less_than_one(
            weight in ONE..50 * ONE,
            costs in prop::collection::vec(1..40_u64, 1..300),
            hash in any::<u64>(),
        ) {
            let (weight, carries) = (Weight(weight), Carries::default());
            let (mut due, mut charged) = (0, 0);
            for cost in costs {
                let would = carries.would_charge(hash, cost, weight);
                let is = carries.charge(hash, cost, weight);
                prop_assert_eq!(would, is);
                prop_assert!(weight.whole(cost) <= is);
                due += u128::from(cost) * u128::from(weight.0);
                charged += u128::from(is) * u128::from(ONE);
                prop_assert!(charged <= due && due - charged < u128::from(ONE));
            }
        }
    }
}
