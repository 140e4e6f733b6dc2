//! Which submissions have become messages, as far as the queue does not know any more: all of their recipients had their fate.
//!
//! A file is removed after its message is durable, and its removal is durable a moment later. A server that ends in between finds the file again under
//! its queue id. Promise: if the journal still has the acceptance, or an outcome, of that id, [`Accepted::has`] says so. The journal
//! keeps it at least until a later checkpoint is complete.

use std::collections::HashSet;
use std::path::Path;

use stentor_queue::event::message_of;
use stentor_queue::ids::MessageId;

use crate::folder::Folder;

/// Queue ids under which messages were accepted.
#[derive(Debug, Default)]
pub struct Accepted {
    /// Ids of files that the server left when it ended, and of reports and parts of submissions that it was about to make.
    asked: HashSet<MessageId>,
    found: HashSet<MessageId>,
}

impl Accepted {
    /// For the files in this folder, before the journal is read. Of one that cannot be read nothing is known.
    pub fn ask(folder: Option<&Path>) -> Accepted {
        let Some(folder) = folder.map(Folder::at) else { return Accepted::default() };
        let mut asked: HashSet<MessageId> =
            folder.taken().unwrap_or_default().into_iter().map(|file| file.id).collect();
        let _ = folder.each_reported(|stem, _| {
            let reported = folder.reported(stem).unwrap_or_default();
            asked.extend(reported.under_way.iter().map(|(id, _)| *id));
            Ok(())
        });
        Accepted { asked, found: HashSet::new() }
    }

    /// A record of the journal.
    pub fn hear(&mut self, record: &[u8]) {
        if !self.asked.is_empty()
            && let Some(id) = message_of(record)
            && self.asked.contains(&id)
        {
            self.found.insert(id);
        }
    }

    /// One was accepted now; its file is to go.
    pub(crate) fn add(&mut self, id: MessageId) {
        self.found.insert(id);
    }

    pub(crate) fn has(&self, id: MessageId) -> bool {
        self.found.contains(&id)
    }

    /// All files of accepted messages are gone for good.
    pub(crate) fn clear(&mut self) {
        *self = Accepted::default();
    }
}
