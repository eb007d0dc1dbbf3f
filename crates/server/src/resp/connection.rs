//! A connection, from its first byte to its last.
//!
//! It has one buffer for input and one for output. Nothing is read while the client does not read
//! its replies. Timeouts are checked twice per timeout, so that no command needs a timer of its
//! own.

use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep, timeout};

use super::RespServer;
use super::dispatch::{Dispatcher, Next};
use crate::listen::ConnectionGuard;
use crate::memory::Charge;

/// First input buffer: enough for a pipeline of some twenty commands.
const FIRST_BYTES: usize = 2 << 10;
/// Buffer size that the fixed cost of a connection covers.
const USUAL_BYTES: usize = 16 << 10;

/// Serves a connection until it ends, or `stop` is ready and its commands are answered.
pub(super) async fn serve<S>(
    socket: S,
    server: Arc<RespServer>,
    guard: ConnectionGuard,
    peer: Option<IpAddr>,
    stop: impl Future<Output = ()>,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    // Without memory for the account, or after an error, there is nothing to send.
    let Some(extra) = guard.account().charge(0) else { return };
    let mut connection = RespConnection::new(socket, server, guard, extra, peer);
    let _ = connection.run(stop).await;
}

struct RespConnection<S> {
    socket: S,
    server: Arc<RespServer>,
    guard: ConnectionGuard,
    /// Charge for buffers beyond the fixed cost.
    extra: Charge,
    dispatcher: Dispatcher,
    /// Input; bytes `from..to` are not executed yet.
    input: Vec<u8>,
    from: usize,
    to: usize,
    out: Vec<u8>,
    idle: IdleTimer,
}

