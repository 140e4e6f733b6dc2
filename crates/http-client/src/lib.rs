//! Sends one HTTP request, over TLS unless the URL says otherwise: for MTA-STS, OAuth, ACME, webhooks, spans and TLS
//! reports.
//!
//! Promise: it ends in time; an address that does not answer leaves time for the next; over TLS nothing is sent before
//! the peer has proven itself by a certificate for the host; head and body of an answer are bounded; no redirect is
//! followed, and nothing is stored. The request is sent to one address, once. Unless the caller permits it, only
//! public addresses are used: a name in someone else's DNS must not lead into the operator's network.
//!
//! How it fails: with a [`RequestError`]. A response with an error status is an [`HttpResponse`], not a failure.

mod address;
mod url;

use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Collected, Full, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use hyper::http::HeaderValue;
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use stentor_tls::{Roots, TlsError};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use zeroize::Zeroizing;

pub use self::address::is_public;
pub use self::url::Url;

/// Maximum addresses tried, one after the other.
const ADDRESSES_MAX: usize = 4;
/// Maximum size of an answer's head.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Destination of a request.
#[derive(Debug, Clone)]
pub struct Destination<'a> {
    /// Host name, or an address without brackets, which the certificate must match.
    pub host: &'a str,
    /// Port; 443 unless the URL or the lab sets another.
    pub port: u16,
    /// Addresses to try; the system's resolver is asked if `None`.
    pub addresses: Option<&'a [IpAddr]>,
    /// Whether addresses of this machine and of private networks are permitted.
    pub allows_private: bool,
    pub is_tls: bool,
}

/// Response of a server with an unread body. Dropping it closes the connection.
pub struct HttpResponse {
    pub status: StatusCode,
    pub headers: HeaderMap,
    body: Incoming,
    _connection: ConnectionTask,
}

impl HttpResponse {
    /// Content type; empty if there is none.
    pub fn content_type(&self) -> &[u8] {
        self.headers.get(CONTENT_TYPE).map_or(b"", |value| value.as_bytes())
    }

    /// `Retry-After` in seconds, if it is a number.
    pub fn retry_after_s(&self) -> Option<u64> {
        self.headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()
    }

    /// Reads the body; gives up at `until`.
    ///
    /// # Errors
    /// The connection is lost or silent, or the body is longer than `bytes_max`.
    pub async fn read(self, bytes_max: usize, until: Instant) -> Result<Bytes, RequestError> {
        let body =
            timeout_at(until, Limited::new(self.body, bytes_max).collect()).await.map_err(|_| RequestError::Late)?;
        body.map(Collected::to_bytes).map_err(|error| {
            let is_too_long = error.is::<LengthLimitError>();
            if is_too_long { RequestError::TooLong } else { RequestError::Http(format!("HTTP: {error}")) }
        })
    }
}

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestError {
    /// The TLS handshake failed.
    Tls(String),
    /// There is no connection, or it is not HTTP.
    Http(String),
    /// The body is longer than the caller accepts.
    TooLong,
    Late,
}

impl fmt::Display for RequestError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RequestError::Tls(why) | RequestError::Http(why) => out.write_str(why),
            RequestError::TooLong => out.write_str("the answer is too long"),
            RequestError::Late => out.write_str("no answer in time"),
        }
    }
}

/// A client, with the CAs that it trusts.
#[derive(Debug, Clone)]
pub struct HttpClient(Arc<ClientConfig>);

