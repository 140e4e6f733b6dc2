//! The envelope's cold parts, packed: what an acceptance's record and a message in memory both keep as bytes.

use super::{Accept, EventError, MessageIdAt};
use crate::codec::{Reader, put_bytes, put_option, put_varint};

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
}

impl<'a> Envelope<'a> {
    /// Appends the packed form of an acceptance's cold parts.
    pub(crate) fn write(buf: &mut Vec<u8>, a: &Accept) {
        put_varint(buf, a.size);
        put_bytes(buf, a.sender.as_bytes());
        put_option(buf, a.list.as_deref());
        put_bytes(buf, &a.prefix);
        put_option(buf, a.envid.as_deref());
        let text = if a.message_id_at.is_none() { a.message_id.as_str() } else { "" };
        put_bytes(buf, text.as_bytes());
        put_bytes(buf, a.origin.as_bytes());
        if let Some(at) = a.message_id_at {
            put_varint(buf, u64::from(at.offset));
            put_varint(buf, u64::from(at.len));
        }
    }

    /// Reads the packed form; later versions may have more behind it.
    pub(crate) fn read(packed: &'a [u8]) -> Result<Envelope<'a>, EventError> {
        let mut r = Reader::new(packed);
        Ok(Envelope {
            size: r.varint()?,
            sender: r.text()?,
            list: r.option()?,
            prefix: r.bytes()?,
            envid: r.option()?,
            message_id: r.text()?,
            origin: r.text()?,
            message_id_at: if r.is_empty() {
                None
            } else {
                Some(MessageIdAt { offset: r.varint32()?, len: r.varint32()? })
            },
        })
    }
}
