//! A pending recipient as operators see it.

use serde::{Deserialize, Serialize};
use stentor_queue::ids::Ms;

#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum RecipientState {
    /// Not tried yet, or due.
    #[default]
    Waiting,
    InFlight,
    /// A clock holds it until `next_try`.
    Deferred,
    /// An operator or a rule holds the message.
    Held,
    /// An operator suspended its site, list or sender.
    Suspended,
    /// An operator or the configuration has it kept in the queue.
    QueueOnly,
    #[serde(other)]
    Other,
}

/// One pending recipient of a message.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct RecipientView {
    pub address: String,
    pub site: String,
    pub state: RecipientState,
    /// [`stentor_queue::cause::Cause::name`], and its words.
    pub cause: String,
    pub words: String,
    /// Since when the connection that is being made for it has been where `words` says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Ms>,
    pub next_try: Option<Ms>,
    pub last_reply: String,
}
