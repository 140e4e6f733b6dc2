//! A message of our own (a report, a note) on its way into the queue.
//!
//! Promise: whatever its size, it goes in by pieces as a client's does, so that no batch is too small for it; what was stored
//! of one that is refused is dropped again.

use std::sync::Arc;

use stentor_queue::ids::{ContentId, MessageId};
use tokio::sync::oneshot;

use super::Core;
use super::envelope::NewEnvelope;
use super::intake::{Job, Refused, Settled, Submission};
use super::memory::PIECE_BYTES;

/// Makes it durable, together with the fates that it tells of.
///
/// # Errors
/// It is not stored, and nothing is settled.
pub async fn hand_in(
    core: &Core,
    (first, content): (MessageId, ContentId),
    body: Vec<u8>,
    envelope: NewEnvelope,
    settles: Vec<Settled>,
) -> Result<(), Refused> {
    let size = body.len() as u64;
    let mut last = body;
    if size > PIECE_BYTES {
        let whole = std::mem::take(&mut last);
        let mut pieces = whole.chunks(PIECE_BYTES as usize);
        last = pieces.next_back().unwrap_or_default().to_vec();
        for piece in pieces {
            let (answer, ticket) = oneshot::channel();
            core.intake.push(Job::Piece { content, bytes: piece.to_vec(), answer });
            if let Err(refused) = ticket.await.unwrap_or(Err(Refused::Stopping)) {
                core.intake.push(Job::Drop { content });
                return Err(refused);
            }
        }
    }
    let envelopes = vec![envelope];
    let submission = Submission { first, content, last: Arc::new(last), size, envelopes, settles, told: None };
    let (answer, ticket) = oneshot::channel();
    core.intake.push(Job::Accept { submission, answer });
    ticket.await.unwrap_or(Err(Refused::Stopping))
}
