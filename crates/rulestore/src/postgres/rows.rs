//! Reads and writes of revisions.

use jiff::Timestamp;
use sluicegate_config::rules::Source;
use tokio_postgres::types::Json;
use tokio_postgres::{Error, GenericClient, Row, Transaction};

use crate::ledger::{Change, Ledger};
use crate::revision::{NodeInfo, Revision, RevisionKind, RevisionState, StoredRevision};

const COLUMNS: &str = "r.number, r.base, r.author, r.at, r.note, r.kind, r.digest, r.restores, s.state, \
     s.activate_at, s.activated_at, s.approved_by, s.suspended_because";
const JOINED: &str =
    "FROM sluicegate_rules_revisions r JOIN sluicegate_rules_states s USING (number)";

/// Nodes that were not seen for so long are forgotten.
const NODE_TTL: &str = "1 day";

/// Version of the head, the active revision, and the time.
pub(super) struct Head {
    pub(super) version: i64,
    pub(super) active: Option<u64>,
    pub(super) now: Timestamp,
}

pub(super) async fn head(client: &impl GenericClient) -> Result<Head, Error> {
    let select = "SELECT version, active, clock_timestamp() FROM sluicegate_rules_head";
    let row = client.query_one(select, &[]).await?;
    Ok(Head { version: row.get(0), active: number(row.get(1)), now: row.get(2) })
}

/// Locks the head against other changes: the state to decide on, and the time.
pub(super) async fn lock(transaction: &Transaction<'_>) -> Result<(Ledger, Timestamp), Error> {
    let lock = "SELECT version FROM sluicegate_rules_head WHERE id = 1 FOR UPDATE";
    transaction.query_one(lock, &[]).await?;
    let ledger = ledger(transaction).await?;
    let now = transaction.query_one("SELECT clock_timestamp()", &[]).await?.get(0);
    Ok((ledger, now))
}

/// The active revision, the open ones, and the newest number.
pub(super) async fn ledger(client: &impl GenericClient) -> Result<Ledger, Error> {
    let select = format!(
        "SELECT {COLUMNS} {JOINED} WHERE s.state NOT IN ('superseded', 'withdrawn') ORDER BY r.number"
    );
    let mut ledger = Ledger::default();
    for row in client.query(&select, &[]).await? {
        ledger.restore(revision(&row));
    }
    let last = "SELECT coalesce(max(number), 0) FROM sluicegate_rules_revisions";
    let last: i64 = client.query_one(last, &[]).await?.get(0);
    ledger.last = last.unsigned_abs();
    Ok(ledger)
}

/// A revision with its files.
pub(super) async fn stored(
    client: &impl GenericClient,
    number: u64,
) -> Result<Option<StoredRevision>, Error> {
    let select = format!("SELECT {COLUMNS}, r.sources {JOINED} WHERE r.number = $1");
    let row = client.query_opt(&select, &[&signed(number)]).await?;
    Ok(row.map(|row| {
        let Json(files): Json<Vec<(String, String)>> = row.get("sources");
        let sources = files.into_iter().map(|(name, text)| Source { name, text }).collect();
        StoredRevision { revision: revision(&row), sources }
    }))
}

/// Revisions before a number, the newest first.
pub(super) async fn page(
    client: &impl GenericClient,
    before: Option<u64>,
    limit: usize,
) -> Result<Vec<Revision>, Error> {
    let select =
        format!("SELECT {COLUMNS} {JOINED} WHERE r.number < $1 ORDER BY r.number DESC LIMIT $2");
    let before = before.map_or(i64::MAX, signed);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let rows = client.query(&select, &[&before, &limit]).await?;
    Ok(rows.iter().map(revision).collect())
}

/// Writes a change; the head is locked.
pub(super) async fn write(transaction: &Transaction<'_>, change: &Change) -> Result<(), Error> {
    if let Some(StoredRevision { revision, sources }) = &change.insert {
        let files: Vec<(&str, &str)> =
            sources.iter().map(|file| (file.name.as_str(), file.text.as_str())).collect();
        let Revision { author, at, note, digest, .. } = revision;
        transaction
            .execute(
                "INSERT INTO sluicegate_rules_revisions VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
                &[
                    &signed(revision.number),
                    &revision.base.map(signed),
                    author,
                    at,
                    note,
                    &revision.kind.name(),
                    digest,
                    &revision.restores.map(signed),
                    &Json(files),
                ],
            )
            .await?;
    }
    // The superseded one first: there is one active revision at any time.
    let (active, others): (Vec<_>, Vec<_>) =
        change.revisions().partition(|one| one.state == RevisionState::Active);
    for one in others.into_iter().chain(active) {
        transaction
            .execute(
                "INSERT INTO sluicegate_rules_states VALUES ($1, $2, $3, $4, $5, $6)
                 ON CONFLICT (number) DO UPDATE SET state = $2, activate_at = $3, activated_at = $4,
                     approved_by = $5, suspended_because = $6",
                &[
                    &signed(one.number),
                    &one.state.name(),
                    &one.activate_at,
                    &one.activated_at,
                    &one.approved_by,
                    &one.suspended_because,
                ],
            )
            .await?;
    }
    let active = change.activated().map(|active| signed(active.number));
    let update =
        "UPDATE sluicegate_rules_head SET version = version + 1, active = coalesce($1, active)";
    transaction.execute(update, &[&active]).await?;
    Ok(())
}

/// Records that a node is alive, and what it enforces.
pub(super) async fn heartbeat(
    client: &impl GenericClient,
    node: &str,
    name: &str,
    revision: Option<u64>,
    digest: &str,
) -> Result<(), Error> {
    let upsert = "INSERT INTO sluicegate_rules_nodes VALUES ($1, $2, $3, $4, now())
         ON CONFLICT (node) DO UPDATE SET name = $2, revision = $3, digest = $4, last_seen = now()";
    client.execute(upsert, &[&node, &name, &revision.map(signed), &digest]).await?;
    let delete = format!(
        "DELETE FROM sluicegate_rules_nodes WHERE last_seen < now() - interval '{NODE_TTL}'"
    );
    client.execute(&delete, &[]).await?;
    Ok(())
}

pub(super) async fn nodes(client: &impl GenericClient) -> Result<Vec<NodeInfo>, Error> {
    let select = "SELECT node, name, revision, digest, last_seen FROM sluicegate_rules_nodes
         ORDER BY last_seen DESC LIMIT 1000";
    let node = |row: &Row| NodeInfo {
        node: row.get(0),
        name: row.get(1),
        revision: number(row.get(2)),
        digest: row.get(3),
        last_seen: row.get(4),
    };
    Ok(client.query(select, &[]).await?.iter().map(node).collect())
}

fn revision(row: &Row) -> Revision {
    let kind: String = row.get("kind");
    let state: String = row.get("state");
    Revision {
        number: number(row.get("number")).unwrap_or_default(),
        base: number(row.get("base")),
        author: row.get("author"),
        at: row.get("at"),
        note: row.get("note"),
        kind: RevisionKind::of(&kind),
        state: RevisionState::of(&state),
        digest: row.get("digest"),
        restores: number(row.get("restores")),
        activate_at: row.get("activate_at"),
        activated_at: row.get("activated_at"),
        approved_by: row.get("approved_by"),
        suspended_because: row.get("suspended_because"),
    }
}

fn number(value: Option<i64>) -> Option<u64> {
    value.map(i64::unsigned_abs)
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
