//! The octets of a message in the journal: the content without our prefix before it and without the recipients' merge
//! values behind it.

use std::io;

use stentor_journal::ContentReader;
use stentor_queue::ids::ContentId;
use stentor_queue::message::Message;

/// Where a message's octets are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredMessage {
    pub content: ContentId,
    /// Octets of the message.
    pub len: u64,
}

impl StoredMessage {
    pub fn of(message: &Message) -> StoredMessage {
        let envelope = message.envelope();
        StoredMessage { content: message.content(), len: envelope.size.saturating_sub(envelope.prefix.len() as u64) }
    }

    /// Reads octets from a position; 0 at the end of the message. Blocks.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn read_at(self, reader: &ContentReader, at: u64, piece: &mut [u8]) -> io::Result<usize> {
        let wanted = (piece.len() as u64).min(self.len.saturating_sub(at)) as usize;
        if wanted == 0 { Ok(0) } else { reader.read_at(self.content.0, at, &mut piece[..wanted]) }
    }
}
