//! What is printed, and whether anybody reads it.

use std::io;

use anyhow::Context;

/// Whether the reader is still there: `head` closing the pipe is no error.
pub(crate) fn written(result: io::Result<()>) -> anyhow::Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error).context("cannot write to standard output"),
    }
}
