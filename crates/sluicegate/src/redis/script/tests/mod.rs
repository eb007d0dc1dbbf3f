//! The scripts on a real server, beside the core.

mod anything;
mod property;
mod world;
