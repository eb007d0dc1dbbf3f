//! What the whole-product tests share: where things are, and files that are made by code.

use std::path::{Path, PathBuf};

/// The root of the project.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default()
}

/// All files below `folder` whose name ends in `ending`, sorted.
#[must_use]
pub fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = std::fs::read_dir(folder) else {
        return found;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                found.extend(files(&path, ending));
            }
        } else if name.ends_with(ending) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Compares a file that code makes with what the code makes now; with `UPDATE=1` writes it instead.
///
/// # Errors
/// When the file differs.
pub fn made_by_code(path: &Path, content: &str) -> Result<(), String> {
    if std::env::var_os("UPDATE").is_some() {
        return std::fs::write(path, content).map_err(|error| error.to_string());
    }
    let on_disk = std::fs::read_to_string(path).unwrap_or_default();
    if on_disk == content {
        return Ok(());
    }
    let name = path.display();
    Err(format!(
        "{name} is not what the code makes: run `UPDATE=1 cargo test -p sluicegate-tests` and look at the difference"
    ))
}
