//! A connection, from its first byte to its last.
//!
//! It has one buffer for what comes and one for what goes, and uses them again and again. As long as its client does not read what it was answered, nothing more
//! is read from it. It is looked after at regular times, twice in a patience, so that no command needs a timer of its own.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep, timeout};

use super::dispatch::{Next, Talk};
use super::shared::Seat;

/// What a connection begins with: enough for a pipeline of some twenty commands.
const FIRST_BYTES: usize = 2 << 10;
/// What it may have without asking.
const USUAL_BYTES: usize = 16 << 10;

/// Serves a connection until it ends; when `stop` is ready, it ends as soon as what has begun is answered.
pub(super) async fn serve<S>(socket: S, seat: Seat, stop: impl Future<Output = ()>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut line = Line::new(socket, seat);
    // Whatever the reason: there is nobody left to tell.
    let _ = line.run(stop).await;
}

struct Line<S> {
    socket: S,
    seat: Seat,
    talk: Talk,
    /// What has come and is not answered is from here to there.
    input: Vec<u8>,
    from: usize,
    to: usize,
    out: Vec<u8>,
    silence: Silence,
}

/// How long nothing has come that could be answered.
struct Silence {
    begun: Instant,
    /// Whether a command has come since the last look.
    is_busy: bool,
    quiet_since: Instant,
    /// Since when a part of a command is there.
    part_since: Option<Instant>,
}

// === impl Line ===

impl<S: AsyncRead + AsyncWrite + Unpin> Line<S> {
    fn new(socket: S, seat: Seat) -> Self {
        let now = Instant::now();
        let silence = Silence { begun: now, is_busy: false, quiet_since: now, part_since: None };
        let talk = Talk::new(seat.shared.clone(), seat.peer);
        let (input, out) = (Vec::new(), Vec::new());
        Self { socket, seat, talk, input, from: 0, to: 0, out, silence }
    }

    async fn run(&mut self, stop: impl Future<Output = ()>) -> io::Result<()> {
        let look_every = self.seat.shared.bounds.patience / 2;
        let mut look = pin!(sleep(look_every));
        let mut stop = pin!(stop);
        let mut is_stopping = false;
        loop {
            if self.answer().await? == Next::End {
                return self.end().await;
            }
            if is_stopping && self.from == self.to {
                return self.close().await;
            }
            if !self.make_room() {
                self.out.extend_from_slice(
                    b"-ERR too many long commands at a time, come back later\r\n",
                );
                self.send().await?;
                return self.end().await;
            }
            tokio::select! {
                // Commands first: as long as there are any, no timer is asked.
                biased;
                came = poll_fn(|cx| self.poll_fill(cx)) => {
                    if came? == 0 {
                        return Ok(());
                    }
                }
                () = &mut stop, if !is_stopping => is_stopping = true,
                () = &mut look => {
                    if !self.is_fine() {
                        return self.close().await;
                    }
                    look.as_mut().reset(Instant::now() + look_every);
                }
            }
        }
    }

    /// Answers all that has come whole.
    async fn answer(&mut self) -> io::Result<Next> {
        while self.from < self.to {
            let came = self.input.get(self.from..self.to).unwrap_or_default();
            let (taken, next) = self.talk.answer(came, &mut self.out);
            self.from += taken;
            self.silence.is_busy |= taken > 0;
            // Replies that are sent are gone already; those that are not must not pile up.
            if self.out.capacity() > USUAL_BYTES && !self.hold(self.input.len()) {
                return Err(io::ErrorKind::OutOfMemory.into());
            }
            self.send().await?;
            match next {
                Next::Room => {}
                Next::Turn => self.wait().await?,
                Next::Bytes | Next::End => return Ok(next),
            }
        }
        Ok(Next::Bytes)
    }

