//! Who archives a list's posts, as recipients of the copy for the archives.

use std::sync::Arc;

use stentor_config::{ArchiveTarget, ListConfig};

use crate::envelope::EnvelopeRcpt;
use crate::route::Route;

/// A list's archives.
#[derive(Default)]
pub struct ListArchives {
    /// Next hops, which get the posts for the list's address.
    pub at_hops: Vec<EnvelopeRcpt>,
    /// Addresses at other servers.
    pub at_addresses: Vec<EnvelopeRcpt>,
}

impl ListArchives {
    pub fn new(list: &ListConfig) -> ListArchives {
        let mut archives = ListArchives::default();
        for target in &list.archives {
            match target {
                ArchiveTarget::Hop(hop) => {
                    let address = list.list.settings().address.clone();
                    let route = Route { hop: Some(Arc::new(hop.clone())), ..Route::default() };
                    archives.at_hops.push(EnvelopeRcpt { route, ..EnvelopeRcpt::plain(address) });
                }
                ArchiveTarget::Address(address) => archives.at_addresses.push(EnvelopeRcpt::plain(address.clone())),
            }
        }
        archives
    }

    pub fn is_empty(&self) -> bool {
        self.at_hops.is_empty() && self.at_addresses.is_empty()
    }
}
