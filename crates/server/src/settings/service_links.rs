//! Service links: variables that Kubernetes and Docker add to a container for each Service, such as
//! `SLUICEGATE_PORT=tcp://10.0.0.7:8081` for one named `sluicegate`.
//!
//! They look like settings and are none. Both name and value must have the form of a link, so that
//! a misspelt setting is still reported.

use std::net::{IpAddr, SocketAddr};

/// Protocols of a Service.
const PROTOCOLS: [&str; 3] = ["tcp", "udp", "sctp"];

/// Whether a variable is a service link.
pub(super) fn is_service_link(name: &str, value: &str) -> bool {
    let is_port = |text: &str| text.parse::<u16>().is_ok();
    let is_address = |text: &str| text.parse::<IpAddr>().is_ok();
    // `…_SERVICE_PORT`, and `…_SERVICE_PORT_<name of the port>`.
    if let Some((service, port)) = name.split_once("_SERVICE_PORT")
        && (port.is_empty() || port.starts_with('_'))
    {
        return !service.is_empty() && is_port(value);
    }
    if let Some(service) = name.strip_suffix("_SERVICE_HOST") {
        return !service.is_empty() && is_address(value);
    }
    if let Some(service) = name.strip_suffix("_PORT").filter(|service| !service.is_empty()) {
        // `…_PORT_8081_TCP_PORT` ends like `…_PORT`, and has a number.
        return is_url(value) || (is_port_of_link(service) && is_port(value));
    }
    if let Some(port) = name.strip_suffix("_ADDR") {
        return is_port_of_link(port) && is_address(value);
    }
    if let Some(port) = name.strip_suffix("_PROTO") {
        return is_port_of_link(port) && PROTOCOLS.contains(&value);
    }
    is_port_of_link(name) && is_url(value)
}

/// `…_PORT_8081_TCP`.
fn is_port_of_link(name: &str) -> bool {
    let Some((rest, protocol)) = name.rsplit_once('_') else { return false };
    let Some((service, port)) = rest.rsplit_once("_PORT_") else { return false };
    let is_protocol = PROTOCOLS.iter().any(|known| known.eq_ignore_ascii_case(protocol));
    is_protocol && !service.is_empty() && port.parse::<u16>().is_ok()
}

/// `tcp://10.0.0.7:8081`.
fn is_url(value: &str) -> bool {
    let Some((protocol, address)) = value.split_once("://") else { return false };
    // Kubernetes writes an IPv6 address without brackets in old versions.
    let is_address =
        |(host, port): (&str, &str)| host.parse::<IpAddr>().is_ok() && port.parse::<u16>().is_ok();
    PROTOCOLS.contains(&protocol)
        && (address.parse::<SocketAddr>().is_ok()
            || address.rsplit_once(':').is_some_and(is_address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_links_are_recognized_by_name_and_value() {
        let links = [
            ("SLUICEGATE_SERVICE_HOST", "10.0.0.7"),
            ("SLUICEGATE_SERVICE_PORT", "8081"),
            ("SLUICEGATE_SERVICE_PORT_GRPC", "8081"),
            ("SLUICEGATE_PORT", "tcp://10.0.0.7:8081"),
            ("SLUICEGATE_PORT", "tcp://[fd00::7]:8081"),
            ("SLUICEGATE_PORT_8081_TCP", "tcp://10.0.0.7:8081"),
            ("SLUICEGATE_PORT_8081_TCP_PROTO", "tcp"),
            ("SLUICEGATE_PORT_8081_TCP_PORT", "8081"),
            ("SLUICEGATE_PORT_8081_TCP_ADDR", "fd00::7"),
            ("SLUICEGATE_ADMIN_PORT_53_UDP", "udp://10.0.0.7:53"),
            ("REDIS_SERVICE_HOST", "10.0.0.8"),
            ("REDIS_PORT", "tcp://10.0.0.8:6379"),
            ("GRPC_PORT", "tcp://10.0.0.9:8081"),
            ("STATSD_PORT", "udp://10.0.0.9:8125"),
        ];
        for (name, value) in links {
            assert!(is_service_link(name, value), "{name}={value}");
        }
        let settings = [
            ("PORT", "tcp://10.0.0.7:8081"),
            ("GRPC_PORT", "8081"),
            ("GRPC_PORT", "many"),
            ("GRPC_PORT", "http://10.0.0.7:8081"),
            ("STATSD_PORT", "8125"),
            ("SLUICEGATE_PORT", "8081"),
            ("SLUICEGATE_PORT_8081", "tcp://10.0.0.7:8081"),
            ("SLUICEGATE_PORT_GRPC_TCP", "tcp://10.0.0.7:8081"),
            ("SLUICEGATE_SERVICE_HOST", "gateway"),
            ("SLUICEGATE_SERVICE_PORTS", "8081"),
            ("SLUICEGATE_STORE", "tcp://10.0.0.7:8081"),
            ("REDIS_URL", "tcp://10.0.0.7:6379"),
            ("REDIS_TLS", "true"),
        ];
        for (name, value) in settings {
            assert!(!is_service_link(name, value), "{name}={value}");
        }
    }
}
