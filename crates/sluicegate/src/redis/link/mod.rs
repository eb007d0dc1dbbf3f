//! The way to the store.

use redis::aio::MultiplexedConnection;
use redis::{Client, ErrorKind, Value};

use super::call::{Call, CallError};

/// The way to the store. Clones are the same.
#[derive(Debug, Clone)]
pub struct Link {
    connection: MultiplexedConnection,
}

// === impl Link ===

impl Link {
    /// The way to the store at this address.
    ///
    /// # Errors
    /// When the address is none, or nobody answers there.
    pub async fn open(url: &str) -> Result<Self, CallError> {
        let refused = |error: redis::RedisError| CallError::Refused(error.to_string().into());
        let client = Client::open(url).map_err(refused)?;
        let connection =
            client.get_multiplexed_async_connection().await.map_err(|_| CallError::Down)?;
        Ok(Self { connection })
    }

    /// Calls a script; one that the store does not know is loaded first.
    pub(crate) async fn call(&self, call: &Call) -> Result<Value, CallError> {
        match self.send("EVALSHA", call.script.sha(), call).await {
            Err(error) if error.kind() == ErrorKind::Server(redis::ServerErrorKind::NoScript) => {
                self.send("EVAL", call.script.text, call).await
            }
            answered => answered,
        }
        .map_err(|error| CallError::Refused(error.to_string().into()))
    }

    /// The slot of a key, where the store is a Cluster.
    pub(crate) fn slot_of(&self, _key: &[u8]) -> Option<u16> {
        None
    }

    async fn send(&self, how: &str, script: &str, call: &Call) -> redis::RedisResult<Value> {
        let mut command = redis::cmd(how);
        command.arg(script).arg(call.keys.len());
        for part in call.keys.iter().chain(&call.args) {
            command.arg(part);
        }
        let mut connection = self.connection.clone();
        connection.send_packed_command(&command).await
    }
}
