//! One address as shown to operators: the reply to `address`.

use serde::{Deserialize, Serialize};
use stentor_queue::ids::Ms;

use super::recipient_view::RecipientView;

/// The reply to `stentor address ADDR`.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct AddressView {
    pub address: String,
    pub now: Ms,
    /// Targets of the address here, in words; empty if its mail goes to the domain's hosts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub here: Vec<String>,
    /// Its number in the address book.
    pub id: u32,
    pub domain: String,
    /// The site of its domain, once looked up.
    pub site: Option<String>,
    /// Lists with this address as a subscriber.
    pub lists: Vec<String>,
    /// Lists whose mail to it is suspended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub suspended: Vec<String>,
    /// Number of messages waiting for it, and the queue ids of the oldest.
    pub messages_total: u64,
    pub messages: Vec<String>,
    /// The oldest of them: its state for this address, and the last reply of a host or our reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<RecipientView>,
    pub mailbox: MailboxHistoryView,
    pub hosts: HostsHistoryView,
}

/// History of a mailbox; `None` means that it never happened.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct MailboxHistoryView {
    pub last_seen: Option<Ms>,
    /// `untried`, `delivered`, `deferred`, `refused`; empty if the address is not in the address book.
    pub last: String,
    /// Saturates at 255.
    pub deliveries: u8,
    pub xdelay_ms: Option<Ms>,
    /// Permanent refusals since the last delivery; saturates at 255.
    pub refusals: u8,
    pub refused_since: Option<Ms>,
}

/// History of a domain's hosts.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct HostsHistoryView {
    pub last_success: Option<Ms>,
    pub last_failure: Option<Ms>,
    /// Answered attempts, halved every seven days.
    pub answered: u32,
    pub failed: u32,
    pub xdelay_ms: Option<Ms>,
    pub p99_ms: Option<Ms>,
    /// The most connections with which an attempt succeeded.
    pub connections: u16,
}
