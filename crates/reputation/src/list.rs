//! DNS lists (RFC 5782): lookups and the meaning of their answers.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use stentor_mail::address::normalise_domain;
use stentor_mail::domain::reverse_labels;

use crate::answers::{AnswerPattern, listings};
use crate::names::{NAME_BYTES_MAX, is_fqdn};
use crate::question::{DnsAnswer, Kind, QueriedMail, Question};

/// Length of a reversed IPv6 address in nibbles, for which a zone must leave room.
const NIBBLES_BYTES: usize = 64;

/// Subject of a lookup in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DnsListSubject {
    Client,
    ClientName,
    Helo,
    Sender,
}

impl DnsListSubject {
    /// All subjects with their names in `of`.
    pub const WORDS: [(&'static str, DnsListSubject); 4] = [
        ("client", DnsListSubject::Client),
        ("client_name", DnsListSubject::ClientName),
        ("helo", DnsListSubject::Helo),
        ("sender", DnsListSubject::Sender),
    ];
}

/// One configured DNS list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsList {
    pub name: Arc<str>,
    zone: Box<str>,
    pub of: DnsListSubject,
    /// Answers that count; empty: all that can be listings.
    answers: Vec<AnswerPattern>,
    /// Weight of a listing in a score; negative for lists of good clients.
    pub weight: i32,
}

/// The text is not a valid zone of a DNS list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZoneError;

/// Result of a lookup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DnsListResult {
    Yes(Ipv4Addr),
    No,
    /// Unknown, with the reason.
    Unanswered(Box<str>),
}

impl DnsList {
    /// Makes a list.
    ///
    /// # Errors
    /// The zone is not a valid domain name, or too long for the names in it.
    pub fn new(
        name: &str,
        zone: &str,
        of: DnsListSubject,
        answers: Vec<AnswerPattern>,
        weight: i32,
    ) -> Result<DnsList, ZoneError> {
        let zone = normalise_domain(zone.trim_end_matches('.')).map_err(|_| ZoneError)?;
        let is_zone = is_fqdn(&zone) && zone.len() + NIBBLES_BYTES <= NAME_BYTES_MAX;
        is_zone.then(|| DnsList { name: name.into(), zone: zone.into(), of, answers, weight }).ok_or(ZoneError)
    }

    /// The query about a client or its mail. `None`: there is nothing to look up, as for a sender without a domain.
    pub fn question(&self, about: &QueriedMail<'_>) -> Option<Question> {
        match self.of {
            DnsListSubject::Client => Some(self.of_client(about.client)),
            DnsListSubject::ClientName => self.of_name(about.client_name.is().unwrap_or_default()),
            DnsListSubject::Helo => self.of_name(about.helo),
            DnsListSubject::Sender => self.of_name(about.sender),
        }
    }

    /// The query about an address: its octets, or nibbles for IPv6 (section 2.4), in reverse.
    pub fn of_client(&self, client: IpAddr) -> Question {
        self.ask(&format!("{}.{}", reverse_labels(client.to_canonical()), self.zone))
    }

    /// The query about a name. Lists of domains have neither addresses nor names of a single label.
    fn of_name(&self, name: &str) -> Option<Question> {
        let is_asked = is_fqdn(name) && name.len() + 1 + self.zone.len() <= NAME_BYTES_MAX;
        is_asked.then(|| self.ask(&format!("{name}.{}", self.zone)))
    }

    /// Queries for an entry that every list of its kind has, and for one that none has (RFC 5782 section 5).
    pub fn tests(&self) -> [Question; 2] {
        if self.of == DnsListSubject::Client {
            return [Ipv4Addr::new(127, 0, 0, 2), Ipv4Addr::LOCALHOST].map(|ip| self.of_client(ip.into()));
        }
        ["test", "invalid"].map(|label| self.ask(&format!("{label}.{}", self.zone)))
    }

    /// The meaning of an answer, whether or not it counts here.
    pub fn read_any(&self, answer: &DnsAnswer) -> DnsListResult {
        DnsList { answers: Vec::new(), ..self.clone() }.read(answer)
    }

    fn ask(&self, name: &str) -> Question {
        Question { name: name.into(), kind: Kind::Listed(self.name.clone()) }
    }

