//! What is known of a recipient, and what tables are asked.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use stentor_mail::Class;
use stentor_mail::address::Address;
use stentor_strangers::{Answered, ClientName, Greylisted, Question, Seen};
use stentor_tables::{Included, NotIncluded};

use crate::address::Key;

/// What is known of a message when one of its recipients is judged.
#[derive(Debug, Clone)]
pub struct Facts<'a> {
    /// In its canonical form.
    pub client: IpAddr,
    /// One that is not known matches nothing.
    pub client_name: ClientName<&'a str>,
    /// In lower case.
    pub helo: &'a str,
    pub sender: &'a Key,
    pub recipient: &'a Key,
    /// The recipient as it was named.
    pub address: &'a Address,
    /// It is a post to this list.
    pub list: Option<Arc<str>>,
    pub class: Option<Class>,
    /// In `client_networks`, or logged in.
    pub is_trusted: bool,
    /// The server itself wrote it: there is no client, and rules that ask about one are left out.
    pub is_own: bool,
    /// What the client has done.
    pub seen: Seen,
    /// Days since the Unix epoch.
    pub today: u64,
    /// The client's session; `None`: there is none, and policy services are not asked.
    pub session: Option<SessionFacts<'a>>,
}

/// What only policy services are told of a session.
#[derive(Debug, Clone, Copy)]
pub struct SessionFacts<'a> {
    pub client_port: u16,
    pub server: Option<SocketAddr>,
    /// It began with EHLO.
    pub is_esmtp: bool,
    /// Who is logged in, and by which mechanism.
    pub login: Option<&'a str>,
    pub mechanism: &'a str,
    pub tls: Option<TlsFacts<'a>>,
    /// As MAIL declared it, in octets.
    pub size: Option<u64>,
    /// The same for all recipients of a message, and of no other.
    pub instance: &'a str,
}

/// What TLS a session has.
#[derive(Debug, Clone, Copy)]
pub struct TlsFacts<'a> {
    pub version: &'static str,
    pub cipher: &'static str,
    pub bits: u16,
    /// Subject and issuer of the client's certificate, if it is proven.
    pub certificate: Option<(&'a str, &'a str)>,
}

/// What a pattern or a table is asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Field {
    Client,
    ClientName,
    Helo,
    Sender,
    Recipient,
}

impl Field {
    /// All of them, as keys of a rule name them.
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

/// What of a rule's key is asked of a table.
#[derive(Debug, Clone, Copy)]
pub enum Subject<'a> {
    Client(IpAddr),
    /// In lower case.
    Name(&'a str),
    Address(&'a Key),
    /// An address whose case is kept, or a domain. `is_local`: names of its domain have keys without it.
    Mailbox {
        address: &'a str,
        is_local: bool,
    },
}

/// A table's place among those of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TableId(pub u16);

/// What a table has for a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub value: String,
    /// The key that matched, which may be a part of what was asked.
    pub key: String,
    /// `file:line`, or what there is of it.
    pub place: String,
}

/// What a table says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    Found(Found),
    NotFound,
    /// It cannot be asked now: why.
    Unavailable(String),
    /// It has to be asked over the network first; then the decision is made again.
    Pending,
}

/// Answers for tables, and for the DNS. The same question gets the same answer during one decision.
pub trait Tables {
    /// Asks by the partial keys that the table's owner documents, most specific first.
    fn ask(&self, table: TableId, field: Field, subject: Subject<'_>) -> Answer;

    /// Asks a policy service about the recipient; what it found is an action in Postfix's words.
    fn ask_service(&self, _service: TableId, _facts: &Facts<'_>) -> Answer {
        Answer::Unavailable("policy services cannot be asked here".to_owned())
    }

    /// A file that an alias file includes, as it was read with it; `None`: it was not. `user`: see [`Included::user`].
    fn include(&self, table: TableId, path: &str, user: Option<u32>) -> Option<Result<Arc<Included>, NotIncluded>>;

    /// What the DNS says about a client that is not trusted; `None`: it has to be asked first, then the decision is made again.
    fn dns(&self, _question: &Question) -> Option<Answered> {
        Some(Answered::nobody())
    }

    /// Whether mail has to be tried again, now that it is tried; `None`: nobody knows.
    fn greylisted(&self, _client: IpAddr, _sender: &str, _recipient: &str) -> Option<Greylisted> {
        None
    }
}
