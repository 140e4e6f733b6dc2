//! DNS queries and their answers.

use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use crate::client_name::ClientName;

/// The mail that queries are about.
#[derive(Debug, Clone, Copy)]
pub struct QueriedMail<'a> {
    /// Client address in canonical form: no IPv4-mapped one.
    pub client: IpAddr,
    pub client_name: ClientName<&'a str>,
    /// HELO name in lower case, without a final dot.
    pub helo: &'a str,
    /// Domain of the sender; empty: the null sender.
    pub sender: &'a str,
}

/// Kind of a query. Lists with the same zone share queries; the list's name only matters for counters.
#[derive(Debug, Clone)]
pub enum Kind {
    /// Addresses of the name, from the DNS list with this name.
    Listed(Arc<str>),
    /// Whether the name has an address or MX hosts. A null MX counts as one: the name exists.
    Exists,
    /// Whether mail can be sent to the domain: it has an address or MX hosts.
    TakesMail,
}

impl PartialEq for Kind {
    fn eq(&self, other: &Kind) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

impl Eq for Kind {}

impl Hash for Kind {
    fn hash<H: Hasher>(&self, state: &mut H) {
        std::mem::discriminant(self).hash(state);
    }
}

/// One DNS query.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Question {
    /// Name in lower case, without a final dot.
    pub name: Box<str>,
    pub kind: Kind,
}

/// Answer of the DNS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DnsAnswer {
    /// For [`Kind::Listed`]: the addresses; empty if it is not listed.
    Addresses(Vec<Ipv4Addr>),
    /// For the other kinds.
    Is(bool),
    /// Unknown, with the reason.
    Unanswered(Box<str>),
}

/// An answer, and how long it took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    pub answer: DnsAnswer,
    pub took_ms: u64,
}

impl Answered {
    /// The answer if the DNS is not queried.
    pub fn nobody() -> Answered {
        Answered { answer: DnsAnswer::Unanswered("the DNS is not queried here".into()), took_ms: 0 }
    }
}
