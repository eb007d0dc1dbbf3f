//! A primary, its replica, and three Sentinels that watch them.

use super::options::{Options, quoted};
use super::single::Single;
use crate::wait;
use crate::wire::Reply;

/// What the Sentinels call the primary.
const NAME: &str = "mymaster";

/// How many Sentinels have to take the primary for dead before anything happens.
const QUORUM: usize = 2;

/// How often Sentinels look, in ms. Without this they need two seconds to meet, ten to see a new
/// replica, and a machine that stands still for two seconds makes them do nothing for thirty. The
/// time between two pings stays as it is: no replica is promoted of which they know nothing newer
/// than five of those. Servers before 7.0 know no such command.
const HASTE: [&str; 10] = [
    "info-period",
    "300",
    "publish-period",
    "200",
    "ask-period",
    "100",
    "tilt-period",
    "1000",
    "min-link-reconnect-period",
    "500",
];

/// Five servers that end with this value. Sentinels take a server for dead after a second and a
/// half without an answer: less is a pause of a busy machine.
///
/// ```
/// use sluicegate_testkit::redis::Sentinel;
///
/// let servers = Sentinel::start();
/// let before = servers.primary().port();
/// assert_ne!(servers.fail_over().port(), before);
/// ```
#[derive(Debug)]
pub struct Sentinel {
    servers: [Single; 2],
    sentinels: [Single; 3],
    url: String,
}

/// What has to be said to whom. The default: nothing.
#[derive(Debug, Clone, Default)]
pub struct Secrets {
    /// To the primary and the replica.
    pub servers: Option<String>,
    /// To the Sentinels.
    pub sentinels: Option<String>,
}

impl Sentinel {
    /// All of them know each other, and the replica is in sync, when this returns.
    pub fn start() -> Self {
        Self::with(Secrets::default())
    }

    /// The same with passwords.
    pub fn with(secrets: Secrets) -> Self {
        let login = |line: &str, password: &Option<String>| {
            password.iter().map(|password| format!("{line} {}", quoted(password))).collect()
        };
        let mut more: Vec<String> = login("masterauth", &secrets.servers);
        more.push("repl-ping-replica-period 1".to_owned());
        let server = Options { password: secrets.servers.clone(), more, ..Options::default() };
        let primary = Single::with(server.clone());
        let mut replica = server;
        replica.more.push(format!("replicaof 127.0.0.1 {}", primary.port()));
        let replica = Single::with(replica);

        let mut more = vec![
            format!("sentinel monitor {NAME} 127.0.0.1 {} {QUORUM}", primary.port()),
            format!("sentinel down-after-milliseconds {NAME} 1500"),
            format!("sentinel failover-timeout {NAME} 6000"),
        ];
        more.extend::<Vec<_>>(login(&format!("sentinel auth-pass {NAME}"), &secrets.servers));
        more.extend::<Vec<_>>(login("sentinel sentinel-pass", &secrets.sentinels));
        let sentinel = Options { password: secrets.sentinels, more, ..Options::default() };
        let sentinels = [(); 3].map(|()| {
            let sentinel = Single::sentinel(&sentinel);
            sentinel.ask(&[&["SENTINEL", "DEBUG"], &HASTE[..]].concat());
            sentinel
        });

        let at = sentinels.each_ref().map(|sentinel| format!("127.0.0.1:{}", sentinel.port()));
        let url = format!("redis-sentinel://{}{}/{NAME}", primary.login(), at.join(","));
        let this = Self { servers: [primary, replica], sentinels, url };
        this.await_calm();
        this
    }

    /// Where clients find the Sentinels, with the password for the servers behind them.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Primary and replica, in the order of their start, whatever they are now.
    pub fn servers(&self) -> &[Single; 2] {
        &self.servers
    }

    /// Those who watch.
    pub fn sentinels(&self) -> &[Single; 3] {
        &self.sentinels
    }

    /// Whom the Sentinels call the primary now; it may be dead, if they have not noticed yet.
    pub fn primary(&self) -> &Single {
        wait::until("the Sentinels agree on a primary", || self.agreed())
    }

