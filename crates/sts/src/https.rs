//! Sends one request over HTTPS to addresses that the caller has looked up.
//!
//! Promise: it ends in time; an address that does not answer leaves time for the next; nothing is sent before the
//! peer has proven itself by a certificate for the host; head and body of an answer are bounded; no redirect is
//! followed, and nothing is stored. The request is sent to one address, once. Unless the caller permits it, only
//! public addresses are used: a name in someone else's DNS must not lead into the operator's network.
//!
//! How it fails: with a [`Failure`]. A response with an error status is an [`Answer`], not a failure.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use hyper::http::uri::{Authority, PathAndQuery};
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use stentor_tls::{Roots, TlsError};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use zeroize::Zeroizing;

use crate::address::is_public;

/// Maximum addresses tried, one after the other.
const ADDRESSES_MAX: usize = 4;
/// Maximum size of an answer's head.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Destination of a request.
#[derive(Debug, Clone)]
pub struct Place<'a> {
    /// Host name, or an address without brackets, which the certificate must match.
    pub host: &'a str,
    pub addresses: &'a [IpAddr],
    /// Port; 443 unless the URL or the lab sets another.
    pub port: u16,
    /// Whether addresses of this machine and of private networks are permitted.
    pub allows_private: bool,
}

/// Answer of a server.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    /// Content type; empty if there is none.
    pub content_type: Vec<u8>,
    /// `Retry-After` in seconds, if it is a number.
    pub retry_after_s: Option<u64>,
    pub body: Bytes,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The TLS handshake failed.
    Tls(String),
    /// There is no connection, or it is not HTTP.
    Http(String),
    /// The body is longer than the caller accepts.
    TooLong(StatusCode),
    Late,
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Tls(why) | Failure::Http(why) => out.write_str(why),
            Failure::TooLong(_) => out.write_str("the answer is too long"),
            Failure::Late => out.write_str("no answer in time"),
        }
    }
}

/// An HTTPS client.
#[derive(Debug, Clone)]
pub struct Client(Arc<ClientConfig>);

impl Client {
    /// Creates a client.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub fn new(roots: &Roots) -> Result<Client, TlsError> {
        Ok(Client(roots.web_client()?))
    }

    /// Sends a request, which already has its `Host` header, and reads the response; gives up at `until`.
    ///
    /// # Errors
    /// The reason why there is no answer.
    pub async fn send(
        &self,
        place: &Place<'_>,
        request: Request<Full<Bytes>>,
        body_bytes_max: usize,
        until: Instant,
    ) -> Result<Answer, Failure> {
        let sent = attempt(self.0.clone(), place, request, body_bytes_max, until);
        timeout_at(until, sent).await.unwrap_or(Err(Failure::Late))
    }
}

async fn attempt(
    client: Arc<ClientConfig>,
    place: &Place<'_>,
    request: Request<Full<Bytes>>,
    body_bytes_max: usize,
    until: Instant,
) -> Result<Answer, Failure> {
    let stream = connect(client, place, until).await?;
    let unread = |error: hyper::Error| Failure::Http(format!("HTTP: {error}"));
    let (mut sender, connection) =
        http1::Builder::new().max_buf_size(HEAD_BYTES_MAX).handshake(TokioIo::new(stream)).await.map_err(unread)?;
    // It ends with the request, whatever the result.
    let _driving = Driving(tokio::spawn(async move { drop(connection.await) }));
    let response = sender.send_request(request).await.map_err(unread)?;
    let (status, headers) = (response.status(), response.headers());
    let content_type = headers.get(CONTENT_TYPE).map_or_else(Vec::new, |value| value.as_bytes().to_vec());
    let retry_after = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok());
    let retry_after_s = retry_after.and_then(|text| text.trim().parse().ok());
    let body = Limited::new(response.into_body(), body_bytes_max).collect().await.map_err(|error| {
        if error.is::<LengthLimitError>() { Failure::TooLong(status) } else { Failure::Http(format!("HTTP: {error}")) }
    })?;
    Ok(Answer { status, content_type, retry_after_s, body: body.to_bytes() })
}

/// The task of a connection, which is aborted with its owner.
struct Driving(tokio::task::JoinHandle<()>);

impl Drop for Driving {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Connects to the first address that answers and has a certificate for the host. Each gets a share of the remaining
/// time.
async fn connect(
    client: Arc<ClientConfig>,
    place: &Place<'_>,
    until: Instant,
) -> Result<TlsStream<TcpStream>, Failure> {
    let name = ServerName::try_from(place.host.to_owned())
        .map_err(|error| Failure::Http(format!("{}: {error}", place.host)))?;
    let connector = TlsConnector::from(client);
    let mut why = Failure::Http(format!("{} has no address", place.host));
    let count = place.addresses.len().min(ADDRESSES_MAX);
    for (ip, left) in place.addresses.iter().zip((1..=count as u32).rev()) {
        if !place.allows_private && !is_public(*ip) {
            why = Failure::Http(format!("{} is at {ip}, an address of no public network", place.host));
            continue;
        }
        let address = SocketAddr::new(*ip, place.port);
        let share = until.saturating_duration_since(Instant::now()) / left;
        let connected = async {
            let stream = TcpStream::connect(address).await;
            let stream = stream.map_err(|error| Failure::Http(format!("{address}: {error}")))?;
            let secured = connector.connect(name.clone(), stream).await;
            secured.map_err(|error| Failure::Tls(format!("TLS with {address}: {error}")))
        };
        match timeout(share, connected).await {
            Ok(Ok(stream)) => return Ok(stream),
            // An error of a reachable address is more informative than that of an unreachable one.
            Ok(Err(error)) if !matches!(why, Failure::Tls(_)) => why = error,
            Err(_) if !matches!(why, Failure::Tls(_)) => {
                why = Failure::Http(format!("{address}: no answer in time"));
            }
            _ => {}
        }
    }
    Err(why)
}

/// A POST of a form, whose octets are wiped after sending.
///
/// # Errors
/// The URI has no host.
pub fn form(uri: &Uri, body: Zeroizing<Vec<u8>>) -> Result<Request<Full<Bytes>>, hyper::http::Error> {
    let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    Request::post(path)
        .header(HOST, uri.authority().map_or("", Authority::as_str))
        .header(USER_AGENT, "stentor")
        .header(ACCEPT, "application/json")
        .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
        .body(Full::new(Bytes::from_owner(body)))
}
