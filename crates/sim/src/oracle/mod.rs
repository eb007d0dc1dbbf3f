//! Whether what happened may happen.
