//! A Redis in memory that runs production scripts.
//!
//! It has neither network nor clock: the caller passes the time.

mod commands;
mod keyspace;
mod packed;
mod scripts;

use std::sync::Arc;

use parking_lot::Mutex;
use redis::Value;

use keyspace::Keyspace;
use scripts::Scripts;

/// A Redis in memory.
#[derive(Debug)]
pub struct Store {
    keys: Arc<Mutex<Keyspace>>,
    scripts: Scripts,
}

impl Store {
    /// An empty store.
    ///
    /// # Errors
    /// When Lua cannot be set up.
    pub fn new() -> Result<Self, mlua::Error> {
        let keys = Arc::<Mutex<Keyspace>>::default();
        let scripts = Scripts::new(&keys)?;
        Ok(Self { keys, scripts })
    }

    /// Runs a script at this time, in microseconds of the epoch.
    ///
    /// # Errors
    /// The error message of the script.
    pub fn run(
        &mut self,
        script: &'static str,
        keys: &[Vec<u8>],
        args: &[Vec<u8>],
        now_us: u64,
    ) -> Result<Value, String> {
        self.keys.lock().set_now(now_us);
        self.scripts.run(script, keys, args).map_err(|error| error.to_string())
    }

    /// The keyspace.
    #[must_use]
    pub fn text(&self) -> Vec<String> {
        self.keys.lock().text()
    }

    /// Loses a primary whose replica lacks all writes since a time.
    pub fn roll_back(&mut self, since_us: u64) {
        self.keys.lock().roll_back(since_us);
    }

    /// Restarts without data.
    pub fn clear(&mut self) {
        self.keys.lock().clear();
    }
}
