//! A provider of language models that does what the header `x-do` says.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use crate::wire::read_head_or_end;

/// A provider, and the requests that it got.
pub struct Provider {
    pub address: String,
    /// Head and body of each request.
    pub requests: Arc<Mutex<Vec<(String, String)>>>,
    /// Streams whose client has gone away.
    pub cancelled: Arc<Mutex<usize>>,
}

/// How it answers: `tokens=20,usage={…}`, separated by blanks.
#[derive(Debug, Clone)]
struct Behaviour(String);

impl Behaviour {
    fn of(head: &str) -> Self {
        let mut lines = head.lines().filter_map(|line| line.split_once(": "));
        let found = lines.find(|(name, _)| name.eq_ignore_ascii_case("x-do"));
        Self(found.map_or("", |(_, value)| value).to_owned())
    }

    fn has(&self, word: &str) -> bool {
        self.0.split(' ').any(|one| one == word)
    }

    fn value(&self, name: &str) -> Option<&str> {
        self.0
            .split(' ')
            .filter_map(|one| one.split_once('='))
            .find(|one| one.0 == name)
            .map(|one| one.1)
    }

    fn number(&self, name: &str) -> Option<usize> {
        self.value(name)?.parse().ok()
    }
}

impl Provider {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let provider = Self { address, requests: Arc::default(), cancelled: Arc::default() };
        let (requests, cancelled) = (provider.requests.clone(), provider.cancelled.clone());
        thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let (requests, cancelled) = (requests.clone(), cancelled.clone());
                thread::spawn(move || serve(socket, &requests, &cancelled));
            }
        });
        provider
    }

    /// The body of the last request, as it came.
    pub fn last_body(&self) -> String {
        self.requests.lock().unwrap().last().unwrap().1.clone()
    }
}

fn serve(mut socket: TcpStream, requests: &Mutex<Vec<(String, String)>>, cancelled: &Mutex<usize>) {
    while let Some(head) = read_head_or_end(&mut socket) {
        let length = head
            .lines()
            .find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        if socket.read_exact(&mut body).is_err() {
            return;
        }
        let body = String::from_utf8(body).unwrap();
        requests.lock().unwrap().push((head.clone(), body.clone()));
        let behaviour = Behaviour::of(&head);
        let request: Value = serde_json::from_str(&body).unwrap_or_default();
        let is_anthropic = head.contains("/messages");
        let sent = match request["stream"] == true {
            true if is_anthropic => stream(&mut socket, &behaviour, anthropic_events(&behaviour)),
            true if head.contains("/responses") => {
                stream(&mut socket, &behaviour, response_events(&behaviour))
            }
            true => stream(&mut socket, &behaviour, openai_events(&behaviour, &request)),
            false => whole(&mut socket, &behaviour, is_anthropic),
        };
        if !sent {
            *cancelled.lock().unwrap() += 1;
            return;
        }
        if behaviour.has("close") || behaviour.number("abort").is_some() {
            return;
        }
    }
}

/// A response without a stream.
fn whole(socket: &mut TcpStream, behaviour: &Behaviour, is_anthropic: bool) -> bool {
    if behaviour.has("hang") {
        let _ = socket.read(&mut [0]);
        return false;
    }
    let status = behaviour.number("status").unwrap_or(200);
    let tokens = behaviour.number("tokens").unwrap_or(20);
    let text = "word ".repeat(tokens);
    let usage: Option<Value> = match behaviour.value("usage") {
        Some("none") => None,
        Some(usage) => Some(serde_json::from_str(usage).unwrap()),
        None if is_anthropic => Some(json!({ "input_tokens": 12, "output_tokens": tokens })),
        None => Some(json!({ "prompt_tokens": 12, "completion_tokens": tokens })),
    };
    let mut body = match is_anthropic {
        true => json!({ "type": "message", "content": [{ "type": "text", "text": text }] }),
        false => json!({ "choices": [{ "message": { "role": "assistant", "content": text } }] }),
    };
    if status >= 400 {
        body = json!({ "error": { "message": "no" } });
    } else if let Some(usage) = usage {
        body["usage"] = usage;
    }
    let body = body.to_string();
    let head = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\nx-ratelimit-remaining-tokens: 7\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all((head + &body).as_bytes()).is_ok()
}

