//! A node with rules in a directory, and a browser before its console.

use crate::support::Folder;
use crate::support::browser::Browser;
use crate::support::http::post;
use crate::support::service::Service;

pub(crate) const RULES: &str = "# Rules of the shop.
domain: shop
descriptors:
  - key: user
    limits: { algorithm: fixed_window, rate: 3/year }
  - key: client
    limits: { algorithm: fixed_window, rate: 1000/year }
";

/// A node and its rules.
pub(crate) struct Node {
    pub(crate) service: Service,
    pub(crate) rules: Folder,
}

impl Node {
    pub(crate) fn start(args: &[&str]) -> Self {
        let rules = Folder::new();
        rules.file("shop.yaml", RULES);
        let path = rules.path().to_owned();
        let service = Service::with(&[&["--rules", &path], args].concat(), &[]);
        Self { service, rules }
    }

    /// The URL of a page.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.service.admin)
    }

    /// A browser at a page.
    pub(crate) fn browser(&self, path: &str) -> Browser {
        let browser = Browser::start();
        browser.open(&self.url(path));
        browser
    }

    /// The status of a check of a descriptor with one entry.
    pub(crate) fn check(&self, key: &str, value: &str) -> u16 {
        let body = format!(r#"{{"domain":"shop","descriptors":[{{"{key}":"{value}"}}]}}"#);
        post(&self.service.http, "/v1/check", &body).status
    }

    /// The statuses of several checks.
    pub(crate) fn checks(&self, key: &str, value: &str, count: usize) -> Vec<u16> {
        (0..count).map(|_| self.check(key, value)).collect()
    }
}
