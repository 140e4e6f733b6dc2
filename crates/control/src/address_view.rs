//! One address as operators see it: the reply to `address`.

use serde::{Deserialize, Serialize};
use stentor_queue::ids::Ms;

use super::recipient_view::RecipientView;

/// `stentor address ADDR`.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct AddressView {
    pub address: String,
    pub now: Ms,
    /// What the address resolves to here, in words; empty if its mail goes to the domain's hosts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub here: Vec<String>,
    /// Its number in the address book.
    pub id: u32,
    pub domain: String,
    /// Where the domain is at, once looked up.
    pub site: Option<String>,
    /// Lists that have it as a subscriber.
    pub lists: Vec<String>,
    /// Of those, the lists of which it gets nothing until it is resumed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub suspended: Vec<String>,
    /// Messages that wait for it, and the queue ids of the oldest.
    pub messages_total: u64,
    pub messages: Vec<String>,
    /// The oldest of them: how it waits for this address, and the last reply of a host or our reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<RecipientView>,
    pub mailbox: MailboxHistoryView,
    pub hosts: HostsHistoryView,
}

/// History of a mailbox; `None` means never or nothing.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct MailboxHistoryView {
    pub last_seen: Option<Ms>,
    /// `untried`, `delivered`, `deferred`, `refused`; empty: the address is not in the address book.
    pub last: String,
    /// At most 255.
    pub deliveries: u8,
    pub xdelay_ms: Option<Ms>,
    /// Permanent ones since the last delivery, at most 255.
    pub refusals: u8,
    pub refused_since: Option<Ms>,
}

/// History of the hosts of a domain.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct HostsHistoryView {
    pub last_success: Option<Ms>,
    pub last_failure: Option<Ms>,
    /// Attempts, halved every seven days.
    pub answered: u32,
    pub failed: u32,
    pub xdelay_ms: Option<Ms>,
    pub p99_ms: Option<Ms>,
    /// The most with which an attempt went well.
    pub connections: u16,
}