impl HttpClient {
    /// Creates a client.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub fn new(roots: &Roots) -> Result<HttpClient, TlsError> {
        Ok(HttpClient(roots.web_client()?))
    }

    /// Sends a request to a destination and reads the head of the response; gives up at `until`. Sets `Host` from the
    /// destination and reduces the URI to its path and query.
    ///
    /// # Errors
    /// The reason why there is no answer.
    pub async fn send<B>(
        &self,
        destination: &Destination<'_>,
        mut request: Request<B>,
        until: Instant,
    ) -> Result<HttpResponse, RequestError>
    where
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        address_to(destination, &mut request).map_err(|error| RequestError::Http(error.to_string()))?;
        let attempt = async {
            match self.connect(destination, until).await? {
                Stream::Secured(stream) => exchange(*stream, request).await,
                Stream::Clear(stream) => exchange(stream, request).await,
            }
        };
        timeout_at(until, attempt).await.unwrap_or(Err(RequestError::Late))
    }

    /// Connects to the first address that answers and, over TLS, has a certificate for the host. Each gets a share of
    /// the remaining time.
    async fn connect(&self, destination: &Destination<'_>, until: Instant) -> Result<Stream, RequestError> {
        let mut why = RequestError::Http(format!("{} has no address", destination.host));
        let addresses = addresses(destination).await?;
        for (address, left) in addresses.iter().zip((1..=addresses.len() as u32).rev()) {
            if !destination.allows_private && !is_public(address.ip()) {
                let ip = address.ip();
                why = RequestError::Http(format!("{} has the address {ip}, which is not public", destination.host));
                continue;
            }
            let share = until.saturating_duration_since(Instant::now()) / left;
            match timeout(share, self.connect_to(destination, *address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                // An error of a reachable address is more informative than that of an unreachable one.
                Ok(Err(error)) if !matches!(why, RequestError::Tls(_)) => why = error,
                Err(_) if !matches!(why, RequestError::Tls(_)) => {
                    why = RequestError::Http(format!("{address}: no answer in time"));
                }
                _ => {}
            }
        }
        Err(why)
    }

    async fn connect_to(&self, destination: &Destination<'_>, address: SocketAddr) -> Result<Stream, RequestError> {
        let stream = TcpStream::connect(address).await;
        let stream = stream.map_err(|error| RequestError::Http(format!("{address}: {error}")))?;
        // Best effort: without it the connection is slower.
        let _ = stream.set_nodelay(true);
        if !destination.is_tls {
            return Ok(Stream::Clear(stream));
        }
        let name = ServerName::try_from(destination.host.to_owned());
        let name = name.map_err(|error| RequestError::Http(format!("{}: {error}", destination.host)))?;
        let secured = TlsConnector::from(self.0.clone()).connect(name, stream).await;
        secured
            .map(|stream| Stream::Secured(Box::new(stream)))
            .map_err(|error| RequestError::Tls(format!("TLS with {address}: {error}")))
    }
}

enum Stream {
    Secured(Box<TlsStream<TcpStream>>),
    Clear(TcpStream),
}

/// The task of a connection, which is aborted with its owner.
struct ConnectionTask(tokio::task::JoinHandle<()>);

impl Drop for ConnectionTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Addresses to try: both families in turn, so that one that cannot be reached leaves tries for the other (RFC 8305
/// section 4).
async fn addresses(destination: &Destination<'_>) -> Result<Vec<SocketAddr>, RequestError> {
    if let Some(ips) = destination.addresses {
        let addresses = ips.iter().map(|ip| SocketAddr::new(*ip, destination.port));
        return Ok(in_turn(addresses).take(ADDRESSES_MAX).collect());
    }
    let addresses = lookup_host((destination.host, destination.port)).await;
    let addresses = addresses.map_err(|error| RequestError::Http(format!("{}: {error}", destination.host)))?;
    Ok(in_turn(addresses).take(ADDRESSES_MAX).collect())
}

/// IPv6 and IPv4 addresses alternately, beginning with the family of the first.
fn in_turn(addresses: impl Iterator<Item = SocketAddr>) -> impl Iterator<Item = SocketAddr> {
    let mut addresses = addresses.peekable();
    let is_v6_first = addresses.peek().is_some_and(SocketAddr::is_ipv6);
    let (mut first, mut second): (VecDeque<_>, VecDeque<_>) =
        addresses.partition(|address| address.is_ipv6() == is_v6_first);
    std::iter::from_fn(move || {
        let next = first.pop_front();
        std::mem::swap(&mut first, &mut second);
        next.or_else(|| first.pop_front())
    })
}

async fn exchange<S, B>(stream: S, request: Request<B>) -> Result<HttpResponse, RequestError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let failed = |error: hyper::Error| RequestError::Http(format!("HTTP: {error}"));
    let handshake = http1::Builder::new().max_buf_size(HEAD_BYTES_MAX).handshake(TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.map_err(failed)?;
    let task = ConnectionTask(tokio::spawn(async move { drop(connection.await) }));
    let (head, body) = sender.send_request(request).await.map(Response::into_parts).map_err(failed)?;
    Ok(HttpResponse { status: head.status, headers: head.headers, body, _connection: task })
}

/// Sets `Host` from the destination and reduces the URI to its path and query (RFC 9112 section 3.2.1).
fn address_to<B>(destination: &Destination<'_>, request: &mut Request<B>) -> Result<(), hyper::http::Error> {
    // With a slash even if the URI has only a query.
    let path = request.uri().path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string);
    *request.uri_mut() = path.parse()?;
    let host =
        if destination.host.contains(':') { format!("[{}]", destination.host) } else { destination.host.to_owned() };
    let is_default = destination.port == if destination.is_tls { 443 } else { 80 };
    let host = if is_default { host } else { format!("{host}:{}", destination.port) };
    request.headers_mut().insert(HOST, HeaderValue::try_from(host)?);
    Ok(())
}

