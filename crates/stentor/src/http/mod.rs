//! The HTTP side of the server: console, API, metrics, health; each a router of its own on one listener.
//!
//! Promise: bound to loopback unless the configuration says otherwise; answers come from memory or from the history's
//! files, never from a scan under the queue's lock; it ends with the server. A port that is taken stops the start, with
//! the key that names it.

mod health;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use tokio::sync::watch;

use crate::core::Core;
use crate::operator::Operator;

/// What every page and call may use.
#[derive(Clone)]
pub struct Http {
    pub core: Arc<Core>,
    pub operator: Arc<Operator>,
}

/// Everything that is served.
fn router(http: Http) -> Router {
    Router::new().merge(health::router()).with_state(http)
}

/// Where it listens, with the ports that the system chose; it ends when `stop` says so.
pub async fn serve(
    addresses: &[SocketAddr],
    http: Http,
    stop: &watch::Receiver<bool>,
) -> Result<Vec<SocketAddr>, (SocketAddr, io::Error)> {
    let mut bound = Vec::with_capacity(addresses.len());
    for addr in addresses {
        let listener = tokio::net::TcpListener::bind(addr).await.map_err(|error| (*addr, error))?;
        bound.push(listener.local_addr().unwrap_or(*addr));
        let (app, mut stop) = (router(http.clone()), stop.clone());
        tokio::spawn(async move {
            let stopped = async move {
                // The sender's end says the same.
                let _ = stop.wait_for(|stop| *stop).await;
            };
            if let Err(error) = axum::serve(listener, app).with_graceful_shutdown(stopped).await {
                tracing::error!(%error, "the HTTP listener ended");
            }
        });
    }
    Ok(bound)
}
