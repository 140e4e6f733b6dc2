//! Whose histories the log does not have: sets of ids. `store/histories.rs` writes them.

use super::AddressBook;
use crate::idset::IdSet;

/// Ids of one kind.
#[derive(Debug, Default)]
pub(crate) struct Changed {
    /// Since the last turn began.
    new: IdSet,
    /// Of the turn that is under way.
    saving: IdSet,
    /// Since their page was written.
    newer_than_page: IdSet,
}

impl Changed {
    #[inline]
    pub fn changed(&mut self, id: u32) {
        self.new.insert(id);
        self.newer_than_page.insert(id);
    }

    pub fn forget(&mut self, id: u32) {
        for set in [&mut self.new, &mut self.saving, &mut self.newer_than_page] {
            set.remove(id);
        }
    }

    pub fn begin(&mut self) {
        if self.saving.is_empty() {
            self.saving = std::mem::take(&mut self.new);
        }
    }

    pub fn take(&mut self, max: usize) -> IdSet {
        let taken: IdSet = self.saving.iter().take(max).collect();
        self.saving.subtract(&taken);
        taken
    }

    pub fn is_saving(&self) -> bool {
        !self.saving.is_empty()
    }

    pub fn not_saved(&mut self, ids: &IdSet) {
        self.new.union_with(ids);
    }

    /// Up to `max` whose histories are newer than their pages, from `from` on; where the next begins.
    pub fn newer(&self, from: u32, max: usize) -> (IdSet, Option<u32>) {
        let newer = &self.newer_than_page;
        let mut all = from.checked_sub(1).map_or_else(|| newer.iter(), |after| newer.iter_from(after));
        let ids = all.by_ref().take(max).collect();
        (ids, all.next())
    }
}

/// What the log does not have, of both kinds.
#[derive(Debug, Default)]
pub(crate) struct Unsaved {
    pub addresses: Changed,
    pub domains: Changed,
}

impl AddressBook {
    pub(crate) fn unsaved(&mut self) -> &mut Unsaved {
        &mut self.unsaved
    }

    /// A checkpoint has written a page of addresses with their histories.
    pub(crate) fn page_written(&mut self, page: usize) {
        let ids: IdSet = self.page_of_ids(page).collect();
        self.unsaved.addresses.newer_than_page.subtract(&ids);
    }

    pub(crate) fn site_page_written(&mut self, page: usize) {
        let ids: IdSet = self.page_of_domains(page).collect();
        self.unsaved.domains.newer_than_page.subtract(&ids);
    }

    /// The name of a domain that has addresses, and its history.
    pub(crate) fn named_site(&self, id: u32) -> Option<(&str, &super::SiteHistory)> {
        let domain = self.domains.get(id as usize).filter(|domain| !domain.ids.is_empty())?;
        Some((&domain.name, &domain.history))
    }
}
