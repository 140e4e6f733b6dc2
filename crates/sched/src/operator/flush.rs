//! Flushes: "try now" for a site or for everything. Clocks of hosts end at once, all others as the calendar is
//! searched.

use stentor_queue::ids::{AddressId, DomainId, Ms, SiteId};
use stentor_queue::store::Store;

use crate::Scheduler;
use crate::domains::Domains;
use crate::timers::Timer;

/// Slots of the calendar searched per tick.
const FLUSH_SLOTS_MAX: u32 = 64;

/// A flush in progress.
pub struct Flush {
    site: Option<SiteId>,
    /// The next slot to search.
    slot: u64,
}

impl Scheduler {
    /// Tries everything of a site now: ends the clocks of its hosts and of the mail that waits for it. The next ticks
    /// do the work.
    pub fn flush_site(&mut self, site: SiteId) {
        if site.0 as usize >= self.state.sites.list.len() {
            return;
        }
        self.state.sites.end_host_clocks(site);
        self.state.sites.refresh(site, true);
        self.operator.flushes.push_back(Flush { site: Some(site), slot: 0 });
    }

    /// Looks a domain up now whose lookup waits for its clock.
    pub fn flush_domain(&mut self, domain: DomainId, now: Ms) {
        let now = self.steady(now);
        self.domains.end_clock(&mut self.state, domain, now);
    }

    /// Tries everything now.
    pub fn flush_all(&mut self) {
        for site in 0..self.state.sites.list.len() {
            self.state.sites.end_host_clocks(SiteId(site as u32));
            self.state.sites.refresh(SiteId(site as u32), true);
        }
        self.operator.flushes.push_back(Flush { site: None, slot: 0 });
    }

    /// Continues with the first flush.
    pub(crate) fn flush_on(&mut self, store: &Store, now: Ms) {
        let Some(mut flush) = self.operator.flushes.pop_front() else { return };
        let (domains, failure, timers) = (&mut self.domains, &mut self.failure, &mut self.state.timers);
        let at_site = |site: Option<SiteId>, domain: Option<DomainId>, domains: &Domains| {
            site.is_none() || domain.and_then(|d| domains.peek(d)).is_some_and(|d| d.site == site)
        };
        for _ in 0..FLUSH_SLOTS_MAX {
            let mut hastened = Vec::new();
            let next = timers.hasten(flush.slot, |timer| {
                let domain_of = |id: AddressId| store.book.try_domain(id);
                let site_of = |slot| failure.deferrals.get(slot).map(|deferral| deferral.site);
                let chosen = match timer {
                    Timer::Mailbox(id) | Timer::Recipient(_, id) => at_site(flush.site, domain_of(id), domains),
                    Timer::Deferral(slot) => flush.site.is_none() || site_of(slot) == flush.site,
                    Timer::Domain(_) => flush.site.is_none(),
                    _ => false,
                };
                if chosen {
                    hastened.push(timer);
                }
                chosen
            });
            for timer in hastened {
                match timer {
                    Timer::Mailbox(id) => failure.mailboxes.hasten(id),
                    Timer::Recipient(no, id) => failure.recipients.hasten(no, id),
                    Timer::Deferral(slot) => failure.deferrals.hasten(slot, now),
                    Timer::Domain(domain) => domains.hasten(domain),
                    _ => {}
                }
            }
            let Some(slot) = next else { return };
            flush.slot = slot;
        }
        self.operator.flushes.push_front(flush);
    }
}
