//! Requests to a CA: `https` with the same TLS as everything else, one connection each, with limits on time and
//! response size.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Request, Response, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use parking_lot::Mutex;
use stentor_tls::{Client, ClientSettings, Requirement, Roots, TlsSocket};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::error::plain;

/// Timeout from the connection to the end of the response.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum octets of a response's body; a certificate chain has a few thousand.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;
/// Hosts whose TLS sessions are kept: the directory's, and perhaps another.
const HOSTS_MAX: usize = 4;
/// The pause assumed for a Retry-After with a date, which is rare and not parsed.
const RETRY_AFTER_DATE_S: i64 = 3_600;

/// A client for one CA. Remembers the Retry-After of the last refusal.
#[derive(Clone)]
pub(crate) struct Http {
    tls: Arc<Client>,
    demanded_s: Arc<Mutex<Option<i64>>>,
}

impl Http {
    pub fn new(roots: Roots) -> Http {
        let settings = ClientSettings { roots, hosts_max: HOSTS_MAX, ..ClientSettings::default() };
        Http { tls: Client::new(settings), demanded_s: Arc::default() }
    }

    /// Retry-After of the last refusal, in seconds.
    pub fn demanded_s(&self) -> Option<i64> {
        *self.demanded_s.lock()
    }

    async fn send(&self, request: Request<BodyWrapper<Bytes>>) -> Result<BytesResponse, Error> {
        let uri = request.uri().clone();
        let failed = |why: String| Error::Other(format!("{uri}: {}", plain(&why)).into());
        let response = match timeout(REQUEST_TIMEOUT, self.attempt(request)).await {
            Ok(response) => response.map_err(failed)?,
            Err(_) => return Err(failed(format!("no answer in {} s", REQUEST_TIMEOUT.as_secs()))),
        };
        let status = response.status();
        let is_refusal = status.is_client_error() || status.is_server_error();
        if is_refusal {
            *self.demanded_s.lock() = retry_after(response.headers());
        }
        // A proxy in front of the CA sends its own text.
        if is_refusal && !is_problem(response.headers()) {
            return Err(failed(status.to_string()));
        }
        Ok(BytesResponse::from(response))
    }

    async fn attempt(&self, request: Request<BodyWrapper<Bytes>>) -> Result<Response<Full<Bytes>>, String> {
        let (host, port, authority) = place(request.uri())?;
        let deadline = Instant::now() + REQUEST_TIMEOUT;
        let stream = TcpStream::connect((host.as_str(), port)).await.map_err(|error| error.to_string())?;
        // Best effort: without it the connection is slower.
        let _ = stream.set_nodelay(true);
        let requirement = Requirement::Ca { names: vec![host.as_str().into()] };
        let session = self.tls.begin(&requirement, &host, &authority).map_err(|error| format!("TLS: {error}"))?;
        let mut socket = TlsSocket::new(stream, session);
        socket.handshake(deadline).await.map_err(|error| format!("TLS: {error}"))?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(socket)).await.map_err(|error| error.to_string())?;
        let driving = ConnectionTask(tokio::spawn(async move { drop(connection.await) }));
        let (mut parts, body) = request.into_parts();
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str()).parse();
        parts.uri = path.map_err(|_| "the URL has no path".to_owned())?;
        parts.headers.insert(HOST, HeaderValue::from_str(&authority).map_err(|error| error.to_string())?);
        let response =
            sender.send_request(Request::from_parts(parts, body)).await.map_err(|error| error.to_string())?;
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await.map_err(|error| error.to_string())?;
        drop(driving);
        Ok(Response::from_parts(parts, Full::new(body.to_bytes())))
    }
}

impl HttpClient for Http {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let http = self.clone();
        Box::pin(async move { http.send(request).await })
    }
}

/// The task of a connection; it ends with the request.
struct ConnectionTask(tokio::task::JoinHandle<()>);

impl Drop for ConnectionTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Host, port, and both as sent in a request. Only HTTPS is allowed (RFC 8555 section 6.1).
fn place(uri: &Uri) -> Result<(String, u16, String), String> {
    if uri.scheme_str() != Some("https") {
        return Err("it must begin with https://".to_owned());
    }
    let authority = uri.authority().ok_or("it has no host")?;
    let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    Ok((host, authority.port_u16().unwrap_or(443), authority.as_str().to_owned()))
}

fn is_problem(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("application/problem+json"))
}

fn retry_after(headers: &HeaderMap) -> Option<i64> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    Some(text.parse().map_or(RETRY_AFTER_DATE_S, |seconds: u32| i64::from(seconds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_https() {
        let of = |text: &str| place(&text.parse().unwrap());
        assert_eq!(of("https://ca.example/dir").unwrap(), ("ca.example".to_owned(), 443, "ca.example".to_owned()));
        assert_eq!(of("https://[::1]:14000/dir").unwrap(), ("::1".to_owned(), 14_000, "[::1]:14000".to_owned()));
        assert!(of("http://ca.example/dir").is_err());
        assert!(of("/dir").is_err());
    }

    #[test]
    fn what_a_refusal_demands() {
        let of = |text: &str| retry_after(&HeaderMap::from_iter([(RETRY_AFTER, HeaderValue::from_str(text).unwrap())]));
        assert_eq!(of("120"), Some(120));
        assert_eq!(of("Fri, 31 Dec 1999 23:59:59 GMT"), Some(RETRY_AFTER_DATE_S));
        assert_eq!(retry_after(&HeaderMap::new()), None);
    }
}
