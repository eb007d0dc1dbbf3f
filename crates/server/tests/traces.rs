//! Spans as a collector gets them: over a socket, read with generated code.

#![allow(clippy::unwrap_used)] // A test that cannot go on should say so by failing.

use std::fmt::Debug;
use std::future::{pending, ready};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode};
use axum::routing::post;
use axum::serve::Listener;
use http_body_util::{BodyExt, Full};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode as SpanStatus;
use prost::Message;
use rustls::ServerConfig;
use rustls::pki_types::PrivatePkcs8KeyDer;
use sluicegate::{Engine, Timestamp, rules_of};
use sluicegate_server::EXAMPLE_RULES;
use sluicegate_server::app::App;
use sluicegate_server::health::Health;
use sluicegate_server::http::{Options as HttpOptions, Peer, router};
use sluicegate_server::traces::{Options, Protocol, Tracer, start};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tower::ServiceExt;

const HOUR: Duration = Duration::from_secs(3600);
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// A collector that takes everything, with the status that it is told to answer.
struct Collector {
    endpoint: String,
    got: mpsc::UnboundedReceiver<(HeaderMap, ExportTraceServiceRequest)>,
}

type Got = mpsc::UnboundedSender<(HeaderMap, ExportTraceServiceRequest)>;

impl Collector {
    async fn start(status: StatusCode, grpc_status: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        Self::serve(listener, endpoint, status, grpc_status)
    }

    /// Over TLS, with the certificate to trust in PEM.
    async fn start_tls() -> (Self, String) {
        let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivatePkcs8KeyDer::from(pair.signing_key.serialize_der());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![pair.cert.der().clone()], key.into())
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("https://localhost:{}", listener.local_addr().unwrap().port());
        let listener = TlsListener(listener, TlsAcceptor::from(Arc::new(config)));
        (Self::serve(listener, endpoint, StatusCode::OK, "0"), pair.cert.pem())
    }

    fn serve<L: Listener<Addr: Debug>>(
        listener: L,
        endpoint: String,
        status: StatusCode,
        grpc_status: &'static str,
    ) -> Self {
        let (sender, got) = mpsc::unbounded_channel();
        let http = async move |State(got): State<Got>, headers: HeaderMap, body: Bytes| {
            got.send((headers, ExportTraceServiceRequest::decode(body).unwrap())).unwrap();
            status
        };
        let grpc = async move |State(got): State<Got>, headers: HeaderMap, body: Bytes| {
            let (head, message) = body.split_at(5);
            assert_eq!(head[0], 0);
            assert_eq!(head[1..], (message.len() as u32).to_be_bytes());
            got.send((headers, ExportTraceServiceRequest::decode(message).unwrap())).unwrap();
            let trailers = HeaderMap::from_iter([(
                "grpc-status".parse().unwrap(),
                HeaderValue::from_static(grpc_status),
            )]);
            let body = Full::new(Bytes::from_static(&[0; 5]));
            let body = body.with_trailers(ready(Some(Ok(trailers))));
            Response::builder()
                .header("content-type", "application/grpc")
                .body(Body::new(body))
                .unwrap()
        };
        let method = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
        let router = Router::new().route("/v1/traces", post(http)).route(method, post(grpc));
        tokio::spawn(axum::serve(listener, router.with_state(sender)).into_future());
        Self { endpoint, got }
    }

    fn options(&self) -> Options {
        let path = format!("{}/v1/traces", self.endpoint);
        Options {
            endpoint: Some(path.parse().unwrap()),
            delay: HOUR,
            flush: HOUR,
            ..Options::default()
        }
    }

    async fn batch(&mut self) -> Vec<Span> {
        spans(self.got.recv().await.unwrap().1)
    }
}