    /// Who is not the primary.
    pub fn replica(&self) -> &Single {
        let primary = self.primary().port();
        let [first, second] = &self.servers;
        if first.port() == primary { second } else { first }
    }

    /// Makes the replica the primary and the primary a replica; both are alive, but what was
    /// written to the old primary and had not reached the new one is lost. All is calm again when
    /// this returns the new primary.
    pub fn fail_over(&self) -> &Single {
        self.await_calm();
        let before = self.primary().port();
        self.order_failover();
        let after = self.await_primary_other_than(before);
        self.await_calm();
        after
    }

    /// Gives the order, and does not wait for what follows: for those who want to watch it under
    /// load.
    pub fn order_failover(&self) {
        wait::until("a Sentinel takes the order to fail over", || {
            let order = self.sentinels[0].ask(&["SENTINEL", "FAILOVER", NAME]);
            (order == Reply::Status("OK".to_owned())).then_some(())
        });
    }

    /// Ends the primary as a crash would. The Sentinels will notice;
    /// [`Self::await_primary_other_than`] its port. It can come back as a replica:
    /// [`Single::restart`].
    pub fn kill_primary(&self) -> &Single {
        let primary = self.primary();
        primary.kill();
        primary
    }

    /// Waits until all Sentinels call somebody else the primary, and he agrees.
    pub fn await_primary_other_than(&self, port: u16) -> &Single {
        wait::until(&format!("somebody else than {port} is the primary"), || {
            let primary = self.agreed().filter(|primary| primary.port() != port)?;
            (primary.info("role")? == "master").then_some(primary)
        })
    }

    /// Waits until everybody knows everybody, and the replica is in sync.
    pub fn await_calm(&self) {
        let calm = || self.is_calm()?.then_some(());
        wait::until_or("the servers are in sync and the Sentinels know them", calm, || {
            let logs = self.servers.iter().chain(&self.sentinels);
            logs.map(|server| format!("{server:?} said:\n{}\n", server.log())).collect()
        });
    }

    fn is_calm(&self) -> Option<bool> {
        let primary = self.agreed()?;
        let replica = self.servers.iter().find(|server| server.port() != primary.port())?;
        let calm = primary.info("role")? == "master"
            && primary.info("connected_slaves")? == "1"
            && replica.info("master_link_status")? == "up"
            && replica.info("master_port")? == primary.port().to_string()
            && self.sentinels.iter().all(|sentinel| knows_all(sentinel).unwrap_or(false));
        Some(calm)
    }

    /// Whom all Sentinels that are up call the primary, if it is the same one.
    fn agreed(&self) -> Option<&Single> {
        let ask = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME];
        let replies = self.sentinels.iter().filter_map(|sentinel| sentinel.look(&ask));
        let ports: Vec<String> =
            replies.filter_map(|r| r.items().get(1).map(Reply::to_string)).collect();
        let first = ports.first().filter(|first| ports.iter().all(|port| port == *first))?;
        self.servers.iter().find(|server| server.port().to_string() == *first)
    }
}

/// Whether a Sentinel sees a primary in good health, its replica, and its colleagues.
fn knows_all(sentinel: &Single) -> Option<bool> {
    let primary = sentinel.look(&["SENTINEL", "MASTER", NAME])?;
    let replicas = sentinel.look(&["SENTINEL", "REPLICAS", NAME])?;
    let [replica] = replicas.items() else { return Some(false) };
    let well = field(&primary, "flags")? == "master"
        && field(&primary, "num-other-sentinels")? == "2"
        && field(replica, "flags")? == "slave"
        && field(replica, "master-link-status")? == "ok";
    Some(well)
}

/// A value of a reply that is names and values by turns.
fn field(reply: &Reply, name: &str) -> Option<String> {
    let pair = reply.items().chunks(2).find(|pair| pair[0].to_string() == name)?;
    pair.get(1).map(Reply::to_string)
}
