//! Queue-only scopes: mail in scope is accepted and kept in the queue until the scope ends or the queue is run.
//!
//! Promise: a scope's name reads as it was written, and is never that of a suspension or a standing bounce. In the
//! journal a scope is an [`crate::event::Event::Suspend`] of that name, with the operator's reason.

use std::fmt;
use std::net::IpAddr;
use std::ops::Range;

use ipnet::IpNet;
use stentor_mail::Class;

use crate::event::Envelope;

const PREFIX: &str = "queue_only:";
/// Range that contains the names of all queue-only scopes, and no others.
pub const NAMES: Range<&str> = PREFIX.."queue_only;";

/// The mail that a queue-only scope covers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Scope {
    All,
    Class(Class),
    List(String),
    /// Mail to a recipient's domain.
    Domain(String),
    /// Mail from an envelope sender: an address, empty for the null sender, or `@domain`.
    Sender(String),
    Client(ClientScope),
    /// Mail sent from the local address of this name.
    Source(String),
}

/// The origin of mail.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientScope {
    Network(IpNet),
    /// A local user: login name, or user id in digits.
    User(String),
}

impl ClientScope {
    /// Parses an address, a network, or else a user. `None`: the text is none of these.
    pub fn parse(text: &str) -> Option<ClientScope> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Some(ClientScope::Network(address.into()));
        }
        if let Ok(network) = text.parse::<IpNet>() {
            return Some(ClientScope::Network(network.trunc()));
        }
        let is_name = !text.is_empty() && !text.contains(['/', ':']) && !text.contains(char::is_whitespace);
        is_name.then(|| ClientScope::User(text.to_owned()))
    }

    /// Whether mail with this origin came from there: `192.0.2.7`, `192.0.2.7 login`, `uid 1000 (ann)`.
    fn is_origin(&self, origin: &str) -> bool {
        let (first, rest) = origin.split_once(' ').unwrap_or((origin, ""));
        match self {
            ClientScope::Network(network) => first.parse().is_ok_and(|address: IpAddr| network.contains(&address)),
            ClientScope::User(name) if first == "uid" => {
                let (uid, login) = rest.split_once(' ').unwrap_or((rest, ""));
                // A number is always a user id, even if it is also a login.
                let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
                let login = login.strip_prefix('(').and_then(|login| login.strip_suffix(')'));
                uid == name || !is_number && login == Some(name)
            }
            ClientScope::User(_) => false,
        }
    }
}

/// Formats the client so that [`ClientScope::parse`] can read it.
impl fmt::Display for ClientScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientScope::Network(network) if network.prefix_len() == network.max_prefix_len() => network.addr().fmt(f),
            ClientScope::Network(network) => network.fmt(f),
            ClientScope::User(name) => f.write_str(name),
        }
    }
}

impl Scope {
    /// Parses a scope's name. `None`: it is not one, or is of a newer version.
    pub fn of_name(what: &str) -> Option<Scope> {
        let rest = what.strip_prefix(PREFIX)?;
        let (kind, value) = rest.split_once(':').unwrap_or((rest, ""));
        Scope::of_parts(kind, value).filter(|scope| (*scope == Scope::All) == (kind == rest))
    }

    /// The inverse of [`Scope::parts`].
    pub fn of_parts(kind: &str, value: &str) -> Option<Scope> {
        let is_given = !value.is_empty();
        match kind {
            "all" if !is_given => Some(Scope::All),
            "class" => [Class::Ordinary, Class::Bulk].into_iter().find(|class| class.name() == value).map(Scope::Class),
            "list" => is_given.then(|| Scope::List(value.to_owned())),
            "domain" => is_given.then(|| Scope::Domain(value.to_owned())),
            "sender" => Some(Scope::Sender(value.to_owned())),
            "client" => ClientScope::parse(value).map(Scope::Client),
            "source" => is_given.then(|| Scope::Source(value.to_owned())),
            _ => None,
        }
    }

