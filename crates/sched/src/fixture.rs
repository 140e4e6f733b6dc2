//! Messages for tests.

use stentor_queue::event::Accept;
use stentor_queue::ids::MessageId;

/// Builds a message with this id to these recipients.
pub fn accept(id: u64, recipients: &[u32]) -> Accept {
    Accept {
        size: 4096,
        sender: format!("sender{id}@example.org"),
        recipients: recipients.iter().copied().collect(),
        origin: "127.0.0.1".into(),
        ..Accept::bare(MessageId(id), 1_795_000_000_000 + id)
    }
}
