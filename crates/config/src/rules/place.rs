//! Where a node of the tree was written: what the rules themselves do not keep, and messages need.

use crate::problem::Position;

/// Where a node was written, and those below it in the same order.
#[derive(Debug)]
pub(super) struct Place {
    /// Which source.
    pub(super) source: usize,
    pub(super) at: Position,
    /// Which of the list that it stands in; nodes that could not be read are left out of the tree.
    pub(super) index: usize,
    /// Where its rule is named, and where it names others.
    pub(super) names: Option<Box<Names>>,
    pub(super) below: Vec<Self>,
}

/// Where names are written.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Names {
    /// An `id`, which no other rule of the domain may have.
    pub(super) id: Option<Position>,
    /// Each name in `replaces`.
    pub(super) replaces: Vec<Position>,
}
