//! A network that is as bad as it is told to be.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use sluicegate_testkit::proxy::Slow;
use sluicegate_testkit::redis::Single;

/// Longer than anybody waits who is answered at all.
const PATIENCE: Duration = Duration::from_secs(30);
/// Long enough to see that nothing comes, and far shorter than the delays below.
const GLANCE: Duration = Duration::from_millis(50);

struct Client(TcpStream);

impl Client {
    fn of(slow: &Slow) -> Self {
        Self(TcpStream::connect(("127.0.0.1", slow.port())).unwrap())
    }

    fn asks(&mut self, command: &str) {
        self.0.write_all(format!("{command}\r\n").as_bytes()).unwrap();
    }

    /// What has come within a time, or why nothing has.
    fn hears(&mut self, patience: Duration) -> Result<String, ErrorKind> {
        self.0.set_read_timeout(Some(patience)).unwrap();
        let mut bytes = [0; 100];
        let count = self.0.read(&mut bytes).map_err(|error| error.kind())?;
        Ok(String::from_utf8_lossy(&bytes[..count]).into_owned())
    }
}

#[test]
fn it_passes_on() {
    let server = Single::start();
    let slow = Slow::before(server.port());
    assert_eq!(slow.url(), format!("redis://127.0.0.1:{}", slow.port()));
    let mut client = Client::of(&slow);
    client.asks("INCR k");
    assert_eq!(client.hears(PATIENCE).unwrap(), ":1\r\n");
    assert_eq!(slow.connections(), 1);
}

#[test]
fn what_is_asked_of_a_slow_one_happens_before_it_is_answered() {
    let server = Single::start();
    let slow = Slow::before(server.port());
    slow.delay(Duration::from_secs(3600));
    let mut client = Client::of(&slow);
    client.asks("RPUSH l x");
    assert!(server.cli(&["BLPOP", "l", "4"]).contains('x'));
    assert_eq!(client.hears(GLANCE), Err(ErrorKind::WouldBlock));

    slow.delay(Duration::from_millis(1));
    let mut client = Client::of(&slow);
    client.asks("PING");
    assert_eq!(client.hears(PATIENCE).unwrap(), "+PONG\r\n");
}

#[test]
fn a_black_hole_gives_back_in_the_end() {
    let server = Single::start();
    let slow = Slow::before(server.port());
    let mut client = Client::of(&slow);
    client.asks("PING");
    assert_eq!(client.hears(PATIENCE).unwrap(), "+PONG\r\n");
    slow.black_hole(true);
    client.asks("INCR k");
    let mut late = Client::of(&slow);
    late.asks("PING");
    assert_eq!(client.hears(GLANCE), Err(ErrorKind::WouldBlock));
    assert_eq!(late.hears(GLANCE), Err(ErrorKind::WouldBlock));
    assert_eq!(server.cli(&["GET", "k"]), "(nil)");
    slow.black_hole(false);
    assert_eq!(client.hears(PATIENCE).unwrap(), ":1\r\n");
    assert_eq!(late.hears(PATIENCE).unwrap(), "+PONG\r\n");
}

#[test]
fn a_cut_closes_what_there_is_also_in_a_black_hole() {
    let server = Single::start();
    let slow = Slow::before(server.port());
    for black_hole in [false, true] {
        let mut client = Client::of(&slow);
        client.asks("PING");
        assert_eq!(client.hears(PATIENCE).unwrap(), "+PONG\r\n");
        slow.black_hole(black_hole);
        client.asks("PING");
        slow.cut();
        slow.black_hole(false);
        let end = std::iter::repeat_with(|| client.hears(PATIENCE))
            .find(|heard| !matches!(heard, Ok(text) if !text.is_empty()));
        assert!(matches!(end, Some(Ok(_) | Err(ErrorKind::ConnectionReset))), "{end:?}");
        assert_eq!(slow.connections(), 0);
    }
    server.kill();
    let mut client = Client::of(&slow);
    assert_eq!(client.hears(PATIENCE), Ok(String::new()), "nobody is there");
}
