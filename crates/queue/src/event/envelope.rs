//! The packed envelope: the bytes that an acceptance's record and a message in memory have in common.

use crate::codec::{EventError, Reader, put_bytes, put_option, put_varint};
use crate::sender::Senders;

/// Where the Message-ID stands in the content: it is wanted so seldom that its text is not kept in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MessageIdAt {
    /// Octets before it.
    pub offset: u32,
    /// Octets of it.
    pub len: u32,
}

impl MessageIdAt {
    /// Octets of the content in which a Message-ID is looked for.
    const SEARCHED_BYTES_MAX: usize = 16 * 1024;

    /// Where `text` stands near the begin of `content`, octet for octet; `None` if it does not (folded, too far).
    pub fn find(content: &[u8], text: &str) -> Option<MessageIdAt> {
        let searched = &content[..content.len().min(Self::SEARCHED_BYTES_MAX)];
        let offset = memchr::memmem::find(searched, text.as_bytes()).filter(|_| !text.is_empty())?;
        Some(MessageIdAt { offset: offset as u32, len: text.len() as u32 })
    }
}

/// The envelope's cold parts, unpacked by reference.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Envelope<'a> {
    /// Octets at the wire.
    pub size: u64,
    /// Reverse path; empty for the null sender.
    pub sender: &'a str,
    pub list: Option<&'a str>,
    /// Header fields that go before the content at the wire.
    pub prefix: &'a [u8],
    pub envid: Option<&'a str>,
    /// Empty if it has none, or if it is in the content.
    pub message_id: &'a str,
    pub message_id_at: Option<MessageIdAt>,
    pub origin: &'a str,
    /// The sender that the client gave, where this server has put another in its place.
    pub given_sender: Option<&'a str>,
    /// The rule that has it held from its acceptance on, in words.
    pub held_by: Option<&'a str>,
    /// MAIL came with REQUIRETLS (RFC 8689).
    pub require_tls: bool,
}

/// What an envelope says beside its texts.
const REQUIRE_TLS: u64 = 1;

impl<'a> Envelope<'a> {
    /// By which people ask for its mail.
    pub fn senders(&self) -> Senders<'a> {
        Senders { envelope: self.sender, given: self.given_sender }
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
        let has_more = self.given_sender.is_some() || self.held_by.is_some() || self.require_tls;
        // One of no octets: what follows is there, and it is not.
        if let Some(at) = self.message_id_at.or(has_more.then_some(MessageIdAt { offset: 0, len: 0 })) {
            put_varint(buf, u64::from(at.offset));
            put_varint(buf, u64::from(at.len));
        }
        if has_more {
            put_option(buf, self.given_sender);
            put_option(buf, self.held_by);
        }
        if self.require_tls {
            put_varint(buf, REQUIRE_TLS);
        }
    }

    /// Reads the packed form; later versions may have more behind it.
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
            envelope.require_tls = r.varint()? & REQUIRE_TLS != 0;
        }
        Ok(envelope)
    }
}