    /// The kind of the scope, and its value.
    pub fn parts(&self) -> (&'static str, String) {
        match self {
            Scope::All => ("all", String::new()),
            Scope::Class(class) => ("class", class.name().to_owned()),
            Scope::List(name) => ("list", name.clone()),
            Scope::Domain(domain) => ("domain", domain.clone()),
            Scope::Sender(sender) => ("sender", sender.clone()),
            Scope::Client(client) => ("client", client.to_string()),
            Scope::Source(name) => ("source", name.clone()),
        }
    }

    /// Whether the scope depends on each single message.
    pub fn is_of_messages(&self) -> bool {
        matches!(self, Scope::Sender(_) | Scope::Client(_))
    }

    /// Whether a sender or client scope covers mail with this envelope: by its sender as the client gave it or as it is
    /// sent on, or by its origin.
    pub fn has_message(&self, envelope: &Envelope<'_>) -> bool {
        match self {
            Scope::Sender(wanted) => envelope.senders().match_pattern(wanted),
            Scope::Client(client) => client.is_origin(envelope.origin),
            _ => false,
        }
    }
}

/// Formats the scope's name.
impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, value) = self.parts();
        write!(f, "{PREFIX}{kind}")?;
        if matches!(self, Scope::All) { Ok(()) } else { write!(f, ":{value}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_as_they_were_written() {
        for name in [
            "queue_only:all",
            "queue_only:class:bulk",
            "queue_only:list:news",
            "queue_only:domain:one.example",
            "queue_only:sender:",
            "queue_only:sender:@shop.example",
            "queue_only:sender:\"a b:c\"@d",
            "queue_only:client:192.0.2.7",
            "queue_only:client:2001:db8::/32",
            "queue_only:client:www-data",
            "queue_only:source:warm",
        ] {
            let scope = Scope::of_name(name).unwrap_or_else(|| panic!("{name}"));
            assert_eq!(scope.to_string(), name);
            assert!(NAMES.contains(&name), "{name}");
        }
        for bad in
            ["list:news", "queue_only:", "queue_only:all:x", "queue_only:class:urgent", "queue_only:list:", "bounce:x"]
        {
            assert_eq!(Scope::of_name(bad), None, "{bad}");
        }
        assert_eq!(ClientScope::parse("10.1.2.3/8").map(|client| client.to_string()).as_deref(), Some("10.0.0.0/8"));
    }

    #[test]
    fn messages_are_known_by_sender_or_origin() {
        let scope = |name: &str| Scope::of_name(&format!("queue_only:{name}")).unwrap();
        let of = |scope: &Scope, sender, origin| scope.has_message(&Envelope { sender, origin, ..Envelope::default() });
        let shop = scope("sender:@shop.example");
        assert!(of(&shop, "a@shop.example", "") && !of(&shop, "a@sub.shop.example", ""));
        assert!(of(&scope("sender:"), "", "") && !of(&scope("sender:a@b"), "xa@b", ""));
        let rewritten =
            Envelope { sender: "srs@own.example", given_sender: Some("a@shop.example"), ..Envelope::default() };
        assert!(shop.has_message(&rewritten) && scope("sender:@own.example").has_message(&rewritten));
        assert!(!scope("sender:b@shop.example").has_message(&rewritten));
        let net = scope("client:10.0.0.0/8");
        assert!(of(&net, "", "10.9.9.9") && of(&net, "", "10.9.9.9 login"));
        assert!(!of(&net, "", "11.0.0.1") && !of(&net, "", "local"));
        let user = scope("client:www-data");
        assert!(of(&user, "", "uid 33 (www-data)") && !of(&user, "", "uid 33 (www)"));
        assert!(of(&scope("client:33"), "", "uid 33") && !of(&scope("client:3"), "", "uid 33 (www-data)"));
        assert!(!of(&scope("client:33"), "", "uid 5 (33)"), "a login that looks like an id");
        assert!(!of(&user, "", "local") && !of(&scope("list:news"), "", ""));
    }
}
