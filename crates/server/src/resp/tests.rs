//! Commands and their replies, without a socket.
