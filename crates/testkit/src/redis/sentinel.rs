//! A primary, its replica, and three monitoring Sentinels.

use super::options::{Options, quoted};
use super::single::Single;
use crate::wait;
use crate::wire::Reply;

/// Sentinel's name of the primary.
const NAME: &str = "mymaster";

/// Quorum for a failover.
const QUORUM: usize = 2;

/// Polling intervals of Sentinels, in ms. With the defaults they need two seconds to discover each
/// other, ten to see a new replica, and a pause of two seconds suspends them for thirty. The ping
/// interval stays: a replica whose last reply is older than five of them is not promoted. Servers
/// before 7.0 lack this command.
const FAST_TIMEOUTS: [&str; 10] = [
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

/// Five servers that end with this value. `down-after-milliseconds` is 1.5 s: a busy machine may
/// pause for less.
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

/// Passwords. Default: none.
#[derive(Debug, Clone, Default)]
pub struct Secrets {
    /// Of the primary and the replica.
    pub servers: Option<String>,
    /// Of the Sentinels.
    pub sentinels: Option<String>,
}

impl Sentinel {
    /// Starts all servers and waits until they know each other and the replica is in sync.
    pub fn start() -> Self {
        Self::with(Secrets::default())
    }

    /// Starts all servers with passwords.
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
            sentinel.command(&[&["SENTINEL", "DEBUG"], &FAST_TIMEOUTS[..]].concat());
            sentinel
        });

        let at = sentinels.each_ref().map(|sentinel| format!("127.0.0.1:{}", sentinel.port()));
        let url = format!("redis-sentinel://{}{}/{NAME}", primary.login(), at.join(","));
        let this = Self { servers: [primary, replica], sentinels, url };
        this.await_calm();
        this
    }

    /// URL of the Sentinels, with the password of the servers.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Primary and replica in the order of their start, independent of their roles.
    pub fn servers(&self) -> &[Single; 2] {
        &self.servers
    }

    /// The Sentinels.
    pub fn sentinels(&self) -> &[Single; 3] {
        &self.sentinels
    }

    /// The primary according to the Sentinels; it may be down without their notice.
    pub fn primary(&self) -> &Single {
        wait::until("the Sentinels agree on a primary", || self.agreed())
    }

    /// The server that is not the primary.
    pub fn replica(&self) -> &Single {
        let primary = self.primary().port();
        let [first, second] = &self.servers;
        if first.port() == primary { second } else { first }
    }

    /// Promotes the replica and demotes the primary; both stay up, but writes that had not been
    /// replicated are lost. Waits until the deployment is stable and returns the new primary.
    pub fn fail_over(&self) -> &Single {
        self.await_calm();
        let before = self.primary().port();
        self.order_failover();
        let after = self.await_primary_other_than(before);
        self.await_calm();
        after
    }

    /// Starts the failover without waiting for its completion, for tests under load.
    pub fn order_failover(&self) {
        wait::until("a Sentinel takes the order to fail over", || {
            let order = self.sentinels[0].command(&["SENTINEL", "FAILOVER", NAME]);
            (order == Reply::Status("OK".to_owned())).then_some(())
        });
    }

    /// Kills the primary. The Sentinels detect it: [`Self::await_primary_other_than`] its port. It
    /// can rejoin as a replica: [`Single::restart`].
    pub fn kill_primary(&self) -> &Single {
        let primary = self.primary();
        primary.kill();
        primary
    }

    /// Waits until all Sentinels report another primary, which has that role.
    pub fn await_primary_other_than(&self, port: u16) -> &Single {
        wait::until(&format!("a node other than {port} is the primary"), || {
            let primary = self.agreed().filter(|primary| primary.port() != port)?;
            (primary.info("role")? == "master").then_some(primary)
        })
    }

    /// Waits until all servers know each other and the replica is in sync.
    pub fn await_calm(&self) {
        let stable = || self.is_stable()?.then_some(());
        wait::until_or("the servers are in sync and the Sentinels know them", stable, || {
            let logs = self.servers.iter().chain(&self.sentinels);
            logs.map(|server| format!("{server:?} logged:\n{}\n", server.log())).collect()
        });
    }

    fn is_stable(&self) -> Option<bool> {
        let primary = self.agreed()?;
        let replica = self.servers.iter().find(|server| server.port() != primary.port())?;
        let stable = primary.info("role")? == "master"
            && primary.info("connected_slaves")? == "1"
            && replica.info("master_link_status")? == "up"
            && replica.info("master_port")? == primary.port().to_string()
            && self.sentinels.iter().all(|sentinel| knows_all(sentinel).unwrap_or(false));
        Some(stable)
    }

    /// The primary, if all live Sentinels agree.
    fn agreed(&self) -> Option<&Single> {
        let ask = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME];
        let replies = self.sentinels.iter().filter_map(|sentinel| sentinel.try_command(&ask));
        let ports: Vec<String> =
            replies.filter_map(|r| r.items().get(1).map(Reply::to_string)).collect();
        let first = ports.first().filter(|first| ports.iter().all(|port| port == *first))?;
        self.servers.iter().find(|server| server.port().to_string() == *first)
    }
}

/// Whether a Sentinel sees a healthy primary, its replica and the other Sentinels.
fn knows_all(sentinel: &Single) -> Option<bool> {
    let primary = sentinel.try_command(&["SENTINEL", "MASTER", NAME])?;
    let replicas = sentinel.try_command(&["SENTINEL", "REPLICAS", NAME])?;
    let [replica] = replicas.items() else { return Some(false) };
    let well = field(&primary, "flags")? == "master"
        && field(&primary, "num-other-sentinels")? == "2"
        && field(replica, "flags")? == "slave"
        && field(replica, "master-link-status")? == "ok";
    Some(well)
}

/// A value of a reply of alternating names and values.
fn field(reply: &Reply, name: &str) -> Option<String> {
    let pair = reply.items().chunks(2).find(|pair| pair[0].to_string() == name)?;
    pair.get(1).map(Reply::to_string)
}
