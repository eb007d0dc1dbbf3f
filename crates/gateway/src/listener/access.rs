//! Access lists: networks that are denied, or exempt from limits.
//!
//! The longest prefix that contains an address decides; a network on both lists is denied. Files
//! are read again when they change; a file that became invalid is reported, and the last valid
//! content of all files stays in force.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use arc_swap::ArcSwap;
use ipnet::IpNet;
use parking_lot::Mutex;
use prefix_trie::joint::map::JointPrefixMap;
use sluicegate_config::files::{FileError, ReadOptions};
use sluicegate_config::gateway::{AccessConfig, NetworkList};
use sluicegate_config::rules::Source;
use sluicegate_config::watch::{PollResult, Watch};
use sluicegate_rules::network::{Network, NetworkError};
use tracing::{error, info};

/// What a list says about an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// Exempt from limits.
    Allowed,
    /// Not served.
    Denied,
}

/// The lists in force.
#[derive(Debug)]
pub(crate) struct AccessList {
    networks: ArcSwap<Networks>,
    config: AccessConfig,
    /// Of both lists, the allowed ones first.
    files: Mutex<(Watch, Watch)>,
}

type Networks = JointPrefixMap<IpNet, Access>;

/// Why a file is no list of networks.
#[derive(Debug)]
pub(crate) enum AccessError {
    /// It cannot be read.
    File(FileError),
    /// A line is not a network.
    Line { file: String, line: usize, text: String, error: NetworkError },
}

impl AccessList {
    /// Reads the files.
    pub(crate) fn new(config: &AccessConfig) -> Result<Self, AccessError> {
        let watch = |paths: &[_]| Watch::new(paths.iter().cloned(), ReadOptions::default());
        let mut files = (watch(&config.allow.files), watch(&config.deny.files));
        let allow = files.0.read().map_err(AccessError::File)?;
        let deny = files.1.read().map_err(AccessError::File)?;
        let networks = ArcSwap::from_pointee(compile(config, &allow, &deny)?);
        Ok(Self { networks, config: config.clone(), files: Mutex::new(files) })
    }

    /// Files that cannot be used, each with the reason.
    pub(crate) fn unusable_files(config: &AccessConfig) -> Vec<(PathBuf, String)> {
        let unusable = |file: &PathBuf| {
            let deny = NetworkList { networks: Vec::new(), files: vec![file.clone()] };
            let error = Self::new(&AccessConfig { deny, ..AccessConfig::default() }).err()?;
            Some((file.clone(), error.to_string()))
        };
        config.allow.files.iter().chain(&config.deny.files).filter_map(unusable).collect()
    }

    /// Whether there is no network, as long as no file changes.
    pub(crate) fn is_empty(&self) -> bool {
        self.networks.load().is_empty()
    }

    /// The entry of the longest prefix that contains an address.
    pub(crate) fn find(&self, address: IpAddr) -> Option<Access> {
        let networks = self.networks.load();
        if networks.is_empty() {
            return None;
        }
        let address = IpNet::from(address.to_canonical());
        networks.get_lpm(&address).map(|(_, access)| *access)
    }

    /// Whether networks are listed in files.
    pub(crate) fn has_files(&self) -> bool {
        !self.config.allow.files.is_empty() || !self.config.deny.files.is_empty()
    }

    /// Reads the files again if they have changed. Blocks.
    pub(crate) fn poll(&self) {
        let mut files = self.files.lock();
        let changed = [files.0.poll(), files.1.poll()];
        if !changed.iter().any(|change| matches!(change, PollResult::Changed(_))) {
            return;
        }
        let compiled = files.0.read().and_then(|allow| Ok((allow, files.1.read()?)));
        let compiled = compiled.map_err(AccessError::File);
        match compiled.and_then(|(allow, deny)| compile(&self.config, &allow, &deny)) {
            Ok(networks) => {
                info!(networks = networks.len(), "access lists loaded");
                self.networks.store(networks.into());
            }
            Err(error) => error!(%error, "access lists not loaded: the previous ones stay"),
        }
    }
}

fn compile(
    config: &AccessConfig,
    allow: &[Source],
    deny: &[Source],
) -> Result<Networks, AccessError> {
    let mut networks = Networks::new();
    // Denied ones last: they replace the same networks.
    for (listed, files, access) in [
        (&config.allow.networks, allow, Access::Allowed),
        (&config.deny.networks, deny, Access::Denied),
    ] {
        for network in listed {
            networks.insert((*network).into(), access);
        }
        for file in files {
            for (index, line) in file.text.lines().enumerate() {
                let text = line.split('#').next().unwrap_or_default().trim();
                if text.is_empty() {
                    continue;
                }
                let network = Network::from_str(text).map_err(|error| AccessError::Line {
                    file: file.name.clone(),
                    line: index + 1,
                    text: text.to_owned(),
                    error,
                })?;
                networks.insert(network.into(), access);
            }
        }
    }
    Ok(networks)
}

impl fmt::Display for AccessError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => error.fmt(f),
            Self::Line { file, line, text, error } => write!(
                f,
                "{file}:{line}: `{text}` is not a network: {error}; write one on each line, like \
                 `10.0.0.0/8` or `2001:db8::/32`"
            ),
        }
    }
}

