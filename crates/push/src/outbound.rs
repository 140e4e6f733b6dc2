//! A small HTTP client for webhooks and telemetry. One POST per connection, `http` and `https` (rustls, the system's
//! certificates), no redirects, bounded in time and in how much of the answer is read.

use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::http::{HeaderMap, Request, header};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use stentor_config::Url;
use stentor_tls::Roots;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;

/// Maximum octets read of an answer's body, which is ignored; reading lets the peer finish sending.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// The response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    pub status: u16,
    /// `Retry-After` in seconds, if it is a number.
    pub retry_after_s: Option<u64>,
}

/// Sends a body and waits for the response, all within `timeout`.
///
/// # Errors
/// Why there was no response, in words.
pub async fn post(url: &Url, headers: HeaderMap, body: Bytes, timeout: Duration) -> Result<Answer, String> {
    match tokio::time::timeout(timeout, attempt(url, headers, body)).await {
        Ok(result) => result,
        Err(_) => Err(format!("no answer within {} s", timeout.as_secs_f32())),
    }
}

/// As [`post`], to one of these addresses, which the caller has approved.
///
/// # Errors
/// Why there was no response, in words.
pub async fn post_at(
    url: &Url,
    addresses: &[SocketAddr],
    headers: HeaderMap,
    body: Bytes,
    timeout: Duration,
) -> Result<Answer, String> {
    let attempt = async {
        let stream = TcpStream::connect(addresses).await.map_err(|error| error.to_string())?;
        over(stream, url, headers, body).await
    };
    match tokio::time::timeout(timeout, attempt).await {
        Ok(result) => result,
        Err(_) => Err(format!("no answer within {} s", timeout.as_secs_f32())),
    }
}

async fn attempt(url: &Url, headers: HeaderMap, body: Bytes) -> Result<Answer, String> {
    let stream = TcpStream::connect((url.host.as_str(), url.port)).await.map_err(|error| error.to_string())?;
    over(stream, url, headers, body).await
}

async fn over(stream: TcpStream, url: &Url, headers: HeaderMap, body: Bytes) -> Result<Answer, String> {
    // Best effort: without it the connection is slower.
    let _ = stream.set_nodelay(true);
    if !url.is_tls {
        return talk(stream, url, headers, body).await;
    }
    let name = ServerName::try_from(url.host.clone()).map_err(|error| error.to_string())?;
    let stream = TlsConnector::from(tls()?).connect(name, stream).await.map_err(|error| format!("TLS: {error}"))?;
    talk(stream, url, headers, body).await
}

async fn talk<S>(stream: S, url: &Url, headers: HeaderMap, body: Bytes) -> Result<Answer, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
    // The task ends with the sender.
    let driving = tokio::spawn(connection);
    let path = url.uri.path_and_query().map_or("/", axum::http::uri::PathAndQuery::as_str);
    let mut request = Request::post(path).body(Full::new(body)).map_err(|error| error.to_string())?;
    *request.headers_mut() = headers;
    if let Some(authority) = url.uri.authority()
        && let Ok(host) = authority.as_str().parse()
    {
        request.headers_mut().insert(header::HOST, host);
    }
    let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
    let retry_after = response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
    let answer =
        Answer { status: response.status().as_u16(), retry_after_s: retry_after.and_then(|text| text.parse().ok()) };
    // The status decides; a truncated body does not matter.
    let _ = Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await;
    driving.abort();
    Ok(answer)
}

/// TLS settings with the system's certificates, read once.
fn tls() -> Result<Arc<ClientConfig>, String> {
    static CONFIG: OnceLock<Result<Arc<ClientConfig>, String>> = OnceLock::new();
    let made = CONFIG.get_or_init(|| {
        let roots = Roots::of_system();
        if roots.is_empty() {
            return Err("TLS: the system has no certificates".to_owned());
        }
        roots.web_client().map_err(|error| format!("TLS: {error}"))
    });
    made.clone()
}
