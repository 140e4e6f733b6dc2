//! Finds a list's subscribers in this server's own domains, who may be aliases of others.
//!
//! Promise: the cost depends on the number of such subscribers, not on the size of the list. The configured domains are
//! looked up in the address book, and each costs one intersection of bitmaps. Only if tables define further domains is
//! each domain of the list looked at. These are gathered once per version of the subscribers file, in slices of the
//! hub's lock.
//!
//! Failure: if a table cannot be asked about a domain, the domain is treated as remote, and its subscribers get their
//! posts from its hosts.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use stentor_mail::address::Address;
use stentor_queue::ids::{AddressId, DomainId};
use stentor_queue::idset::IdSet;
use stentor_queue::store::ListState;

use super::{Core, Settings};

/// Addresses or domains processed under one hold of the hub's lock.
const AT_ONCE: usize = 2048;

#[derive(Default)]
pub struct LocalMembers {
    gathered: Mutex<HashMap<Arc<str>, ListDomains>>,
}

/// The domains of a list's subscribers.
struct ListDomains {
    version: u64,
    stamp: String,
    domains: Arc<[Box<str>]>,
}

impl LocalMembers {
    /// Returns the list's subscribers in this server's domains, except suspended ones.
    pub async fn of(&self, core: &Arc<Core>, settings: &Settings, list: &Arc<str>) -> Vec<Address> {
        let rules = &settings.rules;
        let mut domains: Vec<Box<str>> = Vec::new();
        if rules.has_domains_in_tables() {
            let tables = settings.tables.questions();
            for (n, domain) in self.domains(core, list).await.iter().enumerate() {
                if n % AT_ONCE == AT_ONCE - 1 {
                    tokio::task::yield_now().await;
                }
                if tables.settle(|tables| rules.stands_here(domain, tables)).await {
                    domains.push(domain.clone());
                }
            }
        } else {
            domains.extend(rules.own_domains().map(Into::into));
        }
        let mut ids = IdSet::new();
        for part in domains.chunks(AT_ONCE) {
            core.with(|hub, _| {
                let (Some(list), book) = (hub.store.list(list), &hub.store.book) else { return };
                for id in part.iter().filter_map(|domain| book.domain_lookup(domain)) {
                    ids.union_with(&book.addresses_of(id).intersection(&list.ids));
                }
            });
        }
        let ids: Vec<u32> = ids.iter().collect();
        let mut all = Vec::with_capacity(ids.len());
        for part in ids.chunks(AT_ONCE) {
            core.with(|hub, _| {
                let (Some(current), book) = (hub.store.list(list), &hub.store.book) else { return };
                // An id is only certain to be the same address while the list contains it.
                let there = part.iter().filter(|id| current.ids.contains(**id)).map(|id| book.text(AddressId(*id)));
                let gets = |text: &&str| !hub.store.is_suspended(&format!("subscriber:{list}:{text}"));
                all.extend(there.filter(gets).filter_map(|text| text.parse::<Address>().ok()));
            });
        }
        all
    }

    async fn domains(&self, core: &Arc<Core>, list: &Arc<str>) -> Arc<[Box<str>]> {
        // Cloning this copies no ids.
        let Some(ListState { version, stamp, ids }) = core.with(|hub, _| hub.store.list(list).cloned()) else {
            return Arc::default();
        };
        let is_current = |known: &&ListDomains| known.version == version && known.stamp == stamp;
        if let Some(known) = self.gathered.lock().get(list).filter(is_current) {
            return known.domains.clone();
        }
        let ids: Vec<u32> = ids.iter().collect();
        let (mut seen, mut names): (HashSet<DomainId>, Vec<Box<str>>) = (HashSet::new(), Vec::new());
        for part in ids.chunks(AT_ONCE) {
            core.with(|hub, _| {
                let book = &hub.store.book;
                for domain in part.iter().filter_map(|id| book.try_domain(AddressId(*id))) {
                    if seen.insert(domain) {
                        names.push(book.domain_name(domain).into());
                    }
                }
            });
            tokio::task::yield_now().await;
        }
        let domains: Arc<[Box<str>]> = names.into();
        self.gathered.lock().insert(list.clone(), ListDomains { version, stamp, domains: domains.clone() });
        domains
    }
}
