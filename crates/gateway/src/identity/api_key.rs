//! API keys: a file has the SHA-256 of each, so that reading it reveals none.
//!
//! A key is looked up by its hash. The time of a lookup reveals nothing about the keys: to choose a
//! hash near another one is to invert SHA-256.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, Uri};
use ring::digest;
use ring::rand::{SecureRandom, SystemRandom};
use sluicegate_config::gateway::ApiKeysConfig;
use sluicegate_config::gateway::api_keys::{self, ApiKeyConfig};
use sluicegate_rules::mapping::{query_value, without_query};

use super::IdentityError;
use super::follow::FollowedFiles;

/// Where keys are without a `header` and a `query`.
const DEFAULT_HEADER: HeaderName = HeaderName::from_static("x-api-key");
/// Longest key.
pub const KEY_BYTES_MAX: usize = 4_096;

/// The keys, and where requests have them.
#[derive(Debug)]
pub(crate) struct ApiKeys {
    table: Arc<ArcSwap<Table>>,
    header: Option<HeaderName>,
    query: Option<String>,
    forward: bool,
}

/// Keys by the SHA-256 of each.
type Table = HashMap<[u8; 32], Arc<ApiKeyConfig>>;

impl ApiKeys {
    /// Loads the keys.
    pub(super) fn new(
        config: &ApiKeysConfig,
        files: &mut FollowedFiles,
    ) -> Result<Self, IdentityError> {
        let header = config.header.as_ref().map(|name| name.parse()).transpose();
        let header = header.map_err(|_| IdentityError {
            step: "read `identity.api_keys.header`".to_owned(),
            reason: format!(
                "`{}` is no name of a header; write it like `X-API-Key`",
                config.header.as_deref().unwrap_or_default()
            ),
        })?;
        let header = header.or_else(|| config.query.is_none().then_some(DEFAULT_HEADER));
        let table = Arc::new(ArcSwap::default());
        let target = table.clone();
        files.follow_text("API keys", &config.file, move |source| {
            let keys = api_keys::read(source).map_err(|problems| problems.to_string())?;
            let entry = |key: ApiKeyConfig| (key.sha256, Arc::new(key));
            target.store(Arc::new(keys.into_iter().map(entry).collect::<Table>()));
            Ok(())
        })?;
        Ok(Self { table, header, query: config.query.clone(), forward: config.forward })
    }

    /// The key of a request, if it is one of the file.
    pub(super) fn find(&self, head: &Parts) -> Option<Arc<ApiKeyConfig>> {
        let found =
            self.header.as_ref().and_then(|name| self.by_hash(header_key(&head.headers, name)?));
        found.or_else(|| {
            let uri = head.uri.path_and_query()?.as_str();
            self.by_hash(query_value(uri, self.query.as_deref()?)?.as_bytes())
        })
    }

    fn by_hash(&self, key: &[u8]) -> Option<Arc<ApiKeyConfig>> {
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return None;
        }
        let hash = digest::digest(&digest::SHA256, key);
        self.table.load().get(hash.as_ref()).cloned()
    }

    /// Removes the key from a request, unless upstreams get it too.
    pub(super) fn strip(&self, head: &mut Parts) {
        if self.forward {
            return;
        }
        if let Some(name) = &self.header {
            head.headers.remove(name);
        }
        let Some(name) = &self.query else { return };
        let stripped = head.uri.path_and_query().and_then(|uri| without_query(uri.as_str(), name));
        let stripped = stripped.and_then(|uri| PathAndQuery::try_from(uri).ok());
        if let Some(path_and_query) = stripped {
            let mut parts = std::mem::take(&mut head.uri).into_parts();
            parts.path_and_query = Some(path_and_query);
            // The other parts come from a valid URI.
            head.uri = Uri::from_parts(parts).unwrap_or_default();
        }
    }
}

/// The value of the only line of a header, without the scheme of `Authorization`.
fn header_key<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a [u8]> {
    let mut lines = headers.get_all(name).iter();
    let line = lines.next()?.as_bytes().trim_ascii();
    // Several could be read differently by the upstream.
    if lines.next().is_some() {
        return None;
    }
    if name != http::header::AUTHORIZATION {
        return Some(line);
    }
    let blank = line.iter().position(|byte| *byte == b' ')?;
    Some(line.get(blank..)?.trim_ascii())
}

