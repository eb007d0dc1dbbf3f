//! What a server can be told, and the file that says so.

use std::fmt::Write;
use std::path::Path;

use super::tls::{Tls, TlsFiles};

/// How a server is to be. The default: on a free TCP port, open to everybody on this machine,
/// nothing on disk.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// This port, instead of a free one.
    pub port: Option<u16>,
    /// No TCP port at all: clients come through a unix socket.
    pub unix_socket: bool,
    /// What the user `default` has to say.
    pub password: Option<String>,
    /// Who else may come. With users and without a password, the user `default` is switched off.
    pub users: Vec<User>,
    /// Whether connections are encrypted, and who has to show a certificate.
    pub tls: Option<Tls>,
    /// How much it may keep.
    pub memory: Option<Memory>,
    /// Whether every write goes to a file before it is answered, so that a kill loses nothing.
    pub appendonly: bool,
    /// Further lines of `redis.conf`.
    pub more: Vec<String>,
}

/// A user of the server's access control list.
#[derive(Debug, Clone)]
pub struct User {
    /// What it is called.
    pub name: String,
    /// What it has to say.
    pub password: String,
    /// What it may do, in the words of `ACL SETUSER`: `~* &* +@all`.
    pub rules: String,
}

/// A bound on what is kept, and what happens there.
#[derive(Debug, Clone)]
pub struct Memory {
    /// In the words of `maxmemory`: `2mb`.
    pub max: String,
    /// In the words of `maxmemory-policy`: `noeviction`.
    pub policy: String,
}

/// Who may always come, through the socket in the folder: this crate itself, whatever else a test
/// forbids.
pub(super) const KEEPER: [&str; 2] = ["testkit", "testkit-password"];

/// What lies in every folder.
pub(super) const SOCKET: &str = "redis.sock";

/// `redis.conf`, as short as it can be.
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
    let [keeper, secret] = KEEPER;
    line(&format!("user {keeper} on >{secret} ~* &* +@all"));
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

/// The same for a Sentinel, which knows no TLS here, no bounds and no files.
pub(super) fn sentinel_file(options: &Options, port: u16, folder: &Path) -> String {
    let [keeper, secret] = KEEPER;
    let (folder, socket) = (folder.to_string_lossy(), folder.join(SOCKET));
    let (folder, socket) = (quoted(&folder), quoted(&socket.to_string_lossy()));
    let mut text = format!("bind 127.0.0.1\nport {port}\ndir {folder}\nunixsocket {socket}\n");
    let _ = writeln!(text, "user {keeper} on >{secret} ~* &* +@all");
    if let Some(password) = &options.password {
        let _ = writeln!(text, "requirepass {}", quoted(password));
    }
    for more in &options.more {
        let _ = writeln!(text, "{more}");
    }
    text
}

/// A word of the file, whatever is in it.
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