    /// The meaning of an answer of this list.
    pub fn read(&self, answer: &DnsAnswer) -> DnsListResult {
        let addresses = match answer {
            DnsAnswer::Addresses(addresses) => addresses,
            DnsAnswer::Is(_) => return DnsListResult::No,
            DnsAnswer::Unanswered(why) => return DnsListResult::Unanswered(why.clone()),
        };
        let counts = |address: &Ipv4Addr| {
            self.answers.is_empty() || self.answers.iter().any(|pattern| pattern.is_match(*address))
        };
        match listings(addresses) {
            Ok(all) => all.into_iter().find(counts).map_or(DnsListResult::No, DnsListResult::Yes),
            Err(why) => DnsListResult::Unanswered(why.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn list(of: DnsListSubject, answers: &[&str]) -> DnsList {
        let answers = answers.iter().map(|text| AnswerPattern::parse(text).unwrap()).collect();
        DnsList::new("bl", "BL.Example.", of, answers, 1).unwrap()
    }

    fn asked(of: DnsListSubject, client: &str, session: (Option<&str>, &str, &str)) -> Option<String> {
        let (name, helo, sender) = session;
        let about = QueriedMail { client: client.parse().unwrap(), client_name: name.into(), helo, sender };
        list(of, &[]).question(&about).map(|question| question.name.into())
    }

    #[test]
    fn addresses_are_asked_in_reverse_as_rfc_5782_has_them() {
        let of = |client| asked(DnsListSubject::Client, client, (None, "", "")).unwrap();
        assert_eq!(of("192.0.2.99"), "99.2.0.192.bl.example");
        assert_eq!(of("::ffff:192.0.2.99"), "99.2.0.192.bl.example");
        // This is the example of section 2.4.
        assert_eq!(
            of("2001:db8:1:2:3:4:567:89ab"),
            "b.a.9.8.7.6.5.0.4.0.0.0.3.0.0.0.2.0.0.0.1.0.0.0.8.b.d.0.1.0.0.2.bl.example"
        );
    }

    #[test]
    fn names_are_asked_as_they_are_and_addresses_never_in_their_place() {
        let some = (Some("mx.a.test"), "helo.b.test", "c.test");
        assert_eq!(asked(DnsListSubject::ClientName, "192.0.2.1", some).as_deref(), Some("mx.a.test.bl.example"));
        assert_eq!(asked(DnsListSubject::Helo, "192.0.2.1", some).as_deref(), Some("helo.b.test.bl.example"));
        assert_eq!(asked(DnsListSubject::Sender, "192.0.2.1", some).as_deref(), Some("c.test.bl.example"));
        for helo in ["", "localhost", "[192.0.2.1]", "192.0.2.1", "a..b", "-a.test", "a:b.test"] {
            assert_eq!(asked(DnsListSubject::Helo, "192.0.2.1", (None, helo, "")), None, "{helo}");
        }
        let long = format!("{}test", "a.".repeat(120));
        assert_eq!(asked(DnsListSubject::Helo, "192.0.2.1", (None, &long, "")), None);
        assert_eq!(asked(DnsListSubject::ClientName, "192.0.2.1", (Some(""), "", "")), None);
    }

    #[test]
    fn only_the_answers_that_are_named_count_and_refusals_never() {
        let ip = |text: &str| text.parse::<Ipv4Addr>().unwrap();
        let read =
            |list: &DnsList, all: &[&str]| list.read(&DnsAnswer::Addresses(all.iter().map(|text| ip(text)).collect()));
        let (all, some) = (list(DnsListSubject::Client, &[]), list(DnsListSubject::Client, &["127.0.0.4-11"]));
        assert_eq!(read(&all, &["127.0.0.2"]), DnsListResult::Yes(ip("127.0.0.2")));
        assert_eq!(read(&all, &[]), DnsListResult::No);
        assert_eq!(read(&some, &["127.0.0.2"]), DnsListResult::No);
        assert_eq!(read(&some, &["127.0.0.2", "127.0.0.10"]), DnsListResult::Yes(ip("127.0.0.10")));
        assert!(matches!(read(&all, &["127.255.255.254"]), DnsListResult::Unanswered(_)));
        assert!(matches!(read(&all, &["127.0.0.1"]), DnsListResult::Unanswered(_)));
        assert!(matches!(read(&all, &["198.51.100.7"]), DnsListResult::Unanswered(_)));
        assert_eq!(all.read(&DnsAnswer::Unanswered("silent".into())), DnsListResult::Unanswered("silent".into()));
    }

    #[test]
    fn zones_are_domains() {
        let zone = |zone: &str| DnsList::new("x", zone, DnsListSubject::Client, Vec::new(), 1).is_ok();
        assert!(zone("zen.spamhaus.org") && zone("key_1.zen.dq.spamhaus.net."));
        assert!(!zone("") && !zone("zen") && !zone("[127.0.0.1]") && !zone("192.0.2.1"));
        assert!(!zone(&format!("{}example", "abcdefghi.".repeat(19))));
    }

    proptest! {
        #[test]
        fn what_is_asked_is_always_a_name(helo in "\\PC{0,80}", sender in "[a-z.\\-]{0,250}", v6: u128) {
            for of in [DnsListSubject::Client, DnsListSubject::Helo, DnsListSubject::Sender] {
                let about = QueriedMail { client: IpAddr::V6(v6.into()), client_name: crate::ClientName::Nameless, helo: &helo, sender: &sender };
                if let Some(question) = list(of, &[]).question(&about) {
                    prop_assert!(question.name.len() <= NAME_BYTES_MAX && question.name.ends_with(".bl.example"));
                    prop_assert!(question.name.split('.').all(|label| (1..=63).contains(&label.len())));
                }
            }
        }
    }
}
