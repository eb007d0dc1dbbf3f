//! Typical directories.

use super::*;
use std::os::unix::fs::symlink;

/// A temporary directory, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("sluicegate-files-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn link(&self, to: &str, name: &str) {
        symlink(to, self.0.join(name)).unwrap();
    }

    fn read(&self) -> Result<Vec<String>, String> {
        self.read_with(&ReadOptions::default())
    }

    /// Name and text of each file, the name without the folder.
    fn read_with(&self, options: &ReadOptions) -> Result<Vec<String>, String> {
        let folder = format!("{}/", self.0.display());
        let without = |text: String| text.replace(&folder, "");
        match read(&self.0, options) {
            Ok(sources) => Ok(sources
                .into_iter()
                .map(|source| without(format!("{}: {}", source.name, source.text)))
                .collect()),
            Err(error) => Err(without(error.to_string())),
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn all() -> ReadOptions {
    ReadOptions { ignore_dot_files: false }
}

#[test]
fn every_file_is_read_in_the_order_of_its_path() {
    let folder = Folder::new("order");
    folder.write("b.yaml", "2");
    folder.write("a/z.txt", "1");
    folder.write("README", "0");
    folder.write("c/d/e.yml", "3");
    assert_eq!(folder.read().unwrap(), ["README: 0", "a/z.txt: 1", "b.yaml: 2", "c/d/e.yml: 3"]);
    let one = read(&folder.0.join("b.yaml"), &ReadOptions::default()).unwrap();
    assert_eq!((one.len(), &*one[0].text), (1, "2"));
}

#[test]
fn a_directory_without_files_is_an_error() {
    let folder = Folder::new("empty");
    folder.write(".hidden", "1");
    let error = read(&folder.0, &ReadOptions::default()).unwrap_err().to_string();
    let expected = "there are no files in this directory, so nothing would be limited; put rules into \
                    it, or check the path; names that begin with a dot are ignored";
    assert_eq!(error, format!("{}: {expected}", folder.0.display()));
    assert_eq!(folder.read_with(&all()).unwrap(), [".hidden: 1"]);
}

#[test]
fn files_with_a_dot_are_left_out_on_demand() {
    let folder = Folder::new("dots");
    folder.write(".hidden", "1");
    folder.write(".git/config", "2");
    folder.write("a", "3");
    assert_eq!(folder.read().unwrap(), ["a: 3"]);
    assert_eq!(folder.read_with(&all()).unwrap(), [".git/config: 2", ".hidden: 1", "a: 3"]);
}

#[test]
fn a_mounted_config_map_is_read_once() {
    let folder = Folder::new("kubernetes");
    folder.write("..2026_01_01/shop.yaml", "1");
    folder.link("..2026_01_01", "..data");
    folder.link("..data/shop.yaml", "shop.yaml");
    assert_eq!(folder.read().unwrap(), ["shop.yaml: 1"]);
    assert_eq!(folder.read_with(&all()).unwrap(), ["shop.yaml: 1"], "by the name that people know");
}

#[test]
fn loops_end_and_links_that_lead_nowhere_are_told() {
    let folder = Folder::new("loops");
    folder.write("sub/a", "1");
    folder.link("..", "sub/up");
    folder.link("sub", "again");
    assert_eq!(folder.read().unwrap().len(), 1);
    folder.link("gone", "broken");
    assert_eq!(
        folder.read().unwrap_err(),
        "broken: is a link that leads nowhere; remove it, or put back what it leads to"
    );
}

#[test]
fn what_cannot_be_read_is_named() {
    let folder = Folder::new("unreadable");
    folder.write("a", "fine");
    folder.write("latin1", b"a: b\nc: \xe4\n");
    assert_eq!(
        folder.read().unwrap_err(),
        "latin1: is not UTF-8 text on line 2; save it as UTF-8, or move it out of the directory if it \
         holds no rules"
    );
    let missing = read(&folder.0.join("no"), &ReadOptions::default()).unwrap_err();
    assert!(missing.to_string().ends_with("/no: there is no such file; check the path"));
    assert!(missing.path().ends_with("no") && std::error::Error::source(&missing).is_some());
    let pipe = read(Path::new("/dev/null"), &ReadOptions::default()).unwrap_err();
    assert_eq!(pipe.to_string(), "/dev/null: is neither a file nor a directory; check the path");
}

#[test]
fn everything_is_bounded() {
    let folder = Folder::new("bounds");
    let deep: PathBuf = (0..DIRECTORIES_MAX).map(|_| "d").collect();
    folder.write(&format!("{}/a", deep.display()), "1");
    assert_eq!(folder.read().unwrap().len(), 1);
    folder.write(&format!("{}/d/a", deep.display()), "1");
    assert!(folder.read().unwrap_err().contains("nested more than 16 directories deep"));

    let folder = Folder::new("long");
    let file = File::create(folder.0.join("a")).unwrap();
    // Sparse: takes no room.
    file.set_len(FILE_BYTES_MAX + 1).unwrap();
    assert!(folder.read().unwrap_err().starts_with("a: is longer than 64 MiB"));
}
