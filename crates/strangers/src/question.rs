//! Questions to the DNS, and what is known of their answers.

use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use crate::client_name::ClientName;

/// Whose mail it is.
#[derive(Debug, Clone, Copy)]
pub struct About<'a> {
    /// In its canonical form: no IPv4 address in IPv6.
    pub client: IpAddr,
    pub client_name: ClientName<&'a str>,
    /// In lower case, without a final dot.
    pub helo: &'a str,
    /// The domain of the sender; empty: the null sender.
    pub sender: &'a str,
}

/// What is asked. Lists with one zone share their questions: which of them asks is for counting alone.
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

/// One question to the DNS.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Question {
    /// In lower case, without a final dot.
    pub name: Box<str>,
    pub kind: Kind,
}

/// What the DNS says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Of [`Kind::Listed`]: none if it is not listed.
    Addresses(Vec<Ipv4Addr>),
    /// Of the others.
    Is(bool),
    /// Nobody knows: why.
    Unanswered(Box<str>),
}

/// An answer, and how long it took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    pub answer: Answer,
    pub took_ms: u64,
}

impl Answered {
    /// Where nobody asks the DNS.
    pub fn nobody() -> Answered {
        Answered { answer: Answer::Unanswered("the DNS is not asked here".into()), took_ms: 0 }
    }
}
