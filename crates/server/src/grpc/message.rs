//! gRPC messages: a compression flag, a length and the payload; and the status of a failed call.
//!
//! h2 keeps a response until the client has read it. [`UnreadResponses`] notices clients that do
//! not, without a timer for each response: responses share the generation in which they were
//! created, and a generation that outlives a whole period is stuck.

use std::borrow::Cow;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use h2::RecvStream;
use http::HeaderValue;

use crate::memory::{Account, Charge, Gather, GatherError};
use crate::rls::handler::{Failure, GrpcStatus};
use crate::telemetry::Fault;

const HEAD: usize = 5;

/// The one message of a call, as far as it has arrived.
#[derive(Debug, Default)]
pub(super) struct IncomingMessage {
    gather: Gather,
}

/// Size limit of a message.
#[derive(Debug)]
pub(super) struct MessageLimit<'a> {
    /// Bytes of the message.
    pub(super) bytes: usize,
    /// Account of the connection, for a message that is not complete.
    pub(super) account: &'a Arc<Account>,
}

impl IncomingMessage {
    /// The message, once it is complete.
    pub(super) fn poll(
        &mut self,
        body: &mut RecvStream,
        limit: &MessageLimit<'_>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Bytes, GrpcError>> {
        loop {
            let chunk = match body.poll_data(cx) {
                Poll::Ready(chunk) => chunk,
                Poll::Pending => {
                    self.gather
                        .detach(limit.bytes_max(), limit.account)
                        .map_err(|error| limit.status(error))?;
                    self.check_length(limit)?;
                    return Poll::Pending;
                }
            };
            let Some(chunk) = chunk else { break };
            let chunk = chunk.map_err(|_| GrpcError::cancelled("the call was cancelled"))?;
            // The flow control window is released at once: what is gathered has its own limit.
            let _ = body.flow_control().release_capacity(chunk.len());
            self.gather
                .push(chunk, limit.bytes_max(), limit.account)
                .map_err(|error| limit.status(error))?;
            self.check_length(limit)?;
            if body.is_end_stream() {
                break;
            }
        }
        Poll::Ready(message(self.gather.take(), limit.bytes))
    }

    /// Rejects a message by the length that it announces.
    fn check_length(&self, limit: &MessageLimit<'_>) -> Result<(), GrpcError> {
        match self.gather.detached().first_chunk::<HEAD>() {
            Some(head) => length(head, limit.bytes).map(|_| ()),
            None => Ok(()),
        }
    }

    /// Waits for the message.
    pub(super) async fn receive(
        &mut self,
        body: &mut RecvStream,
        limit: &MessageLimit<'_>,
    ) -> Result<Bytes, GrpcError> {
        std::future::poll_fn(|cx| self.poll(body, limit, cx)).await
    }
}

impl MessageLimit<'_> {
    const fn bytes_max(&self) -> usize {
        HEAD + self.bytes
    }

    fn status(&self, error: GatherError) -> GrpcError {
        match error {
            GatherError::TooLong => too_long(self.bytes),
            GatherError::Exhausted => GrpcError::out_of_memory(),
        }
    }
}

fn message(mut bytes: Bytes, bytes_max: usize) -> Result<Bytes, GrpcError> {
    let Some((head, rest)) = bytes.split_first_chunk::<HEAD>() else {
        return Err(GrpcError::internal("the call ended before its message"));
    };
    if rest.len() != length(head, bytes_max)? {
        return Err(GrpcError::internal("a call must have exactly one message"));
    }
    Ok(bytes.split_off(HEAD))
}

fn length(head: &[u8; HEAD], bytes_max: usize) -> Result<usize, GrpcError> {
    let [compressed, length @ ..] = *head;
    if compressed != 0 {
        return Err(GrpcError::compressed());
    }
    let length = u32::from_be_bytes(length) as usize;
    if length > bytes_max { Err(too_long(bytes_max)) } else { Ok(length) }
}

fn too_long(bytes_max: usize) -> GrpcError {
    GrpcError::exhausted(format!("the message is longer than {bytes_max} bytes"))
}

/// Begins a message of unknown length.
pub(super) fn begin(out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&[0; HEAD]);
}

