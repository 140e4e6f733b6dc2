//! Serves answers to challenges: by HTTP, with nothing else, and by TLS for clients that request `acme-tls/1`.
//!
//! Anyone may connect: connections are limited in number and time, and nothing that they send is kept. At the limit a
//! new connection closes the oldest: an answer takes milliseconds, so idle connections cannot keep a CA out.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use stentor_tls::{Acceptor, TlsSocket};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::answers::ChallengeResponses;

/// The path prefix of challenges (RFC 8555 section 8.3).
const PREFIX: &str = "/.well-known/acme-challenge/";
/// Maximum duration of a connection.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum connections per listener.
const CONNECTIONS_MAX: usize = 64;
/// Maximum octets of a header.
const HEADER_BYTES_MAX: usize = 16 * 1024;
/// Pause after a failed `accept`, most likely for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Serves `http-01` answers until `stop`.
pub async fn http01(listener: TcpListener, answers: Arc<ChallengeResponses>, stop: watch::Receiver<bool>) {
    accept(listener, stop, CONNECTION_TIMEOUT, |stream| {
        let answers = answers.clone();
        async move {
            let service = service_fn(|request: Request<Incoming>| {
                let response = answer(&answers, request.method(), request.uri().path());
                async move { Ok::<_, Infallible>(response) }
            });
            let mut server = http1::Builder::new();
            server.keep_alive(false).max_buf_size(HEADER_BYTES_MAX);
            // An error means that the peer left or sent nonsense; there is nobody to report it to.
            let _ = server.serve_connection(TokioIo::new(stream), service).await;
        }
    })
    .await;
}

fn answer(answers: &ChallengeResponses, method: &Method, path: &str) -> Response<Full<Bytes>> {
    let found = path.strip_prefix(PREFIX).filter(|_| matches!(*method, Method::GET | Method::HEAD));
    let found = found.and_then(|token| answers.of_token(token));
    let status = if found.is_some() { StatusCode::OK } else { StatusCode::NOT_FOUND };
    let body = found.map_or_else(|| Bytes::from_static(b"not found\n"), |text| Bytes::from(text.into_string()));
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    response
}

/// Serves `tls-alpn-01` answers until `stop`. Other clients see a certificate before the connection closes.
pub async fn tls_alpn01(listener: TcpListener, tls: Arc<Acceptor>, stop: watch::Receiver<bool>) {
    accept(listener, stop, CONNECTION_TIMEOUT, |stream| {
        let tls = tls.clone();
        async move {
            let Ok(session) = tls.begin() else { return };
            let mut socket = TlsSocket::new(stream, session);
            // RFC 8737 section 3: closed once the handshake is complete.
            if socket.handshake(Instant::now() + CONNECTION_TIMEOUT).await.is_ok() {
                let _ = socket.close().await;
            }
        }
    })
    .await;
}

/// Accepts connections; `limit` is the maximum duration of each.
async fn accept<F, T>(listener: TcpListener, mut stop: watch::Receiver<bool>, limit: Duration, serve: F)
where
    F: Fn(TcpStream) -> T,
    T: Future<Output = ()> + Send + 'static,
{
    // The oldest first.
    let mut open: VecDeque<AbortHandle> = VecDeque::with_capacity(CONNECTIONS_MAX);
    loop {
        let accepted = tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        open.retain(|connection| !connection.is_finished());
        if open.len() >= CONNECTIONS_MAX
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
        }
        open.push_back(tokio::spawn(timeout(limit, serve(stream))).abort_handle());
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use stentor_tls::{Identities, IdentityStore};
    use tokio::io::AsyncReadExt as _;
    use tokio::sync::mpsc;

    use super::*;
    use crate::Challenge;

    #[test]
    fn tokens_alone_are_answered() {
        let folder = tempfile::tempdir().unwrap();
        let own = Identities::self_signed(folder.path(), "mx.example.org", 1_800_000_000).unwrap();
        let answers = ChallengeResponses::new(IdentityStore::new(own));
        let status = |method: &Method, path: &str| answer(&answers, method, path).status().as_u16();
        let path = "/.well-known/acme-challenge/token";
        assert_eq!(status(&Method::GET, path), 404);
        let given = answers.give(Challenge::Http01, "mx.example.org", "token", "token.thumb", &[0; 32]).unwrap();
        assert_eq!((status(&Method::GET, path), status(&Method::HEAD, path)), (200, 200));
        assert_eq!(status(&Method::POST, path), 404);
        for other in ["/", "/.well-known/acme-challenge/", "/.well-known/acme-challenge/token/", "/token", ""] {
            assert_eq!(status(&Method::GET, other), 404, "{other}");
        }
        drop(given);
        assert_eq!(status(&Method::GET, path), 404);
        let all: Vec<_> =
            (0..100).map(|n| answers.give(Challenge::Http01, "a", &format!("{n}"), "", &[0; 32]).unwrap()).collect();
        assert!(answers.give(Challenge::Http01, "a", "more", "", &[0; 32]).is_err());
        drop(all);
        assert!(answers.give(Challenge::Http01, "a", "more", "", &[0; 32]).is_ok());
    }

    #[tokio::test]
    async fn connections_that_are_held_open_keep_no_ca_from_the_answer() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (_stop, stopping) = watch::channel(false);
        let (begun, mut begins) = mpsc::unbounded_channel();
        tokio::spawn(accept(listener, stopping, Duration::from_hours(1), move |stream| {
            let begun = begun.clone();
            async move {
                let _ = begun.send(());
                pending::<()>().await;
                drop(stream);
            }
        }));
        let mut held = Vec::new();
        for _ in 0..CONNECTIONS_MAX {
            held.push(TcpStream::connect(address).await.unwrap());
            begins.recv().await.unwrap();
        }
        let _ca = TcpStream::connect(address).await.unwrap();
        timeout(Duration::from_mins(1), begins.recv()).await.expect("it is served").unwrap();
        // It replaces the oldest, and no other.
        assert_eq!(held[0].read(&mut [0]).await.unwrap_or(0), 0);
        let kind = held[1].try_read(&mut [0]).unwrap_err().kind();
        assert_eq!(kind, std::io::ErrorKind::WouldBlock);
    }
}
