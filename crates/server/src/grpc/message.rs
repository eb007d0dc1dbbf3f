//! A message of a call: a byte that says whether it is compressed, its length, and itself.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::RecvStream;

use super::status::Status;
use crate::memory::{Account, Gather, GatherError};

const HEAD: usize = 5;

/// The one message that a call brings, as far as it has come.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    gather: Gather,
}

/// Limits of a message.
#[derive(Debug)]
pub(super) struct Most<'a> {
    /// Bytes of the message.
    pub(super) bytes: usize,
    /// Account of the connection, for a message that is not complete.
    pub(super) account: &'a Arc<Account>,
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
                    self.gather
                        .detach(most.bytes_max(), most.account)
                        .map_err(|error| most.refusal(error))?;
                    self.check_length(most)?;
                    return Poll::Pending;
                }
            };
            let Some(chunk) = chunk else { break };
            let chunk = chunk.map_err(|_| Status::cancelled("the call was broken off"))?;
            // The client may send more at once: what is gathered has a bound of its own.
            let _ = body.flow_control().release_capacity(chunk.len());
            self.gather
                .push(chunk, most.bytes_max(), most.account)
                .map_err(|error| most.refusal(error))?;
            self.check_length(most)?;
            if body.is_end_stream() {
                break;
            }
        }
        Poll::Ready(message(self.gather.take(), most.bytes))
    }

    /// Refuses a message by the length that it announces.
    fn check_length(&self, most: &Most<'_>) -> Result<(), Status> {
        match self.gather.detached().first_chunk::<HEAD>() {
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

impl Most<'_> {
    const fn bytes_max(&self) -> usize {
        HEAD + self.bytes
    }

    fn refusal(&self, error: GatherError) -> Status {
        match error {
            GatherError::TooLong => too_long(self.bytes),
            GatherError::Exhausted => Status::out_of_memory(),
        }
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
