//! What a session (or a bounce) hands to the committer: one envelope becomes one queued message.

use std::borrow::Cow;
use std::sync::Arc;

use stentor_mail::address::Address;
use stentor_queue::event::{Class, MessageIdAt, RcptParams, Ret};
use stentor_queue::ids::AddressId;
use stentor_queue::idset::IdSet;

use super::forget::Pin;

/// Content in memory, shared between the committer and the deliveries that follow.
pub type Body = Arc<Vec<u8>>;

/// To whom. A list's subscribers are taken when the batch is built: as they are at the post's acceptance.
pub enum Recipients {
    List,
    /// So many that they were interned ahead, in batches of their own.
    Interned(IdSet, Vec<(AddressId, RcptParams)>, Pin),
    Addresses(Vec<(Address, RcptParams)>),
}

/// What is told of an acceptance and kept nowhere else.
#[derive(Clone, Debug)]
pub struct Taken {
    /// What of the policy matched, in words.
    pub policy: Cow<'static, str>,
    /// `ESMTP`, `SMTP`, `UTF8SMTP`, `HTTP`, or `local` for what we wrote ourselves.
    pub proto: &'static str,
}

impl Taken {
    /// A message of our own, and what it is.
    pub const fn local(what: &'static str) -> Taken {
        Taken { policy: Cow::Borrowed(what), proto: "local" }
    }
}

/// One queued message to be: everything that is frozen at acceptance.
pub struct NewEnvelope {
    /// Empty for the null reverse-path.
    pub sender: String,
    pub class: Class,
    pub list: Option<String>,
    pub recipients: Recipients,
    /// Header fields put before the content at the wire.
    pub prefix: Vec<u8>,
    pub eight_bit: bool,
    pub smtputf8: bool,
    pub ret: Option<Ret>,
    pub envid: Option<String>,
    /// The client's address, or `local`.
    pub origin: String,
    /// The Message-ID header field's value; may be empty.
    pub message_id: String,
    /// Its place in the content, if known: then the text is for the log alone.
    pub message_id_at: Option<MessageIdAt>,
    /// A delivery report of ours: never bounced.
    pub is_report: bool,
    pub taken: Taken,
}

impl NewEnvelope {
    pub fn has_recipients(&self) -> bool {
        !matches!(&self.recipients, Recipients::Addresses(addresses) if addresses.is_empty())
    }

    /// About what the journal will need for it, beyond the content.
    pub fn bytes(&self) -> usize {
        let recipients = match &self.recipients {
            // A bitmap over a million addresses, at the most.
            Recipients::List => 128 * 1024,
            Recipients::Interned(ids, params, _) => {
                ids.heap_bytes() + params.iter().map(|(_, params)| cost(params)).sum::<usize>()
            }
            Recipients::Addresses(addresses) => {
                addresses.iter().map(|(to, params)| to.as_str().len() + cost(params)).sum()
            }
        };
        128 + self.sender.len() + self.prefix.len() + recipients
    }
}

/// Octets of one recipient beside its address.
fn cost(params: &RcptParams) -> usize {
    24 + params.orcpt.as_ref().map_or(0, String::len)
}
