//! Sets of ids whose latest histories are not in the log. `store/histories.rs` writes them.

use super::AddressBook;
use crate::idset::IdSet;

/// Changed ids of one kind.
#[derive(Debug, Default)]
pub(crate) struct ChangedIds {
    /// Changed since the last turn began.
    new: IdSet,
    /// To be written in the current turn.
    saving: IdSet,
    /// Changed since their page was written.
    newer_than_page: IdSet,
}

impl ChangedIds {
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

    /// Up to `max` ids, from `from` on, whose histories are newer than their pages, and where the next batch begins.
    pub fn newer(&self, from: u32, max: usize) -> (IdSet, Option<u32>) {
        let newer = &self.newer_than_page;
        let mut all = from.checked_sub(1).map_or_else(|| newer.iter(), |after| newer.iter_from(after));
        let ids = all.by_ref().take(max).collect();
        (ids, all.next())
    }
}

/// Ids of both kinds whose histories are not in the log.
#[derive(Debug, Default)]
pub(crate) struct UnsavedHistories {
    pub addresses: ChangedIds,
    pub domains: ChangedIds,
}

impl AddressBook {
    pub(crate) fn unsaved(&mut self) -> &mut UnsavedHistories {
        &mut self.unsaved
    }

    /// Called when a checkpoint has written a page of addresses with their histories.
    pub(crate) fn page_written(&mut self, page: usize) {
        let ids: IdSet = self.page_of_ids(page).collect();
        self.unsaved.addresses.newer_than_page.subtract(&ids);
    }

    pub(crate) fn site_page_written(&mut self, page: usize) {
        let ids: IdSet = self.page_of_domains(page).collect();
        self.unsaved.domains.newer_than_page.subtract(&ids);
    }

    /// Name and history of a domain that has addresses.
    pub(crate) fn named_site(&self, id: u32) -> Option<(&str, &super::DomainHistory)> {
        let domain = self.domains.get(id as usize).filter(|domain| !domain.ids.is_empty())?;
        Some((&domain.name, &domain.history))
    }
}
