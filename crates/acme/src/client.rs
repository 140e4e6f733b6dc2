//! Requests to a CA (by [`stentor_http_client`]): one connection each, with limits on time and response size.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, Request, Response, Uri};
use http_body_util::Full;
use instant_acme::{BodyWrapper, BytesResponse, Error};
use parking_lot::Mutex;
use stentor_http_client::{Destination, HttpClient, RequestError, Url};
use stentor_tls::{Roots, TlsError};
use tokio::time::Instant;

use crate::error::plain;

/// Timeout from the connection to the end of the response.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum octets of a response's body; a certificate chain has a few thousand.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;
/// The pause assumed for a Retry-After with a date, which is rare and not parsed.
const RETRY_AFTER_DATE_S: i64 = 3_600;

/// A client for one CA. Remembers the Retry-After of the last refusal.
#[derive(Clone)]
pub(crate) struct Http {
    client: HttpClient,
    demanded_s: Arc<Mutex<Option<i64>>>,
}

impl Http {
    pub fn new(roots: &Roots) -> Result<Http, TlsError> {
        Ok(Http { client: HttpClient::new(roots)?, demanded_s: Arc::default() })
    }

    /// Retry-After of the last refusal, in seconds.
    pub fn demanded_s(&self) -> Option<i64> {
        *self.demanded_s.lock()
    }

    async fn send(&self, request: Request<BodyWrapper<Bytes>>) -> Result<BytesResponse, Error> {
        let uri = request.uri().clone();
        let failed = |why: String| Error::Other(format!("{uri}: {}", plain(&why)).into());
        let until = Instant::now() + REQUEST_TIMEOUT;
        let response = self.attempt(request, until).await.map_err(|failure| failed(failure.to_string()))?;
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

    async fn attempt(
        &self,
        request: Request<BodyWrapper<Bytes>>,
        until: Instant,
    ) -> Result<Response<Full<Bytes>>, RequestError> {
        let url = https_url(request.uri()).map_err(RequestError::Http)?;
        let destination =
            Destination { host: &url.host, port: url.port, addresses: None, allows_private: true, is_tls: true };
        let mut answer = self.client.send(&destination, request, until).await?;
        let (status, headers) = (answer.status, std::mem::take(&mut answer.headers));
        let mut response = Response::new(Full::new(answer.read(ANSWER_BYTES_MAX, until).await?));
        (*response.status_mut(), *response.headers_mut()) = (status, headers);
        Ok(response)
    }
}

impl instant_acme::HttpClient for Http {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let http = self.clone();
        Box::pin(async move { http.send(request).await })
    }
}

/// A CA's URL. Only HTTPS is allowed (RFC 8555 section 6.1).
fn https_url(uri: &Uri) -> Result<Url, String> {
    let url = Url::parse(&uri.to_string())?;
    if url.is_tls { Ok(url) } else { Err("it must begin with https://".to_owned()) }
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
    use http::HeaderValue;

    use super::*;

    #[test]
    fn only_https() {
        let of = |text: &str| https_url(&text.parse().unwrap()).map(|url| (url.host, url.port));
        assert_eq!(of("https://ca.example/dir"), Ok(("ca.example".to_owned(), 443)));
        assert_eq!(of("https://[::1]:14000/dir"), Ok(("::1".to_owned(), 14_000)));
        assert!(of("http://ca.example/dir").is_err());
        assert!(of("https://ca.example:99999/dir").is_err());
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
