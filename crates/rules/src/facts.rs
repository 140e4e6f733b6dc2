//! Facts about a recipient, and lookups in tables.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use stentor_mail::Class;
use stentor_mail::address::Address;
use stentor_reputation::{Answered, ClientBehaviour, ClientName, Greylisted, Question};
use stentor_tables::{IncludeError, Included};

use crate::address::Key;

/// Facts about a message when one of its recipients is judged.
#[derive(Debug, Clone)]
pub struct Facts<'a> {
    /// Client address in canonical form.
    pub client: IpAddr,
    /// Client name; an unknown one matches nothing.
    pub client_name: ClientName<&'a str>,
    /// HELO name in lower case.
    pub helo: &'a str,
    pub sender: &'a Key,
    pub recipient: &'a Key,
    /// Recipient as named by the client.
    pub address: &'a Address,
    /// List that the message is a post to.
    pub list: Option<Arc<str>>,
    pub class: Option<Class>,
    /// The client is in `client_networks` or has logged in.
    pub is_trusted: bool,
    /// The server wrote the message: there is no client, and rules about clients are skipped.
    pub is_own: bool,
    /// Behaviour of the client.
    pub behaviour: ClientBehaviour,
    /// Days since the Unix epoch.
    pub today: u64,
    /// Client session; `None`: there is none, and policy services are not queried.
    pub session: Option<SessionFacts<'a>>,
}

/// Session facts that only policy services receive.
#[derive(Debug, Clone, Copy)]
pub struct SessionFacts<'a> {
    pub client_port: u16,
    pub server: Option<SocketAddr>,
    /// The session began with EHLO.
    pub is_esmtp: bool,
    /// User name and mechanism of the login.
    pub login: Option<&'a str>,
    pub mechanism: &'a str,
    pub tls: Option<TlsFacts<'a>>,
    /// Size declared at MAIL, in octets.
    pub size: Option<u64>,
    /// Identifier shared by all recipients of one message and no other.
    pub instance: &'a str,
}

/// TLS facts of a session.
#[derive(Debug, Clone, Copy)]
pub struct TlsFacts<'a> {
    pub version: &'static str,
    pub cipher: &'static str,
    pub bits: u16,
    /// Subject and issuer of the client's certificate, if it is verified.
    pub certificate: Option<(&'a str, &'a str)>,
}

/// Field that a pattern or table is matched against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Field {
    Client,
    ClientName,
    Helo,
    Sender,
    Recipient,
}

impl Field {
    /// All fields, with their names as keys of a rule.
    pub const ALL: [(Field, &'static str); 5] = [
        (Field::Client, "client"),
        (Field::ClientName, "client_name"),
        (Field::Helo, "helo"),
        (Field::Sender, "sender"),
        (Field::Recipient, "recipient"),
    ];

    pub fn name(self) -> &'static str {
        Field::ALL.iter().find(|(field, _)| *field == self).map_or("", |(_, name)| name)
    }
}

/// Subject of a table lookup.
#[derive(Debug, Clone, Copy)]
pub enum Subject<'a> {
    Client(IpAddr),
    /// A name in lower case.
    Name(&'a str),
    Address(&'a Key),
    /// An address whose case is kept, or a domain. `is_local`: some dialects omit this domain in keys.
    Mailbox {
        address: &'a str,
        is_local: bool,
    },
}

/// Index of a table in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TableId(pub u16);

/// An entry found in a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableEntry {
    pub value: String,
    /// Key that matched; it may be a part of the subject.
    pub key: String,
    /// `file:line`, as far as known.
    pub place: String,
}

/// Result of a table lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LookupResult {
    Found(TableEntry),
    NotFound,
    /// The table is unavailable, with the reason.
    Unavailable(String),
    /// The answer must be fetched over the network first; then the decision is made again.
    Pending,
}

/// Answers of tables and of the DNS. During one decision, the same query gets the same answer.
pub trait Tables {
    /// Looks up the partial keys documented for the table's dialect, most specific first.
    fn ask(&self, table: TableId, field: Field, subject: Subject<'_>) -> LookupResult;

    /// Queries a policy service about the recipient; the result is an action in Postfix's syntax.
    fn ask_service(&self, _service: TableId, _facts: &Facts<'_>) -> LookupResult {
        LookupResult::Unavailable("policy services cannot be queried here".to_owned())
    }

    /// A file included by an alias file, as read together with it; `None`: it was not read. `user`: see
    /// [`Included::user`].
    fn include(&self, table: TableId, path: &str, user: Option<u32>) -> Option<Result<Arc<Included>, IncludeError>>;

    /// The DNS answer about an untrusted client; `None`: it must be fetched first, then the decision is made again.
    fn dns(&self, _question: &Question) -> Option<Answered> {
        Some(Answered::nobody())
    }

    /// Whether greylisting defers this mail now; `None`: unknown.
    fn greylisted(&self, _client: IpAddr, _sender: &str, _recipient: &str) -> Option<Greylisted> {
        None
    }
}
