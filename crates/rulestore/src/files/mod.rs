//! Files, with their revisions in a directory beside them.
//!
//! ```text
//!   rules/shop.yaml  rules/web.yaml        what operators edit, and what is enforced
//!   rules/.sluicegate/log                  one line per change, append-only: the history
//!   rules/.sluicegate/texts/SHA256         the text of a file, once
//!   rules/.sluicegate/lock                 held while a process changes any of it
//! ```
//!
//! A change writes its texts, then appends its line (the commit), then replaces the rule files one
//! by one, then appends a mark. A process that ends in between leaves a change without its mark:
//! the next holder of the lock completes it, since every file is then the old or the new one. The
//! lock ends with its holder.

mod disk;
mod history;
mod layout;
mod source;
mod store;

pub(crate) use disk::Disk;
pub(crate) use source::FilesSource;
pub use store::FilesOptions;
pub(crate) use store::FilesStore;

#[cfg(test)]
mod tests;
