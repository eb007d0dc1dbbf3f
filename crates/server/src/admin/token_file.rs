//! The file of operators' tokens, read again when it changes. An invalid change is reported, and
//! the tokens stay.

use std::path::Path;
use std::sync::Arc;

use sluicegate::RULES_POLL_INTERVAL;
use sluicegate::config::admin_tokens::{self, AdminTokenConfig};
use sluicegate::config::files::ReadOptions;
use sluicegate::config::rules::Source;
use sluicegate::config::watch::{PollResult, Watch};

use super::access::AdminTokens;
use crate::logs::events;

/// A file of tokens that is followed.
#[derive(Debug)]
pub(crate) struct TokenFile {
    watch: Watch,
    tokens: AdminTokens,
}

impl TokenFile {
    /// Reads the file.
    pub(crate) fn open(path: &Path) -> Result<Self, String> {
        let mut watch = Watch::new([path], ReadOptions { ignore_dot_files: false });
        let sources = watch.read().map_err(|error| error.to_string())?;
        let tokens = AdminTokens::default();
        tokens.store(Arc::new(read(&sources)?));
        Ok(Self { watch, tokens })
    }

    /// The tokens, which change with the file.
    pub(crate) fn tokens(&self) -> AdminTokens {
        self.tokens.clone()
    }

    /// Follows the file for ever.
    pub(crate) async fn follow(mut self) {
        loop {
            tokio::time::sleep(RULES_POLL_INTERVAL).await;
            let polled = tokio::task::spawn_blocking(move || {
                self.poll();
                self
            });
            match polled.await {
                Ok(file) => self = file,
                Err(_) => return,
            }
        }
    }

    fn poll(&mut self) {
        let read = match self.watch.poll() {
            PollResult::Same | PollResult::Changing => return,
            PollResult::Changed(sources) => {
                sources.map_err(|error| error.to_string()).and_then(|sources| read(&sources))
            }
        };
        match read {
            Ok(tokens) => {
                events::admin_tokens_reloaded(tokens.len());
                self.tokens.store(Arc::new(tokens));
            }
            Err(reason) => events::admin_tokens_rejected(&reason),
        }
    }
}

fn read(sources: &[Source]) -> Result<Vec<AdminTokenConfig>, String> {
    let mut tokens = Vec::new();
    for source in sources {
        tokens.extend(admin_tokens::read(source).map_err(|problems| problems.to_string())?);
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const HASH: &str = "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

    #[test]
    fn a_changed_file_replaces_the_tokens_and_an_invalid_one_does_not() {
        let path = std::env::temp_dir().join(format!("sluicegate-tokens-{}", std::process::id()));
        let write = |text: &str| fs::write(&path, text).unwrap();
        write(&format!("- {{ name: alice, role: edit, sha256: {HASH} }}"));
        let mut file = TokenFile::open(&path).unwrap();
        let tokens = file.tokens();
        let names = || tokens.load().iter().map(|one| one.name.to_string()).collect::<Vec<_>>();
        assert_eq!(names(), ["alice"]);
        write("- { name: bob }");
        (0..2).for_each(|_| file.poll());
        assert_eq!(names(), ["alice"]);
        write("[]");
        (0..2).for_each(|_| file.poll());
        assert!(names().is_empty());
        fs::remove_file(path).unwrap();
        assert!(TokenFile::open(Path::new("no/such/file")).unwrap_err().contains("no/such/file"));
    }
}
