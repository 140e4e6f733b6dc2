//! Reservations: recipients that an operator's action takes out, kept from selection until the batch is durable or
//! refused.
//!
//! A reserved recipient is neither handed out nor failed, and stays where it is. If its turn for a transaction comes
//! meanwhile, it is marked as `met`, so that it becomes ready again if the batch is refused. A recipient in flight may
//! be reserved too: then it does not go a second time, however its transaction ends.

use stentor_queue::ids::MessageNo;
use stentor_queue::idset::IdSet;
use stentor_queue::message::Message;

use super::Messages;

impl Messages {
    /// Splits `ids` into recipients that may be taken out now and recipients in a transaction. Failed recipients whose
    /// report is being made, and those that another operator's action is taking out, are in neither.
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

    /// Reserves again those of `ids` that are still pending and no longer in a transaction, and returns them. They were
    /// reserved in a transaction, but another action on them may have ended, and free recipients without a reservation
    /// may be handed out at any moment. Recipients that failed in between are left to their report.
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

    /// Ends a reservation. Returns the recipients whose turn came meanwhile.
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
