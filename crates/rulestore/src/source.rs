//! Sources of rules for an engine, one for each backend.

use sluicegate_config::rules::Source;
use sluicegate_config::watch::{PollResult, RulesSource, SourceError};

use crate::files::FilesSource;
use crate::postgres::PostgresSource;

/// The rules of a store, followed.
#[derive(Debug)]
pub struct StoreSource(pub(crate) SourceKind);

#[derive(Debug)]
pub(crate) enum SourceKind {
    Files(FilesSource),
    Postgres(PostgresSource),
    Fixed(FixedSource),
}

/// Rules that never change.
#[derive(Debug)]
pub(crate) struct FixedSource(Vec<Source>);

impl FixedSource {
    pub(crate) fn new(sources: Vec<Source>) -> Self {
        Self(sources)
    }
}

impl RulesSource for StoreSource {
    fn read(&mut self) -> Result<Vec<Source>, SourceError> {
        match &mut self.0 {
            SourceKind::Files(source) => source.read(),
            SourceKind::Postgres(source) => source.read(),
            SourceKind::Fixed(source) => Ok(source.0.clone()),
        }
    }

    fn poll(&mut self) -> PollResult<SourceError> {
        match &mut self.0 {
            SourceKind::Files(source) => source.poll(),
            SourceKind::Postgres(source) => source.poll(),
            SourceKind::Fixed(_) => PollResult::Same,
        }
    }
}
