//! Knows which submissions have become messages, even if the queue has dropped those because all their recipients had a
//! fate.
//!
//! A file is removed after its message is durable, and the removal is durable a moment later. A server that ends in
//! between finds the file again under its queue id. Promise: if the journal still has the acceptance, or an outcome, of
//! that id, [`AcceptedIds::has`] reports it. The journal keeps it at least until a later checkpoint is complete.

use std::collections::HashSet;
use std::path::Path;

use stentor_queue::event::message_of;
use stentor_queue::ids::MessageId;

use crate::folder::Folder;

/// Queue ids under which messages were accepted.
#[derive(Debug, Default)]
pub struct AcceptedIds {
    /// Ids of files that the last server run left behind, and of reports and partial messages that it was about to
    /// make.
    asked: HashSet<MessageId>,
    found: HashSet<MessageId>,
}

impl AcceptedIds {
    /// Collects the ids to look for from this folder, before the journal is read. Unreadable files are ignored.
    pub fn ask(folder: Option<&Path>) -> AcceptedIds {
        let Some(folder) = folder.map(Folder::at) else { return AcceptedIds::default() };
        let mut asked: HashSet<MessageId> =
            folder.taken().unwrap_or_default().into_iter().map(|file| file.id).collect();
        let _ = folder.each_reported(|stem, _| {
            let reported = folder.reported(stem).unwrap_or_default();
            asked.extend(reported.under_way.iter().map(|(id, _)| *id));
            Ok(())
        });
        AcceptedIds { asked, found: HashSet::new() }
    }

    /// Processes a record of the journal.
    pub fn hear(&mut self, record: &[u8]) {
        if !self.asked.is_empty()
            && let Some(id) = message_of(record)
            && self.asked.contains(&id)
        {
            self.found.insert(id);
        }
    }

    /// Adds a message accepted now, whose file is to be removed.
    pub(crate) fn add(&mut self, id: MessageId) {
        self.found.insert(id);
    }

    pub(crate) fn has(&self, id: MessageId) -> bool {
        self.found.contains(&id)
    }

    /// Forgets all ids: the files of accepted messages are durably removed.
    pub(crate) fn clear(&mut self) {
        *self = AcceptedIds::default();
    }
}
