//! Programs as `scripts/servers` installs them, or as a variable names them.

use std::path::{Path, PathBuf};

/// Never left out: without the server nothing is tested.
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
