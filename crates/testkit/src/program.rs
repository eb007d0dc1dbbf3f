//! Programs installed by `scripts/servers`, or named by a variable.

use std::path::{Path, PathBuf};

/// Redis.
pub(crate) fn redis_server() -> PathBuf {
    installed("redis-server")
}

/// Never skipped: without the server nothing is tested.
pub(crate) fn installed(name: &str) -> PathBuf {
    let variable = format!("SLUICEGATE_TEST_{}", name.replace('-', "_").to_ascii_uppercase());
    let named = std::env::var_os(&variable).map(PathBuf::from);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let program = named.unwrap_or_else(|| root.join("target/servers/bin").join(name));
    let at = program.display();
    assert!(
        program.exists(),
        "there is no {name} at {at}: run ./scripts/servers, or set {variable} to one"
    );
    program
}
