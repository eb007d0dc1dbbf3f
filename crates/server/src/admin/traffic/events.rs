//! `GET /api/v1/events`: the events of this node as Server-Sent Events.
//!
//! | event | data |
//! |---|---|
//! | `tick` | the overview without series, once a second |
//! | `denial` | a denied request: domain, rule, descriptor; the first 20 of a second |
//! | `rules` | other rules are in force, or a load was rejected |
//! | `store` | the store is up, or down |
//! | `threshold` | a budget has reached a threshold (`notify`) |
//! | `dropped` | the client was too slow and has lost events; the stream ends |
//! | `shutdown` | the node shuts down; the stream ends |

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http_body::Frame;
use serde_json::json;
use tokio::sync::mpsc;

use super::{AdminInner, Caller, Refused, overview, traffic};
use crate::admin::error;
use crate::app::App;
use crate::traffic::events::{EventReceiver, STREAMS_MAX, encode};

/// Milliseconds after which a browser reconnects.
const RECONNECT: &str = "retry: 2000\n\n";

/// Body of a stream: what its task sends.
struct EventBody(mpsc::Receiver<Bytes>);

pub(super) async fn events(
    State(admin): State<Arc<AdminInner>>,
    caller: Caller,
) -> Result<Response, Refused> {
    let statistics = traffic(&admin, &caller)?;
    let Some(receiver) = statistics.events().open() else {
        let message =
            format!("`{STREAMS_MAX}` event streams are open already; close one, or retry");
        let full = error(StatusCode::SERVICE_UNAVAILABLE, "too_many_streams", &message);
        return Err(Box::new(full).into());
    };
    // One event at a time: what a slow client has not read waits in the ring.
    let (sender, body) = mpsc::channel(1);
    let first = encode("tick", None, &overview::summary(&admin.app, statistics));
    tokio::spawn(send(admin.app.clone(), receiver, first, sender));
    let headers =
        [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
    Ok((headers, Body::new(EventBody(body))).into_response())
}

/// Sends events until the client is away or too slow, or the node shuts down.
async fn send(app: App, mut receiver: EventReceiver, first: Bytes, sender: mpsc::Sender<Bytes>) {
    let mut health = app.health().changes();
    let sent = async {
        sender.send(Bytes::from_static(RECONNECT.as_bytes())).await.ok()?;
        sender.send(first).await.ok()?;
        loop {
            match receiver.next().await {
                Ok(event) => sender.send(event).await.ok()?,
                Err(lost) => {
                    let notice = json!({ "lost": lost, "reason": "the client reads too slowly" });
                    return Some(encode("dropped", None, &notice));
                }
            }
        }
    };
    let last = tokio::select! {
        last = sent => last,
        () = sender.closed() => None,
        _ = health.wait_for(|state| state.draining) => Some(encode("shutdown", None, &json!({}))),
    };
    if let Some(last) = last {
        // The connection enforces the time of a write.
        let _ = sender.send(last).await;
    }
}

impl http_body::Body for EventBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|event| event.map(|event| Ok(Frame::data(event))))
    }
}
