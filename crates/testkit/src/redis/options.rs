//! Server options and their configuration file.

use std::fmt::Write;
use std::path::Path;

use super::tls::{Tls, TlsFiles};

/// Options of a server. Default: a free TCP port, no authentication, no persistence.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// A fixed port, instead of a free one.
    pub port: Option<u16>,
    /// No TCP port: clients connect to the Unix socket.
    pub unix_socket: bool,
    /// Password of the user `default`.
    pub password: Option<String>,
    /// Further users. With users and without a password, the user `default` is disabled.
    pub users: Vec<User>,
    /// TLS, and the parties that present a certificate.
    pub tls: Option<Tls>,
    /// Memory limit.
    pub memory: Option<Memory>,
    /// Whether every write is synced to disk before its response, so that a kill loses nothing.
    pub appendonly: bool,
    /// Further lines of `redis.conf`.
    pub more: Vec<String>,
}

/// A user of the server's access control list.
#[derive(Debug, Clone)]
pub struct User {
    /// Name.
    pub name: String,
    /// Password.
    pub password: String,
    /// Permissions in the syntax of `ACL SETUSER`: `~* &* +@all`.
    pub rules: String,
}

/// Memory limit and eviction policy.
#[derive(Debug, Clone)]
pub struct Memory {
    /// Value of `maxmemory`: `2mb`.
    pub max: String,
    /// Value of `maxmemory-policy`: `noeviction`.
    pub policy: String,
}

/// User of this crate with all permissions, through the socket in the folder, whatever a test
/// forbids.
pub(super) const ADMIN: [&str; 2] = ["testkit", "testkit-password"];

/// Socket file in every folder.
pub(super) const SOCKET: &str = "redis.sock";

/// A minimal `redis.conf`.
pub(super) fn file(options: &Options, port: u16, folder: &Path, tls: Option<&TlsFiles>) -> String {
    let mut text =
        String::from("bind 127.0.0.1\ndaemonize no\nsave \"\"\nrepl-diskless-sync-delay 0\n");
    let mut line = |line: &str| {
        text.push_str(line);
        text.push('\n');
    };
    match tls {
        _ if options.unix_socket => line("port 0"),
        None => line(&format!("port {port}")),
        Some(files) => {
            line("port 0");
            line(&format!("tls-port {port}"));
            line(&format!("tls-ca-cert-file {}", quoted(&files.ca.to_string_lossy())));
            line(&format!("tls-cert-file {}", quoted(&files.server_certificate.to_string_lossy())));
            line(&format!("tls-key-file {}", quoted(&files.server_key.to_string_lossy())));
            let auth_clients = if options.tls == Some(Tls::Mutual) { "yes" } else { "no" };
            line(&format!("tls-auth-clients {auth_clients}"));
        }
    }
    line(&format!("dir {}", quoted(&folder.to_string_lossy())));
    line(&format!("unixsocket {}", quoted(&folder.join(SOCKET).to_string_lossy())));
    line(if options.appendonly { "appendonly yes\nappendfsync always" } else { "appendonly no" });
    if let Some(Memory { max, policy }) = &options.memory {
        line(&format!("maxmemory {max}\nmaxmemory-policy {policy}"));
    }
    let [user, secret] = ADMIN;
    line(&format!("user {user} on >{secret} ~* &* +@all"));
    for User { name, password, rules } in &options.users {
        line(&format!("user {name} on {} {rules}", quoted(&format!(">{password}"))));
    }
    match &options.password {
        Some(password) => line(&format!("requirepass {}", quoted(password))),
        None if !options.users.is_empty() => line("user default off"),
        None => {}
    }
    for more in &options.more {
        line(more);
    }
    text
}

/// The configuration of a Sentinel, without TLS, memory limit and persistence.
pub(super) fn sentinel_file(options: &Options, port: u16, folder: &Path) -> String {
    let [user, secret] = ADMIN;
    let (folder, socket) = (folder.to_string_lossy(), folder.join(SOCKET));
    let (folder, socket) = (quoted(&folder), quoted(&socket.to_string_lossy()));
    let mut text = format!("bind 127.0.0.1\nport {port}\ndir {folder}\nunixsocket {socket}\n");
    let _ = writeln!(text, "user {user} on >{secret} ~* &* +@all");
    if let Some(password) = &options.password {
        let _ = writeln!(text, "requirepass {}", quoted(password));
    }
    for more in &options.more {
        let _ = writeln!(text, "{more}");
    }
    text
}

/// A quoted word of the file.
pub(super) fn quoted(word: &str) -> String {
    let mut text = String::from("\"");
    for byte in word.bytes() {
        match byte {
            b'"' | b'\\' => text.extend(['\\', char::from(byte)]),
            b' '..=b'~' => text.push(char::from(byte)),
            _ => {
                let _ = write!(text, "\\x{byte:02x}");
            }
        }
    }
    text.push('"');
    text
}