/// Fills in the length.
pub(super) fn end(out: &mut [u8]) {
    let length = u32::try_from(out.len().saturating_sub(HEAD)).unwrap_or(u32::MAX);
    if let Some(head) = out.first_chunk_mut::<HEAD>() {
        let [a, b, c, d] = length.to_be_bytes();
        *head = [0, a, b, c, d];
    }
}

// === responses ===

/// Most responses are this short, and need no allocation.
const SMALL: usize = 96;
const _: () = assert!(SMALL <= u8::MAX as usize);

/// A response to be sent, framed.
#[derive(Debug)]
pub(super) struct OutgoingMessage {
    bytes: FrameBytes,
    _generation: Generation,
}

#[derive(Debug)]
enum FrameBytes {
    Small { bytes: [u8; SMALL], from: u8, to: u8 },
    Large { bytes: Bytes, _charge: Option<Charge> },
}

/// Memory of h2 for a call, measured. h2 keeps it for the peak number of calls of a connection.
pub(super) const CALL_BYTES: usize = 2_304;
/// Longest response that is not charged by itself, but with its call while it is not read.
pub(super) const UNCHARGED_BYTES: usize = 1_536;

/// A period, shared by the responses that were created in it and are not sent yet.
pub(super) type Generation = Arc<()>;

/// Responses that the client has not read.
#[derive(Debug, Default)]
pub(super) struct UnreadResponses {
    now: Generation,
    before: Generation,
}

impl OutgoingMessage {
    /// `None` if it is long and the memory budget does not allow it.
    pub(super) fn new(
        message: &[u8],
        generation: Generation,
        account: &Arc<Account>,
    ) -> Option<Self> {
        let mut bytes = [0; SMALL];
        let bytes = match bytes.get_mut(..message.len()) {
            Some(start) => {
                start.copy_from_slice(message);
                FrameBytes::Small { bytes, from: 0, to: message.len() as u8 }
            }
            None if message.len() <= UNCHARGED_BYTES => {
                FrameBytes::Large { bytes: Bytes::copy_from_slice(message), _charge: None }
            }
            None => {
                let _charge = Some(account.charge(message.len())?);
                FrameBytes::Large { bytes: Bytes::copy_from_slice(message), _charge }
            }
        };
        Some(Self { bytes, _generation: generation })
    }
}

impl Buf for OutgoingMessage {
    fn remaining(&self) -> usize {
        match &self.bytes {
            FrameBytes::Small { from, to, .. } => usize::from(to - from),
            FrameBytes::Large { bytes, .. } => bytes.remaining(),
        }
    }

    fn chunk(&self) -> &[u8] {
        match &self.bytes {
            FrameBytes::Small { bytes, from, to } => &bytes[usize::from(*from)..usize::from(*to)],
            FrameBytes::Large { bytes, .. } => bytes.chunk(),
        }
    }

    fn advance(&mut self, count: usize) {
        match &mut self.bytes {
            FrameBytes::Small { from, to, .. } => {
                // At most to the end.
                *from =
                    u8::try_from(count).map_or(*to, |count| from.saturating_add(count).min(*to));
            }
            FrameBytes::Large { bytes, .. } => bytes.advance(count),
        }
    }
}

impl UnreadResponses {
    /// The current generation.
    pub(super) fn generation(&self) -> Generation {
        self.now.clone()
    }

    /// Number of responses that are not sent.
    pub(super) fn count(&self) -> usize {
        Arc::strong_count(&self.now) + Arc::strong_count(&self.before) - 2
    }

    /// Ends a period; whether a response was not sent during all of it.
    pub(super) fn is_stuck(&mut self) -> bool {
        // One reference is its own, the others are of responses.
        let is_stuck = Arc::strong_count(&self.before) > 1;
        self.before = std::mem::take(&mut self.now);
        is_stuck
    }
}

// === status ===

/// gRPC status of a failed call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct GrpcError {
    code: u8,
    message: Cow<'static, str>,
    /// The fault to count, unless it is counted already.
    fault: Option<Fault>,
    /// Whether the client should retry without compression.
    pub(super) is_compressed: bool,
}

type StatusMessage = Cow<'static, str>;

