//! What cannot be seen from outside.

#![cfg(target_os = "linux")] // Elsewhere a listener cannot be broken like this.

use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};

use super::*;
use crate::settings::Vars;

async fn server() -> Server {
    let free = ["SLUICEGATE_GRPC", "SLUICEGATE_HTTP", "SLUICEGATE_ADMIN", "SLUICEGATE_RESP"];
    let (settings, _) = Settings::read(&Vars::new(free.map(|name| (name, "127.0.0.1:0")))).unwrap();
    Server::start(settings).await.unwrap()
}

/// Linux ends a listener like a connection.
fn shut_down(listener: BorrowedFd<'_>) {
    let listener = TcpStream::from(listener.try_clone_to_owned().unwrap());
    listener.shutdown(Shutdown::Both).unwrap();
}

#[tokio::test]
async fn a_door_that_breaks_ends_the_service() {
    let doors: [fn(&Server); 4] = [
        |server| match &server.grpc {
            Listener::Tcp(listener) => shut_down(listener.as_fd()),
            _ => panic!("no port"),
        },
        |server| shut_down(server.http.as_fd()),
        |server| shut_down(server.admin.as_fd()),
        |server| shut_down(server.resp.as_ref().unwrap().as_fd()),
    ];
    for shut in doors {
        let server = server().await;
        shut(&server);
        let health = server.app().health().clone();
        let (_reread, rereading) = mpsc::channel(1);
        // Nobody tells it to stop.
        let ended = server.run(std::future::pending(), rereading).await;
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert!(!health.state().is_ready());
    }
}
