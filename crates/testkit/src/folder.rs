//! Temporary folders, one per server.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A new folder. The server's shell removes it, even after this process has ended.
pub(crate) fn new() -> PathBuf {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    // Short: the path of a Unix socket is limited to 107 bytes.
    let path =
        std::env::temp_dir().join(format!("sluicegate-testkit-{}-{number}", std::process::id()));
    // Remains of an earlier process with the same PID.
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path)
        .unwrap_or_else(|error| panic!("cannot make the folder {}: {error}", path.display()));
    path
}
