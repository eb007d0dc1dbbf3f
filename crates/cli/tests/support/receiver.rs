//! A receiver of webhooks.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use serde_json::Value;

/// A request that was received.
#[derive(Debug)]
pub struct Received {
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: String,
}

/// Answers with these statuses, then with 200; ends with the test.
pub struct WebhookReceiver {
    pub address: String,
    received: Receiver<Received>,
}

impl WebhookReceiver {
    pub fn answering(statuses: &'static [u16]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (sender, received) = channel();
        thread::spawn(move || {
            let mut statuses = statuses.iter();
            for socket in listener.incoming().map_while(Result::ok) {
                let status = statuses.next().copied().unwrap_or(200);
                let Some(request) = receive(socket, status) else { continue };
                if sender.send(request).is_err() {
                    return;
                }
            }
        });
        Self { address, received }
    }

    /// The next request.
    pub fn next(&self) -> Received {
        self.received.recv_timeout(Duration::from_secs(30)).expect("a request")
    }

    /// Whether there is no further request so far.
    pub fn is_empty(&self) -> bool {
        self.received.try_recv().is_err()
    }
}

impl Received {
    pub fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        &found.unwrap_or_else(|| panic!("no `{name}`: {self:?}")).1
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

fn receive(mut socket: TcpStream, status: u16) -> Option<Received> {
    let mut reader = BufReader::new(socket.try_clone().ok()?);
    let (mut lines, mut line) = (Vec::new(), String::new());
    while reader.read_line(&mut line).ok()? > 2 {
        lines.push(line.trim_end().to_owned());
        line.clear();
    }
    let path = lines.first()?.split(' ').nth(1)?.to_owned();
    let headers: Vec<(String, String)> = lines[1..]
        .iter()
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let length = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-length"))?;
    let mut body = vec![0; length.1.parse().ok()?];
    reader.read_exact(&mut body).ok()?;
    let location = if status / 100 == 3 { "location: /elsewhere\r\n" } else { "" };
    let response =
        format!("HTTP/1.1 {status} X\r\n{location}content-length: 0\r\nconnection: close\r\n\r\n");
    socket.write_all(response.as_bytes()).ok()?;
    Some(Received { path, headers, body: String::from_utf8(body).ok()? })
}