struct TlsListener(TcpListener, TlsAcceptor);

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, SocketAddr) {
        loop {
            let (stream, peer) = self.0.accept().await.unwrap();
            if let Ok(stream) = self.1.accept(stream).await {
                return (stream, peer);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

fn spans(request: ExportTraceServiceRequest) -> Vec<Span> {
    let [resource] = <[_; 1]>::try_from(request.resource_spans).unwrap();
    let [scope] = <[_; 1]>::try_from(resource.scope_spans).unwrap();
    assert_eq!(scope.scope.unwrap().name, "sluicegate");
    scope.spans
}

fn headers(list: &[(&'static str, &'static str)]) -> HeaderMap {
    let list = list.iter();
    list.map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect()
}

fn say(tracer: &Tracer, count: usize) {
    for _ in 0..count {
        let span = tracer.begin("ShouldRateLimit", &HeaderMap::new(), Timestamp::EPOCH);
        span.unwrap().end(Timestamp::from_micros(1));
    }
}

#[tokio::test]
async fn a_span_as_it_arrives() {
    for protocol in [Protocol::Http, Protocol::Grpc] {
        let mut collector = Collector::start(StatusCode::OK, "0").await;
        let options = Options {
            protocol,
            batch_max: 2,
            headers: headers(&[("x-token", "open")]),
            resource: vec![("service.name".to_owned(), "limits".to_owned())],
            ..collector.options()
        };
        let (tracer, exporter) = start(options).unwrap();
        let exporting = tokio::spawn(exporter.run(pending()));

        let (begun, ended) = (Timestamp::from_micros(7_000_000), Timestamp::from_micros(7_000_025));
        let call = headers(&[("traceparent", PARENT)]);
        let mut span = tracer.begin("ShouldRateLimit", &call, begun).unwrap();
        span.set("domain", "shop");
        span.set_int("descriptors", 0);
        span.set_int("off", -1);
        span.set("long", &"é".repeat(1_000));
        span.end(ended);
        let mut failed = tracer.begin("POST /v1/check", &HeaderMap::new(), ended).unwrap();
        failed.fail("no rules");
        failed.end(begun);

        let (got, request) = collector.got.recv().await.unwrap();
        assert_eq!(got["x-token"], "open");
        let resource = request.resource_spans[0].resource.clone().unwrap();
        assert_eq!(resource.attributes[0].key, "service.name");
        let [span, failed] = <[Span; 2]>::try_from(spans(request)).unwrap();

        assert_eq!(span.name, "ShouldRateLimit");
        assert_eq!(span.kind(), SpanKind::Server);
        assert_eq!(span.trace_id, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736_u128.to_be_bytes());
        assert_eq!(span.parent_span_id, 0x00f0_67aa_0ba9_02b7_u64.to_be_bytes());
        assert!(span.span_id.len() == 8 && span.span_id != span.parent_span_id);
        assert_eq!(
            (span.start_time_unix_nano, span.end_time_unix_nano),
            (7_000_000_000, 7_000_025_000)
        );
        assert_eq!(span.status.unwrap().code(), SpanStatus::Unset);
        let told =
            span.attributes.into_iter().map(|one| (one.key, one.value.unwrap().value.unwrap()));
        let expected = [
            ("domain".to_owned(), Value::StringValue("shop".to_owned())),
            ("descriptors".to_owned(), Value::IntValue(0)),
            ("off".to_owned(), Value::IntValue(-1)),
            ("long".to_owned(), Value::StringValue("é".repeat(128))),
        ];
        assert_eq!(told.collect::<Vec<_>>(), expected);

        assert_eq!(failed.status.clone().unwrap().code(), SpanStatus::Error);
        assert_eq!(failed.status.clone().unwrap().message, "no rules");
        assert!(failed.parent_span_id.is_empty());
        assert!(failed.trace_id.len() == 16 && failed.trace_id != span.trace_id);
        // The clock went back meanwhile.
        assert_eq!(failed.start_time_unix_nano, failed.end_time_unix_nano);

        drop(tracer);
        exporting.await.unwrap();
    }
}

#[tokio::test]
async fn https() {
    for protocol in [Protocol::Http, Protocol::Grpc] {
        let (mut collector, pem) = Collector::start_tls().await;
        let name = format!("sluicegate-{}-collector-{protocol:?}.crt", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, pem).unwrap();
        let trusting = Options { protocol, certificate: Some(path.clone()), ..collector.options() };
        let (tracer, exporter) = start(trusting).unwrap();
        say(&tracer, 3);
        exporter.run(ready(())).await;
        assert_eq!(collector.batch().await.len(), 3);
        assert_eq!((tracer.exported(), tracer.lost()), (3, 0), "{protocol:?}");
        std::fs::remove_file(&path).unwrap();
        // Without that file the certificate is not trusted.
        let (tracer, exporter) = start(Options { protocol, ..collector.options() }).unwrap();
        say(&tracer, 3);
        exporter.run(ready(())).await;
        assert_eq!((tracer.exported(), tracer.lost()), (0, 3), "{protocol:?}");
        let missing = Options { protocol, certificate: Some(path), ..collector.options() };
        assert!(start(missing).unwrap_err().to_string().contains("No such file"));
    }
}

#[tokio::test]
async fn whoever_began_the_trace_decides() {
    let sampled = |rate, list: &[(&'static str, &'static str)]| {
        let (tracer, _exporter) =
            start(Options { sampling_rate: rate, ..Options::default() }).unwrap();
        tracer.begin("x", &headers(list), Timestamp::EPOCH).is_some()
    };
    let no = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
    assert!(sampled(1.0, &[]) && !sampled(0.0, &[]));
    assert!(sampled(0.0, &[("traceparent", PARENT)]));
    assert!(!sampled(1.0, &[("traceparent", no)]));
    assert!(sampled(0.0, &[("b3", "1")]) && !sampled(1.0, &[("b3", "0")]));
}

#[tokio::test]
async fn spans_are_sent_in_batches_and_the_rest_at_the_end() {
    let mut collector = Collector::start(StatusCode::OK, "0").await;
    let (tracer, exporter) = start(Options { batch_max: 4, ..collector.options() }).unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let exporting = tokio::spawn(exporter.run(async { drop(stopped.await) }));
    say(&tracer, 10);
    assert_eq!(collector.batch().await.len(), 4);
    assert_eq!(collector.batch().await.len(), 4);
    // Two are too few to be sent within the hour.
    stop.send(()).unwrap();
    assert_eq!(collector.batch().await.len(), 2);
    exporting.await.unwrap();
    assert_eq!((tracer.exported(), tracer.lost()), (10, 0));
    say(&tracer, 1);
    assert_eq!(tracer.lost(), 1, "nobody is there any more");
}

#[tokio::test]
async fn a_single_span_is_sent_when_its_time_has_come() {
    let mut collector = Collector::start(StatusCode::OK, "0").await;
    let (tracer, exporter) =
        start(Options { delay: Duration::ZERO, ..collector.options() }).unwrap();
    let exporting = tokio::spawn(exporter.run(pending()));
    say(&tracer, 1);
    assert_eq!(collector.batch().await.len(), 1);
    exporting.abort();
}

#[tokio::test]
async fn what_does_not_fit_is_counted() {
    let mut collector = Collector::start(StatusCode::OK, "0").await;
    let (tracer, exporter) = start(Options { queue_max: 2, ..collector.options() }).unwrap();
    say(&tracer, 5);
    assert_eq!(tracer.lost(), 3);
    exporter.run(ready(())).await;
    assert_eq!(collector.batch().await.len(), 2);
    assert_eq!((tracer.exported(), tracer.lost()), (2, 3));
}

#[tokio::test]
async fn what_the_collector_does_not_take_is_counted() {
    let busy = Collector::start(StatusCode::SERVICE_UNAVAILABLE, "14").await;
    for protocol in [Protocol::Http, Protocol::Grpc] {
        let (tracer, exporter) = start(Options { protocol, ..busy.options() }).unwrap();
        say(&tracer, 3);
        exporter.run(ready(())).await;
        assert_eq!((tracer.exported(), tracer.lost()), (0, 3), "{protocol:?}");
    }
    // Nobody listens where somebody has just listened.
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let endpoint = Some(format!("http://{gone}/v1/traces").parse().unwrap());
    let (tracer, exporter) = start(Options { endpoint, ..Options::default() }).unwrap();
    say(&tracer, 3);
    exporter.run(ready(())).await;
    assert_eq!((tracer.exported(), tracer.lost()), (0, 3));
}

#[tokio::test]
async fn the_end_does_not_wait_for_a_collector_that_hangs() {
    // It accepts, and never says a word.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}/v1/traces", listener.local_addr().unwrap());
    for protocol in [Protocol::Http, Protocol::Grpc] {
        let options = Options {
            protocol,
            endpoint: Some(endpoint.parse().unwrap()),
            batch_max: 2,
            timeout: HOUR,
            flush: Duration::from_millis(20),
            ..Options::default()
        };
        let (tracer, exporter) = start(options).unwrap();
        say(&tracer, 5);
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let exporting = tokio::spawn(exporter.run(async { drop(stopped.await) }));
        // The first batch is on its way when it is told to stop.
        let (_connection, _) = listener.accept().await.unwrap();
        stop.send(()).unwrap();
        exporting.await.unwrap();
        assert_eq!((tracer.exported(), tracer.lost()), (0, 5), "{protocol:?}");
    }
}

/// The client's own trace goes on: proxies hand its context over with the other headers.
#[tokio::test]
async fn what_a_proxy_asks_is_a_span() {
    let mut collector = Collector::start(StatusCode::OK, "0").await;
    let (tracer, exporter) = start(Options { batch_max: 1, ..collector.options() }).unwrap();
    tokio::spawn(exporter.run(pending()));
    let health = Health::default();
    health.rules_loaded(1);
    let engine = Engine::new(rules_of(EXAMPLE_RULES).unwrap()).unwrap();
    let service = App::builder(engine).health(health).tracer(tracer).build();
    let request = http::Request::get("/v1/forward-auth")
        .header("traceparent", PARENT)
        .extension(Peer([127, 0, 0, 1].into()))
        .body(Body::empty());
    let answer = router(service, HttpOptions::default()).oneshot(request.unwrap()).await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    let [span] = <[Span; 1]>::try_from(collector.batch().await).unwrap();
    assert_eq!(span.name, "/v1/forward-auth");
    assert_eq!(span.parent_span_id, 0x00f0_67aa_0ba9_02b7_u64.to_be_bytes());
    let told: Vec<String> = span.attributes.into_iter().map(|one| one.key).collect();
    assert_eq!(told, ["ratelimit.domain", "ratelimit.code"]);
}
