//! Adds recipients that may be sent to the places where they wait.

use stentor_queue::ids::{AddressId, DomainId, MessageNo, SiteId};

use super::Choice;
use super::waits::{ReadyList, WaitingDomains};
use crate::flows::FlowNo;

/// Where a recipient was entered, and what the caller must do next.
pub enum Placement {
    Nowhere,
    /// The message is new at the domain and must be linked to the domain's site.
    Domain(DomainId, usize),
    /// The recipient waits at the site, which may need a connection.
    Site(SiteId),
}

impl Choice<'_> {
    /// Enters a recipient that may be sent to as soon as there is a connection.
    pub fn enter(&mut self, no: MessageNo, id: AddressId) -> Placement {
        let Some((class, flow)) = self.state.messages.class_and_flow(no) else { return Placement::Nowhere };
        // An address that has been forgotten since has nothing pending.
        let Some(domain) = self.store.book.try_domain(id) else { return Placement::Nowhere };
        self.waits.lists.get_or_insert_with((domain, no), ReadyList::default).ids.push(id);
        let entry = self.domains.get(domain);
        if entry.explicit.insert(no.0) {
            return Placement::Domain(domain, class);
        }
        let site = entry.site;
        match site {
            Some(site)
                if !self.bounce_at(domain, no)
                    && !self.state.keep_if_held(site, no)
                    && !self.state.keeps_at_domain(self.store, Some(site), domain, no) =>
            {
                self.stand_in_line(site, no, flow, class, false);
                Placement::Site(site)
            }
            _ => Placement::Nowhere,
        }
    }

    /// Enters (site, message): untouched recipients of a domain, or a list. `passes`: a run of the queue lets the
    /// message pass.
    pub fn wait_at(&mut self, site: SiteId, domain: DomainId, no: MessageNo, class: usize, passes: bool) {
        if !passes && self.state.keeps_at_domain(self.store, Some(site), domain, no) {
            return;
        }
        let is_held = self.state.keep_if_held(site, no);
        if let Some(flow) = self.state.messages.flow(no).filter(|_| !is_held) {
            self.stand_in_line(site, no, flow, class, passes);
        }
        let entry = self.state.sites.get(site);
        if entry.domains.len() > 1 {
            self.waits.at_sites.get_or_insert_with((site, no), WaitingDomains::new).push(domain);
        }
    }

    /// Puts the message in the site's line, behind its deferral, or aside; no connection is opened to find that out.
    fn stand_in_line(&mut self, site: SiteId, no: MessageNo, flow: FlowNo, class: usize, passes: bool) {
        let may_be_deferred = self.state.sites.get(site).deferrals > 0;
        if may_be_deferred && self.failure.deferrals.keeps_back(self.state, self.store, site, no, self.now) {
            return;
        }
        if passes {
            self.state.sites.get(site).lines.insert_passing(flow, class, no);
        } else if !self.state.keep_if_queue_only(self.store, site, no) {
            self.state.enter_line(site, flow, class, no);
        }
    }
}