    /// Waits for the turn of a command; those behind it wait with it. A client that goes gives its turn back.
    async fn wait(&mut self) -> io::Result<()> {
        let mut turn = pin!(self.talk.wait());
        let turn = loop {
            // What is behind it is looked at only to see whether somebody is there, and has no more room than that takes.
            let may_come =
                self.to < self.input.len() || self.input.len() < USUAL_BYTES && self.make_room();
            tokio::select! {
                biased;
                turn = &mut turn => break turn,
                came = poll_fn(|cx| self.poll_fill(cx)), if may_come => {
                    if came? == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
            }
        };
        self.talk.conclude(turn, &mut self.out);
        self.silence.is_busy = true;
        self.send().await
    }

    /// Sends all replies. Who does not read them for a patience is gone.
    async fn send(&mut self) -> io::Result<()> {
        let patience = self.seat.shared.bounds.patience;
        let mut sent = 0;
        while sent < self.out.len() {
            let rest = self.out.get(sent..).unwrap_or_default();
            let socket = &mut self.socket;
            let mut write = |cx: &mut Context<'_>| Pin::new(&mut *socket).poll_write(cx, rest);
            let at_once = write(&mut Context::from_waker(Waker::noop()));
            let wrote = match at_once {
                Poll::Ready(wrote) => wrote?,
                Poll::Pending => timeout(patience, poll_fn(write)).await??,
            };
            if wrote == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            sent += wrote;
        }
        self.out.clear();
        self.out.shrink_to(2 * self.seat.shared.bounds.reply_bytes);
        Ok(())
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut room = ReadBuf::new(self.input.get_mut(self.to..).unwrap_or_default());
        ready!(Pin::new(&mut self.socket).poll_read(cx, &mut room))?;
        let came = room.filled().len();
        self.to += came;
        Poll::Ready(Ok(came))
    }

    /// Makes room for more bytes; whether there is any. It grows with what has come, never with what was announced.
    fn make_room(&mut self) -> bool {
        let (was_full, length) = (self.to == self.input.len(), self.input.len());
        if self.from > 0 {
            self.input.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
        }
        // A read that filled it may have left something; a command that fills it needs more.
        if !was_full || (length >= USUAL_BYTES && self.to < length / 2) {
            return true;
        }
        let longer = (length * 2).max(FIRST_BYTES);
        if !self.hold(longer) {
            return false;
        }
        self.input.resize(longer, 0);
        true
    }

    /// Charges for an input of this length, for a copy of the command while it waits, and for the
    /// replies; buffers of short commands are part of what every connection has.
    fn hold(&mut self, input: usize) -> bool {
        let input = 2 * input.saturating_sub(USUAL_BYTES);
        self.seat.hold(input + self.out.capacity().saturating_sub(USUAL_BYTES))
    }

    /// Whether the client does what clients do; and what is not needed is given back.
    fn is_fine(&mut self) -> bool {
        let bounds = self.seat.shared.bounds;
        let is_empty = self.from == self.to;
        if is_empty && (!self.silence.is_busy || self.input.len() > USUAL_BYTES) {
            (self.input, self.out) = (Vec::new(), Vec::new());
            (self.from, self.to) = (0, 0);
            self.seat.hold(0);
        }
        self.seat.trim();
        let is_stranger = !self.talk.is_known();
        let now = Instant::now();
        let age = now.duration_since(self.silence.begun);
        !(is_stranger && age >= bounds.patience)
            && self.silence.is_bearable(is_empty, now, bounds.patience, bounds.idle)
    }

    /// The last reply is heard, also if the client has sent more: to close on what was not read would take it back.
    async fn end(&mut self) -> io::Result<()> {
        const UNREAD_BYTES_MAX: usize = 1 << 20;

        self.close().await?;
        let mut left = UNREAD_BYTES_MAX;
        let patience = self.seat.shared.bounds.patience;
        let unread = async {
            (self.from, self.to) = (0, 0);
            self.input.resize(FIRST_BYTES.max(self.input.len()), 0);
            while left > 0 {
                match poll_fn(|cx| self.poll_fill(cx)).await {
                    Ok(came) if came > 0 => left = left.saturating_sub(came),
                    _ => return,
                }
                self.to = 0;
            }
        };
        let _ = timeout(patience.min(Duration::from_secs(1)), unread).await;
        Ok(())
    }

    async fn close(&mut self) -> io::Result<()> {
        poll_fn(|cx| Pin::new(&mut self.socket).poll_shutdown(cx)).await
    }
}

// === impl Silence ===

impl Silence {
    fn is_bearable(
        &mut self,
        is_empty: bool,
        now: Instant,
        patience: Duration,
        idle: Duration,
    ) -> bool {
        let is_busy = std::mem::take(&mut self.is_busy);
        if is_busy {
            self.quiet_since = now;
        }
        if is_busy || is_empty {
            self.part_since = None;
        }
        let part_since = if is_empty { now } else { *self.part_since.get_or_insert(now) };
        now.duration_since(part_since) < patience && now.duration_since(self.quiet_since) < idle
    }
}
