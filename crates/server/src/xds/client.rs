//! The stream to the control plane: connects, receives, acknowledges, and begins anew.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream;
use http::Uri;
use http::uri::PathAndQuery;
use prost_types::value::Kind;
use prost_types::{Struct, Value};
use sluicegate::FollowWaker;
use sluicegate::config::rules::Source;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tonic::client::Grpc;
use tonic::metadata::MetadataMap;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Extensions, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::proto::{DiscoveryRequest, DiscoveryResponse, ErrorDetail, XdsNode};
use super::received::{Outcome, ReceivedRules};
use super::resource::ResourceSet;
use super::status::XdsStatus;
use super::{RetryOptions, TYPE_URL, XdsOptions};
use crate::https_client::describe;
use crate::logs::events;

const METHOD: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A stream without rules is reported after this time: the node id may be wrong.
const SILENCE: Duration = Duration::from_secs(15);
/// TCP probes of an idle connection: a dead peer is noticed within 30 s.
const TCP_IDLE: Duration = Duration::from_secs(15);
const TCP_PROBES: (Duration, u32) = (Duration::from_secs(5), 3);
/// HTTP/2 pings, for a peer that is not dead but hangs. Servers of grpc-go close connections with
/// pings more frequent than every 5 minutes.
const PING_EVERY: Duration = Duration::from_secs(330);
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// Pauses before a set is refused again: some control planes send a refused set at once again.
const REFUSALS: RetryOptions =
    RetryOptions { first: Duration::from_secs(1), longest: Duration::from_secs(10), jitter: 0.2 };
/// Maximum length of the errors in a NACK.
const ERRORS_MAX: usize = 4_096;
/// `INVALID_ARGUMENT`
const INVALID: i32 = 3;

/// The client of a control plane.
#[derive(Debug)]
pub(crate) struct XdsClient {
    options: XdsOptions,
    received: Arc<ReceivedRules>,
    status: Arc<XdsStatus>,
    /// The version of the last accepted set.
    version: String,
    /// Domains with rules in the last accepted set that had any.
    domains: BTreeSet<String>,
    /// The last set, if it was refused: with its errors, and how often in a row.
    refused: Option<RefusedSet>,
    /// Connections and streams that failed since the last response.
    failures: u32,
}

#[derive(Debug)]
struct RefusedSet {
    set: Result<Vec<Source>, String>,
    errors: String,
    times: u32,
}

impl XdsClient {
    pub(super) fn new(
        options: XdsOptions,
        received: Arc<ReceivedRules>,
        status: Arc<XdsStatus>,
    ) -> Self {
        Self {
            options,
            received,
            status,
            version: String::new(),
            domains: BTreeSet::new(),
            refused: None,
            failures: 0,
        }
    }

    /// The rules that it receives.
    pub(crate) fn received(&self) -> Arc<ReceivedRules> {
        self.received.clone()
    }

    /// Follows the control plane for as long as the process runs. `waker` has the received rules
    /// loaded at once.
    pub(crate) async fn run(mut self, waker: FollowWaker) {
        loop {
            let error = match self.stream(&waker).await {
                Ok(()) => "the control plane has ended the stream".to_owned(),
                Err(error) => error,
            };
            self.status.failed();
            self.failures = self.failures.saturating_add(1);
            let pause = self.options.retry.pause(self.failures, fastrand::f64());
            events::control_plane_lost(&self.options.server, &error, pause);
            sleep(pause).await;
        }
    }

    /// One stream, until it ends.
    async fn stream(&mut self, waker: &FollowWaker) -> Result<(), String> {
        let channel = connect(&self.options).await?;
        let (requests, mut queue) = mpsc::channel(1);
        // No version: the whole set is sent anew, also by a control plane that counts its versions
        // from 1 after a restart.
        self.send(&requests, DiscoveryRequest { node: Some(self.node()), ..request() }).await?;
        let requested = stream::poll_fn(move |context| queue.poll_recv(context));
        let headers = MetadataMap::from_headers(self.options.headers.clone());
        let call = Request::from_parts(headers, Extensions::default(), requested);
        let mut client =
            Grpc::new(channel).max_decoding_message_size(self.options.message_bytes_max);
        client.ready().await.map_err(|error| describe(&error))?;
        let codec = ProstCodec::<DiscoveryRequest, DiscoveryResponse>::default();
        // The headers of a response may come with its first message only.
        let opened = async {
            let path = PathAndQuery::from_static(METHOD);
            let opened = client.streaming(call, path, codec).await;
            let mut responses = opened.map_err(|status| describe_status(&status))?.into_inner();
            let first = next(&mut responses).await?;
            Ok::<_, String>((responses, first))
        };
        tokio::pin!(opened);
        let opened = match timeout(SILENCE, &mut opened).await {
            Ok(opened) => opened,
            Err(_) => {
                events::control_plane_silent(&self.options.server, &self.options.node_id);
                opened.await
            }
        };
        let (mut responses, first) = opened?;
        let mut response = first;
        if response.is_some() {
            self.status.connected();
            events::control_plane_connected(&self.options.server);
        }
        while let Some(received) = response {
            self.failures = 0;
            response = match self.answer(received, waker).await {
                (None, answer) => {
                    self.send(&requests, answer).await?;
                    next(&mut responses).await?
                }
                (Some(pause), answer) => match timeout(pause, next(&mut responses)).await {
                    // A newer response needs no answer to the one before.
                    Ok(newer) => newer?,
                    Err(_) => {
                        self.send(&requests, answer).await?;
                        next(&mut responses).await?
                    }
                },
            };
        }
        Ok(())
    }

