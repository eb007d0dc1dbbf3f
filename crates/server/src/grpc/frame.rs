//! A message of a call: a byte that says whether it is compressed, its length, and itself.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use h2::RecvStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::status::Status;

const HEAD: usize = 5;

/// The one message that a call brings, as far as it has come.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    /// Nearly every message comes in one piece; it is not copied.
    first: Bytes,
    /// What came in several pieces, or has to wait. It is copied, since a piece keeps the buffer alive that it was read with.
    gathered: BytesMut,
    /// For what is gathered.
    room: Option<OwnedSemaphorePermit>,
}

/// How much may come.
#[derive(Debug)]
pub(super) struct Most<'a> {
    /// Bytes of the message.
    pub(super) bytes: usize,
    /// For the bytes of all messages that are not complete.
    pub(super) room: &'a Arc<Semaphore>,
}

// === impl Incoming ===

impl Incoming {
    /// The message, once the client has sent it and no more.
    pub(super) fn poll(
        &mut self,
        body: &mut RecvStream,
        most: &Most<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Bytes, Status>> {
        loop {
            let chunk = match body.poll_data(cx) {
                Poll::Ready(chunk) => chunk,
                Poll::Pending => {
                    self.keep(most)?;
                    return Poll::Pending;
                }
            };
            let Some(chunk) = chunk else { break };
            let chunk = chunk.map_err(|_| Status::cancelled("the call was broken off"))?;
            // More can be sent on as soon as this is here: what is gathered has a bound of its own.
            let _ = body.flow_control().release_capacity(chunk.len());
            if self.first.is_empty() && self.gathered.is_empty() {
                self.first = chunk;
                if body.is_end_stream() {
                    break;
                }
            } else {
                self.keep(most)?;
                self.gather(&chunk, most)?;
            }
        }
        let gathered = std::mem::take(&mut self.gathered);
        let first = std::mem::take(&mut self.first);
        let bytes = if gathered.is_empty() { first } else { gathered.freeze() };
        Poll::Ready(message(bytes, most.bytes))
    }

    /// Copies what would keep a buffer alive while it waits.
    fn keep(&mut self, most: &Most<'_>) -> Result<(), Status> {
        match std::mem::take(&mut self.first) {
            first if first.is_empty() => Ok(()),
            first => self.gather(&first, most),
        }
    }

    fn gather(&mut self, chunk: &[u8], most: &Most<'_>) -> Result<(), Status> {
        if self.gathered.len() + chunk.len() > HEAD + most.bytes {
            return Err(too_long(most.bytes));
        }
        let more = u32::try_from(chunk.len()).unwrap_or(u32::MAX);
        let Ok(more) = most.room.clone().try_acquire_many_owned(more) else {
            return Err(Status::overloaded());
        };
        match &mut self.room {
            Some(room) => room.merge(more),
            room => *room = Some(more),
        }
        self.gathered.extend_from_slice(chunk);
        // Whoever announces too much need not send it.
        match self.gathered.first_chunk::<HEAD>() {
            Some(head) => length(head, most.bytes).map(|_| ()),
            None => Ok(()),
        }
    }

    /// The same for who can wait.
    pub(super) async fn receive(
        &mut self,
        body: &mut RecvStream,
        most: &Most<'_>,
    ) -> Result<Bytes, Status> {
        std::future::poll_fn(|cx| self.poll(body, most, cx)).await
    }
}

fn message(mut bytes: Bytes, bytes_max: usize) -> Result<Bytes, Status> {
    let Some((head, rest)) = bytes.split_first_chunk::<HEAD>() else {
        return Err(Status::internal("the call ends before its message"));
    };
    if rest.len() != length(head, bytes_max)? {
        return Err(Status::internal("a call must bring exactly one message"));
    }
    Ok(bytes.split_off(HEAD))
}

fn length(head: &[u8; HEAD], bytes_max: usize) -> Result<usize, Status> {
    let [compressed, length @ ..] = *head;
    if compressed != 0 {
        return Err(Status::compressed());
    }
    let length = u32::from_be_bytes(length) as usize;
    if length > bytes_max { Err(too_long(bytes_max)) } else { Ok(length) }
}

fn too_long(bytes_max: usize) -> Status {
    Status::exhausted(format!("the message is longer than {bytes_max} bytes"))
}

/// Begins a message whose length is not known yet.
pub(super) fn begin(out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&[0; HEAD]);
}

/// Fills in the length of the message that began the bytes.
pub(super) fn end(out: &mut [u8]) {
    let length = u32::try_from(out.len().saturating_sub(HEAD)).unwrap_or(u32::MAX);
    if let Some(head) = out.first_chunk_mut::<HEAD>() {
        let [a, b, c, d] = length.to_be_bytes();
        *head = [0, a, b, c, d];
    }
}
