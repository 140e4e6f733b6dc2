//! Limits learned from refusals: rate, connections, transactions per connection, recipients per transaction.

use stentor_queue::ids::Ms;

use super::FailureState;
use super::drains::{Drain, DrainWhat};
use crate::reasons::HostReply;
use crate::sites::path::{Path, RECIPIENTS_UNLIMITED};
use crate::sites::{Hop, Pick};
use crate::state::SchedState;

impl FailureState {
    /// Handles a rate reply: fewer messages at a time from now on.
    pub fn too_fast(&mut self, state: &mut SchedState, hop: Hop, reply: &HostReply, now: Ms) {
        state.note_reply(hop.site, reply);
        if state.cfg.strategies.adaptation {
            let path = state.path(hop.site, hop.source);
            path.too_fast(now);
            // Overdue mail there has had its chance with this attempt and expires together; otherwise only one message
            // would expire per pause.
            if path.pace.as_ref().is_some_and(|pace| pace.is_refused_again()) {
                self.drains.push_back(Drain::expired(DrainWhat::Site(hop.site, hop.source), reply));
            }
        }
    }
}

/// Handles 421 to a new connection beside `working` others of the path. The limit is the host's: if the site has
/// another host that may be tried, only this one gets no more connections than it has for a while.
pub fn host_full(state: &mut SchedState, hop: Hop, working: usize, reply: &HostReply, now: Ms) {
    let entry = state.sites.host(hop.host);
    let own = entry.conns;
    if own > 0 {
        entry.full(own, now);
    }
    if own > 0 && matches!(state.sites.pick(hop.site, hop.source, now, &mut state.rng), Pick::Target(_)) {
        state.note_reply(hop.site, reply);
    } else {
        crowded(state, hop, working, reply, now);
    }
}

/// Handles 421 to a connection beside `working` others.
pub fn crowded(state: &mut SchedState, hop: Hop, working: usize, reply: &HostReply, now: Ms) {
    state.note_reply(hop.site, reply);
    state.path(hop.site, hop.source).crowded(working, now);
}

/// Learns that the host takes no more than `good` transactions on a connection.
pub fn transactions_max(state: &mut SchedState, hop: Hop, good: u32, reply: &HostReply) {
    state.note_reply(hop.site, reply);
    let path = state.path(hop.site, hop.source);
    path.transactions_max = path.transactions_max.min(good.max(1));
}

/// Learns that the host accepted `taken` of a transaction's recipients and refused the others as too many.
pub fn recipients_max(path: &mut Path, recipients: usize, taken: usize) {
    // Refused again within the learned limit: then there is no fixed number to learn.
    let is_known = recipients <= path.recipients_max && path.recipients_max != RECIPIENTS_UNLIMITED;
    let max = if is_known { taken.min(recipients / 2).max(1) } else { taken };
    path.recipients_max = path.recipients_max.min(max);
}

/// Marks the path as suspect: one connection until something succeeds.
pub fn reduce_trust(state: &mut SchedState, hop: Hop, reply: &HostReply) {
    state.note_reply(hop.site, reply);
    state.path(hop.site, hop.source).distrust();
}
