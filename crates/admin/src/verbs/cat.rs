//! `stentor queue cat`: a message's content as stored, in pieces, so that memory stays bounded if the peer does not
//! read. The control socket decides who may ask; reading a body is recorded.

use std::sync::Arc;

use stentor_control::{ControlReply, ErrorCode, Part, Requester};
use stentor_core::stored_message::StoredMessage;
use stentor_core::{Core, log};
use stentor_queue::ids::MessageId;
use stentor_queue::store::KeptPost;
use tokio::sync::mpsc;

use super::author::who;

const PIECE_BYTES: usize = 64 * 1024;
/// The end of a header (RFC 5322 section 2.1).
const EMPTY_LINE: &[u8; 4] = b"\r\n\r\n";

pub async fn cat(
    core: &Arc<Core>,
    id: MessageId,
    part: Part,
    peer: &Requester,
    pieces: mpsc::Sender<Vec<u8>>,
) -> ControlReply {
    let found = core.with(|hub, _| {
        let queued = hub.store.no_of(id).and_then(|no| hub.store.message(no));
        let message = queued.or_else(|| hub.store.in_quarantine(id));
        let message = message.or_else(|| hub.store.post(id).map(KeptPost::message))?;
        Some((message.prefix().to_vec(), StoredMessage::of(message)))
    });
    let Some((prefix, stored)) = found else {
        return ControlReply::error(
            ErrorCode::NotFound,
            format!("no message {id} is in the queue, the quarantine or among the kept posts"),
        );
    };
    if part != Part::Header {
        log::audit_note(core, "cat", &who(peer), &format!("{id} with its body"));
    }
    let mut cut = PartCutter::new(part);
    let (mut sent, mut at, mut piece) = (0, 0, prefix);
    loop {
        let wanted = cut.wanted(&piece).to_vec();
        sent += wanted.len() as u64;
        if !wanted.is_empty() && pieces.send(wanted).await.is_err() || cut.is_over() {
            break;
        }
        match read(core, stored, at).await {
            Ok(read) if read.is_empty() => break,
            Ok(read) => {
                at += read.len() as u64;
                piece = read;
            }
            Err(error) => {
                let text = format!("message {id} cannot be read completely (it may have left the queue): {error}");
                return ControlReply::error(ErrorCode::Failed, text);
            }
        }
    }
    ControlReply::done(format!("{sent} octets"), Some(sent))
}

/// Reads the next octets on the blocking pool.
async fn read(core: &Arc<Core>, stored: StoredMessage, at: u64) -> std::io::Result<Vec<u8>> {
    let core = core.clone();
    let read = tokio::task::spawn_blocking(move || {
        let mut piece = vec![0; PIECE_BYTES];
        let n = stored.read_at(&core.reader, at, &mut piece)?;
        piece.truncate(n);
        Ok(piece)
    });
    read.await.unwrap_or_else(|error| Err(std::io::Error::other(error)))
}

/// Cuts a part out of a content that comes in pieces.
struct PartCutter {
    part: Part,
    /// Octets of the empty line matched so far; all of them once the header has ended.
    matched: usize,
}

impl PartCutter {
    /// A content may begin with the empty line, if it has no header.
    fn new(part: Part) -> PartCutter {
        PartCutter { part, matched: 2 }
    }

    /// The octets of the next piece that belong to the part. The empty line belongs to the header.
    fn wanted<'p>(&mut self, piece: &'p [u8]) -> &'p [u8] {
        let mut end = 0;
        while end < piece.len() && self.matched < EMPTY_LINE.len() {
            let octet = piece[end];
            let goes_on = octet == EMPTY_LINE[self.matched];
            self.matched = if goes_on { self.matched + 1 } else { usize::from(octet == EMPTY_LINE[0]) };
            end += 1;
        }
        match self.part {
            Part::Header => &piece[..end],
            Part::Body => &piece[end..],
            Part::All => piece,
        }
    }

    /// Whether the rest is not needed.
    fn is_over(&self) -> bool {
        self.part == Part::Header && self.matched == EMPTY_LINE.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(part: Part, content: &[u8], size: usize) -> String {
        let mut cut = PartCutter::new(part);
        let pieces = content.chunks(size).map(|piece| cut.wanted(piece).to_vec());
        String::from_utf8(pieces.collect::<Vec<_>>().concat()).unwrap()
    }

    #[test]
    fn header_and_body_are_told_apart_wherever_pieces_end() {
        let content = b"A: 1\r\nB: 2\r\r\n\r\nbody\r\n\r\nmore\r\n";
        for size in 1..=content.len() {
            assert_eq!(cut(Part::Header, content, size), "A: 1\r\nB: 2\r\r\n\r\n");
            assert_eq!(cut(Part::Body, content, size), "body\r\n\r\nmore\r\n");
            assert_eq!(cut(Part::All, content, size).len(), content.len());
            assert_eq!(cut(Part::Body, b"\r\nonly a body", size), "only a body");
            assert_eq!(cut(Part::Body, b"A: only a header\r\n", size), "");
        }
    }
}
