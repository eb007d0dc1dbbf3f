//! Metadata of a rule: free data returned to the caller.

/// A value of a rule's metadata.
///
/// ```
/// use sluicegate_rules::metadata::Metadata;
///
/// let tier = Metadata::Text("gold".to_owned());
/// let map = Metadata::Map(vec![("tier".to_owned(), tier.clone())]);
/// assert_eq!(map.field("tier"), Some(&tier));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum Metadata {
    /// Null.
    Null,
    /// A boolean.
    Bool(bool),
    /// A number; Envoy's protocol has no other kind.
    Number(f64),
    /// A text.
    Text(String),
    /// A list.
    List(Vec<Self>),
    /// Values by their names, in the order of the file.
    Map(Vec<(String, Self)>),
}

impl Metadata {
    /// The value of a name in a map.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Self> {
        let Self::Map(fields) = self else { return None };
        fields.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }
}
