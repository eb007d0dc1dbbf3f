//! A password that changes while we run.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::AbortHandle;

use super::settings::Settings;

/// How often the file is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Looks at the file, if there is one, and has all connections made anew when another password is in it.
pub(super) fn watch(settings: &Arc<Settings>) -> Option<AbortHandle> {
    settings.options.password_file.as_ref()?;
    let settings = settings.clone();
    let mut known = settings.login().ok().and_then(|login| login.password);
    let task = tokio::spawn(async move {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            // A file that is just being exchanged is looked at again.
            let Ok(login) = settings.login() else { continue };
            if login.password != known {
                known = login.password;
                settings.renewed.send_modify(|renewed| *renewed = renewed.wrapping_add(1));
            }
        }
    });
    Some(task.abort_handle())
}
