//! Three masters with one replica each, covering all slots.

use std::collections::BTreeSet;

use super::migration::Migration;
use super::options::Options;
use super::single::Single;
use super::tls::TlsFiles;
use crate::port::BUS;
use crate::wait;
use crate::wire::Reply;

const MASTERS: usize = 3;
const SLOTS: u16 = 16_384;

/// Node timeout: one second.
const SETTINGS: [&str; 5] = [
    "cluster-enabled yes",
    "cluster-node-timeout 1000",
    // A replica may take over with data of any age.
    "cluster-replica-validity-factor 0",
    // Replicas do not migrate.
    "cluster-migration-barrier 100",
    "repl-ping-replica-period 1",
];

/// Six servers that end with this value.
///
/// ```
/// use sluicegate_testkit::redis::Cluster;
///
/// let cluster = Cluster::start();
/// let slot = cluster.slot_of("{alice}:visits");
/// let master = cluster.master_of(slot);
/// assert_eq!(master.cli(&["INCR", "{alice}:visits"]), "1");
/// ```
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Single>,
    url: String,
}

/// A slot range and its nodes, from `CLUSTER SLOTS`.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Range {
    first: u16,
    last: u16,
    master: u16,
    replicas: BTreeSet<u16>,
}

impl Cluster {
    /// Starts a cluster and waits until every node reports `ok` and replicas are in sync.
    pub fn start() -> Self {
        Self::with(&Options::default())
    }

    /// Starts a cluster with passwords, users, TLS or other options of all nodes.
    pub fn with(options: &Options) -> Self {
        let mut options = options.clone();
        options.more.extend(SETTINGS.map(str::to_owned));
        if options.tls.is_some() {
            options.more.extend(["tls-cluster yes".to_owned(), "tls-replication yes".to_owned()]);
        }
        if let Some(password) = &options.password {
            options.more.push(format!("masterauth {}", super::options::quoted(password)));
        } else if !options.users.is_empty() {
            let [user, secret] = super::options::ADMIN;
            options.more.push(format!("masteruser {user}\nmasterauth {secret}"));
        }
        let mut nodes = vec![Single::trusting(&options, None)];
        let files = options.tls.map(|_| nodes[0].tls_files().clone());
        nodes.extend((1..2 * MASTERS).map(|_| Single::trusting(&options, files.as_ref())));
        let at: Vec<String> =
            nodes.iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        let scheme = if options.tls.is_some() { "rediss-cluster" } else { "redis-cluster" };
        let url = format!("{scheme}://{}{}", nodes[0].login(), at.join(","));
        let this = Self { nodes, url };
        this.join();
        this
    }

    /// URLs of all six nodes, masters first.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// All nodes in the order of their start, independent of their roles. The first three started
    /// as masters, the others as their replicas in the same order.
    pub fn nodes(&self) -> &[Single] {
        &self.nodes
    }

    /// Certificates of clients and servers.
    pub fn tls_files(&self) -> &TlsFiles {
        self.nodes[0].tls_files()
    }

    /// The slot of a key.
    pub fn slot_of(&self, key: &str) -> u16 {
        let slot =
            self.nodes.iter().find_map(|node| node.try_command(&["CLUSTER", "KEYSLOT", key]));
        match slot {
            Some(Reply::Integer(slot)) => {
                u16::try_from(slot).unwrap_or_else(|_| panic!("slot {slot}"))
            }
            other => panic!("no node knows the slot of `{key}`: {other:?}"),
        }
    }

    /// The master of a slot, once all live nodes agree.
    pub fn master_of(&self, slot: u16) -> &Single {
        wait::until(&format!("the nodes agree on slot {slot}"), || self.agreed_master(slot))
    }

    /// The replica of a master.
    pub fn replica_of(&self, master: &Single) -> &Single {
        wait::until(&format!("{master:?} has a replica"), || {
            let view = self.view()?;
            let range = view.iter().find(|range| range.master == master.port())?;
            self.node(*range.replicas.first()?)
        })
    }

    /// The node on a port.
    pub fn node(&self, port: u16) -> Option<&Single> {
        self.nodes.iter().find(|node| node.port() == port)
    }

    /// Promotes the replica of a master without data loss (`CLUSTER FAILOVER`). Waits until the
    /// cluster is stable and returns the new master.
    pub fn fail_over(&self, master: &Single) -> &Single {
        let replica = self.order_failover(master);
        wait::until(&format!("{replica:?} is a master"), || {
            let view = self.view()?;
            view.iter().any(|range| range.master == replica.port()).then_some(())
        });
        self.await_calm();
        replica
    }

    /// Starts the failover without waiting for its completion, for tests under load.
    pub fn order_failover(&self, master: &Single) -> &Single {
        let replica = self.replica_of(master);
        let order = replica.cli(&["CLUSTER", "FAILOVER"]);
        assert_eq!(order, "OK", "{replica:?} does not take over");
        replica
    }

    /// Kills a node. The replica of a master takes over: [`Self::await_master_other_than`]. The
    /// node can rejoin as a replica: [`Single::restart`].
    pub fn kill(&self, node: &Single) {
        node.kill();
    }

    /// Waits until all live nodes agree on another master of a slot and serve again.
    pub fn await_master_other_than(&self, port: u16, slot: u16) -> &Single {
        wait::until(&format!("a node other than {port} owns slot {slot}"), || {
            let master = self.agreed_master(slot).filter(|master| master.port() != port)?;
            self.up().all(|node| is_ok(node).unwrap_or(false)).then_some(master)
        })
    }

