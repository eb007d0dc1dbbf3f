//! Sessions and changes, in metrics. Failed logins are `sluicegate_auth_failures_total`.

use std::sync::Arc;

use sluicegate::clock::TimeSource;

use super::audit::AuditLog;
use super::session::Sessions;
use crate::metrics::{MetricsSource, Page};

/// Metrics of the admin endpoint.
#[derive(Debug)]
pub(super) struct AdminStatistics {
    pub(super) clock: TimeSource,
    pub(super) sessions: Sessions,
    pub(super) audit: Arc<AuditLog>,
}

impl MetricsSource for AdminStatistics {
    fn put(&self, page: &mut Page) {
        let sessions = self.sessions.count(self.clock.ticks());
        page.gauge("sluicegate_admin_sessions", "Sessions of the console.").value(sessions);
        let (recorded, failures) = self.audit.counts();
        let help = "Changes through the console and the admin API, each an entry of the audit log.";
        page.counter("sluicegate_audit_entries_total", help).value(recorded);
        let help =
            "Entries of the audit log that could not be written to its file; they are in the log.";
        page.counter("sluicegate_audit_write_failures_total", help).value(failures);
    }
}
