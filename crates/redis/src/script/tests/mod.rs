//! The scripts on a real server, beside the core.

mod anything;
mod corruption;
mod property;
mod world;
