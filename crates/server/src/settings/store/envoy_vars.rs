//! Redis servers from the variables of envoyproxy/ratelimit.
//!
//! There the default is the socket of a proxy; here only a URL that is set selects Redis.

use sluicegate_redis::{Address, LinkOptions, Secret, TlsOptions};

use super::super::vars::Reader;
use super::{CONNECTIONS_MAX, RedisServer, timeout};

/// Variables of one of its two pools.
struct Names {
    url: &'static str,
    kind: &'static str,
    socket: &'static str,
    tls: &'static str,
    auth: &'static str,
}

const MAIN: Names = Names {
    url: "REDIS_URL",
    kind: "REDIS_TYPE",
    socket: "REDIS_SOCKET_TYPE",
    tls: "REDIS_TLS",
    auth: "REDIS_AUTH",
};

const PER_SECOND: Names = Names {
    url: "REDIS_PERSECOND_URL",
    kind: "REDIS_PERSECOND_TYPE",
    socket: "REDIS_PERSECOND_SOCKET_TYPE",
    tls: "REDIS_PERSECOND_TLS",
    auth: "REDIS_PERSECOND_AUTH",
};

#[derive(Clone, Copy)]
enum RedisType {
    Single,
    Sentinel,
    Cluster,
}

/// The main pool: its address and credentials.
pub(super) fn main(read: &mut Reader<'_>) -> Option<RedisServer> {
    let backend = read.choice("BACKEND_TYPE", &[("redis", true), ("memcache", false)]);
    if backend == Some(false) {
        read.errors.push(
            "BACKEND_TYPE: memcached is not supported, got `memcache`; set SLUICEGATE_STORE to a Redis, such as \
             `redis://127.0.0.1:6379`, or to `memory` for counters of each process"
                .to_owned(),
        );
    }
    if backend == Some(true) && read.text(MAIN.url).is_none() {
        read.errors.push(
            "BACKEND_TYPE: `redis` needs the address of a Redis; set REDIS_URL too, such as `127.0.0.1:6379`, or set \
             SLUICEGATE_STORE to `memory` for counters of each process"
                .to_owned(),
        );
    }
    MAIN.server(read)
}

/// The pool for limits per second, if it is enabled.
pub(super) fn per_second(read: &mut Reader<'_>, common: &LinkOptions) -> Option<RedisServer> {
    let is_enabled = read.is_true("REDIS_PERSECOND");
    let connect_timeout = timeout(read, "REDIS_PERSECOND_TIMEOUT");
    let connections = read.number("REDIS_PERSECOND_POOL_SIZE", 1, CONNECTIONS_MAX);
    let is_set = read.text(PER_SECOND.url).is_some();
    let server = PER_SECOND.server(read);
    if is_enabled && !is_set {
        read.errors.push(format!(
            "REDIS_PERSECOND: the Redis for limits per second has no URL; set {} too, such as `127.0.0.1:6380`",
            PER_SECOND.url
        ));
    }
    let RedisServer { address, source, options } = server.filter(|_| is_enabled)?;
    let (sentinel_username, sentinel_password) = credentials(read, "REDIS_PERSECOND_SENTINEL_AUTH");
    let options = LinkOptions {
        username: options.username,
        password: options.password,
        sentinel_username,
        sentinel_password,
        connect_timeout: connect_timeout.unwrap_or(common.connect_timeout),
        connections: connections.map_or(common.connections, |number| number as usize),
        tls: TlsOptions { switch: options.tls.switch, ..common.tls.clone() },
        ..common.clone()
    };
    Some(RedisServer { address, source, options })
}

/// `password`, or `user:password`.
pub(super) fn credentials(read: &Reader<'_>, name: &str) -> (Option<Box<str>>, Option<Secret>) {
    let text = read.text(name).unwrap_or_default();
    let (user, password) = text.split_once(':').unwrap_or(("", text));
    ((!user.is_empty()).then(|| user.into()), (!password.is_empty()).then(|| Secret::new(password)))
}

impl Names {
    /// The address, with its credentials and the switch of TLS as the only options.
    fn server(&self, read: &mut Reader<'_>) -> Option<RedisServer> {
        let kinds = [
            ("single", RedisType::Single),
            ("sentinel", RedisType::Sentinel),
            ("cluster", RedisType::Cluster),
        ];
        let kind = read.choice(self.kind, &kinds).unwrap_or(RedisType::Single);
        let is_file = read.choice(self.socket, &[("unix", true), ("tcp", false)]);
        let is_tls = read.is_true(self.tls);
        let text = read.text(self.url)?.trim();
        let url = self.to_own_syntax(text, kind, is_file, is_tls);
        let url = url.map_err(|error| format!("{error}, got `{}`", Address::mask(text)));
        let address = url.and_then(|url| Address::parse(&url).map_err(|error| error.to_string()));
        let address =
            address.map_err(|error| read.errors.push(format!("{}: {error}", self.url))).ok()?;
        // Each part of the separate variable has precedence over the URL, as there.
        let (username, password) = credentials(read, self.auth);
        let username = username.or_else(|| address.username().map(Box::from));
        let password = password.or_else(|| address.password().cloned());
        let switch = (!text.contains("rediss")).then_some(self.tls);
        let tls = TlsOptions { switch, ..TlsOptions::default() };
        let options = LinkOptions { username, password, tls, ..LinkOptions::default() };
        Some(RedisServer { address, source: self.url, options })
    }

    /// The URL in our syntax.
    fn to_own_syntax(
        &self,
        text: &str,
        kind: RedisType,
        is_file: Option<bool>,
        is_tls: bool,
    ) -> Result<String, String> {
        let s = if is_tls { "s" } else { "" };
        match kind {
            RedisType::Single if text.contains("://") => match text.strip_prefix("redis://") {
                Some(rest) => Ok(format!("redis{s}://{rest}")),
                None => Ok(text.to_owned()),
            },
            RedisType::Single if text.starts_with('/') && is_file != Some(false) => {
                Ok(format!("unix://{text}"))
            }
            RedisType::Single if is_file == Some(true) => Err(format!(
                "must be the path of a socket, such as `/run/redis.sock`, or {} must be `tcp`",
                self.socket
            )),
            RedisType::Single => Ok(format!("redis{s}://{}", local(text))),
            RedisType::Cluster => Ok(format!("redis{s}-cluster://{}", list(text))),
            RedisType::Sentinel => match text.split_once(',') {
                Some((master, sentinels)) => {
                    Ok(format!("redis{s}-sentinel://{}/{}", list(sentinels), master.trim()))
                }
                None => Err(
                    "must be the name of the master and its Sentinels, such as `mymaster,10.0.0.1:26379,10.0.0.2:26379`"
                        .to_owned(),
                ),
            },
        }
    }
}

/// Hosts separated by commas. Each may be a URL; the credentials of the last one count.
fn list(text: &str) -> String {
    let mut credentials = "";
    let hosts = text.split(',').map(|part| {
        let bare = part.trim().split_once("://").map_or(part.trim(), |(_, bare)| bare);
        let bare = bare.split('/').next().unwrap_or_default();
        let (user, host) = bare.rsplit_once('@').map_or(("", bare), |(user, host)| (user, host));
        credentials = if user.is_empty() { credentials } else { user };
        local(host)
    });
    let hosts = hosts.collect::<Vec<_>>().join(",");
    if credentials.is_empty() { hosts } else { format!("{credentials}@{hosts}") }
}

/// In Go a port alone means localhost.
fn local(host: &str) -> String {
    if host.starts_with(':') { format!("127.0.0.1{host}") } else { host.to_owned() }
}
