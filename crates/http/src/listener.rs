//! Connections: a limited number, of which those without a login get at most half ([`anonymous`](super::anonymous)),
//! each with deadlines for its headers and for reading our answers; bodies have theirs in [`body`](super::body).

use std::sync::Arc;
use std::time::Duration;

use axum::extract::ConnectInfo;
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use stentor_engine::core::Core;
use stentor_engine::core::limits::Limit;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

use super::anonymous::{AnonymousConnection, AnonymousConnections};

/// From the connection, or the end of the answer before, to the end of a request's header.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// What one connection buffers, octets: also the longest header.
const BUFFER_BYTES_MAX: usize = 64 * 1024;
/// A peer that does not take what it asked for is dropped.
const UNREAD_TIMEOUT: Duration = Duration::from_mins(1);
/// `accept` failed, most likely for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// What connections need, shared by all listeners.
pub(super) struct Slots {
    pub permits: Arc<Semaphore>,
    pub anonymous: Arc<AnonymousConnections>,
}

/// Serves until `stop` says so. Answers under way go on by themselves.
pub(super) async fn serve(
    listener: TcpListener,
    app: Router,
    core: Arc<Core>,
    Slots { permits, anonymous }: Slots,
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
        let stop = stop.clone();
        tokio::spawn(async move {
            converse(stream, app, &place, stop).await;
            drop(permit);
        });
    }
}

async fn converse(stream: TcpStream, app: Router, place: &AnonymousConnection, mut stop: watch::Receiver<bool>) {
    // Best effort both: without them it is slower, or a slot is held longer.
    let _ = stream.set_nodelay(true);
    let _ = socket2::SockRef::from(&stream).set_tcp_user_timeout(Some(UNREAD_TIMEOUT));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(BUFFER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(app));
    tokio::pin!(connection);
    // An error here is the peer's departure or nonsense; there is nobody to tell.
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
