//! Causes of failed deliveries, and whose fault each is.
//!
//! Only [`FaultParty::Person`] may count against a subscriber: a person does not answer for our reputation, content and
//! rate, nor for the trouble of a host. The names are interfaces: rules files, JSON and commands have them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why a recipient did not get a message.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BounceCause {
    /// The mailbox does not exist, or has moved.
    NoMailbox,
    /// The mailbox is over its quota.
    Full,
    /// The mailbox exists but is disabled, suspended or inactive.
    Disabled,
    /// The domain does not exist, or accepts no mail.
    NoHost,
    /// The host did not answer in time.
    Unreachable,
    /// The host is broken, overloaded or misconfigured.
    HostTrouble,
    /// The host accepts the message at a later attempt.
    Greylisting,
    /// Our address or domain is on a block list, or has a bad reputation.
    Reputation,
    /// The content was taken for spam, a virus or malformed.
    Content,
    /// A policy of the host or the recipient, including authentication of the sender.
    Policy,
    /// Too many messages, recipients or connections.
    Rate,
    /// The message is too large.
    Size,
    /// TLS failed, or is required.
    Tls,
    #[default]
    Unknown,
}

/// The party that can end the failure.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultParty {
    Person,
    Host,
    Us,
    Unknown,
}

impl BounceCause {
    pub const ALL: [BounceCause; 14] = [
        BounceCause::NoMailbox,
        BounceCause::Full,
        BounceCause::Disabled,
        BounceCause::NoHost,
        BounceCause::Unreachable,
        BounceCause::HostTrouble,
        BounceCause::Greylisting,
        BounceCause::Reputation,
        BounceCause::Content,
        BounceCause::Policy,
        BounceCause::Rate,
        BounceCause::Size,
        BounceCause::Tls,
        BounceCause::Unknown,
    ];

    /// Name in rules files, JSON and commands.
    pub fn name(self) -> &'static str {
        match self {
            BounceCause::NoMailbox => "no_mailbox",
            BounceCause::Full => "full",
            BounceCause::Disabled => "disabled",
            BounceCause::NoHost => "no_host",
            BounceCause::Unreachable => "unreachable",
            BounceCause::HostTrouble => "host_trouble",
            BounceCause::Greylisting => "greylisting",
            BounceCause::Reputation => "reputation",
            BounceCause::Content => "content",
            BounceCause::Policy => "policy",
            BounceCause::Rate => "rate",
            BounceCause::Size => "size",
            BounceCause::Tls => "tls",
            BounceCause::Unknown => "unknown",
        }
    }

    /// The inverse of [`BounceCause::name`].
    pub fn named(name: &str) -> Option<BounceCause> {
        BounceCause::ALL.into_iter().find(|cause| cause.name() == name)
    }

    pub fn fault(self) -> FaultParty {
        match self {
            BounceCause::NoMailbox | BounceCause::Full | BounceCause::Disabled | BounceCause::NoHost => {
                FaultParty::Person
            }
            BounceCause::Unreachable | BounceCause::HostTrouble | BounceCause::Greylisting => FaultParty::Host,
            BounceCause::Reputation
            | BounceCause::Content
            | BounceCause::Policy
            | BounceCause::Rate
            | BounceCause::Size
            | BounceCause::Tls => FaultParty::Us,
            BounceCause::Unknown => FaultParty::Unknown,
        }
    }

    /// Whether the failure may count against the subscriber.
    pub fn counts_against_person(self) -> bool {
        self.fault() == FaultParty::Person
    }
}

impl fmt::Display for BounceCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FaultParty {
    pub fn name(self) -> &'static str {
        match self {
            FaultParty::Person => "person",
            FaultParty::Host => "host",
            FaultParty::Us => "us",
            FaultParty::Unknown => "unknown",
        }
    }
}

impl fmt::Display for FaultParty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_faults_of_the_person_count() {
        let counted: Vec<&str> =
            BounceCause::ALL.iter().filter(|cause| cause.counts_against_person()).map(|cause| cause.name()).collect();
        assert_eq!(counted, ["no_mailbox", "full", "disabled", "no_host"]);
    }

    #[test]
    fn names_are_those_of_serde() {
        for cause in BounceCause::ALL {
            assert_eq!(serde_json::to_string(&cause).unwrap(), format!("\"{}\"", cause.name()));
        }
    }
}