/// Time since the last complete command.
struct IdleTimer {
    begun: Instant,
    /// Whether a command was executed since the last check.
    is_busy: bool,
    quiet_since: Instant,
    /// Since when a command is incomplete.
    incomplete_since: Option<Instant>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> RespConnection<S> {
    fn new(
        socket: S,
        server: Arc<RespServer>,
        guard: ConnectionGuard,
        extra: Charge,
        peer: Option<IpAddr>,
    ) -> Self {
        let now = Instant::now();
        let idle =
            IdleTimer { begun: now, is_busy: false, quiet_since: now, incomplete_since: None };
        let dispatcher = Dispatcher::new(server.clone(), peer);
        let (input, out) = (Vec::new(), Vec::new());
        Self { socket, server, guard, extra, dispatcher, input, from: 0, to: 0, out, idle }
    }

    async fn run(&mut self, stop: impl Future<Output = ()>) -> io::Result<()> {
        let check_interval = self.server.limits.timeout / 2;
        let mut check = pin!(sleep(check_interval));
        let mut stop = pin!(stop);
        let mut is_stopping = false;
        loop {
            if self.execute().await? == Next::Close {
                return self.end().await;
            }
            if is_stopping && self.from == self.to {
                return self.close().await;
            }
            if !self.make_room() {
                self.out.extend_from_slice(b"-ERR too many long commands at once, retry later\r\n");
                self.send().await?;
                return self.end().await;
            }
            tokio::select! {
                // Commands first: no timer is polled while there are any.
                biased;
                count = poll_fn(|cx| self.poll_fill(cx)) => {
                    if count? == 0 {
                        return Ok(());
                    }
                }
                () = &mut stop, if !is_stopping => is_stopping = true,
                () = &mut check => {
                    if !self.is_alive() {
                        return self.close().await;
                    }
                    check.as_mut().reset(Instant::now() + check_interval);
                }
            }
        }
    }

    /// Executes all complete commands.
    async fn execute(&mut self) -> io::Result<Next> {
        while self.from < self.to {
            let input = self.input.get(self.from..self.to).unwrap_or_default();
            let (taken, next) = self.dispatcher.execute(input, &mut self.out);
            self.from += taken;
            self.idle.is_busy |= taken > 0;
            // Replies that are sent are gone already; those that are not must not pile up.
            if self.out.capacity() > USUAL_BYTES && !self.charge_buffers(self.input.len()) {
                return Err(io::ErrorKind::OutOfMemory.into());
            }
            self.send().await?;
            match next {
                Next::Send => {}
                Next::Wait => self.wait().await?,
                Next::Read | Next::Close => return Ok(next),
            }
        }
        Ok(Next::Read)
    }

    /// Waits for the replies of commands; later commands wait with them. A client that disconnects
    /// gives its turn up.
    async fn wait(&mut self) -> io::Result<()> {
        let mut reply = pin!(self.dispatcher.wait());
        let reply = loop {
            // Reads on only to notice a disconnect, with no more memory than that takes.
            let may_read =
                self.to < self.input.len() || self.input.len() < USUAL_BYTES && self.make_room();
            tokio::select! {
                biased;
                reply = &mut reply => break reply,
                count = poll_fn(|cx| self.poll_fill(cx)), if may_read => {
                    if count? == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
            }
        };
        self.dispatcher.finish(reply, &mut self.out);
        self.idle.is_busy = true;
        self.send().await
    }

    /// Sends all replies; fails if the client does not read them in time.
    async fn send(&mut self) -> io::Result<()> {
        let limit = self.server.limits.timeout;
        let mut sent = 0;
        while sent < self.out.len() {
            let rest = self.out.get(sent..).unwrap_or_default();
            let socket = &mut self.socket;
            let mut write = |cx: &mut Context<'_>| Pin::new(&mut *socket).poll_write(cx, rest);
            let at_once = write(&mut Context::from_waker(Waker::noop()));
            let wrote = match at_once {
                Poll::Ready(wrote) => wrote?,
                Poll::Pending => timeout(limit, poll_fn(write)).await??,
            };
            if wrote == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            sent += wrote;
        }
        self.out.clear();
        self.out.shrink_to(2 * self.server.limits.reply_bytes);
        Ok(())
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut room = ReadBuf::new(self.input.get_mut(self.to..).unwrap_or_default());
        ready!(Pin::new(&mut self.socket).poll_read(cx, &mut room))?;
        let count = room.filled().len();
        self.to += count;
        Poll::Ready(Ok(count))
    }

    /// Makes room for more bytes; whether there is any. Grows with the received bytes, never with
    /// an announced length.
    fn make_room(&mut self) -> bool {
        let (was_full, length) = (self.to == self.input.len(), self.input.len());
        if self.from > 0 {
            self.input.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
        }
        // A full buffer means that more is to be read, or that a command needs more room.
        if !was_full || (length >= USUAL_BYTES && self.to < length / 2) {
            return true;
        }
        let longer = (length * 2).max(FIRST_BYTES);
        if !self.charge_buffers(longer) {
            return false;
        }
        self.input.resize(longer, 0);
        true
    }

    /// Charges for an input of this length, for a copy of the command while it waits, and for the
    /// replies; the fixed cost covers buffers of short commands.
    fn charge_buffers(&mut self, input: usize) -> bool {
        let input = 2 * input.saturating_sub(USUAL_BYTES);
        self.extra.resize(input + self.out.capacity().saturating_sub(USUAL_BYTES))
    }

    /// Whether the client is within its timeouts; releases unused buffers.
    fn is_alive(&mut self) -> bool {
        let limits = self.server.limits;
        let is_empty = self.from == self.to;
        if is_empty && (!self.idle.is_busy || self.input.len() > USUAL_BYTES) {
            (self.input, self.out) = (Vec::new(), Vec::new());
            (self.from, self.to) = (0, 0);
            self.extra.resize(0);
        }
        self.guard.account().trim();
        let is_authenticated = self.dispatcher.is_authenticated();
        let now = Instant::now();
        let age = now.duration_since(self.idle.begun);
        (is_authenticated || age < limits.timeout)
            && self.idle.is_within(is_empty, now, limits.timeout, limits.idle)
    }

    /// Closes after the last reply, and discards further input: closing with unread input resets
    /// the connection, and the client would lose the reply.
    async fn end(&mut self) -> io::Result<()> {
        const UNREAD_BYTES_MAX: usize = 1 << 20;

        self.close().await?;
        let mut left = UNREAD_BYTES_MAX;
        let limit = self.server.limits.timeout;
        let unread = async {
            (self.from, self.to) = (0, 0);
            self.input.resize(FIRST_BYTES.max(self.input.len()), 0);
            while left > 0 {
                match poll_fn(|cx| self.poll_fill(cx)).await {
                    Ok(count) if count > 0 => left = left.saturating_sub(count),
                    _ => return,
                }
                self.to = 0;
            }
        };
        let _ = timeout(limit.min(Duration::from_secs(1)), unread).await;
        Ok(())
    }

    async fn close(&mut self) -> io::Result<()> {
        poll_fn(|cx| Pin::new(&mut self.socket).poll_shutdown(cx)).await
    }
}

impl IdleTimer {
    fn is_within(
        &mut self,
        is_empty: bool,
        now: Instant,
        timeout: Duration,
        idle: Duration,
    ) -> bool {
        let is_busy = std::mem::take(&mut self.is_busy);
        if is_busy {
            self.quiet_since = now;
        }
        if is_busy || is_empty {
            self.incomplete_since = None;
        }
        let incomplete_since =
            if is_empty { now } else { *self.incomplete_since.get_or_insert(now) };
        now.duration_since(incomplete_since) < timeout
            && now.duration_since(self.quiet_since) < idle
    }
}
