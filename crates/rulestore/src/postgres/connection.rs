//! Connections, and what their errors say.

use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_postgres::{AsyncMessage, Client, Config};

use super::tls::PostgresTls;
use super::url::{CONNECT_TIMEOUT, PostgresUrl};

/// Time to connect to one of all addresses, and to log in.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(2 * CONNECT_TIMEOUT.as_secs());

/// Opens connections.
#[derive(Clone)]
pub(crate) struct Database {
    config: Config,
    tls: PostgresTls,
}

/// A connection that receives notifications.
pub(crate) struct Listener {
    pub(crate) client: Client,
    /// A notification has come, or the connection has ended.
    pub(crate) notified: Arc<Notify>,
    driver: JoinHandle<()>,
}

impl Database {
    pub(crate) fn new(url: &PostgresUrl) -> Result<Self, String> {
        Ok(Self { config: url.config.clone(), tls: PostgresTls::new(&url.tls)? })
    }

    /// A connection for one operation.
    pub(crate) async fn connect(&self) -> Result<Client, String> {
        Ok(self.open(Arc::new(Notify::new())).await?.0)
    }

    /// A connection for notifications.
    pub(crate) async fn listener(&self) -> Result<Listener, String> {
        let notified = Arc::new(Notify::new());
        let (client, driver) = self.open(notified.clone()).await?;
        Ok(Listener { client, notified, driver })
    }

    async fn open(&self, notified: Arc<Notify>) -> Result<(Client, JoinHandle<()>), String> {
        let connect = self.config.connect(self.tls.clone());
        let connected = tokio::time::timeout(LOGIN_TIMEOUT, connect).await;
        let timed_out = |_| "no connection in time".to_owned();
        let (client, mut connection) =
            connected.map_err(timed_out)?.map_err(|error| describe(&error))?;
        // Ends with the client, or with the connection.
        let driver = tokio::spawn(async move {
            loop {
                match std::future::poll_fn(|cx| connection.poll_message(cx)).await {
                    Some(Ok(AsyncMessage::Notification(_))) => notified.notify_one(),
                    Some(Ok(_)) => {}
                    Some(Err(_)) | None => break,
                }
            }
            notified.notify_one();
        });
        Ok((client, driver))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// An error with its cause; neither has a secret.
pub(crate) fn describe(error: &tokio_postgres::Error) -> String {
    if let Some(error) = error.as_db_error() {
        return format!("{} ({})", error.message(), error.code().code());
    }
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Database")
    }
}
