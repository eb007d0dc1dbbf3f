//! The peers, each called as its own documentation calls it.

pub(crate) mod governor;
pub(crate) mod limitador;
pub(crate) mod read_id;
pub(crate) mod throttlecrab;

#[cfg(test)]
mod tests;
