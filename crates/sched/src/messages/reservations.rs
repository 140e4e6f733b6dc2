//! Recipients that an operator's action takes out: reserved from the selection until the batch is durable or refused.
//!
//! A reserved recipient is neither handed out nor failed, and stays where it is. If its turn for a transaction comes
//! meanwhile, it is marked as `met`, so that it becomes ready again if the batch is refused. A recipient in flight may be
//! reserved too: it then does not go a second time, however its transaction ends.

use stentor_queue::ids::MessageNo;
use stentor_queue::idset::IdSet;
use stentor_queue::message::Message;

use super::Messages;

impl Messages {
    /// Of `ids`, those that may be taken out now, and those in a transaction. Neither are those that failed and whose
    /// report is being made, and those that another verb is taking out.
    pub fn removable(&self, no: MessageNo, ids: &IdSet) -> (IdSet, IdSet) {
        if !self.is_live(no) {
            return (IdSet::new(), IdSet::new());
        }
        let mut free = ids.clone();
        let Some(active) = self.get(no) else { return (free, IdSet::new()) };
        if let Some(extra) = &active.extra {
            free.subtract(&extra.failing.ids);
            if let Some(reserved) = &extra.reserved {
                free.subtract(&reserved.ids);
            }
        }
        let in_flight = free.intersection(&active.in_flight);
        free.subtract(&in_flight);
        (free, in_flight)
    }

    pub fn reserve(&mut self, no: MessageNo, ids: &IdSet) {
        if !ids.is_empty()
            && let Some(active) = self.begin(no)
        {
            active.extra.get_or_insert_default().reserved.get_or_insert_default().ids.union_with(ids);
        }
    }

    /// Of recipients that were reserved in a transaction, those that none has any more and that are pending still. All of
    /// them are reserved again: another verb on them may have ended, and what is free and not reserved is handed out any
    /// moment. Not those that failed in between: they are left to their report.
    pub fn reserve_free(&mut self, no: MessageNo, message: &Message, ids: &IdSet) -> IdSet {
        if !self.is_live(no) {
            return IdSet::new();
        }
        let mut free = message.pending().intersection(ids);
        let active = self.get(no);
        if let Some(extra) = active.and_then(|active| active.extra.as_ref()) {
            free.subtract(&extra.failing.ids);
        }
        let in_flight = active.map_or_else(IdSet::new, |active| free.intersection(&active.in_flight));
        self.reserve(no, &free);
        free.subtract(&in_flight);
        free
    }

    /// Answers which of them had their turn meanwhile.
    pub fn end_reservation(&mut self, no: MessageNo, ids: &IdSet) -> IdSet {
        let Some(extra) = self.get_mut(no).and_then(|active| active.extra.as_mut()) else { return IdSet::new() };
        let Some(reserved) = extra.reserved.as_mut() else { return IdSet::new() };
        let met = reserved.met.intersection(ids);
        reserved.ids.subtract(ids);
        reserved.met.subtract(ids);
        if reserved.ids.is_empty() {
            extra.reserved = None;
        }
        met
    }
}
