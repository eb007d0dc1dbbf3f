//! A socket in the file system. Files outlive the processes that made them, so one may be found there already.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;

/// A listener whose file goes when it does.
#[derive(Debug)]
pub struct SocketFile {
    listener: UnixListener,
    path: PathBuf,
    /// Which file it is, whatever may be found at the path later.
    id: (u64, u64),
}

impl SocketFile {
    pub(super) fn bind(path: &Path) -> io::Result<Self> {
        make_way(path)?;
        let listener = UnixListener::bind(path)
            .map_err(|error| told(path, &error.to_string(), error.kind()))?;
        let id = id_of(&fs::symlink_metadata(path)?);
        Ok(Self { listener, path: path.to_owned(), id })
    }

    pub(super) fn listener(&self) -> &UnixListener {
        &self.listener
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Somebody else may have put another in its place; that is not ours to remove.
        let found = fs::symlink_metadata(&self.path);
        if found.is_ok_and(|found| id_of(&found) == self.id) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Removes a socket that nobody answers on.
fn make_way(path: &Path) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(told(path, &error.to_string(), error.kind())),
    };
    if !found.file_type().is_socket() {
        let why = "is no socket; remove it, or choose another path";
        return Err(told(path, why, io::ErrorKind::AlreadyExists));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(|error| told(path, &error.to_string(), error.kind()))
        }
        Ok(_) => {
            let why = "somebody else answers there; stop it, or choose another path";
            Err(told(path, why, io::ErrorKind::AddrInUse))
        }
        Err(error) => Err(told(path, &error.to_string(), error.kind())),
    }
}

fn told(path: &Path, why: &str, kind: io::ErrorKind) -> io::Error {
    io::Error::new(kind, format!("{}: {why}", path.display()))
}

fn id_of(found: &fs::Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}
