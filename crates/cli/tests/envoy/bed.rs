//! Everything that a request meets: Envoy, sluicegate, and the upstream behind Envoy.

use crate::config::{Front, config};
use crate::envoy::Envoy;
use crate::support::Folder;
use crate::support::http::{self, Answer};
use crate::support::service::Service;
use crate::support::upstream::Upstream;
use crate::upstream;

/// All of it; ends with this value.
pub struct Bed {
    pub envoy: Envoy,
    pub service: Service,
    pub upstream: Upstream,
    folder: Folder,
}

impl Bed {
    /// With the rules of domain `shop`, and a listener of Envoy for each front.
    pub fn start(descriptors: &str, fronts: &[Front]) -> Self {
        Self::with_environment(descriptors, fronts, &[])
    }

    /// The same, with variables of the environment for the service.
    pub fn with_environment(
        descriptors: &str,
        fronts: &[Front],
        environment: &[(&str, &str)],
    ) -> Self {
        let folder = Folder::new();
        let rules = folder.file("rules.yaml", &rules(descriptors));
        let service = Service::start(&rules, &format!("{}:0", service_host()), environment);
        let upstream = upstream::start();
        let config = config(fronts, &service.grpc, &upstream.address);
        let envoy = Envoy::start(&config.to_string(), &folder);
        Self { envoy, service, upstream, folder }
    }

    /// Asks the first listener.
    pub fn get(&self, headers: &[(&str, &str)]) -> Answer {
        self.get_at(0, headers)
    }

    /// Asks a listener.
    pub fn get_at(&self, front: usize, headers: &[(&str, &str)]) -> Answer {
        let bytes: Vec<_> = headers.iter().map(|(key, value)| (*key, value.as_bytes())).collect();
        http::get(&self.envoy.listeners[front], "/", &bytes)
    }

    /// Asks the first listener the same several times; the statuses.
    pub fn statuses<const N: usize>(&self, headers: &[(&str, &str)]) -> [u16; N] {
        [(); N].map(|()| self.get(headers).status)
    }

    /// Replaces the rules, and waits until the service has taken them.
    pub fn reload(&mut self, descriptors: &str) -> String {
        // In one step, as editors and config maps do it: nobody ever sees half a file.
        let next = self.folder.file(".next", &rules(descriptors));
        std::fs::rename(next, format!("{}/rules.yaml", self.folder.path())).unwrap();
        self.service.says("rules reloaded")
    }

    /// Starts the service anew, where it was before it was killed.
    pub fn restart(&mut self) {
        let rules = format!("{}/rules.yaml", self.folder.path());
        self.service = Service::start(&rules, &self.service.grpc, &[]);
    }
}

fn rules(descriptors: &str) -> String {
    format!("domain: shop\ndescriptors:\n{descriptors}")
}

/// Where nobody else connects from: a port that is free for a moment, between two services, must
/// not be taken by whoever needs any.
fn service_host() -> &'static str {
    if cfg!(target_os = "linux") { "127.0.0.2" } else { "127.0.0.1" }
}
