//! A message of a call: a byte that says whether it is compressed, its length, and itself.

use bytes::{Bytes, BytesMut};
use h2::RecvStream;

use super::status::Status;

const HEAD: usize = 5;

/// The one message that a call brings.
pub(super) async fn receive(body: &mut RecvStream, bytes_max: usize) -> Result<Bytes, Status> {
    let mut gathered = BytesMut::new();
    while let Some(chunk) = body.data().await {
        let chunk = chunk.map_err(|_| Status::cancelled("the call was broken off"))?;
        // It can be sent on as soon as it is here: what is gathered is bounded below.
        let _ = body.flow_control().release_capacity(chunk.len());
        // Nearly every message comes in one piece.
        if gathered.is_empty() && body.is_end_stream() {
            return message(chunk, bytes_max);
        }
        gathered.extend_from_slice(&chunk);
        if gathered.len() > HEAD + bytes_max {
            return Err(too_long(bytes_max));
        }
    }
    message(gathered.freeze(), bytes_max)
}

fn message(mut bytes: Bytes, bytes_max: usize) -> Result<Bytes, Status> {
    let Some((head, rest)) = bytes.split_first_chunk::<HEAD>() else {
        return Err(Status::internal("the call ends before its message"));
    };
    let [compressed, length @ ..] = *head;
    if compressed != 0 {
        return Err(Status::unimplemented("compressed messages are not read; send them plain"));
    }
    let length = u32::from_be_bytes(length) as usize;
    if length > bytes_max {
        return Err(too_long(bytes_max));
    }
    if rest.len() != length {
        return Err(Status::internal("a call must bring exactly one message"));
    }
    Ok(bytes.split_off(HEAD))
}

fn too_long(bytes_max: usize) -> Status {
    Status::exhausted(format!("the message is longer than {bytes_max} bytes"))
}

/// Begins a message whose length is not known yet.
pub(super) fn begin(out: &mut Vec<u8>) {
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
