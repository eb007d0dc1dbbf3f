//! HTTP/1.1 on the wire, as servers and clients share it: heads and bodies, without connections.
//!
//! Heads are parsed by httparse. A message whose end could be read in two ways is refused, since
//! another server or proxy may read it the other way (RFC 9112, section 11.2).

mod date;
mod decoder;
mod encoder;
mod head;
mod read_buffer;
mod request;
mod response;

pub use self::decoder::{ChunkDecoder, Decoded, Decoder};
pub use self::encoder::{Encoder, LengthMismatch};
pub(in crate::http) use self::head::recycle_map;
pub use self::head::{HEADERS_MAX, has_token, header_map, write_header, write_length};
pub use self::read_buffer::ReadBuffer;
pub(in crate::http) use self::request::{HeadError, RequestHead, RequestParser};
pub(in crate::http) use self::response::{
    ResponseKind, write_error, write_response, write_trailers,
};
