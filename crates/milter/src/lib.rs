//! Runs milters on mail: sockets, timeouts and connections around the protocol ([`protocol`]), and the changes to
//! messages.
//!
//! A client's session has a [`SessionMilters`], which starts at its first MAIL, so clients that only connect cost
//! milters nothing. It sends the client, each message and its content to all milters, in order; each milter sees the
//! changes of the previous ones. Refusals name the milter.
//!
//! Promise: a milter that is down, silent, slow or broken delays a message by at most its timeout, and the failure is
//! handled as configured. If it cannot be reached, or fails on the mail of several clients in a row, it is paused for
//! some seconds, so that other sessions do not wait for it (`circuit`). Its changes are only applied if its last answer
//! arrived. Only the header and one chunk of the body are in memory, whatever the message's size; a replaced body is
//! written to the [`Content`] piece by piece.
//!
//! Modules: `milter` (one milter: its idle connections, circuits and counters), `connection` (one connection), `chain`
//! (all milters of a session), `content` (the end of a message), `changes` (changes to the envelope), `rewrite`
//! (rewriting of a stored content, also to edit fields: [`edit_fields`]), `recoded` (conversion of a stored content
//! to 8 or 7 bits).

mod chain;
mod changes;
mod circuit;
mod connection;
mod content;
mod milter;
pub mod protocol;
mod recoded;
mod rewrite;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use stentor_mail::reply::Reply;
use tokio::sync::{Mutex, MutexGuard};

use crate::protocol::MilterSettings;

pub use chain::{Chain, MailFacts, RcptFacts};
pub use changes::{EnvelopeChanges, RecipientChange};
pub use content::MilteredMessage;
pub use milter::{Counters, Milter, MilterResult};
pub use recoded::{RecodeResult, recoded};
pub use rewrite::{Content, each_field, edit_fields};

/// A refusal, and the milter that decided it, as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MilterRefusal {
    pub reply: Reply,
    pub by: String,
}

/// Facts about a session's client.
#[derive(Debug, Clone)]
pub struct ClientFacts {
    pub address: IpAddr,
    /// The address under which it is counted: of IPv6, its network's.
    pub counted_as: IpAddr,
    pub is_trusted: bool,
    pub port: u16,
    /// Client name, confirmed in both directions of the DNS.
    pub name: Option<String>,
    /// Listening address that the client used; `None`: it is a local program, or came over HTTP.
    pub listener: Option<SocketAddr>,
    /// User name and mechanism of the login.
    pub login: Option<(String, &'static str)>,
    pub tls: Option<ClientTls>,
}

/// TLS facts of its session.
#[derive(Debug, Clone)]
pub struct ClientTls {
    pub version: &'static str,
    pub cipher: &'static str,
    pub bits: u16,
    /// Subject and issuer of the client's certificate, if it is verified.
    pub certificate: Option<(String, String)>,
}

/// All milters, in order.
#[derive(Default)]
pub struct Milters {
    milters: Vec<Arc<Milter>>,
    hostname: String,
}

impl Milters {
    /// Unchanged milters of `before` keep their connections and counters.
    pub fn new(hostname: &str, milters: &[MilterSettings], before: Option<&Milters>) -> Milters {
        let kept =
            |settings: &MilterSettings| before?.milters.iter().find(|milter| milter.settings == *settings).cloned();
        let milter =
            |settings: &MilterSettings| kept(settings).unwrap_or_else(|| Arc::new(Milter::new(settings.clone())));
        Milters { milters: milters.iter().map(milter).collect(), hostname: hostname.to_owned() }
    }

    pub fn is_empty(&self) -> bool {
        self.milters.is_empty()
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Arc<Milter>> {
        self.milters.iter()
    }

    /// Milters for a client's session; `None` if no milter applies.
    pub fn of(&self, client: &ClientFacts) -> Option<SessionMilters> {
        let is_shown = |milter: &&Arc<Milter>| {
            let scope = &milter.settings.scope;
            client.listener.map_or(scope.local, |listener| {
                scope.smtp && (scope.listeners.is_empty() || scope.listeners.iter().any(|own| is_at(*own, listener)))
            })
        };
        let milters: Vec<Arc<Milter>> = self.milters.iter().filter(is_shown).cloned().collect();
        (!milters.is_empty()).then(|| SessionMilters(Arc::new(Mutex::new(Chain::new(milters, client, &self.hostname)))))
    }
}

impl<'a> IntoIterator for &'a Milters {
    type Item = &'a Arc<Milter>;
    type IntoIter = std::slice::Iter<'a, Arc<Milter>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

/// Whether a client that connected to `listener` used our address `own`, which may be a wildcard.
fn is_at(own: SocketAddr, listener: SocketAddr) -> bool {
    let is_same = own.ip() == listener.ip().to_canonical() || own.ip() == listener.ip();
    own.port() == listener.port()
        && (is_same || (own.ip().is_unspecified() && own.is_ipv4() == listener.ip().to_canonical().is_ipv4()))
}

/// A session's milters, shared by its transactions.
#[derive(Clone)]
pub struct SessionMilters(Arc<Mutex<Chain>>);

impl SessionMilters {
    /// Locks the milters for one task.
    pub async fn chain(&self) -> MutexGuard<'_, Chain> {
        self.0.lock().await
    }

    /// Ends a transaction without the end of its message.
    pub fn over(&self) {
        // The task that holds the lock sends the next message, and before it the end of this one.
        if let Ok(mut chain) = self.0.try_lock() {
            chain.drop_message();
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
