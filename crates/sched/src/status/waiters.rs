//! Counts the recipients that wait at a domain for its hosts: those that would go if a host could be reached.
//!
//! Promise: the count runs in slices. It leaves out recipients that are held, suspended or queue-only, by the judgement
//! that the census shares, and those that wait for their own clock: a greylisted recipient, a full mailbox. Mail that
//! comes or goes between two slices may or may not be counted.

use stentor_queue::ids::{AddressId, DomainId, MessageNo, Ms};
use stentor_queue::store::Store;

use super::attempt::Attempts;
use crate::Scheduler;
use crate::domains::Domain;

/// Recipients that bitmap arithmetic handles in the time of one step.
const AT_A_STEP: usize = 16;

/// A count of one domain's waiting recipients.
pub struct Waiters {
    pub domain: DomainId,
    pub count: u64,
    /// The last message counted, in `bulk` and then in `explicit`.
    message: Option<u32>,
    in_explicit: bool,
}

impl Waiters {
    pub fn at(domain: DomainId) -> Waiters {
        Waiters { domain, count: 0, message: None, in_explicit: false }
    }

    fn next(&mut self, domain: &Domain) -> Option<MessageNo> {
        loop {
            let set = if self.in_explicit { &domain.explicit } else { &domain.bulk };
            self.message = self.message.map_or_else(|| set.min(), |after| set.iter_from(after).next());
            if self.message.is_some() || self.in_explicit {
                return self.message.map(MessageNo);
            }
            self.in_explicit = true;
        }
    }
}

impl Scheduler {
    /// Continues counting, for about `steps` messages. Returns whether all have been counted.
    pub fn count_waiters(&self, store: &Store, waiters: &mut Waiters, steps: &mut usize, now: Ms) -> bool {
        let Some(domain) = self.domains.peek(waiters.domain) else { return true };
        let (attempts, now) = (self.attempts(domain.site), self.steady(now));
        while *steps > 0 {
            let Some(no) = waiters.next(domain) else { return true };
            let count = self.waiters_of(store, no, waiters, domain, &attempts, now);
            waiters.count += count as u64;
            *steps = steps.saturating_sub(1 + count / AT_A_STEP);
        }
        false
    }

    fn waiters_of(
        &self,
        store: &Store,
        no: MessageNo,
        waiters: &Waiters,
        domain: &Domain,
        attempts: &Attempts,
        now: Ms,
    ) -> usize {
        let Some(message) = store.message(no).filter(|_| self.state.messages.is_live(no)) else { return 0 };
        let (here, pending) = (store.book.addresses_of(waiters.domain), message.pending());
        let Some(any) = here.min().map(AddressId) else { return 0 };
        let of_message = self.of_message(store, no, message);
        let at = domain.site.map(|site| self.at_site(site, of_message.sources, attempts, now));
        if self.kept(&of_message, any, at.as_ref()).is_some() {
            return 0;
        }
        if waiters.in_explicit {
            self.waits.lists.get(&(waiters.domain, no)).map_or(0, |list| list.len_of(pending))
        } else {
            here.intersection_len(pending)
        }
    }
}