    async fn send(
        &self,
        requests: &mpsc::Sender<DiscoveryRequest>,
        request: DiscoveryRequest,
    ) -> Result<(), String> {
        requests.send(request).await.map_err(|_| "the stream is closed".to_owned())
    }

    /// Has the rules of a response loaded; the answer, and a pause before it is sent.
    async fn answer(
        &mut self,
        response: DiscoveryResponse,
        waker: &FollowWaker,
    ) -> (Option<Duration>, DiscoveryRequest) {
        let DiscoveryResponse { version_info, resources, nonce, .. } = response;
        let decoded = ResourceSet::decode(&resources);
        let set = match &decoded {
            Ok(resources) => Ok(resources.sources(&self.domains)),
            Err(error) => Err(error.clone()),
        };
        let known = self.refused.take_if(|refused| refused.set == set);
        let (outcome, times) = match known {
            Some(refused) => (Err(refused.errors), refused.times + 1),
            None => (self.load(set.clone(), waker).await, 0),
        };
        self.status.answered(outcome.is_ok());
        let Err(errors) = outcome else {
            let domains = decoded.map(|set| set.limited_domains()).unwrap_or_default();
            if !domains.is_empty() {
                self.domains = domains;
            }
            self.version.clone_from(&version_info);
            self.refused = None;
            return (None, DiscoveryRequest { version_info, response_nonce: nonce, ..request() });
        };
        let message = truncated(&errors).to_owned();
        self.refused = Some(RefusedSet { set, errors, times });
        let pause = (times > 0).then(|| REFUSALS.pause(times, fastrand::f64()));
        let answer = DiscoveryRequest {
            version_info: self.version.clone(),
            response_nonce: nonce,
            error_detail: Some(ErrorDetail { code: INVALID, message }),
            ..request()
        };
        (pause, answer)
    }

    async fn load(&self, set: Result<Vec<Source>, String>, waker: &FollowWaker) -> Outcome {
        let outcome = self.received.replace(set);
        waker.wake();
        outcome.await.unwrap_or_else(|_| Err("the service shuts down".to_owned()))
    }

    fn node(&self) -> XdsNode {
        let text = |text: &String| Value { kind: Some(Kind::StringValue(text.clone())) };
        let metadata = self.options.node_metadata.iter();
        let fields: BTreeMap<_, _> =
            metadata.map(|(key, value)| (key.clone(), text(value))).collect();
        XdsNode {
            id: self.options.node_id.clone(),
            metadata: Some(Struct { fields }),
            user_agent_name: "sluicegate".to_owned(),
            user_agent_version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

fn request() -> DiscoveryRequest {
    DiscoveryRequest { type_url: TYPE_URL.to_owned(), ..Default::default() }
}

async fn next(
    responses: &mut Streaming<DiscoveryResponse>,
) -> Result<Option<DiscoveryResponse>, String> {
    responses.message().await.map_err(|status| describe_status(&status))
}

fn truncated(text: &str) -> &str {
    let ends = (0..=ERRORS_MAX).rev();
    ends.filter(|_| text.len() > ERRORS_MAX).find_map(|end| text.get(..end)).unwrap_or(text)
}

fn describe_status(status: &Status) -> String {
    let cause = std::error::Error::source(status).map(describe).unwrap_or_default();
    match (status.message(), cause.as_str()) {
        ("", "") => status.code().to_string(),
        ("", cause) => cause.to_owned(),
        (message, _) => message.to_owned(),
    }
}

// === connection ===

async fn connect(options: &XdsOptions) -> Result<Channel, String> {
    let scheme = if options.tls.is_some() { "https" } else { "http" };
    let uri: Uri = format!("{scheme}://{}", options.server)
        .parse()
        .map_err(|error| format!("`{}` is no address: {error}", options.server))?;
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
    let mut endpoint = Endpoint::from(uri)
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_keepalive(Some(TCP_IDLE))
        .tcp_keepalive_interval(Some(TCP_PROBES.0))
        .tcp_keepalive_retries(Some(TCP_PROBES.1))
        .http2_keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT)
        .keep_alive_while_idle(true);
    if options.tls.is_some() {
        let tls = tls(options, host)?;
        endpoint = endpoint.tls_config(tls).map_err(|error| describe(&error))?;
    }
    // The handshake of TLS has no deadline of its own.
    match timeout(CONNECT_TIMEOUT * 2, endpoint.connect()).await {
        Ok(connected) => connected.map_err(|error| describe(&error)),
        Err(_) => Err("connection timed out".to_owned()),
    }
}

fn tls(options: &XdsOptions, host: String) -> Result<ClientTlsConfig, String> {
    let files = options.tls.clone().unwrap_or_default();
    let mut tls = ClientTlsConfig::new().domain_name(files.server_name.unwrap_or(host));
    tls = match &files.ca {
        Some(ca) => tls.ca_certificate(Certificate::from_pem(read(ca)?)),
        None => tls.with_native_roots(),
    };
    if let Some((cert, key)) = &files.identity {
        tls = tls.identity(Identity::from_pem(read(cert)?, read(key)?));
    }
    Ok(tls)
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("cannot read `{}`: {error}", path.display()))
}
