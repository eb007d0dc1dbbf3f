//! Tables and migrations.
//!
//! A migration is never changed once it was released, and the version before it must be able to
//! work with its result: nodes are updated one by one.

use tokio_postgres::{Client, Error};

/// Advisory lock of migrations.
const LOCK: i64 = 0x736c_7569_6365;

/// Begins a change: bounded waits for the row of `head`.
pub(super) const BEGIN_CHANGE: &str = "SET LOCAL lock_timeout = '4s'; SET LOCAL statement_timeout = '5s'; \
     SET LOCAL idle_in_transaction_session_timeout = '10s'";

/// Sends the hint.
pub(super) const NOTIFY: &str = "NOTIFY sluicegate_rules";

/// Receives hints.
pub(super) const LISTEN: &str = "LISTEN sluicegate_rules";

const MIGRATIONS: [&str; 1] = ["
CREATE TABLE sluicegate_rules_revisions (
    number bigint PRIMARY KEY CHECK (number > 0),
    base bigint REFERENCES sluicegate_rules_revisions,
    author text NOT NULL,
    at timestamptz NOT NULL,
    note text NOT NULL,
    kind text NOT NULL,
    digest text NOT NULL,
    restores bigint REFERENCES sluicegate_rules_revisions,
    sources json NOT NULL
);
CREATE FUNCTION sluicegate_rules_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'revisions of rules are append-only';
END $$;
CREATE TRIGGER sluicegate_rules_append_only
    BEFORE UPDATE OR DELETE ON sluicegate_rules_revisions
    FOR EACH ROW EXECUTE FUNCTION sluicegate_rules_append_only();
CREATE TABLE sluicegate_rules_states (
    number bigint PRIMARY KEY REFERENCES sluicegate_rules_revisions,
    state text NOT NULL,
    activate_at timestamptz,
    activated_at timestamptz,
    approved_by text,
    suspended_because text
);
CREATE INDEX sluicegate_rules_open ON sluicegate_rules_states (number)
    WHERE state NOT IN ('superseded', 'withdrawn');
CREATE UNIQUE INDEX sluicegate_rules_one_active ON sluicegate_rules_states (state)
    WHERE state = 'active';
CREATE TABLE sluicegate_rules_head (
    id int PRIMARY KEY CHECK (id = 1),
    version bigint NOT NULL,
    active bigint REFERENCES sluicegate_rules_revisions
);
INSERT INTO sluicegate_rules_head VALUES (1, 0, NULL);
CREATE TABLE sluicegate_rules_nodes (
    node text PRIMARY KEY,
    name text NOT NULL,
    revision bigint,
    digest text NOT NULL,
    last_seen timestamptz NOT NULL
);
"];

/// Brings the tables up to date. Any node does so; a lock of the database lets one at a time.
pub(super) async fn migrate(client: &mut Client) -> Result<(), Error> {
    let wanted = i32::try_from(MIGRATIONS.len()).unwrap_or(i32::MAX);
    let known = "SELECT to_regclass('sluicegate_rules_migrations') IS NOT NULL";
    if client.query_one(known, &[]).await?.get(0) && version(client).await? >= wanted {
        return Ok(());
    }
    let transaction = client.transaction().await?;
    transaction.batch_execute("SET LOCAL statement_timeout = '20s'").await?;
    transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK]).await?;
    let table = "CREATE TABLE IF NOT EXISTS sluicegate_rules_migrations (
        version int PRIMARY KEY, at timestamptz NOT NULL DEFAULT now())";
    transaction.batch_execute(table).await?;
    let have = version(transaction.client()).await?;
    for (index, migration) in MIGRATIONS.iter().enumerate() {
        let number = i32::try_from(index + 1).unwrap_or(i32::MAX);
        if number > have {
            transaction.batch_execute(migration).await?;
            let insert = "INSERT INTO sluicegate_rules_migrations (version) VALUES ($1)";
            transaction.execute(insert, &[&number]).await?;
        }
    }
    transaction.commit().await
}

async fn version(client: &Client) -> Result<i32, Error> {
    let select = "SELECT coalesce(max(version), 0) FROM sluicegate_rules_migrations";
    Ok(client.query_one(select, &[]).await?.get(0))
}