/// A POST of a form, whose octets are wiped after sending.
pub fn form(uri: &Uri, body: Zeroizing<Vec<u8>>) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(Bytes::from_owner(body)));
    (*request.method_mut(), *request.uri_mut()) = (Method::POST, uri.clone());
    let headers =
        [(USER_AGENT, "stentor"), (ACCEPT, "application/json"), (CONTENT_TYPE, "application/x-www-form-urlencoded")];
    request.headers_mut().extend(headers.map(|(name, value)| (name, HeaderValue::from_static(value))));
    request
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::Duration;

    use super::*;

    #[test]
    fn host_and_path_of_a_request() {
        for (host, port, is_tls, uri, expected_host, expected_path) in [
            ("a.example", 443, true, "https://a.example", "a.example", "/"),
            ("a.example", 80, false, "http://a.example/b?c=d", "a.example", "/b?c=d"),
            ("a.example", 80, true, "https://a.example:80?c=d", "a.example:80", "/?c=d"),
            ("a.example", 443, false, "/.well-known/x", "a.example:443", "/.well-known/x"),
            ("::1", 443, true, "https://[::1]/", "[::1]", "/"),
            ("::1", 8443, true, "https://[::1]:8443//b", "[::1]:8443", "//b"),
        ] {
            let destination = Destination { host, port, addresses: None, allows_private: true, is_tls };
            let mut request = Request::new(());
            *request.uri_mut() = uri.parse().unwrap();
            address_to(&destination, &mut request).unwrap();
            assert_eq!(request.headers()[HOST], expected_host, "{uri}");
            assert_eq!(request.uri().to_string(), expected_path, "{uri}");
        }
    }

    #[test]
    fn families_take_turns() {
        let of = |text: &str| {
            let all = text.split_whitespace().map(|ip| SocketAddr::new(ip.parse().unwrap(), 443));
            in_turn(all).map(|address| address.ip().to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(of("1.1.1.1 1.1.1.2 1.1.1.3 ::1 ::2"), "1.1.1.1 ::1 1.1.1.2 ::2 1.1.1.3");
        assert_eq!(of("::1 ::2 ::3 1.1.1.1"), "::1 1.1.1.1 ::2 ::3");
        assert_eq!(of("::1 ::2"), "::1 ::2");
        assert_eq!(of(""), "");
    }

    /// The first address accepts connections but does not answer; nothing listens at the second.
    #[tokio::test]
    async fn an_address_that_does_not_answer_leaves_time_for_the_next() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let addresses = ["127.0.0.1".parse().unwrap(), "127.0.0.2".parse().unwrap()];
        let port = silent.local_addr().unwrap().port();
        let destination = Destination {
            host: "mta-sts.a.example",
            port,
            addresses: Some(&addresses),
            allows_private: true,
            is_tls: true,
        };
        let client = HttpClient::new(&Roots::none()).unwrap();
        let until = Instant::now() + Duration::from_secs(1);
        let Err(failure) = client.send(&destination, Request::new(Full::<Bytes>::default()), until).await else {
            panic!("there is an answer")
        };
        assert!(failure.to_string().starts_with("127.0.0.2:"), "{failure}");
    }
}
