//! Several services on one store.

use serde_json::Value;
use sluicegate_testkit::until;

use crate::support::Folder;
use crate::support::http::post;
use crate::support::service::Service;

/// What a call to the store may take where hits are counted: on a busy machine a call that came too
/// late would be charged, and not be answered.
pub const PATIENT: (&str, &str) = ("SLUICEGATE_STORE_TIMEOUT", "10s");

/// Services with the same rules and the same store; they end with this value.
pub struct Fleet {
    pub services: Vec<Service>,
    folder: Folder,
}

impl Fleet {
    /// So many services that have all reached the store.
    pub fn start(count: usize, store: &str, descriptors: &str) -> Self {
        Self::with(count, store, descriptors, &[PATIENT])
    }

    /// The same, with variables of the environment.
    pub fn with(
        count: usize,
        store: &str,
        descriptors: &str,
        environment: &[(&str, &str)],
    ) -> Self {
        let mut fleet = Self::unready(count, store, descriptors, environment);
        // It may have been said before the greeting: the two take different ways.
        for service in &mut fleet.services {
            service.has_said("the store answers");
        }
        fleet
    }

    /// The same, whether the store is there or not.
    pub fn unready(
        count: usize,
        store: &str,
        descriptors: &str,
        environment: &[(&str, &str)],
    ) -> Self {
        let folder = Folder::new();
        let rules = folder.file("rules.yaml", &file(descriptors));
        let args = ["--rules", &rules, "--store", store, "--resp", "127.0.0.1:0"];
        let services = (0..count).map(|_| Service::with(&args, environment)).collect();
        Self { services, folder }
    }

    /// Gives all of them other rules, and waits until they have taken them.
    pub fn reload(&mut self, descriptors: &str) {
        let next = self.folder.file(".next", &file(descriptors));
        std::fs::rename(next, format!("{}/rules.yaml", self.folder.path())).unwrap();
        self.says("rules reloaded");
    }

    /// Waits until each has said this since it was last listened to.
    pub fn says(&mut self, text: &str) {
        for service in &mut self.services {
            service.says(text);
        }
    }

    /// Waits until each has heard of all others.
    pub fn knows_itself(&self) {
        let count = self.services.len() as u64;
        for service in &self.services {
            until("a service knows how many there are", || {
                (metric(service, "sluicegate_redis_nodes") == count).then_some(())
            });
        }
    }

    /// A number that each has counted, all together.
    pub fn metric(&self, name: &str) -> u64 {
        self.services.iter().map(|service| metric(service, name)).sum()
    }

    /// No script has ever decided otherwise than the core, and nothing was decided without the
    /// store.
    pub fn trusts_its_store(&self) {
        assert_eq!(self.metric("sluicegate_redis_disagreements_total"), 0);
        for policy in ["local", "allow", "deny", "error"] {
            let name = format!("sluicegate_redis_fallbacks_total{{policy=\"{policy}\"}}");
            assert_eq!(self.metric(&name), 0, "{name}");
        }
    }

    /// What is left of each limit for who is described, by a service's word, as soon as the store
    /// answers it.
    pub fn left(&self, descriptors: &str) -> Vec<i64> {
        let body = format!(r#"{{"domain":"shop","descriptors":[{descriptors}]}}"#);
        let answer = until("the store is asked", || {
            let answer = post(&self.services[0].http, "/v1/keys/inspect", &body);
            (answer.status == 200).then_some(answer)
        });
        let told: Value = serde_json::from_str(&answer.body).unwrap();
        let keys = told["keys"].as_array().unwrap().iter();
        let limits = keys.flat_map(|key| key["limits"].as_array().unwrap());
        limits.map(|limit| limit["remaining"].as_i64().unwrap()).collect()
    }
}

fn file(descriptors: &str) -> String {
    format!("domain: shop\ndescriptors:\n{descriptors}")
}

/// A number that a service tells operators.
pub fn metric(service: &Service, name: &str) -> u64 {
    let page = service.admin("/metrics").body;
    let value = |line: &str| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok();
    page.lines().find_map(value).unwrap_or_else(|| panic!("no `{name}` in:\n{page}"))
}
