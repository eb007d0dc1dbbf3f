//! Three masters with a replica each, and all slots between them.

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

/// Nodes take one of theirs for dead after a second without an answer.
const SETTINGS: [&str; 5] = [
    "cluster-enabled yes",
    "cluster-node-timeout 1000",
    // However old what a replica has: somebody has to go on.
    "cluster-replica-validity-factor 0",
    // Replicas stay where they are put.
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

/// Some slots and who has them: what a node answers to `CLUSTER SLOTS`.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Range {
    first: u16,
    last: u16,
    master: u16,
    replicas: BTreeSet<u16>,
}

impl Cluster {
    /// Every node says that all is well, and replicas are in sync, when this returns.
    pub fn start() -> Self {
        Self::with(&Options::default())
    }

    /// The same with passwords, users, TLS or whatever else all nodes are to be told.
    pub fn with(options: &Options) -> Self {
        let mut options = options.clone();
        options.more.extend(SETTINGS.map(str::to_owned));
        if options.tls.is_some() {
            options.more.extend(["tls-cluster yes".to_owned(), "tls-replication yes".to_owned()]);
        }
        if let Some(password) = &options.password {
            options.more.push(format!("masterauth {}", super::options::quoted(password)));
        } else if !options.users.is_empty() {
            let [keeper, secret] = super::options::KEEPER;
            options.more.push(format!("masteruser {keeper}\nmasterauth {secret}"));
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

    /// Where clients find the nodes: all six, masters first.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// All nodes in the order of their start, whatever they are now. The first three were masters,
    /// the others their replicas in the same order.
    pub fn nodes(&self) -> &[Single] {
        &self.nodes
    }

    /// What clients need to trust them, and they to trust clients.
    pub fn tls_files(&self) -> &TlsFiles {
        self.nodes[0].tls_files()
    }

    /// The slot of a key.
    pub fn slot_of(&self, key: &str) -> u16 {
        let slot = self.nodes.iter().find_map(|node| node.look(&["CLUSTER", "KEYSLOT", key]));
        match slot {
            Some(Reply::Integer(slot)) => {
                u16::try_from(slot).unwrap_or_else(|_| panic!("slot {slot}"))
            }
            other => panic!("no node knows the slot of `{key}`: {other:?}"),
        }
    }

    /// Who has a slot, as soon as all nodes that are up agree on it.
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

    /// Makes the replica of a master the master (`CLUSTER FAILOVER`), which loses nothing. All is
    /// calm again when this returns the new master.
    pub fn fail_over(&self, master: &Single) -> &Single {
        let replica = self.order_failover(master);
        wait::until(&format!("{replica:?} is a master"), || {
            let view = self.view()?;
            view.iter().any(|range| range.master == replica.port()).then_some(())
        });
        self.await_calm();
        replica
    }

    /// Gives the order, and does not wait for what follows: for those who want to watch it under
    /// load.
    pub fn order_failover(&self, master: &Single) -> &Single {
        let replica = self.replica_of(master);
        let order = replica.cli(&["CLUSTER", "FAILOVER"]);
        assert_eq!(order, "OK", "{replica:?} does not take over");
        replica
    }

    /// Ends a node as a crash would. If it was a master, its replica takes over:
    /// [`Self::await_master_other_than`]. It can come back as a replica: [`Single::restart`].
    pub fn kill(&self, node: &Single) {
        node.kill();
    }

    /// Waits until all nodes that are up take somebody else for the master of a slot, and serve
    /// again.
    pub fn await_master_other_than(&self, port: u16, slot: u16) -> &Single {
        wait::until(&format!("somebody else than {port} has slot {slot}"), || {
            let master = self.agreed_master(slot).filter(|master| master.port() != port)?;
            self.up().all(|node| is_ok(node).unwrap_or(false)).then_some(master)
        })
    }

    /// Gives a slot with all its keys to another master.
    pub fn migrate_slot(&self, slot: u16, to: &Single) {
        self.migration(slot, to).finish();
    }

    /// Begins to give a slot to another master, and leaves the rest to the caller: clients are told
    /// `ASK` for keys that are not there any more, and `TRYAGAIN` for several keys of which only
    /// some have gone.
    pub fn migration<'a>(&'a self, slot: u16, to: &'a Single) -> Migration<'a> {
        Migration::begin(self, slot, to)
    }

    /// Waits until every node says that all is well, all of them agree, and replicas are in sync.
    pub fn await_calm(&self) {
        let calm = || self.is_calm()?.then_some(());
        wait::until_or("all nodes say that all is well", calm, || {
            let views = self.nodes.iter().map(|node| (node, node.look(&["CLUSTER", "NODES"])));
            let describe =
                |reply: Option<Reply>| reply.map_or("is down".to_owned(), |r| r.to_string());
            views.map(|(node, reply)| format!("{node:?}:\n{}\n", describe(reply))).collect()
        });
    }

    fn is_calm(&self) -> Option<bool> {
        let view = self.view()?;
        let masters: BTreeSet<u16> = view.iter().map(|range| range.master).collect();
        let calm = view.iter().all(|range| range.replicas.len() == 1)
            && self.nodes.iter().all(|node| is_ok(node).unwrap_or(false))
            && self.nodes.iter().filter(|node| !masters.contains(&node.port())).all(is_in_sync);
        Some(calm)
    }

    /// Who has a slot, if all nodes that are up agree.
    pub(super) fn agreed_master(&self, slot: u16) -> Option<&Single> {
        let view = self.view()?;
        let range = view.iter().find(|range| (range.first..=range.last).contains(&slot))?;
        self.node(range.master)
    }

    /// The nodes that are up.
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
            // Known by number is not yet known by name.
            wait::until("a replica has found its master", || {
                (replica.cli(&["CLUSTER", "REPLICATE", &id]) == "OK").then_some(())
            });
        }
        self.await_calm();
    }

    /// Who has what, if all nodes that are up agree.
    fn view(&self) -> Option<Vec<Range>> {
        let mut views = self.up().map(view);
        let first = views.next()??;
        views.all(|view| view.as_ref() == Some(&first)).then_some(first)
    }
}

/// Gives an order that must not be refused.
pub(super) fn expect_ok(node: &Single, command: &[&str]) {
    let reply = node.ask(command);
    let order = command[..command.len().min(4)].join(" ");
    assert!(!matches!(reply, Reply::Error(_)), "{node:?} does not `{order}`: {reply}");
}

/// How the nodes call each other.
pub(super) fn id(node: &Single) -> String {
    node.cli(&["CLUSTER", "MYID"])
}

fn view(node: &Single) -> Option<Vec<Range>> {
    let reply = node.look(&["CLUSTER", "SLOTS"])?;
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
