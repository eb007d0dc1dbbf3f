//! A place for one call at a time.

use super::ask::Who;
use super::grpc::{self, Stream};
use super::http::{self, Connection};
use super::{Job, Wire};

#[derive(Debug)]
pub(crate) enum Slot {
    Stream(Stream),
    Connection(Connection),
}

/// What a server says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Ok,
    Over,
}

/// All slots of a job, each connected.
pub(crate) async fn open(job: &Job) -> anyhow::Result<Vec<Slot>> {
    let mut slots = Vec::new();
    for _ in 0..job.connections {
        match job.wire {
            Wire::Rls | Wire::Throttle => {
                let streams = grpc::connect(job.address, job.wire, job.streams).await?;
                slots.extend(streams.into_iter().map(Slot::Stream));
            }
            Wire::Check | Wire::HttpThrottle | Wire::Hello => {
                slots.push(Slot::Connection(http::connect(job.address, job.wire).await?));
            }
        }
    }
    Ok(slots)
}

impl Slot {
    /// Asks, and waits for the answer.
    pub(crate) async fn ask(&mut self, who: Who) -> anyhow::Result<Answer> {
        match self {
            Self::Stream(stream) => stream.ask(who).await,
            Self::Connection(connection) => connection.ask(who).await,
        }
    }
}
