//! Redis servers from the variables of envoyproxy/ratelimit.
//!
//! There the default is the socket of a proxy; here only a URL that is set selects Redis.

use super::super::vars::Reader;
use super::url::{self, Url};
use super::{
    CONNECT_TIMEOUT, CONNECTIONS, CONNECTIONS_MAX, RedisServer, RedisTls, Secret, timeout,
};

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

/// The main pool: its variable and URL.
pub(super) fn main_url(read: &mut Reader<'_>) -> Option<(&'static str, Url)> {
    let backend = read.choice("BACKEND_TYPE", &[("redis", true), ("memcache", false)]);
    if backend == Some(false) {
        read.errors.push(
            "BACKEND_TYPE: memcached is not supported, got `memcache`; set SLUICEGATE_STORE to a Redis, such as \
             `redis://127.0.0.1:6379`, or to `memory` for counters of each process"
                .to_owned(),
        );
    }
    MAIN.url(read).map(|url| (MAIN.url, url))
}

/// The pool for limits per second, if it is enabled. Both pools share the TLS files.
pub(super) fn per_second(read: &mut Reader<'_>, tls: &RedisTls) -> Option<RedisServer> {
    let is_enabled = read.is_true("REDIS_PERSECOND");
    let connect_timeout = timeout(read, "REDIS_PERSECOND_TIMEOUT");
    let connections = read.number("REDIS_PERSECOND_POOL_SIZE", 1, CONNECTIONS_MAX);
    let is_set = read.text(PER_SECOND.url).is_some();
    let url = PER_SECOND.url(read);
    if is_enabled && !is_set {
        read.errors.push(format!(
            "REDIS_PERSECOND: the Redis for limits per second has no URL; set {} too, such as `127.0.0.1:6380`",
            PER_SECOND.url
        ));
    }
    let url = url.filter(|_| is_enabled)?;
    let (sentinel_username, sentinel_password) = credentials(read, "REDIS_PERSECOND_SENTINEL_AUTH");
    Some(RedisServer {
        address: url.address,
        source: PER_SECOND.url.to_owned(),
        username: url.user,
        password: url.password.map(Secret),
        password_file: None,
        sentinel_username,
        sentinel_password,
        tls: url.is_tls.then(|| tls.clone()),
        connect_timeout: connect_timeout.unwrap_or(CONNECT_TIMEOUT),
        connections: connections.unwrap_or(CONNECTIONS) as usize,
    })
}

/// `password`, or `user:password`.
pub(super) fn credentials(read: &Reader<'_>, name: &str) -> (Option<String>, Option<Secret>) {
    let nonempty = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    match read.text(name).map(|text| text.split_once(':').ok_or(text)) {
        Some(Ok((user, password))) => (nonempty(user), nonempty(password).map(Secret)),
        Some(Err(password)) => (None, nonempty(password).map(Secret)),
        None => (None, None),
    }
}

// === impl Names ===

impl Names {
    fn url(&self, read: &mut Reader<'_>) -> Option<Url> {
        let kinds = [
            ("single", RedisType::Single),
            ("sentinel", RedisType::Sentinel),
            ("cluster", RedisType::Cluster),
        ];
        let kind = read.choice(self.kind, &kinds).unwrap_or(RedisType::Single);
        let is_file = read.choice(self.socket, &[("unix", true), ("tcp", false)]);
        let is_tls = read.is_true(self.tls);
        let text = read.text(self.url)?.trim();
        let url =
            self.to_own_syntax(text, kind, is_file, is_tls).and_then(|text| url::parse(&text));
        match url {
            Ok(mut url) => {
                // Each part of the separate variable has precedence over the URL, as there.
                let (user, password) = credentials(read, self.auth);
                url.user = user.or(url.user);
                url.password = password.map(|Secret(text)| text).or(url.password);
                Some(url)
            }
            Err(error) => {
                read.errors.push(format!("{}: {error}, got `{}`", self.url, url::masked(text)));
                None
            }
        }
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