fn openai_events(behaviour: &Behaviour, request: &Value) -> Vec<String> {
    let tokens = behaviour.number("tokens").unwrap_or(20);
    let chunk = |choices: Value| json!({ "id": "c1", "object": "chat.completion.chunk", "created": 5, "model": "gpt", "choices": choices });
    let delta = |_| chunk(json!([{ "index": 0, "delta": { "content": "word " } }]));
    let mut events: Vec<Value> = (0..tokens).map(delta).collect();
    events.push(chunk(json!([{ "index": 0, "delta": {}, "finish_reason": "stop" }])));
    if request["stream_options"]["include_usage"] == true
        && behaviour.value("usage") != Some("none")
    {
        let mut last = chunk(json!([]));
        last["usage"] = match behaviour.value("usage") {
            Some(usage) => serde_json::from_str(usage).unwrap(),
            None => {
                json!({ "prompt_tokens": 12, "completion_tokens": tokens, "total_tokens": 12 + tokens })
            }
        };
        events.push(last);
    }
    let mut events: Vec<String> = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    events.push("data: [DONE]\n\n".to_owned());
    events
}

fn response_events(behaviour: &Behaviour) -> Vec<String> {
    let tokens = behaviour.number("tokens").unwrap_or(20);
    let named =
        |event: Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
    let mut events = vec![
        json!({ "type": "response.created", "sequence_number": 0, "response": { "id": "r1", "model": "gpt" } }),
    ];
    events.extend((0..tokens).map(|at| {
        json!({ "type": "response.output_text.delta", "sequence_number": at + 1, "delta": "word " })
    }));
    events.push(json!({ "type": "response.output_text.done", "text": "word ".repeat(tokens) }));
    events.push(json!({ "type": "response.completed", "response": {
        "output": [{ "content": [{ "text": "word ".repeat(tokens) }] }],
        "usage": { "input_tokens": 12, "output_tokens": tokens, "input_tokens_details": { "cached_tokens": 4 } },
    } }));
    events.into_iter().map(named).collect()
}

fn anthropic_events(behaviour: &Behaviour) -> Vec<String> {
    let tokens = behaviour.number("tokens").unwrap_or(20);
    let named =
        |event: Value| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap());
    let usage = json!({ "input_tokens": 10, "cache_read_input_tokens": 2, "output_tokens": 1 });
    let mut events = vec![
        json!({ "type": "message_start", "message": { "id": "m1", "type": "message", "role": "assistant", "content": [], "model": "claude", "usage": usage } }),
        json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "" } }),
    ];
    let delta = |_| json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": "word " } });
    events.extend((0..tokens).map(delta));
    events.push(json!({ "type": "content_block_stop", "index": 0 }));
    events.push(json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" }, "usage": { "output_tokens": tokens } }));
    events.push(json!({ "type": "message_stop" }));
    events.into_iter().map(named).collect()
}

/// Sends events in pieces; whether the client took them.
fn stream(socket: &mut TcpStream, behaviour: &Behaviour, events: Vec<String>) -> bool {
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    if socket.write_all(head.as_bytes()).is_err() {
        return false;
    }
    let abort = behaviour.number("abort").unwrap_or(usize::MAX);
    let hang = behaviour.number("wait").unwrap_or(usize::MAX);
    for (sent, event) in events.iter().enumerate() {
        if sent == abort {
            return true;
        }
        if sent == hang {
            // Until the client goes away.
            let _ = socket.read(&mut [0]);
            return false;
        }
        let event = if behaviour.has("crlf") { event.replace('\n', "\r\n") } else { event.clone() };
        let size = behaviour.number("pieces").unwrap_or(event.len());
        for piece in event.as_bytes().chunks(size) {
            let head = format!("{:x}\r\n", piece.len());
            let chunk = [head.as_bytes(), piece, b"\r\n"].concat();
            if socket.write_all(&chunk).is_err() {
                return false;
            }
        }
    }
    socket.write_all(b"0\r\n\r\n").is_ok()
}
