//! What the system tells a service: to end, or to read its rules again.

use std::io;

use tokio::sync::mpsc;

/// The signals, listened to from the moment that this is there.
pub(super) struct Signals {
    #[cfg(unix)]
    terminate: tokio::signal::unix::Signal,
    #[cfg(unix)]
    interrupt: tokio::signal::unix::Signal,
}

impl Signals {
    /// Whoever receives is told each time that the rules should be read again.
    #[cfg(unix)]
    pub(super) fn new(reread: mpsc::Sender<()>) -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};

        let mut hang_up = signal(SignalKind::hangup())?;
        tokio::spawn(async move {
            while hang_up.recv().await.is_some() {
                // If it was told already and has not come to it, once is enough.
                let _ = reread.try_send(());
            }
        });
        let (terminate, interrupt) = (SignalKind::terminate(), SignalKind::interrupt());
        Ok(Self { terminate: signal(terminate)?, interrupt: signal(interrupt)? })
    }

    #[cfg(not(unix))]
    pub(super) fn new(_reread: mpsc::Sender<()>) -> io::Result<Self> {
        Ok(Self {})
    }

    /// Until it is time to end.
    #[cfg(unix)]
    pub(super) async fn told_to_stop(mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    #[cfg(not(unix))]
    pub(super) async fn told_to_stop(self) {
        let _ = tokio::signal::ctrl_c().await;
    }
}
