//! Against real servers.
