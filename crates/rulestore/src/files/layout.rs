//! Paths of the rules and of their revisions, and whether both can be written.

use std::fs;
use std::path::{Path, PathBuf};

use sluicegate_config::files::{FileError, ReadOptions, STORE_DIRECTORY, read};
use sluicegate_config::rules::Source;

use crate::error::ReadOnly;

/// Paths of one store.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    /// The file or directory of rules; several of a store that is read-only.
    pub(crate) paths: Vec<PathBuf>,
    /// The directory that names of files are relative to.
    pub(crate) root: PathBuf,
    /// The only file, if rules are one.
    single: Option<String>,
    /// The directory of revisions.
    pub(crate) store: PathBuf,
    read: ReadOptions,
}

impl Layout {
    pub(crate) fn new(paths: &[PathBuf], read: ReadOptions) -> Self {
        let all = paths.to_vec();
        let [path] = paths else {
            let (root, store) = Default::default();
            return Self { paths: all, root, single: None, store, read };
        };
        if path.is_dir() {
            let (root, store) = (path.clone(), path.join(STORE_DIRECTORY));
            return Self { paths: all, root, single: None, store, read };
        }
        let root = path.parent().map_or_else(PathBuf::new, Path::to_owned);
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let store = root.join(STORE_DIRECTORY).join(format!("{name}.revisions"));
        Self { paths: all, root, single: Some(name), store, read }
    }

    pub(crate) const fn read_options(&self) -> ReadOptions {
        self.read
    }

    /// The files as they are now, with their names in messages.
    pub(crate) fn read(&self) -> Result<Vec<Source>, FileError> {
        let mut sources = Vec::new();
        for path in &self.paths {
            sources.extend(read(path, &self.read)?);
        }
        Ok(sources)
    }

    /// Whether there are no files at all, rather than files that cannot be read.
    pub(crate) fn is_empty(&self) -> bool {
        let is_dotted =
            |entry: &fs::DirEntry| entry.file_name().as_encoded_bytes().starts_with(b".");
        self.paths.iter().all(|path| match fs::read_dir(path) {
            Ok(entries) => entries.flatten().all(|entry| is_dotted(&entry)),
            Err(_) => !path.exists(),
        })
    }

    /// All paths, for people.
    pub(crate) fn location(&self) -> String {
        let paths: Vec<String> = self.paths.iter().map(|path| path.display().to_string()).collect();
        paths.join(", ")
    }

    /// The same files with relative names.
    pub(crate) fn relative(&self, sources: &[Source]) -> Vec<Source> {
        let relative = |source: &Source| {
            let path = Path::new(&source.name);
            let name = path.strip_prefix(&self.root).unwrap_or(path).to_string_lossy();
            Source { name: name.into_owned(), text: source.text.clone() }
        };
        sources.iter().map(relative).collect()
    }

    /// The path of a file.
    pub(crate) fn path_of(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Why a set of files does not fit here.
    pub(crate) fn misfit(&self, sources: &[Source]) -> Option<String> {
        if let Some(name) = &self.single {
            let is_it = matches!(sources, [source] if source.name == *name);
            return (!is_it).then(|| {
                format!("the rules are the one file `{name}`, since `--rules` names it; name its directory for several")
            });
        }
        sources.is_empty().then(|| {
            "a directory without files is taken for one that is not mounted; to remove a domain, write \
             `removed: true` into its file"
                .to_owned()
        })
    }

    /// Why the files cannot be changed through the store.
    pub(crate) fn read_only(&self) -> Option<ReadOnly> {
        let shown = self.location();
        let because = |code, reason: String| Some(ReadOnly { code, reason });
        if self.paths.len() != 1 {
            return because(
                "several_paths",
                format!(
                    "the rules come from several paths ({shown}): name one directory, or change the files there"
                ),
            );
        }
        if let Some(path) = self.paths.iter().find(|path| !path.exists()) {
            return because(
                "missing",
                format!(
                    "`{}` did not exist at the start; restart the service once it does",
                    path.display()
                ),
            );
        }
        let real = fs::canonicalize(self.root_or_here()).unwrap_or_else(|_| self.root.clone());
        if self.root.join("..data").symlink_metadata().is_ok() {
            return because(
                "config_map",
                format!("`{shown}` is a mounted ConfigMap of Kubernetes: change the ConfigMap"),
            );
        }
        if real.ancestors().any(|directory| directory.join(".git").exists()) {
            return because(
                "git",
                format!("`{shown}` is in a Git work tree: change the rules there, by a commit"),
            );
        }
        if let Ok(sources) = self.read()
            && let Some(link) = sources.iter().find(|source| self.has_link(&source.name))
        {
            return because(
                "link",
                format!(
                    "`{}` is a link, which an edit would replace: change the file behind it",
                    link.name
                ),
            );
        }
        None
    }

    fn has_link(&self, name: &str) -> bool {
        let path = Path::new(name);
        let inner =
            path.ancestors().take_while(|one| *one != self.root && !one.as_os_str().is_empty());
        inner.into_iter().any(Path::is_symlink)
    }

    fn root_or_here(&self) -> PathBuf {
        if self.root.as_os_str().is_empty() { PathBuf::from(".") } else { self.root.clone() }
    }
}
