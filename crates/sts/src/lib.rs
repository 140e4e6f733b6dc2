//! Fetches a domain's MTA-STS policy (RFC 8461 3.3): one GET over HTTPS, from the addresses that the caller has looked up.
//!
//! Promise: a fetch ends in time, an address that does not answer leaves time for the next, it reads at most [`POLICY_BYTES_MAX`] of a policy, follows no redirect, keeps nothing, and gives a
//! policy only if the certificate is good for the policy host, the status is 200 and the type `text/plain`. Nothing but addresses of
//! the Internet is connected to, unless the caller says otherwise: a name in a stranger's DNS must not lead into the operator's network.
//!
//! How it fails: with a [`FetchFailure`], in the kinds that TLS reports have; the caller goes on with what it has.

mod address;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use stentor_posture::sts::{FetchFailure, FetchFailureKind, POLICY_BYTES_MAX, POLICY_PATH, Policy};
use stentor_tls::{Roots, TlsError};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

pub use self::address::is_public;

/// Addresses that are tried, one after the other.
const ADDRESSES_MAX: usize = 4;
/// Octets of the head of an answer.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// Where a policy is fetched.
#[derive(Debug, Clone)]
pub struct Place<'a> {
    /// `mta-sts.` and the domain.
    pub host: &'a str,
    pub addresses: &'a [IpAddr],
    /// 443 outside the lab.
    pub port: u16,
    /// Addresses of this machine and of private networks may be connected to.
    pub allows_private: bool,
}

/// Fetches policies.
#[derive(Debug, Clone)]
pub struct Fetcher(Arc<ClientConfig>);

impl Fetcher {
    /// # Errors
    /// TLS cannot be set up.
    pub fn new(roots: &Roots) -> Result<Fetcher, TlsError> {
        Ok(Fetcher(roots.web_client()?))
    }

    /// Fetches and reads a policy, until then.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn fetch(&self, place: &Place<'_>, until: Instant) -> Result<Policy, FetchFailure> {
        match timeout_at(until, attempt(self.0.clone(), place, until)).await {
            Ok(result) => result,
            Err(_) => Err(failure(FetchFailureKind::Fetch, "no policy in time".to_owned())),
        }
    }
}

async fn attempt(client: Arc<ClientConfig>, place: &Place<'_>, until: Instant) -> Result<Policy, FetchFailure> {
    let stream = connect(client, place, until).await?;
    let unread = |error: hyper::Error| failure(FetchFailureKind::Fetch, format!("HTTP: {error}"));
    let (mut sender, connection) =
        http1::Builder::new().max_buf_size(HEAD_BYTES_MAX).handshake(TokioIo::new(stream)).await.map_err(unread)?;
    // Ends with the request, whatever comes of it.
    let driving = Driving(tokio::spawn(async move { drop(connection.await) }));
    let host = if place.port == 443 { place.host.to_owned() } else { format!("{}:{}", place.host, place.port) };
    let request = Request::get(POLICY_PATH)
        .header(HOST, host)
        .header(USER_AGENT, "stentor")
        .header(ACCEPT, "text/plain")
        .body(Empty::<Bytes>::new());
    let request = request.map_err(|error| failure(FetchFailureKind::Fetch, format!("HTTP: {error}")))?;
    let response = sender.send_request(request).await.map_err(unread)?;
    let policy = read(response).await;
    drop(driving);
    policy
}

/// The task of a connection, which does not outlive its owner.
struct Driving(tokio::task::JoinHandle<()>);

