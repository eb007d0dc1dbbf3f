//! Durable writes. Tests end a process between any two of them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Writes files so that they survive a power failure.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    /// Directory of temporary files on the same file system; that of the file without one.
    pub(crate) temporary: Option<PathBuf>,
    /// Steps until the simulated crash.
    #[cfg(test)]
    pub(crate) steps_left: Option<usize>,
}

impl Disk {
    pub(crate) const fn with_temporary(temporary: Option<PathBuf>) -> Self {
        Self {
            temporary,
            #[cfg(test)]
            steps_left: None,
        }
    }

    /// Replaces a file as a whole: readers see the old or the new content.
    pub(crate) fn replace(&mut self, path: &Path, content: &[u8]) -> io::Result<()> {
        let directory = path.parent().ok_or_else(|| io::Error::other("no directory"))?;
        fs::create_dir_all(directory)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let temporary = self
            .temporary
            .as_deref()
            .unwrap_or(directory)
            .join(format!(".{name}.sluicegate-{}", std::process::id()));
        let written = (|| {
            let mut file = File::create(&temporary)?;
            // Owner and permissions stay those of the operator.
            if let Ok(metadata) = fs::metadata(path) {
                file.set_permissions(metadata.permissions())?;
                set_owner(&file, &metadata);
            }
            file.write_all(content)?;
            file.sync_all()?;
            self.step()?;
            fs::rename(&temporary, path)?;
            self.step()
        })();
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written?;
        sync_directory(directory)
    }

    /// Removes a file; it may be missing.
    pub(crate) fn remove(&mut self, path: &Path) -> io::Result<()> {
        self.step()?;
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        path.parent().map_or(Ok(()), sync_directory)
    }

    /// Appends a line to a file, after the given length: what is behind it was never completed.
    pub(crate) fn append(&mut self, path: &Path, length: u64, line: &str) -> io::Result<u64> {
        let is_new = !path.exists();
        let mut file = OpenOptions::new().create(true).append(true).open(path)?;
        file.set_len(length)?;
        if let Err(error) = self.step() {
            // A crash within the write.
            file.write_all(line.as_bytes().get(..line.len() / 2).unwrap_or_default())?;
            return Err(error);
        }
        file.write_all(line.as_bytes())?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        if is_new && let Some(directory) = path.parent() {
            sync_directory(directory)?;
        }
        self.step()?;
        Ok(length + line.len() as u64 + 1)
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "tests crash here")]
    fn step(&mut self) -> io::Result<()> {
        Ok(())
    }

    #[cfg(test)]
    fn step(&mut self) -> io::Result<()> {
        let Some(left) = &mut self.steps_left else { return Ok(()) };
        match left.checked_sub(1) {
            Some(less) => {
                *left = less;
                Ok(())
            }
            None => Err(io::Error::other("simulated crash")),
        }
    }
}

/// Of a service that runs as root; others may not, and need not.
#[cfg(unix)]
fn set_owner(file: &File, metadata: &fs::Metadata) {
    use std::os::unix::fs::{MetadataExt, fchown};

    let _ = fchown(file, Some(metadata.uid()), Some(metadata.gid()));
}

#[cfg(not(unix))]
fn set_owner(_: &File, _: &fs::Metadata) {}

#[cfg(unix)]
fn sync_directory(path: &Path) -> io::Result<()> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    File::open(path)?.sync_all()
}

#[cfg(not(unix))]
fn sync_directory(_: &Path) -> io::Result<()> {
    Ok(())
}
