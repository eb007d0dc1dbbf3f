//! Connectors: TCP, TLS and custom transports.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tower_service::Service;

/// Makes connections.
#[derive(Clone)]
pub(crate) struct Connector {
    dial: Arc<Dial>,
}

type Dial = dyn Fn() -> Pin<Box<dyn Future<Output = io::Result<Link>> + Send>> + Send + Sync;

/// A connection of any kind.
pub(crate) struct Link(Box<dyn Stream>);

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Connector {
    /// Connections that are made so.
    pub(crate) fn by<F, S>(dial: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = io::Result<S>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let dial = move || {
            let dialled = dial();
            let link = async move { Ok(Link(Box::new(dialled.await?))) };
            Box::pin(link) as Pin<Box<dyn Future<Output = _> + Send>>
        };
        Self { dial: Arc::new(dial) }
    }

    /// Connections over TCP.
    pub(crate) fn tcp(host: String, port: u16) -> Self {
        Self::by(move || connected(host.clone(), port))
    }

    /// TLS connections; the server certificate must be signed by one of these authorities.
    #[cfg(feature = "tls")]
    pub(crate) fn tls(
        host: String,
        port: u16,
        roots: rustls::RootCertStore,
    ) -> Result<Self, String> {
        let name = rustls::pki_types::ServerName::try_from(host.clone());
        let name =
            name.map_err(|_| "its host is no name that a certificate could be for".to_owned())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let tls = tokio_rustls::TlsConnector::from(Arc::new(config));
        Ok(Self::by(move || {
            let (tls, host, name) = (tls.clone(), host.clone(), name.clone());
            async move { tls.connect(name, connected(host, port).await?).await }
        }))
    }
}

async fn connected(host: String, port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect((host.as_str(), port)).await?;
    // Requests are single small packets: Nagle's algorithm would only delay them.
    stream.set_nodelay(true)?;
    Ok(stream)
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Link>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<Link>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let link = (self.dial)();
        Box::pin(async { link.await.map(TokioIo::new) })
    }
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connector")
    }
}

impl Connection for Link {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Link {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for Link {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }
}
