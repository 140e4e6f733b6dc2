//! The packed envelope: the bytes that an `Accept` record and a message in memory share.

use stentor_mail::copy_request::has_request;

use crate::codec::{EventError, Reader, put_bytes, put_option, put_varint};
use crate::sender::Senders;

/// Position of the Message-ID in the content: its text is needed so rarely that it is not kept in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessageIdAt {
    /// Octets before the Message-ID.
    pub offset: u32,
    /// Length of the Message-ID in octets.
    pub len: u32,
}

impl MessageIdAt {
    /// Number of octets of the content that are searched for a Message-ID.
    const SEARCHED_BYTES_MAX: usize = 16 * 1024;

    /// Finds `text` near the beginning of `content`, octet for octet; `None` if it is not there (folded, too far).
    pub fn find(content: &[u8], text: &str) -> Option<MessageIdAt> {
        let searched = &content[..content.len().min(Self::SEARCHED_BYTES_MAX)];
        let offset = memchr::memmem::find(searched, text.as_bytes()).filter(|_| !text.is_empty())?;
        Some(MessageIdAt { offset: offset as u32, len: text.len() as u32 })
    }
}

/// The rarely used parts of the envelope, unpacked by reference.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Envelope<'a> {
    /// Octets on the wire.
    pub size: u64,
    /// Reverse path; empty for the null sender.
    pub sender: &'a str,
    pub list: Option<&'a str>,
    /// Header fields sent before the content.
    pub prefix: &'a [u8],
    pub envid: Option<&'a str>,
    /// The Message-ID; empty if there is none, or if it is in the content.
    pub message_id: &'a str,
    pub message_id_at: Option<MessageIdAt>,
    pub origin: &'a str,
    /// The sender that the client gave, if this server replaced it.
    pub given_sender: Option<&'a str>,
    /// Text of the rule that has held the message since its acceptance.
    pub held_by: Option<&'a str>,
    /// MAIL came with REQUIRETLS (RFC 8689).
    pub require_tls: bool,
    /// Octets of the recipients' merge values, behind the message in the content.
    pub merge_bytes: u64,
    /// A person asked for this mail: only suppressions for all mail apply.
    pub is_transactional: bool,
    /// A post's copy for the archives of `list`; its recipients are not subscribers.
    pub is_archive: bool,
}

/// Flag bits of the packed form.
const REQUIRE_TLS: u64 = 1;
/// The length of the merge values follows.
const MERGE: u64 = 2;
const TRANSACTIONAL: u64 = 4;
const ARCHIVE: u64 = 8;

impl<'a> Envelope<'a> {
    /// The senders by which people refer to the message.
    pub fn senders(&self) -> Senders<'a> {
        Senders { envelope: self.sender, given: self.given_sender }
    }

    /// The list whose subscribers get the message. `None` also for a copy for a list's archives.
    pub fn subscribers_list(&self) -> Option<&'a str> {
        self.list.filter(|_| !self.is_archive)
    }

    /// Whether the message asks that its copies differ, so that none is for two recipients.
    pub fn has_own_copies(&self) -> bool {
        self.merge_bytes > 0 || has_request(self.prefix)
    }

    /// Appends the packed form.
    pub(crate) fn write(&self, buf: &mut Vec<u8>) {
        put_varint(buf, self.size);
        put_bytes(buf, self.sender.as_bytes());
        put_option(buf, self.list);
        put_bytes(buf, self.prefix);
        put_option(buf, self.envid);
        put_bytes(buf, self.message_id.as_bytes());
        put_bytes(buf, self.origin.as_bytes());
        let flag = |is_set: bool, bit: u64| if is_set { bit } else { 0 };
        let flags = flag(self.require_tls, REQUIRE_TLS)
            | flag(self.merge_bytes > 0, MERGE)
            | flag(self.is_transactional, TRANSACTIONAL)
            | flag(self.is_archive, ARCHIVE);
        let has_more = self.given_sender.is_some() || self.held_by.is_some() || flags != 0;
        // An empty position: more fields follow, but there is no Message-ID in the content.
        if let Some(at) = self.message_id_at.or(has_more.then_some(MessageIdAt { offset: 0, len: 0 })) {
            put_varint(buf, u64::from(at.offset));
            put_varint(buf, u64::from(at.len));
        }
        if has_more {
            put_option(buf, self.given_sender);
            put_option(buf, self.held_by);
        }
        if flags != 0 {
            put_varint(buf, flags);
        }
        if self.merge_bytes > 0 {
            put_varint(buf, self.merge_bytes);
        }
    }

    /// Reads the packed form; later versions may append to it.
    pub(crate) fn read(packed: &'a [u8]) -> Result<Envelope<'a>, EventError> {
        let mut r = Reader::new(packed);
        let mut envelope = Envelope {
            size: r.varint()?,
            sender: r.text()?,
            list: r.option()?,
            prefix: r.bytes()?,
            envid: r.option()?,
            message_id: r.text()?,
            origin: r.text()?,
            ..Envelope::default()
        };
        if !r.is_empty() {
            let at = MessageIdAt { offset: r.varint32()?, len: r.varint32()? };
            envelope.message_id_at = Some(at).filter(|at| at.len > 0);
        }
        if !r.is_empty() {
            (envelope.given_sender, envelope.held_by) = (r.option()?, r.option()?);
        }
        if !r.is_empty() {
            let flags = r.varint()?;
            envelope.require_tls = flags & REQUIRE_TLS != 0;
            envelope.is_transactional = flags & TRANSACTIONAL != 0;
            envelope.is_archive = flags & ARCHIVE != 0;
            if flags & MERGE != 0 {
                envelope.merge_bytes = r.varint()?;
            }
        }
        Ok(envelope)
    }
}
