//! What a session (or a DSN) passes to the committer: one envelope becomes one queued message.

use std::borrow::Cow;
use std::sync::Arc;

use stentor_journal::RECORD_OVERHEAD_BYTES;
use stentor_mail::Class;
use stentor_mail::address::Address;
use stentor_mail::dsn::Ret;
use stentor_queue::event::{
    AcceptParts, MessageIdAt, RcptParams, accept_bytes_max, ids_bytes_max, intern_bytes_max, post_bytes_max,
};
use stentor_queue::ids::AddressId;
use stentor_queue::idset::IdSet;
use stentor_tls_policy::Wish;

use super::pins::Pin;
use super::route::Route;

/// Content in memory, shared between the committer and the following deliveries.
pub type ContentBytes = Arc<Vec<u8>>;

/// Recipients of an envelope. A list's subscribers are read when the batch is built, so they are those at acceptance.
#[derive(Clone)]
pub enum EnvelopeRecipients {
    List,
    /// So many addresses that they were interned beforehand, in batches of their own.
    Interned(IdSet, Vec<(AddressId, RcptParams)>, Pin),
    Addresses(Vec<EnvelopeRcpt>),
}

/// A recipient.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvelopeRcpt {
    pub address: Address,
    /// Where this copy goes.
    pub route: Route,
    pub params: RcptParams,
}

impl EnvelopeRcpt {
    pub fn plain(address: Address) -> EnvelopeRcpt {
        EnvelopeRcpt { address, route: Route::default(), params: RcptParams::default() }
    }

    /// Returns the text to intern.
    pub fn entry(&self) -> Cow<'_, str> {
        self.route.entry(self.address.as_str())
    }
}

impl EnvelopeRecipients {
    /// Returns the number of recipients, except for a list, whose subscribers are counted when the batch is built.
    pub fn count(&self) -> u64 {
        match self {
            EnvelopeRecipients::List => 0,
            EnvelopeRecipients::Interned(ids, ..) => ids.len() as u64,
            EnvelopeRecipients::Addresses(addresses) => addresses.len() as u64,
        }
    }
}

/// Facts about an acceptance that are reported but not stored.
#[derive(Clone, Debug)]
pub struct AcceptanceFacts {
    /// The matching policy rule, in words.
    pub policy: Cow<'static, str>,
    /// Recipients that the client or its lists named, and that were replaced here.
    pub named: Vec<Box<str>>,
    /// What rules did with the message, in words.
    pub marks: Cow<'static, str>,
    /// `ESMTP`, `SMTP`, `UTF8SMTP`, `HTTP`, or `local` for mail written by this server.
    pub proto: &'static str,
    /// TLS version and cipher of the client's session.
    pub tls: Option<(&'static str, &'static str)>,
}

impl AcceptanceFacts {
    /// `proto` of mail written by this server.
    pub const LOCAL: &str = "local";

    /// Facts of a message of our own; `what` is its kind.
    pub const fn local(what: &'static str) -> AcceptanceFacts {
        AcceptanceFacts {
            policy: Cow::Borrowed(what),
            named: Vec::new(),
            marks: Cow::Borrowed(""),
            proto: AcceptanceFacts::LOCAL,
            tls: None,
        }
    }
}

/// One message to be queued, with everything fixed at acceptance.
#[derive(Clone)]
pub struct NewEnvelope {
    /// Empty for the null reverse-path.
    pub sender: String,
    pub class: Class,
    pub list: Option<String>,
    pub recipients: EnvelopeRecipients,
    /// Header fields put before the content on the wire.
    pub prefix: Vec<u8>,
    pub eight_bit: bool,
    pub smtputf8: bool,
    pub ret: Option<Ret>,
    pub envid: Option<String>,
    /// The client's address, or `local`.
    pub origin: String,
    /// Value of the Message-ID header field; may be empty.
    pub message_id: String,
    /// Position of the Message-ID in the content, if known: then the text is only for the log.
    pub message_id_at: Option<MessageIdAt>,
    /// The message is a DSN of ours and is never bounced.
    pub is_report: bool,
    /// The sender that the client gave, if `sender` differs.
    pub given_sender: Option<String>,
    /// The rule that holds or quarantines the message, in words.
    pub held_by: Option<Box<str>>,
    /// MAIL was sent with REQUIRETLS (RFC 8689).
    pub require_tls: bool,
    /// A person asked for this mail: only suppressions for all mail apply.
    pub is_transactional: bool,
    /// A post's copy for the archives of `list`; its recipients are not subscribers.
    pub is_archive: bool,
    /// The message goes into the quarantine instead of the queue.
    pub is_quarantined: bool,
    pub taken: AcceptanceFacts,
}

impl NewEnvelope {
    /// Whether the message is held from acceptance on.
    pub fn is_held(&self) -> bool {
        self.held_by.is_some() && !self.is_quarantined
    }

    /// Requires REQUIRETLS of every host. Without this, mail from the null sender only uses it where a host offers it.
    #[must_use]
    pub fn held_to_tls(mut self) -> NewEnvelope {
        let wish = Wish { require_tls: true, tls_required_no: false };
        self.require_tls = true;
        if let EnvelopeRecipients::Addresses(all) = &mut self.recipients {
            for to in all {
                to.route.wish = wish;
            }
        }
        self
    }

    /// Returns an upper bound of the octets that its records take in a batch, not counting content. `list_ids` returns
    /// the octets of a list's subscribers, which only the committer knows.
    pub fn bytes_max(&self, list_ids: impl FnOnce(&str) -> usize) -> usize {
        let parts = AcceptParts {
            sender: &self.sender,
            list: self.list.as_deref(),
            prefix: &self.prefix,
            envid: self.envid.as_deref(),
            message_id: &self.message_id,
            origin: &self.origin,
            given_sender: self.given_sender.as_deref().unwrap_or_default(),
            held_by: self.held_by.as_deref().unwrap_or_default(),
        };
        let none = std::iter::empty();
        let records = match &self.recipients {
            EnvelopeRecipients::List => {
                accept_bytes_max(&parts, list_ids(self.list.as_deref().unwrap_or_default()), none)
            }
            EnvelopeRecipients::Interned(ids, params, _) => {
                accept_bytes_max(&parts, ids.part_bytes_max(), params.iter().map(|(_, params)| params))
            }
            EnvelopeRecipients::Addresses(addresses) => {
                accept_bytes_max(&parts, ids_bytes_max(addresses.len()), addresses.iter().map(|to| &to.params))
                    + intern_bytes_max(addresses.iter().map(|to| to.entry().len()))
            }
        };
        let post = if self.list.is_some() { RECORD_OVERHEAD_BYTES + post_bytes_max() } else { 0 };
        records + post + 2 * RECORD_OVERHEAD_BYTES
    }
}
