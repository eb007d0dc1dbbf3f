//! Account and certificates on disk: files of the gateway's user alone, replaced atomically.
//!
//! ```text
//!   state/acme-v02.api.letsencrypt.org-4f1c9a02/account.json
//!                                               api.example.com.pem
//! ```
//!
//! The folder is of one directory URL: an account and its certificates belong to one authority.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use ring::digest::{SHA256, digest};

/// Files of one authority.
#[derive(Debug)]
pub(super) struct StateFolder {
    path: PathBuf,
}

/// Name of the account's file.
pub(super) const ACCOUNT: &str = "account.json";

impl StateFolder {
    /// Opens the folder of a directory URL below `path`, and creates it.
    pub(super) fn open(path: &Path, directory: &str) -> io::Result<Self> {
        let path = path.join(authority_id(directory));
        let mut builder = DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.recursive(true).create(&path)?;
        Ok(Self { path })
    }

    /// Reads a file; `None` if there is none.
    pub(super) fn read(&self, name: &str) -> io::Result<Option<String>> {
        match fs::read_to_string(self.path.join(name)) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces a file as a whole; it survives a crash.
    pub(super) fn write(&self, name: &str, text: &str) -> io::Result<()> {
        // Another process has another name.
        let beside = self.path.join(format!(".{name}.{}", std::process::id()));
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(&beside)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&beside, self.path.join(name))?;
        File::open(&self.path)?.sync_all()
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// Identifies an authority by its directory URL: the host for people, and a hash.
pub(super) fn authority_id(directory: &str) -> String {
    let host = directory.parse::<http::Uri>().ok().and_then(|uri| uri.host().map(str::to_owned));
    let host = host.unwrap_or_default().replace(|c: char| !c.is_ascii_alphanumeric(), ".");
    let hash = digest(&SHA256, directory.as_bytes());
    let hash: String = hash.as_ref().iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{hash}", host.trim_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_private_replaced_and_of_one_authority() {
        let root = std::env::temp_dir().join(format!("sluicegate-acme-{}", std::process::id()));
        let one = StateFolder::open(&root.join("a/b"), "https://ca.example/directory").unwrap();
        let other = StateFolder::open(&root.join("a/b"), "https://ca.example/staging").unwrap();
        assert_eq!(one.read("x").unwrap(), None);
        one.write("x", "first, and longer").unwrap();
        one.write("x", "second").unwrap();
        assert_eq!(one.read("x").unwrap().as_deref(), Some("second"));
        assert_eq!(other.read("x").unwrap(), None);
        assert_eq!(fs::read_dir(one.path()).unwrap().count(), 1, "nothing is left beside it");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
            assert_eq!((mode(one.path()), mode(&one.path().join("x"))), (0o700, 0o600));
        }
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn an_authority_is_identified_by_its_whole_url() {
        let id = authority_id("https://ca.example/directory");
        assert!(id.starts_with("ca.example-"), "{id}");
        assert_ne!(id, authority_id("https://ca.example/directory2"));
        assert!(!authority_id("https://[::1]:1/../x").contains(['/', ':']));
    }
}
