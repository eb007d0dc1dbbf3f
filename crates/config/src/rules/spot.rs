//! A node and the way to it, for as long as the text is there.

use crate::fields::{Path, Value};
use crate::problem::Position;
use crate::yaml::{Content, Node, Pair};

/// A node of the tree `'t`, and the way to it.
///
/// A [`Value`] lives no longer than its path, which is on the stack of whoever walks the tree; what is read from a spot lives
/// as long as the tree.
#[derive(Clone, Copy)]
pub(super) struct Spot<'t, 'p> {
    pub(super) node: &'t Node,
    pub(super) path: Path<'p>,
}

impl<'t: 'p, 'p> Spot<'t, 'p> {
    pub(super) const fn root(node: &'t Node) -> Self {
        Self { node, path: Path::Root }
    }

    pub(super) const fn at(&self) -> Position {
        self.node.at
    }

    /// The value of one of this mapping's pairs.
    pub(super) fn field<'b>(&'b self, pair: &'t Pair) -> Spot<'t, 'b> {
        let key = match &pair.key.content {
            Content::Scalar { text, .. } => text,
            Content::Sequence(_) | Content::Mapping(_) => "",
        };
        Spot { node: &pair.value, path: Path::Key(&self.path, key) }
    }

    /// The items of a sequence; none if it is something else.
    pub(super) fn items<'b>(&'b self) -> impl Iterator<Item = Spot<'t, 'b>> {
        let items: &'t [Node] = match &self.node.content {
            Content::Sequence(items) => items,
            Content::Scalar { .. } | Content::Mapping(_) => &[],
        };
        let item = |(index, node)| Spot { node, path: Path::Item(&self.path, index) };
        items.iter().enumerate().map(item)
    }

    /// The same, for readers that keep nothing of it.
    pub(super) const fn value(&self) -> Value<'p> {
        Value::new(self.node, self.path)
    }
}