impl GrpcError {
    fn new(code: u8, fault: Option<Fault>, message: impl Into<StatusMessage>) -> Self {
        Self { code, message: message.into(), fault, is_compressed: false }
    }

    pub(super) fn cancelled(message: impl Into<StatusMessage>) -> Self {
        Self::new(1, None, message)
    }

    pub(super) fn deadline_exceeded(message: impl Into<StatusMessage>) -> Self {
        Self::new(4, Some(Fault::Late), message)
    }

    pub(super) fn not_found(message: impl Into<StatusMessage>) -> Self {
        Self::new(5, None, message)
    }

    pub(super) fn exhausted(message: impl Into<StatusMessage>) -> Self {
        Self::new(8, Some(Fault::Invalid), message)
    }

    pub(super) fn unimplemented(message: impl Into<StatusMessage>) -> Self {
        Self::new(12, Some(Fault::Invalid), message)
    }

    pub(super) fn compressed() -> Self {
        let status =
            Self::unimplemented("compressed messages are not supported; send them uncompressed");
        Self { is_compressed: true, ..status }
    }

    pub(super) fn internal(message: impl Into<StatusMessage>) -> Self {
        Self::new(13, Some(Fault::Invalid), message)
    }

    pub(super) fn overloaded() -> Self {
        Self::new(14, Some(Fault::Overload), "overloaded: too many calls wait; retry later")
    }

    pub(super) fn out_of_memory() -> Self {
        let message = "overloaded: the memory budget is exhausted; retry later";
        Self::new(8, Some(Fault::Overload), message)
    }

    pub(super) fn going_away() -> Self {
        Self::new(14, None, "the connection is closing; retry on another one")
    }

    pub(super) fn code(&self) -> HeaderValue {
        HeaderValue::from(u16::from(self.code))
    }

    pub(super) const fn fault(&self) -> Option<Fault> {
        self.fault
    }

    /// The message, percent-encoded as gRPC requires.
    pub(super) fn message(&self) -> HeaderValue {
        let mut text = String::with_capacity(self.message.len());
        for byte in self.message.bytes() {
            match byte {
                b' '..=b'~' if byte != b'%' => text.push(char::from(byte)),
                _ => text.push_str(&format!("%{byte:02X}")),
            }
        }
        HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(""))
    }
}

impl From<Failure> for GrpcError {
    fn from(failure: Failure) -> Self {
        let code = match failure.status {
            GrpcStatus::Unknown | GrpcStatus::Store => 2,
            GrpcStatus::InvalidArgument => 3,
        };
        // The handler has counted it.
        Self::new(code, None, failure.message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{MemoryBudget, Share};

    fn message_of(message: &[u8], generation: Generation) -> OutgoingMessage {
        let endpoint = MemoryBudget::default().endpoint(Share::Clients);
        OutgoingMessage::new(message, generation, &Account::open(&endpoint, 0).unwrap()).unwrap()
    }

    #[test]
    fn an_answer_is_read_as_it_was_written() {
        for length in [0, 1, SMALL - 1, SMALL, SMALL + 1, 1_000, 5_000] {
            let message: Vec<u8> = (0..length).map(|byte| byte as u8).collect();
            let mut answer = message_of(&message, Generation::default());
            let mut read = Vec::new();
            while answer.has_remaining() {
                assert_eq!(answer.remaining(), length - read.len());
                let some = answer.chunk().len().min(7);
                read.extend_from_slice(&answer.chunk()[..some]);
                answer.advance(some);
            }
            assert_eq!(read, message);
        }
    }

    #[test]
    fn an_answer_is_stuck_once_it_has_waited_for_a_whole_span() {
        let mut unread = UnreadResponses::default();
        let answer = message_of(b"42", unread.generation());
        assert!(!unread.is_stuck(), "it came in the middle of this one");
        assert!(unread.is_stuck());
        let mut unread = UnreadResponses::default();
        let _late = message_of(b"43", unread.generation());
        drop(answer);
        assert!(!unread.is_stuck());
    }

    #[test]
    fn answers_that_go_out_are_not_stuck() {
        let mut unread = UnreadResponses::default();
        for _ in 0..5 {
            let answer = message_of(b"42", unread.generation());
            assert!(!unread.is_stuck());
            drop(answer);
        }
    }
}