impl std::error::Error for AccessError {}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    fn list(allow: &[&str], deny: &[&str]) -> AccessList {
        let parse = |all: &[&str]| NetworkList {
            networks: all.iter().map(|one| one.parse().unwrap()).collect(),
            files: Vec::new(),
        };
        AccessList::new(&AccessConfig { allow: parse(allow), deny: parse(deny) }).unwrap()
    }

    fn find(list: &AccessList, address: &str) -> Option<Access> {
        list.find(address.parse().unwrap())
    }

    #[test]
    fn the_longest_prefix_decides_and_a_tie_is_denied() {
        let list = list(&["10.1.0.0/16", "192.0.2.7", "::1"], &["10.0.0.0/8", "192.0.2.7"]);
        assert_eq!(find(&list, "10.1.2.3"), Some(Access::Allowed));
        assert_eq!(find(&list, "10.2.2.3"), Some(Access::Denied));
        assert_eq!(find(&list, "::ffff:10.2.2.3"), Some(Access::Denied));
        assert_eq!(find(&list, "192.0.2.7"), Some(Access::Denied));
        assert_eq!(find(&list, "::1"), Some(Access::Allowed));
        assert_eq!(find(&list, "198.51.100.1"), None);
    }

    struct TempFile(PathBuf);

    impl TempFile {
        fn new(name: &str, text: &str) -> Self {
            let name = format!("sluicegate-access-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::write(&path, text).unwrap();
            Self(path)
        }
    }

    impl Drop for TempFile {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    fn denied_by(file: &TempFile) -> Result<AccessList, AccessError> {
        let deny = NetworkList { networks: Vec::new(), files: vec![file.0.clone()] };
        AccessList::new(&AccessConfig { deny, ..AccessConfig::default() })
    }

    /// A change is read once a second poll finds it unchanged.
    fn settle(list: &AccessList) {
        list.poll();
        list.poll();
    }

    #[test]
    fn files_are_followed_and_an_invalid_one_changes_nothing() {
        let file = TempFile::new("follow", "# scanners\n192.0.2.0/24 # all\n\n2001:db8::/32\n");
        let list = denied_by(&file).unwrap();
        assert_eq!(find(&list, "192.0.2.9"), Some(Access::Denied));
        assert_eq!(find(&list, "2001:db8::1"), Some(Access::Denied));
        fs::write(&file.0, "198.51.100.0/24\n").unwrap();
        settle(&list);
        assert_eq!(find(&list, "192.0.2.9"), None);
        assert_eq!(find(&list, "198.51.100.9"), Some(Access::Denied));
        fs::write(&file.0, "198.51.100.0/24\nlocalhost\n").unwrap();
        settle(&list);
        assert_eq!(find(&list, "198.51.100.9"), Some(Access::Denied));
        fs::write(&file.0, "203.0.113.0/24\n").unwrap();
        settle(&list);
        assert_eq!(find(&list, "203.0.113.1"), Some(Access::Denied));
    }

    #[test]
    fn an_invalid_line_is_named_with_its_place_and_the_remedy() {
        let file = TempFile::new("invalid", "10.0.0.0/8\n\n10.0.0.300\n");
        let error = denied_by(&file).unwrap_err().to_string();
        assert!(error.contains(":3: `10.0.0.300` is not a network"), "{error}");
        assert!(error.ends_with("like `10.0.0.0/8` or `2001:db8::/32`"), "{error}");
    }

    #[test]
    fn a_hundred_thousand_networks_are_found() {
        let lines: String = (0..100_000_u32)
            .map(|index| format!("{}/28\n", std::net::Ipv4Addr::from(index << 12)))
            .collect();
        let list = denied_by(&TempFile::new("many", &lines)).unwrap();
        for index in (0..100_000_u32).step_by(997) {
            let [inside, outside] = [7, 16].map(|offset| (index << 12) + offset);
            let [inside, outside] = [inside, outside].map(|it| IpAddr::from(it.to_be_bytes()));
            assert_eq!(list.find(inside), Some(Access::Denied));
            assert_eq!(list.find(outside), None);
        }
    }

    proptest! {
        #[test]
        fn the_list_agrees_with_a_search_of_all_networks(
            networks in proptest::collection::vec((any::<u8>(), 0..=16_u8, any::<bool>()), 0..20),
            address in any::<[u8; 2]>(),
        ) {
            let address = IpAddr::from([10, address[0] & 3, address[1], 1]);
            let networks: Vec<_> = networks
                .into_iter()
                .map(|(bits, length, denied)| (Network::of([10, bits & 3, bits, 0].into(), 8 + length), denied))
                .collect();
            let of = |wanted| NetworkList {
                networks: networks.iter().filter(|(_, denied)| *denied == wanted).map(|(it, _)| *it).collect(),
                files: Vec::new(),
            };
            let list = AccessList::new(&AccessConfig { allow: of(false), deny: of(true) }).unwrap();
            let expected = networks
                .iter()
                .filter(|(network, _)| network.contains(address))
                .max_by_key(|(network, denied)| (network.length(), *denied))
                .map(|(_, denied)| if *denied { Access::Denied } else { Access::Allowed });
            prop_assert_eq!(list.find(address), expected);
        }
    }
}
