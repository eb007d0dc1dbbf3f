//! The whole service, as it begins.

#![cfg(target_os = "linux")] // Elsewhere nobody says how many clients may wait.
#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

use std::net::TcpStream;
use std::time::Duration;

use sluicegate_server::server::Server;
use sluicegate_server::settings::{GrpcAddress, Settings, Vars};

/// Long enough for whoever is let in at once, and not for who has to knock again.
const AT_ONCE: Duration = Duration::from_millis(900);

#[tokio::test]
async fn clients_that_come_all_at_once_are_let_in_at_once() {
    let most = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
    let clients = most.trim().parse::<usize>().unwrap().min(300);
    let free = ["SLUICEGATE_GRPC", "SLUICEGATE_HTTP", "SLUICEGATE_ADMIN"];
    let (settings, _) = Settings::read(&Vars::new(free.map(|name| (name, "127.0.0.1:0")))).unwrap();
    // It does not run, so it accepts nobody.
    let server = Server::start(settings).await.unwrap();
    let GrpcAddress::Tcp(grpc) = server.addresses().grpc else { panic!("no port") };
    for address in [grpc, server.addresses().http, server.addresses().admin] {
        let came = (0..clients).map(|_| TcpStream::connect_timeout(&address, AT_ONCE));
        let came: Vec<_> = came.take_while(Result::is_ok).collect();
        assert_eq!(came.len(), clients, "at {address}");
    }
}
