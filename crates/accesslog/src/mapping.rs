//! Mappings: which column of CSV, or which member of a JSON object, is which field of a record.
//!
//! A mapping is written as `time=TIMESTAMP,hits=ContextTokens,header.x-user=client`: a field, and
//! the column that has it. Columns of JSON are paths: `request.headers.x-user`.

use std::fmt;
use std::str::FromStr;

use crate::format::FormatError;
use crate::target::Target;

/// Columns of a mapping; a bit set of them fits into a word.
pub(crate) const COLUMNS_MAX: usize = 64;

/// Which column is which field of a record.
///
/// ```
/// use sluicegate_accesslog::Mapping;
///
/// let mapping: Mapping = "time=TIMESTAMP,hits=ContextTokens,header.x-user=client".parse()?;
/// assert_eq!(mapping.to_string(), "time=TIMESTAMP,hits=ContextTokens,header.x-user=client");
///
/// let error = "hits=ContextTokens".parse::<Mapping>().unwrap_err().to_string();
/// assert!(error.starts_with("no column has the time"), "{error}");
/// # Ok::<(), sluicegate_accesslog::FormatError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    columns: Vec<MappedColumn>,
}

/// A column and its field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MappedColumn {
    /// Its name in a header, its number from 1, or its path in a JSON object.
    pub(crate) name: Box<str>,
    pub(crate) target: Target,
}

impl Mapping {
    /// A mapping of a known format.
    pub(crate) fn of(columns: &[(&str, Target)]) -> Self {
        debug_assert!(columns.len() <= COLUMNS_MAX, "a word has a bit for each column");
        let columns = columns
            .iter()
            .map(|(name, target)| MappedColumn { name: (*name).into(), target: target.clone() });
        Self { columns: columns.collect() }
    }

    pub(crate) fn columns(&self) -> &[MappedColumn] {
        &self.columns
    }

    /// The numbers of the columns, from 0, if all are named by number.
    pub(crate) fn positions(&self) -> Option<Vec<usize>> {
        let position = |column: &MappedColumn| column.name.parse::<usize>().ok()?.checked_sub(1);
        self.columns.iter().map(position).collect()
    }
}

impl FromStr for Mapping {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        let column = |part: &str| {
            let (field, name) = part.split_once('=').ok_or_else(|| {
                let remedy = "write `FIELD=COLUMN`, such as `time=TIMESTAMP`";
                FormatError::new(format!("`{part}` is not a mapping of a column; {remedy}"))
            })?;
            let target = Target::parse(field.trim()).ok_or_else(|| {
                let names = Target::names();
                FormatError::new(format!("no field `{field}`; use {names} or `header.NAME`"))
            })?;
            let name = name.trim();
            if name.is_empty() {
                return Err(FormatError::new(format!("no column behind `{field}=`; name one")));
            }
            Ok(MappedColumn { name: name.into(), target })
        };
        let columns = text.split(',').filter(|part| !part.trim().is_empty()).map(column);
        let columns: Vec<MappedColumn> = columns.collect::<Result<_, _>>()?;
        if columns.len() > COLUMNS_MAX {
            let count = columns.len();
            let message = format!("`{count}` columns are mapped; map at most {COLUMNS_MAX}");
            return Err(FormatError::new(message));
        }
        if !columns.iter().any(|column| column.target.is_time()) {
            let remedy = "map one, such as `time=TIMESTAMP`";
            return Err(FormatError::new(format!("no column has the time; {remedy}")));
        }
        Ok(Self { columns })
    }
}

impl fmt::Display for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, MappedColumn { name, target }) in self.columns.iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            write!(f, "{separator}{target}={name}")?;
        }
        Ok(())
    }
}
