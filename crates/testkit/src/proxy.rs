//! Slow and partitioned networks.
//!
//! A connection has two threads, one per direction. Each reads bytes, delays them and passes them
//! on; an open connection neither loses nor reorders bytes, as in TCP.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// A TCP proxy in front of a local port. Dropping it closes all its connections.
///
/// ```
/// use std::time::Duration;
/// use sluicegate_testkit::proxy::Slow;
/// use sluicegate_testkit::redis::Single;
///
/// let server = Single::start();
/// let slow = Slow::before(server.port());
/// slow.delay(Duration::from_millis(50)); // clients of slow.url() have to wait now
/// ```
#[derive(Debug)]
pub struct Slow {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    delay: Duration,
    black_hole: bool,
    ended: bool,
    /// Number of the next connection.
    next: u64,
    /// Both ends of each open connection.
    open: HashMap<u64, [TcpStream; 2]>,
}

/// Direction of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Questions,
    Answers,
}

impl Slow {
    /// A proxy without delay.
    pub fn before(port: u16) -> Self {
        Self::listening(port).unwrap_or_else(|error| panic!("no proxy before {port}: {error}"))
    }

    fn listening(port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        let accepting = Arc::clone(&shared);
        thread::Builder::new().name("proxy".to_owned()).spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                if accepting.state().ended {
                    return;
                }
                // If the server is down, the client's connection is closed.
                if let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
                    let _ = accepting.connect(client, server);
                }
            }
        })?;
        Ok(Self { address, shared })
    }

    /// Port for clients.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// URL for a Redis without a password.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Delays responses. Requests pass at once: they are executed, but their responses are late.
    pub fn delay(&self, delay: Duration) {
        self.shared.state().delay = delay;
    }

    /// Starts or ends a black hole, in which no bytes pass in either direction. Connections stay
    /// open and new ones are accepted, as by a hanging machine. Held bytes arrive afterwards, as
    /// TCP would retransmit them.
    pub fn black_hole(&self, is: bool) {
        self.shared.state().black_hole = is;
        self.shared.changed.notify_all();
    }

    /// Closes all connections and discards bytes in transit; clients can reconnect at once.
    pub fn cut(&self) {
        self.shared.cut();
    }

    /// Number of open connections.
    pub fn connections(&self) -> usize {
        self.shared.state().open.len()
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        self.shared.state().ended = true;
        self.shared.cut();
        // Wakes the accept loop, so that the port is released.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn connect(self: &Arc<Self>, client: TcpStream, server: TcpStream) -> io::Result<()> {
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let questions = (client.try_clone()?, server.try_clone()?, Direction::Questions);
        let answers = (server.try_clone()?, client.try_clone()?, Direction::Answers);
        let number = {
            let mut state = self.state();
            state.next += 1;
            let number = state.next;
            state.open.insert(number, [client, server]);
            number
        };
        for (from, to, direction) in [questions, answers] {
            let this = Arc::clone(self);
            thread::Builder::new().name("proxied".to_owned()).spawn(move || {
                // In every case both directions end.
                let _ = this.pass(from, to, direction, number);
                this.close(number);
            })?;
        }
        Ok(())
    }

    fn pass(
        &self,
        mut from: TcpStream,
        mut to: TcpStream,
        direction: Direction,
        number: u64,
    ) -> io::Result<()> {
        let mut bytes = vec![0; 65_536];
        loop {
            let count = from.read(&mut bytes)?;
            if count == 0 || !self.may_go(direction, number) {
                return Ok(());
            }
            to.write_all(&bytes[..count])?;
        }
    }

    /// Waits until bytes may pass; false if the connection was closed in the meantime.
    fn may_go(&self, direction: Direction, number: u64) -> bool {
        let state = self.state();
        let delay = if direction == Direction::Answers { state.delay } else { Duration::ZERO };
        let open = |state: &mut State| state.open.contains_key(&number);
        let waited = self.changed.wait_timeout_while(state, delay, open);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let held = |state: &mut State| state.black_hole && state.open.contains_key(&number);
        let state = self.changed.wait_while(state, held).unwrap_or_else(PoisonError::into_inner);
        state.open.contains_key(&number)
    }

    fn close(&self, number: u64) {
        let closed = self.state().open.remove(&number);
        shut(closed);
        self.changed.notify_all();
    }

    fn cut(&self) {
        let cut: Vec<[TcpStream; 2]> = self.state().open.drain().map(|(_, ends)| ends).collect();
        shut(cut);
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn shut(connections: impl IntoIterator<Item = [TcpStream; 2]>) {
    for end in connections.into_iter().flatten() {
        let _ = end.shutdown(Shutdown::Both);
    }
}
