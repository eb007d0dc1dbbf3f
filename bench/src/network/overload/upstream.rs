//! A server of known capacity: some slots, each of which serves a request for a time, and a queue
//! without a bound in front of them.
//!
//! It sleeps in place of computing, so that it does not compete for the CPU. A request is served
//! also if its client has gone, as by servers that notice that at the response only. Beyond a
//! number of requests each one makes the others slower, up to four times.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep_until};

/// Slots, time of a request, and the number of requests from which on it gets slower.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SlotServer {
    pub(crate) slots: usize,
    pub(crate) millis: u64,
    pub(crate) knee: Option<usize>,
}

/// Times at which the slots are free, and the requests in the server.
struct Slots {
    free: BinaryHeap<Reverse<Instant>>,
    requests: usize,
}

/// The longest time of a request, in times of that without overload.
const SLOWEST: f64 = 4.0;
const HEAD_MAX: usize = 16 << 10;
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

impl SlotServer {
    /// Requests per second.
    pub(crate) fn capacity(&self) -> f64 {
        self.slots as f64 * 1e3 / self.millis as f64
    }

    /// The child's side: prints the address and serves until it is killed.
    pub(crate) fn serve(self) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        LocalSet::new().block_on(&runtime, async {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            println!("{}", serde_json::json!({ "http": listener.local_addr()?.to_string() }));
            let free = (0..self.slots).map(|_| Reverse(Instant::now())).collect();
            let slots = Rc::new(RefCell::new(Slots { free, requests: 0 }));
            loop {
                let (socket, _) = listener.accept().await?;
                let slots = slots.clone();
                tokio::task::spawn_local(async move { _ = self.connection(socket, &slots).await });
            }
        })
    }

    async fn connection(
        self,
        mut socket: TcpStream,
        slots: &RefCell<Slots>,
    ) -> std::io::Result<()> {
        socket.set_nodelay(true)?;
        let mut head = Vec::new();
        loop {
            while !head.ends_with(b"\r\n\r\n") {
                if head.len() > HEAD_MAX || socket.read_buf(&mut head).await? == 0 {
                    return Ok(());
                }
            }
            head.clear();
            let done = self.enter(&mut slots.borrow_mut(), Instant::now());
            sleep_until(done).await;
            slots.borrow_mut().requests -= 1;
            socket.write_all(RESPONSE).await?;
        }
    }

    /// When a request is done that arrives now.
    fn enter(self, slots: &mut Slots, now: Instant) -> Instant {
        slots.requests += 1;
        let crowd = self.knee.map_or(1.0, |knee| slots.requests as f64 / knee as f64);
        let millis = self.millis as f64 * crowd.clamp(1.0, SLOWEST);
        let free = slots.free.pop().map_or(now, |Reverse(free)| free.max(now));
        let done = free + Duration::from_secs_f64(millis / 1e3);
        slots.free.push(Reverse(done));
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_capacity_is_that_of_the_slots_and_falls_beyond_the_knee() {
        let now = Instant::now();
        let done = |knee, requests: usize| {
            let server = SlotServer { slots: 2, millis: 10, knee };
            let free = vec![Reverse(now); server.slots].into();
            let mut slots = Slots { free, requests: 0 };
            let last = (0..requests).map(|_| server.enter(&mut slots, now)).last();
            last.unwrap().duration_since(now).as_millis()
        };
        assert_eq!((done(None, 2), done(None, 3), done(None, 100)), (10, 20, 500));
        assert_eq!((done(Some(4), 4), done(Some(4), 6)), (20, 35));
    }
}
