//! Networks that are slow, or gone.
//!
//! A connection is two threads, one for each direction. Each takes what has come, waits as long as
//! it is told to, and passes it on; so nothing is ever lost or out of order on a connection that
//! lives, as with TCP itself.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// A TCP proxy in front of a port of this machine. It ends with this value, and all connections
/// with it.
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
    /// The next connection's number.
    next: u64,
    /// Both ends of each connection that lives.
    open: HashMap<u64, [TcpStream; 2]>,
}

/// Whose bytes they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Questions,
    Answers,
}

impl Slow {
    /// A proxy that passes everything on at once, until it is told otherwise.
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
                // A server that is not there: the client finds its connection closed.
                if let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
                    let _ = accepting.connect(client, server);
                }
            }
        })?;
        Ok(Self { address, shared })
    }

    /// Where clients come in.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The same for a Redis without a password.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Answers come so much later from now on. Questions go through at once: what was asked
    /// happens, but nobody hears of it in time.
    pub fn delay(&self, delay: Duration) {
        self.shared.state().delay = delay;
    }

    /// While this is so, nothing gets through in either direction, and nobody is told. New
    /// connections are made, as they are by a machine that hangs. Afterwards all that was held back
    /// arrives, as TCP would send it again.
    pub fn black_hole(&self, is: bool) {
        self.shared.state().black_hole = is;
        self.shared.changed.notify_all();
    }

    /// Closes all connections, whatever is on its way; new ones can be made at once.
    pub fn cut(&self) {
        self.shared.cut();
    }

    /// How many connections there are.
    pub fn connections(&self) -> usize {
        self.shared.state().open.len()
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        self.shared.state().ended = true;
        self.shared.cut();
        // Wakes who waits for connections, so that the port is given back.
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
                // However it ends, both directions end.
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

    /// Waits for the time at which bytes may go on; false if their connection was closed meanwhile.
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
