//! Bytes as a client of Redis sends them: commands are read as a naive reader reads them, however
//! they are cut.
#![no_main]

#[path = "../../crates/server/tests/resp_frames/same.rs"]
mod same;

use libfuzzer_sys::fuzz_target;
use sluicegate_server::resp::frame::CommandLimits;

/// Small, so that they are met.
const SMALL: CommandLimits = CommandLimits { args: 4, bulk_bytes: 12, command_bytes: 48, inline_bytes: 24 };

fuzz_target!(|input: (u8, &[u8])| {
    let (cut, bytes) = input;
    let cuts: Vec<usize> =
        (0..bytes.len()).filter(|index| index % (usize::from(cut) + 1) == 0).collect();
    same::same(bytes, SMALL, &cuts);
    same::same(bytes, CommandLimits::default(), &cuts);
});
