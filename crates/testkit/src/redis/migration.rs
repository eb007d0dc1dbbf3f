//! Migration of a slot between masters, step by step.

use super::cluster::{Cluster, expect_ok, id};
use super::options::ADMIN;
use super::single::Single;
use crate::wait;
use crate::wire::Reply;

/// A slot in migration; it stays so until [`Self::finish`].
#[derive(Debug)]
pub struct Migration<'a> {
    cluster: &'a Cluster,
    slot: u16,
    from: &'a Single,
    to: &'a Single,
}

impl<'a> Migration<'a> {
    pub(super) fn begin(cluster: &'a Cluster, slot: u16, to: &'a Single) -> Self {
        let from = cluster.master_of(slot);
        assert_ne!(from.port(), to.port(), "slot {slot} is there already");
        let number = slot.to_string();
        // In this order, so that no client is redirected to a node that is not importing yet.
        expect_ok(to, &["CLUSTER", "SETSLOT", &number, "IMPORTING", &id(from)]);
        expect_ok(from, &["CLUSTER", "SETSLOT", &number, "MIGRATING", &id(to)]);
        Self { cluster, slot, from, to }
    }

    /// Migrates at most this many keys; returns their number, zero when none remain.
    pub fn move_keys(&self, max: usize) -> usize {
        let (slot, max) = (self.slot.to_string(), max.to_string());
        let keys = self.from.command(&["CLUSTER", "GETKEYSINSLOT", &slot, &max]);
        let keys: Vec<String> = keys.items().iter().map(Reply::to_string).collect();
        if keys.is_empty() {
            return 0;
        }
        let (port, [user, password]) = (self.to.port().to_string(), ADMIN);
        let mut command = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "AUTH2", user];
        command.extend([password, "KEYS"]);
        command.extend(keys.iter().map(String::as_str));
        expect_ok(self.from, &command);
        keys.len()
    }

    /// The source of the migration.
    pub fn from(&self) -> &'a Single {
        self.from
    }

    /// Migrates the remaining keys and assigns the slot to the new master. Waits until all nodes
    /// agree.
    pub fn finish(self) {
        while self.move_keys(100) > 0 {}
        let (slot, id, to) = (self.slot.to_string(), id(self.to), self.to.port());
        let order = ["CLUSTER", "SETSLOT", &slot, "NODE", &id];
        // The new master first: the slot has an owner even if the second command fails.
        expect_ok(self.to, &order);
        expect_ok(self.from, &order);
        wait::until(&format!("slot {slot} is with {to}"), || {
            let master = self.cluster.agreed_master(self.slot)?;
            (master.port() == to).then_some(())
        });
    }
}
