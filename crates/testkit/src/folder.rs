//! Folders for one server each.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A new folder. It is removed by whoever ends the server, also when this process is not there any
/// more to do it.
pub(crate) fn new() -> PathBuf {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    // Short: the path of a unix socket has to fit into 107 bytes.
    let path =
        std::env::temp_dir().join(format!("sluicegate-testkit-{}-{number}", std::process::id()));
    // What an earlier process with our number may have left.
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path)
        .unwrap_or_else(|error| panic!("cannot make the folder {}: {error}", path.display()));
    path
}
