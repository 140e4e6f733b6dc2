//! Reads a stored content again and rewrites it, header first, with the changes of milters or with edited fields.
//!
//! Promise: a message is written piece by piece, and only if it changes.
//!
//! Failure: it cannot be read back or written; the content must then be dropped.

use std::io;

use stentor_mail::reply::{Enhanced, Reply};
use stentor_mime::field::Edit;
use stentor_smtp::server::{EndOfData, TextBody};

use crate::protocol::{CHUNK_BYTES_MAX, HEADER_BYTES_MAX, Header, HeaderReader};

/// Size of the first read: most messages are not longer, and need no buffer of the maximum size.
pub(crate) const FIRST_BYTES: usize = 16 * 1024;
/// Size of a piece of a new body or message.
pub(crate) const PIECE_BYTES: usize = 256 * 1024;
/// Octets that milters may add to a message of the maximum size.
pub(crate) const GROWTH_BYTES: u64 = 2 * HEADER_BYTES_MAX as u64;
const UNREADABLE: Reply =
    Reply::fixed(451, Enhanced::new(4, 3, 0), "The message could not be read back, try again later");
pub(crate) const TOO_LARGE: Reply = Reply::fixed(552, Enhanced::new(5, 3, 4), "Message header too large");

/// A message's content, which can be rewritten while it is read.
pub trait Content: Send {
    /// Reads octets from `at` on; returns 0 at the end.
    ///
    /// # Errors
    /// It cannot be read back.
    fn read_at(&self, at: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// Reserves memory in addition to the content's.
    ///
    /// # Errors
    /// There is none: the refusal.
    fn hold(&mut self, bytes: usize) -> Result<(), Reply>;

    /// Writes the next piece of a new content; the old one can still be read.
    fn write(&mut self, piece: Vec<u8>) -> impl Future<Output = Result<(), Reply>> + Send;

    /// Replaces the content by the pieces written, followed by `last`.
    fn replace(&mut self, last: Vec<u8>);

    /// Discards the pieces written.
    fn forget(&mut self);
}

pub(crate) fn unreadable(error: &io::Error) -> Reply {
    tracing::error!(%error, "a message could not be read back for milters or rules");
    UNREADABLE
}

/// The message as the next milter sees it.
pub(crate) struct Message {
    pub header: Header,
    /// Offset of the body in the content.
    pub body_at: u64,
    pub has_new_header: bool,
    pub has_new_body: bool,
}

impl Message {
    /// Reads the header, once and not beyond its end.
    pub fn read<C: Content>(content: &mut C, ours: usize, buffer: &mut [u8]) -> Result<Message, Reply> {
        let (mut reader, mut at) = (HeaderReader::new(ours), 0);
        loop {
            let read = content.read_at(at, buffer).map_err(|error| unreadable(&error))?;
            let is_over = reader.push(&buffer[..read]).map_err(|_| TOO_LARGE)?;
            content.hold(buffer.len() + reader.held_bytes())?;
            if is_over || read == 0 {
                break;
            }
            at += read as u64;
        }
        let (header, body_at) = reader.finish();
        Ok(Message { header, body_at: body_at as u64, has_new_header: false, has_new_body: false })
    }

    /// Writes header and body in their present state.
    pub async fn write<C: Content>(
        &self,
        content: &mut C,
        size_max: u64,
        buffer: &mut [u8],
    ) -> Result<EndOfData, Reply> {
        let octets = self.header.octets();
        let (lead, rest) = octets.split_at(self.header.lead());
        let mut text = TextBody::new(lead.to_vec(), size_max.saturating_add(GROWTH_BYTES), PIECE_BYTES);
        text.push(rest)?;
        text.push(b"\r\n")?;
        let mut at = self.body_at;
        loop {
            if let Some(piece) = text.full_piece() {
                content.write(piece).await?;
            }
            let read = content.read_at(at, buffer).map_err(|error| unreadable(&error))?;
            if read == 0 {
                break;
            }
            text.push(&buffer[..read])?;
            at += read as u64;
        }
        let end = text.finish()?;
        content.replace(Vec::new());
        Ok(end)
    }
}

/// Reads a chunk of a body; if the body fills the buffer, it grows to the maximum.
pub(crate) fn next_chunk<C: Content>(content: &C, at: u64, buffer: &mut Vec<u8>) -> io::Result<usize> {
    let mut read = content.read_at(at, buffer)?;
    if read == buffer.len() && read < CHUNK_BYTES_MAX {
        buffer.resize(CHUNK_BYTES_MAX, 0);
        read += content.read_at(at + read as u64, &mut buffer[read..])?;
    }
    Ok(read)
}

/// Edits a message's fields: `edit` decides about each, given name and value. The first `ours` fields, before the
/// message, are kept. `None`: nothing changes.
///
/// # Errors
/// It cannot be read back or written; the content must then be dropped.
pub async fn edit_fields<C: Content>(
    content: &mut C,
    ours: usize,
    size_max: u64,
    edit: impl FnMut(&[u8], &[u8]) -> Edit,
) -> Result<Option<EndOfData>, Reply> {
    let mut buffer = vec![0; FIRST_BYTES];
    let mut message = Message::read(content, ours, &mut buffer)?;
    if message.header.edit(edit).map_err(|_| TOO_LARGE)? == 0 {
        return Ok(None);
    }
    message.write(content, size_max, &mut buffer).await.map(Some)
}

/// Calls `see` with name and value of each field of a message's header, including those before the message.
///
/// # Errors
/// It cannot be read back.
pub fn each_field<C: Content>(content: &mut C, mut see: impl FnMut(&[u8], &[u8])) -> Result<(), Reply> {
    let mut buffer = vec![0; FIRST_BYTES];
    let message = Message::read(content, 0, &mut buffer)?;
    message.header.all().for_each(|(name, value)| see(name, &value));
    Ok(())
}
