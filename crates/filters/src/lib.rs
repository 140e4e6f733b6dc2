//! Asks milters about mail: the sockets, time-outs and connections around the protocol (`stentor_milter`), and the message
//! that they leave.
//!
//! A client's session has a [`Filter`], which begins at its first MAIL: who only connects costs no milter anything. It tells all
//! milters, in their order, of the client, each message and its content; each later one sees what those before it have made of the
//! message. Refusals name the milter.
//!
//! Promise: a milter that is down, silent, slow or broken costs a message at most its time-out, and gets what the configuration says
//! for that failure; after some failures in a row it is left alone for some seconds, so that others do not wait for it
//! (`circuit`). Nothing that it asked for is done unless its last answer came. One chunk of the body and the header are in
//! memory at a time, whatever the message's size; a body that a milter replaces goes piece by piece to the [`Content`].
//!
//! Modules: `milter` (one milter: its connections that wait, its circuit, its counters), `connection` (one connection), `chain` (all
//! milters of a session), `content` (the end of a message), `changes` (to the envelope), `rewrite` (a stored content written once more, or without
//! some of its fields: [`edit_fields`]), `recoded` (a stored content in 8 or 7 bits).

mod chain;
mod changes;
mod circuit;
mod connection;
mod content;
mod milter;
mod recoded;
mod rewrite;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use stentor_milter::MilterSettings;
use tokio::sync::{Mutex, MutexGuard};

pub use chain::{Chain, MailFacts, RcptFacts};
pub use changes::{Envelope, Recipient};
pub use content::Filtered;
pub use milter::{Counters, Milter, MilterResult};
pub use recoded::{Recoded, recoded};
pub use rewrite::{Content, each_field, edit_fields};
use stentor_mail::reply::Reply;
pub use stentor_mime::field::Edit;

/// A refusal, and who decided it, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    pub reply: Reply,
    pub by: String,
}

/// Who a session's client is.
#[derive(Debug, Clone)]
pub struct ClientFacts {
    pub address: IpAddr,
    pub port: u16,
    /// As DNS has it both ways.
    pub name: Option<String>,
    /// Where it connected to; `None`: it is a local program, or came over HTTP.
    pub listener: Option<SocketAddr>,
    /// Who is logged in, and by which mechanism.
    pub login: Option<(String, &'static str)>,
    pub tls: Option<TlsFacts>,
}

/// What TLS its session has.
#[derive(Debug, Clone)]
pub struct TlsFacts {
    pub version: &'static str,
    pub cipher: &'static str,
    pub bits: u16,
    /// Subject and issuer of the client's certificate, if it is proven.
    pub certificate: Option<(String, String)>,
}

/// All milters, in their order.
#[derive(Default)]
pub struct Filters {
    milters: Vec<Arc<Milter>>,
    hostname: String,
}

impl Filters {
    /// Those of `before` that are the same keep their connections and counters.
    pub fn new(hostname: &str, milters: &[MilterSettings], before: Option<&Filters>) -> Filters {
        let kept =
            |settings: &MilterSettings| before?.milters.iter().find(|milter| milter.settings == *settings).cloned();
        let milter =
            |settings: &MilterSettings| kept(settings).unwrap_or_else(|| Arc::new(Milter::new(settings.clone())));
        Filters { milters: milters.iter().map(milter).collect(), hostname: hostname.to_owned() }
    }

    pub fn is_empty(&self) -> bool {
        self.milters.is_empty()
    }

    pub fn milters(&self) -> &[Arc<Milter>] {
        &self.milters
    }

    /// For a client's session. `None`: no milter is shown its mail.
    pub fn of(&self, client: &ClientFacts) -> Option<Filter> {
        let is_shown = |milter: &&Arc<Milter>| {
            let scope = &milter.settings.scope;
            client.listener.map_or(scope.local, |listener| {
                scope.smtp && (scope.listeners.is_empty() || scope.listeners.iter().any(|own| is_at(*own, listener)))
            })
        };
        let milters: Vec<Arc<Milter>> = self.milters.iter().filter(is_shown).cloned().collect();
        (!milters.is_empty()).then(|| Filter(Arc::new(Mutex::new(Chain::new(milters, client, &self.hostname)))))
    }
}

/// Whether a listener, be it on all addresses, is where a client connected to.
fn is_at(own: SocketAddr, listener: SocketAddr) -> bool {
    let is_same = own.ip() == listener.ip().to_canonical() || own.ip() == listener.ip();
    own.port() == listener.port()
        && (is_same || (own.ip().is_unspecified() && own.is_ipv4() == listener.ip().to_canonical().is_ipv4()))
}

/// A session's conversation with its milters; its transactions share it.
#[derive(Clone)]
pub struct Filter(Arc<Mutex<Chain>>);

impl Filter {
    /// One task at a time uses it.
    pub async fn chain(&self) -> MutexGuard<'_, Chain> {
        self.0.lock().await
    }

    /// The transaction has ended without the message's end.
    pub fn over(&self) {
        // Whoever has the lock tells them of the next message, and of the end of this one before.
        if let Ok(mut chain) = self.0.try_lock() {
            chain.over();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners() {
        for (own, at, is) in [
            ("0.0.0.0:25", "192.0.2.1:25", true),
            ("0.0.0.0:25", "192.0.2.1:587", false),
            ("192.0.2.1:25", "[::ffff:192.0.2.1]:25", true),
            ("192.0.2.2:25", "192.0.2.1:25", false),
            ("[::]:25", "[2001:db8::1]:25", true),
            ("[::]:25", "192.0.2.1:25", false),
        ] {
            assert_eq!(is_at(own.parse().unwrap(), at.parse().unwrap()), is, "{own} {at}");
        }
    }
}
