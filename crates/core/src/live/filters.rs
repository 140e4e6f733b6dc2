//! Counters for watchers of one list or one site. Without watchers, an event costs one look at a number.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use stentor_queue::site::Endpoint;
use stentor_records::now::Totals;

/// Counters of one watcher, for events that match all given criteria.
#[derive(Default)]
pub struct Filter {
    list: Option<String>,
    /// The hosts of the site, which may change.
    hosts: Option<Mutex<Vec<Endpoint>>>,
    pub totals: Totals,
}

impl Filter {
    pub fn new(list: Option<String>, hosts: Option<Vec<Endpoint>>) -> Filter {
        Filter { list, hosts: hosts.map(Mutex::new), totals: Totals::default() }
    }

    /// Replaces the site's hosts.
    pub fn set_hosts(&self, now: &[Endpoint]) {
        if let Some(hosts) = &self.hosts {
            now.clone_into(&mut hosts.lock());
        }
    }

    /// Whether an event matches. An acceptance has no host yet, so a site's filter counts none.
    pub fn is_of(&self, list: Option<&str>, host: Option<&Endpoint>) -> bool {
        let list_fits = self.list.as_deref().is_none_or(|wanted| list == Some(wanted));
        list_fits && self.hosts.as_ref().is_none_or(|hosts| host.is_some_and(|host| hosts.lock().contains(host)))
    }
}

#[derive(Default)]
pub struct Filters {
    count: AtomicUsize,
    /// At most as many as there are watchers.
    all: Mutex<Vec<Weak<Filter>>>,
}

impl Filters {
    pub fn are_there(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Adds a filter, which counts for as long as the caller keeps it.
    pub fn add(&self, filter: Filter) -> Arc<Filter> {
        let filter = Arc::new(filter);
        let mut all = self.all.lock();
        all.retain(|filter| filter.strong_count() > 0);
        all.push(Arc::downgrade(&filter));
        self.count.store(all.len(), Ordering::Relaxed);
        filter
    }

    /// Removes filters that nobody keeps.
    pub fn prune(&self) {
        if self.are_there() {
            let mut all = self.all.lock();
            all.retain(|filter| filter.strong_count() > 0);
            self.count.store(all.len(), Ordering::Relaxed);
        }
    }

    pub fn each<R>(&self, mut see: impl FnMut(&Filter) -> R) {
        for filter in self.all.lock().iter().filter_map(Weak::upgrade) {
            see(&filter);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_site_has_the_hosts_that_it_was_given_last() {
        let host = |last: u8| Endpoint::by_port(([127, 0, 0, last], 25));
        let filter = Filter::new(None, Some(vec![host(1)]));
        filter.set_hosts(&[host(2), host(3)]);
        let counted = [1, 2, 3].map(|last| filter.is_of(Some("news"), Some(&host(last))));
        assert_eq!(counted, [false, true, true]);
        assert!(!filter.is_of(None, None), "an acceptance is at no host yet");
    }
}
