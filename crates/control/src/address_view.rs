//! One address as shown to operators: the reply to `address`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use stentor_queue::ids::Ms;

use super::recipient_view::RecipientView;
use super::suppression_view::SuppressionView;

/// The reply to `stentor address ADDR`.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct AddressView {
    /// The address in canonical form.
    pub address: String,
    pub now: Ms,
    /// Targets of the address here, in words; empty if its mail goes to the domain's hosts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub here: Vec<String>,
    /// Its number in the address book.
    pub id: u32,
    /// Its domain.
    pub domain: String,
    /// The site of its domain, once looked up.
    pub site: Option<String>,
    /// Lists with this address as a subscriber.
    pub lists: Vec<String>,
    /// Lists whose mail to it is suspended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub suspended: Vec<String>,
    /// Why, by list, if a reason is known.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub suspended_reasons: BTreeMap<String, String>,
    /// Suppressions of the address and of its domain.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub suppressions: Vec<SuppressionView>,
    /// Number of messages waiting for it.
    pub messages_total: u64,
    /// Queue ids of the 50 oldest.
    pub messages: Vec<String>,
    /// The oldest of them: its state for this address, and the last reply of a host or our reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<RecipientView>,
    /// History of the mailbox.
    pub mailbox: MailboxHistoryView,
    /// History of the domain's hosts.
    pub hosts: HostsHistoryView,
}

/// History of a mailbox; `None` means that it never happened.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct MailboxHistoryView {
    /// When a message last named the address, or it was last tried.
    pub last_seen: Option<Ms>,
    /// `untried`, `delivered`, `deferred`, `refused`; empty if the address is not in the address book.
    pub last: String,
    /// Saturates at 255.
    pub deliveries: u8,
    pub xdelay_ms: Option<Ms>,
    /// Permanent refusals since the last delivery; saturates at 255.
    pub refusals: u8,
    /// When the first of these refusals came.
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
    /// Failed attempts, halved every seven days.
    pub failed: u32,
    pub xdelay_ms: Option<Ms>,
    /// 99 % of the last attempts took at most this long.
    pub p99_ms: Option<Ms>,
    /// The most connections with which an attempt succeeded.
    pub connections: u16,
}