impl Drop for Driving {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The first address that answers and has a certificate for the host. Each has its share of the time that is left.
async fn connect(
    client: Arc<ClientConfig>,
    place: &Place<'_>,
    until: Instant,
) -> Result<TlsStream<TcpStream>, FetchFailure> {
    let name = ServerName::try_from(place.host.to_owned())
        .map_err(|error| failure(FetchFailureKind::Fetch, format!("{}: {error}", place.host)))?;
    let connector = TlsConnector::from(client);
    let mut why = failure(FetchFailureKind::Fetch, format!("{} has no address", place.host));
    let count = place.addresses.len().min(ADDRESSES_MAX);
    for (ip, left) in place.addresses.iter().zip((1..=count as u32).rev()) {
        if !place.allows_private && !is_public(*ip) {
            why =
                failure(FetchFailureKind::Fetch, format!("{} is at {ip}, an address of no public network", place.host));
            continue;
        }
        let address = SocketAddr::new(*ip, place.port);
        let share = until.saturating_duration_since(Instant::now()) / left;
        let connected = async {
            let stream = TcpStream::connect(address).await;
            let stream = stream.map_err(|error| failure(FetchFailureKind::Fetch, format!("{address}: {error}")))?;
            let secured = connector.connect(name.clone(), stream).await;
            secured.map_err(|error| failure(FetchFailureKind::Certificate, format!("TLS with {address}: {error}")))
        };
        match timeout(share, connected).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => why = error,
            Err(_) => why = failure(FetchFailureKind::Fetch, format!("{address}: no answer in time")),
        }
    }
    Err(why)
}

async fn read(response: Response<Incoming>) -> Result<Policy, FetchFailure> {
    let status = response.status();
    if status != StatusCode::OK {
        let hint = if status.is_redirection() { ", and redirects are not followed" } else { "" };
        return Err(failure(FetchFailureKind::Fetch, format!("status {}{hint}", status.as_u16())));
    }
    let kind = response.headers().get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    if !is_plain_text(kind) {
        let text = format!("its type is \"{}\", not text/plain", kind.escape_ascii());
        return Err(failure(FetchFailureKind::Invalid, text));
    }
    let body = Limited::new(response.into_body(), POLICY_BYTES_MAX).collect().await.map_err(|error| {
        if error.is::<LengthLimitError>() {
            let text = format!("the policy is longer than {POLICY_BYTES_MAX} octets");
            return failure(FetchFailureKind::Invalid, text);
        }
        failure(FetchFailureKind::Fetch, format!("HTTP: {error}"))
    })?;
    Policy::parse(&body.to_bytes()).map_err(|error| failure(FetchFailureKind::Invalid, format!("the policy: {error}")))
}

/// Its parameters say nothing that matters: a policy is ASCII.
fn is_plain_text(kind: &[u8]) -> bool {
    let kind = kind.split(|octet| *octet == b';').next().unwrap_or_default();
    kind.trim_ascii().eq_ignore_ascii_case(b"text/plain")
}

fn failure(kind: FetchFailureKind, why: String) -> FetchFailure {
    FetchFailure { kind, why }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::Duration;

    use super::*;

    /// The first takes connections and says nothing; nobody listens at the second.
    #[tokio::test]
    async fn an_address_that_does_not_answer_leaves_time_for_the_next() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let addresses = ["127.0.0.1".parse().unwrap(), "127.0.0.2".parse().unwrap()];
        let port = silent.local_addr().unwrap().port();
        let place = Place { host: "mta-sts.a.example", addresses: &addresses, port, allows_private: true };
        let fetcher = Fetcher::new(&Roots::none()).unwrap();
        let until = Instant::now() + Duration::from_secs(1);
        let failure = fetcher.fetch(&place, until).await.unwrap_err();
        assert!(failure.why.starts_with("127.0.0.2:"), "{}", failure.why);
    }

    #[test]
    fn the_type_may_have_parameters() {
        for good in ["text/plain", "Text/Plain; charset=utf-8", " text/plain ;x"] {
            assert!(is_plain_text(good.as_bytes()), "{good}");
        }
        for bad in ["", "text/html", "text/plainer", "application/octet-stream"] {
            assert!(!is_plain_text(bad.as_bytes()), "{bad}");
        }
    }
}
