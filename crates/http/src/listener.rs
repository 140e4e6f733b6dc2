//! Connections: a limited number, of which those without a login get at most half ([`anonymous`](super::anonymous)),
//! each with deadlines for its headers and for reading our answers; bodies have theirs in [`body`](super::body). If TLS
//! is on, plain HTTP is only redirected to HTTPS.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{ConnectInfo, Request};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use stentor_control::ErrorCode;
use stentor_core::Core;
use stentor_core::limits::Limit;
use stentor_tls::{ACME_TLS_ALPN, Acceptor, TlsSocket};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout_at};

use super::anonymous::{AnonymousConnection, AnonymousConnections};
use super::{guard, problem};

/// Time from the connection, or the end of the previous answer, to the end of a request's header.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Buffer of one connection in octets; also the limit of a header.
const BUFFER_BYTES_MAX: usize = 64 * 1024;
/// A peer that does not read its answer for this long is dropped.
const UNREAD_TIMEOUT: Duration = Duration::from_mins(1);
/// Pause after a failed `accept`, most likely for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// The first octet of a TLS session.
const TLS_HANDSHAKE: u8 = 0x16;

/// Resources of connections, shared by all listeners.
pub(super) struct Slots {
    /// TLS settings; without them plain HTTP is served.
    pub tls: Option<Arc<Acceptor>>,
    pub permits: Arc<Semaphore>,
    pub anonymous: Arc<AnonymousConnections>,
}

/// Serves until `stop`. Running answers continue on their own.
pub(super) async fn serve(
    listener: TcpListener,
    app: Router,
    core: Arc<Core>,
    Slots { tls, permits, anonymous }: Slots,
    mut stop: watch::Receiver<bool>,
) {
    loop {
        if permits.available_permits() == 0 {
            core.limits.hit(Limit::HttpConnections, core.clock.now());
        }
        let accepted = tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return,
            accepted = async {
                // The semaphore is never closed.
                let permit = permits.clone().acquire_owned().await.ok();
                listener.accept().await.map(|(stream, address)| (stream, address, permit))
            } => accepted,
        };
        let Ok((stream, address, permit)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let place = anonymous.begin();
        let app = app.clone().layer(Extension(ConnectInfo(address))).layer(Extension(place.clone()));
        let (tls, stop) = (tls.clone(), stop.clone());
        tokio::spawn(async move {
            converse(stream, app, tls.as_deref(), &place, stop).await;
            drop(permit);
        });
    }
}

async fn converse(
    stream: TcpStream,
    app: Router,
    tls: Option<&Acceptor>,
    place: &AnonymousConnection,
    stop: watch::Receiver<bool>,
) {
    // Both are best effort: without them a connection is slower, or holds its slot longer.
    let _ = stream.set_nodelay(true);
    let _ = socket2::SockRef::from(&stream).set_tcp_user_timeout(Some(UNREAD_TIMEOUT));
    let Some(tls) = tls else { return talk(stream, app, place, stop).await };
    let mut stopped = stop.clone();
    let begun = tokio::select! {
        begun = secured(stream, tls) => begun,
        () = place.over() => return,
        _ = stopped.wait_for(|stop| *stop) => return,
    };
    match begun {
        ConnectionStart::Secured(stream) => talk(*stream, app, place, stop).await,
        ConnectionStart::Clear(stream) => talk(stream, Router::new().fallback(in_clear), place, stop).await,
        ConnectionStart::Over => {}
    }
}

/// How a connection to a listener with TLS begins.
enum ConnectionStart {
    Secured(Box<TlsSocket<TcpStream>>),
    /// Plain HTTP.
    Clear(TcpStream),
    Over,
}

async fn secured(stream: TcpStream, tls: &Acceptor) -> ConnectionStart {
    let deadline = Instant::now() + HEADER_TIMEOUT;
    let mut first = [0];
    match timeout_at(deadline, stream.peek(&mut first)).await {
        Ok(Ok(1)) if first[0] == TLS_HANDSHAKE => {}
        Ok(Ok(1)) => return ConnectionStart::Clear(stream),
        _ => return ConnectionStart::Over,
    }
    let Ok(session) = tls.begin() else { return ConnectionStart::Over };
    let mut socket = TlsSocket::new(stream, session);
    match socket.handshake(deadline).await {
        // The peer of an ACME challenge needs only the handshake.
        Ok(()) if socket.facts().is_some_and(|facts| facts.alpn.as_deref() != Some(ACME_TLS_ALPN)) => {
            ConnectionStart::Secured(Box::new(socket))
        }
        Ok(()) => ConnectionStart::Over,
        Err(error) => {
            tracing::debug!(%error, "a TLS handshake of an HTTP client failed");
            ConnectionStart::Over
        }
    }
}

/// The answer to plain HTTP on an HTTPS listener. Its contents are ignored, since others could read them on the way.
async fn in_clear(request: Request) -> Response {
    let host = guard::host(&request).ok();
    let is_plain = |host: &&str| host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.:[]_".contains(&byte));
    match (request.method(), host.filter(is_plain)) {
        (&Method::GET | &Method::HEAD, Some(host)) => {
            let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
            Redirect::temporary(&format!("https://{host}{path}")).into_response()
        }
        _ => problem(StatusCode::FORBIDDEN, ErrorCode::Forbidden, "HTTPS only; the request was not processed"),
    }
}

/// Serves one connection to its end.
async fn talk<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    app: Router,
    place: &AnonymousConnection,
    mut stop: watch::Receiver<bool>,
) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(BUFFER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(app));
    tokio::pin!(connection);
    // An error means that the peer left or sent nonsense; there is nobody to report it to.
    tokio::select! {
        _ = connection.as_mut() => return,
        () = place.over() => return,
        _ = stop.wait_for(|stop| *stop) => connection.as_mut().graceful_shutdown(),
    }
    tokio::select! {
        _ = connection => {}
        () = place.over() => {}
    }
}