    /// Migrates a slot with all its keys to another master.
    pub fn migrate_slot(&self, slot: u16, to: &Single) {
        self.migration(slot, to).finish();
    }

    /// Starts the migration of a slot and leaves its steps to the caller: clients receive `ASK` for
    /// migrated keys, and `TRYAGAIN` for several keys of which only some have migrated.
    pub fn migration<'a>(&'a self, slot: u16, to: &'a Single) -> Migration<'a> {
        Migration::begin(self, slot, to)
    }

    /// Waits until every node reports `ok`, all nodes agree, and replicas are in sync.
    pub fn await_calm(&self) {
        let stable = || self.is_stable()?.then_some(());
        wait::until_or("all nodes report a stable cluster", stable, || {
            let views =
                self.nodes.iter().map(|node| (node, node.try_command(&["CLUSTER", "NODES"])));
            let describe =
                |reply: Option<Reply>| reply.map_or("is down".to_owned(), |r| r.to_string());
            views.map(|(node, reply)| format!("{node:?}:\n{}\n", describe(reply))).collect()
        });
    }

    fn is_stable(&self) -> Option<bool> {
        let view = self.view()?;
        let masters: BTreeSet<u16> = view.iter().map(|range| range.master).collect();
        let stable = view.iter().all(|range| range.replicas.len() == 1)
            && self.nodes.iter().all(|node| is_ok(node).unwrap_or(false))
            && self.nodes.iter().filter(|node| !masters.contains(&node.port())).all(is_in_sync);
        Some(stable)
    }

    /// The master of a slot, if all live nodes agree.
    pub(super) fn agreed_master(&self, slot: u16) -> Option<&Single> {
        let view = self.view()?;
        let range = view.iter().find(|range| (range.first..=range.last).contains(&slot))?;
        self.node(range.master)
    }

    /// Live nodes.
    fn up(&self) -> impl Iterator<Item = &Single> {
        self.nodes.iter().filter(|node| node.is_up())
    }

    fn join(&self) {
        let first = &self.nodes[0];
        let slots: Vec<String> = (0..SLOTS).map(|slot| slot.to_string()).collect();
        let share = slots.len().div_ceil(MASTERS);
        for (index, node) in self.nodes.iter().enumerate() {
            expect_ok(node, &["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]);
            if let Some(slots) = slots.chunks(share).nth(index) {
                let slots = slots.iter().map(String::as_str);
                expect_ok(
                    node,
                    &["CLUSTER", "ADDSLOTS"].into_iter().chain(slots).collect::<Vec<_>>(),
                );
            }
            let (port, bus) = (node.port().to_string(), (node.port() + BUS).to_string());
            if index > 0 {
                expect_ok(first, &["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
            }
        }
        let count = self.nodes.len().to_string();
        for node in &self.nodes {
            wait::until("all nodes know each other", || {
                (info(node, "cluster_known_nodes")? == count).then_some(())
            });
        }
        let (masters, replicas) = self.nodes.split_at(MASTERS);
        for (master, replica) in masters.iter().zip(replicas) {
            let id = id(master);
            // The replica may know the master's address before its ID.
            wait::until("a replica has found its master", || {
                (replica.cli(&["CLUSTER", "REPLICATE", &id]) == "OK").then_some(())
            });
        }
        self.await_calm();
    }

    /// The slot map, if all live nodes agree.
    fn view(&self) -> Option<Vec<Range>> {
        let mut views = self.up().map(view);
        let first = views.next()??;
        views.all(|view| view.as_ref() == Some(&first)).then_some(first)
    }
}

/// Sends a command that must succeed.
pub(super) fn expect_ok(node: &Single, command: &[&str]) {
    let reply = node.command(command);
    let order = command[..command.len().min(4)].join(" ");
    assert!(!matches!(reply, Reply::Error(_)), "{node:?} does not `{order}`: {reply}");
}

/// The node's ID in the cluster.
pub(super) fn id(node: &Single) -> String {
    node.cli(&["CLUSTER", "MYID"])
}

fn view(node: &Single) -> Option<Vec<Range>> {
    let reply = node.try_command(&["CLUSTER", "SLOTS"])?;
    let mut view = reply.items().iter().map(range).collect::<Option<Vec<_>>>()?;
    view.sort();
    Some(view)
}

fn range(reply: &Reply) -> Option<Range> {
    let number = |reply: &Reply| reply.to_string().parse::<u16>().ok();
    let [first, last, master, replicas @ ..] = reply.items() else { return None };
    let port = |node: &Reply| number(node.items().get(1)?);
    Some(Range {
        first: number(first)?,
        last: number(last)?,
        master: port(master)?,
        replicas: replicas.iter().map(port).collect::<Option<_>>()?,
    })
}

fn is_ok(node: &Single) -> Option<bool> {
    let slots = SLOTS.to_string();
    Some(info(node, "cluster_state")? == "ok" && info(node, "cluster_slots_ok")? == slots)
}

fn is_in_sync(replica: &Single) -> bool {
    replica.info("master_link_status").is_some_and(|status| status == "up")
}

fn info(node: &Single, field: &str) -> Option<String> {
    node.line_of(&["CLUSTER", "INFO"], field)
}
