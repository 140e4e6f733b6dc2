//! Chooses the next transaction among a host's offers: messages of senders that other hosts of the site have refused.

use stentor_queue::ids::MessageNo;

use super::{Choice, TakenRecipients};
use crate::STEPS_MAX;
use crate::effects::Ids;
use crate::failure::deferrals::DeferralKey;
use crate::sites::Hop;

/// Steps charged for a choice that led to no transaction, since it looked at many messages.
const CHOICE_STEPS: u32 = STEPS_MAX / 64;

impl Choice<'_> {
    pub(super) fn select_offered(&mut self, hop: Hop, max: usize) -> Option<(MessageNo, Ids)> {
        let (site, mut steps) = (hop.site, STEPS_MAX);
        while steps > 0 {
            steps -= 1;
            let deferrals = &mut self.failure.deferrals;
            let (slot, at) = deferrals.offered(self.state, hop, self.now)?;
            let next = deferrals.next_for(self.state, self.store, slot, at, hop, self.now);
            let deferral = deferrals.get_mut(slot)?;
            let Some((at, no)) = next else {
                steps = steps.saturating_sub(CHOICE_STEPS);
                deferral.waiters.retain(|(.., set)| !set.is_empty());
                continue;
            };
            let (flow, class, mut set) = deferral.waiters.remove(at);
            set.remove(no.0);
            if !set.is_empty() {
                // Let the other flows go first.
                deferral.waiters.push((flow, class, set));
            }
            // It may have got a flow of its own since it came here.
            let (class, flow) = self.state.messages.class_and_flow(no).unwrap_or((class, flow));
            let own = deferrals.slot(site, DeferralKey::Message(no));
            let is_kept = own.is_some_and(|own| deferrals.keeps_at(own, flow, class, no, self.now));
            if is_kept || self.is_stopped(site, no) {
                steps = steps.saturating_sub(CHOICE_STEPS);
                continue;
            }
            self.state.sites.get(site).lines.insert(flow, class, no);
            let mut taken = TakenRecipients::up_to(max, &mut steps);
            self.gather(site, no, &mut taken);
            let ids = taken.ids;
            if !ids.is_empty() {
                self.failure.deferrals.began(self.state, slot, hop.host, self.now);
            }
            if self.state.waits_in_line(site, no) {
                self.failure.deferrals.keeps_back(self.state, self.store, site, no, self.now);
            }
            if !ids.is_empty() {
                let offers = &mut self.state.sites.get(site).offers;
                if let Some(offers) = offers.iter_mut().find(|offers| offers.host == hop.host) {
                    offers.last = slot;
                }
                return Some((no, ids));
            }
        }
        self.state.sites.mark_dirty(site);
        None
    }
}