/// The SHA-256 of a key, as a file has it.
#[must_use]
pub fn hash_key(key: &str) -> String {
    let hash = digest::digest(&digest::SHA256, key.as_bytes());
    hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A new key: 200 random bits in lower-case letters and digits. `None` if the system has no random
/// numbers.
#[must_use]
pub fn generate_key() -> Option<String> {
    const ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
    let mut bytes = [0; 40];
    SystemRandom::new().fill(&mut bytes).ok()?;
    let letter = |byte: u8| ALPHABET.get(usize::from(byte % 32)).copied().map(char::from);
    bytes.into_iter().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use http::Request;

    use super::*;

    fn head(uri: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn keys(name: &str, header: Option<&str>, query: Option<&str>) -> ApiKeys {
        let id = std::process::id();
        let file = std::env::temp_dir().join(format!("sluicegate-keys-{id}-{name}.yaml"));
        let text = format!(
            "- {{ name: acme, sha256: {}, plan: pro }}\n- {{ name: shop, sha256: {} }}\n",
            hash_key("secret-a"),
            hash_key("secret b")
        );
        fs::write(&file, text).unwrap();
        let (header, query) = (header.map(str::to_owned), query.map(str::to_owned));
        let config = ApiKeysConfig { file: file.clone(), header, query, forward: false };
        let keys = ApiKeys::new(&config, &mut FollowedFiles::default()).unwrap();
        fs::remove_file(file).unwrap();
        keys
    }

    fn found(keys: &ApiKeys, head: &Parts) -> Option<String> {
        keys.find(head).map(|key| key.name.to_string())
    }

    #[test]
    fn a_key_is_found_in_its_header_only() {
        let keys = keys("header", None, None);
        let named =
            |value: &str| found(&keys, &head("/?x-api-key=secret-a", &[("X-API-Key", value)]));
        assert_eq!(named("secret-a").as_deref(), Some("acme"));
        assert_eq!(named(" secret b ").as_deref(), Some("shop"));
        assert_eq!(named("secret-A"), None);
        assert_eq!(named(""), None);
        assert_eq!(named(&hash_key("secret-a")), None, "the hash is no key");
        assert_eq!(named(&"x".repeat(5_000)), None);
        let twice = head("/", &[("X-API-Key", "secret-a"), ("X-API-Key", "secret-a")]);
        assert_eq!(found(&keys, &twice), None);
        assert_eq!(found(&keys, &head("/", &[])), None);
    }

    #[test]
    fn authorization_has_a_scheme() {
        let keys = keys("authorization", Some("Authorization"), None);
        let named = |value: &str| found(&keys, &head("/", &[("Authorization", value)]));
        assert_eq!(named("Bearer secret-a").as_deref(), Some("acme"));
        assert_eq!(named("ApiKey  secret-a").as_deref(), Some("acme"));
        assert_eq!(named("secret-a"), None);
    }

    #[test]
    fn a_key_of_the_query_is_decoded_and_removed() {
        let keys = keys("query", None, Some("key"));
        let mut head = head("/a?x=1&key=secret%20b&k%65y=2", &[("X-API-Key", "secret-a")]);
        assert_eq!(found(&keys, &head).as_deref(), Some("shop"));
        keys.strip(&mut head);
        assert_eq!(head.uri, "/a?x=1");
        assert!(head.headers.contains_key("x-api-key"), "it is no key here");
    }

    #[test]
    fn a_key_of_the_header_is_removed_unless_forwarded() {
        let mut keys = keys("strip", None, None);
        let original = head("http://a.example/b?c", &[("X-API-Key", "secret-a")]);
        keys.forward = true;
        let mut head = original.clone();
        keys.strip(&mut head);
        assert!(head.headers.contains_key("x-api-key"));
        keys.forward = false;
        keys.strip(&mut head);
        assert!(!head.headers.contains_key("x-api-key"));
        assert_eq!(head.uri, original.uri);
    }

    #[test]
    fn the_hash_is_that_of_other_tools() {
        assert_eq!(
            hash_key("abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
