//! Programs installed by `scripts/servers`, or named by a variable.

use std::path::{Path, PathBuf};

/// Never skipped: without the server nothing is tested.
pub(crate) fn redis_server() -> PathBuf {
    let named = std::env::var_os("SLUICEGATE_TEST_REDIS_SERVER").map(PathBuf::from);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let program = named.unwrap_or_else(|| root.join("target/servers/bin/redis-server"));
    let at = program.display();
    assert!(
        program.exists(),
        "there is no redis-server at {at}: run ./scripts/servers redis, \
         or set SLUICEGATE_TEST_REDIS_SERVER to one"
    );
    program
}
