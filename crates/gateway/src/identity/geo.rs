//! Autonomous system and country of an address, from databases that the operator brings.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use maxminddb::{PathElement, Reader};
use sluicegate_config::gateway::GeoConfig;

use super::IdentityError;
use super::follow::FollowedFiles;

type Database = Arc<ArcSwapOption<Reader<Vec<u8>>>>;

/// The databases.
#[derive(Debug, Default)]
pub(crate) struct Geo {
    asn: Database,
    country: Database,
}

impl Geo {
    /// Loads the databases.
    pub(super) fn new(
        config: &GeoConfig,
        files: &mut FollowedFiles,
    ) -> Result<Self, IdentityError> {
        let geo = Self::default();
        if let Some(path) = &config.asn {
            follow("ASN database", path, &geo.asn, files)?;
        }
        if let Some(path) = &config.country {
            follow("country database", path, &geo.country, files)?;
        }
        Ok(geo)
    }

    /// The number of the autonomous system.
    pub(super) fn asn(&self, address: IpAddr) -> Option<String> {
        let database = self.asn.load();
        let found = database.as_ref()?.lookup(address.to_canonical()).ok()?;
        let path = [PathElement::Key("autonomous_system_number")];
        found.decode_path::<u32>(&path).ok()?.map(|number| number.to_string())
    }

    /// The code of the country, in two letters.
    pub(super) fn country(&self, address: IpAddr) -> Option<String> {
        let database = self.country.load();
        let found = database.as_ref()?.lookup(address.to_canonical()).ok()?;
        let path = [PathElement::Key("country"), PathElement::Key("iso_code")];
        found.decode_path::<String>(&path).ok()?
    }
}

fn follow(
    kind: &'static str,
    path: &Path,
    database: &Database,
    files: &mut FollowedFiles,
) -> Result<(), IdentityError> {
    let target = database.clone();
    files.follow_binary(kind, path, move |bytes| {
        let reader = Reader::from_source(bytes)
            .map_err(|error| format!("{error}; it must be a database in MaxMind's format"))?;
        target.store(Some(Arc::new(reader)));
        Ok(())
    })
}
