//! Directories as people have them.
