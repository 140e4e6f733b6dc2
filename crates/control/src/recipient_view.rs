//! A pending recipient as shown to operators.

use serde::{Deserialize, Serialize};
use stentor_queue::ids::Ms;

#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum RecipientState {
    /// Not tried yet, or due.
    #[default]
    Waiting,
    InFlight,
    /// Waiting for its retry clock, until `next_try`.
    Deferred,
    /// An operator or a rule holds the message.
    Held,
    /// An operator suspended its site, list or sender.
    Suspended,
    /// An operator or the configuration keeps it in the queue.
    QueueOnly,
    #[serde(other)]
    Other,
}

/// One pending recipient of a message.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct RecipientView {
    /// The recipient's address.
    pub address: String,
    pub site: String,
    /// `waiting`, `in_flight`, `deferred`, `held`, `suspended`, `queue_only`.
    pub state: RecipientState,
    /// The cause's name, see docs/operate/waiting.md.
    pub cause: String,
    pub words: String,
    /// When the connection being made for it reached the stage that `words` names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Ms>,
    pub next_try: Option<Ms>,
    pub last_reply: String,
}
