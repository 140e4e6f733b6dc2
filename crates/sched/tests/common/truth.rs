//! Checks that all views agree at any instant: each pending recipient's own status against the census (by site, or
//! domain without one, by list, message and cause), and both against the store's counts.

use std::collections::BTreeMap;

use stentor_queue::cause::Cause;
use stentor_queue::ids::{AddressId, DomainId, Ms};
use stentor_queue::store::Store;
use stentor_sched::{CauseCounts, Census, RecipientPlace, Scheduler, WaitingPlace};

/// Events between two checks: a prime, so that they meet all kinds.
const EVERY: u32 = 97;

/// Running totals of the checks.
#[derive(Default)]
pub struct Truth {
    /// The world's seed, for failure messages.
    seed: u64,
    events: u32,
    pub checks: u64,
    pub recipients: u64,
    pub by_cause: BTreeMap<&'static str, u64>,
    /// Recipients in quarantine, summed over all checks.
    pub quarantined: u64,
}

type Causes = BTreeMap<Cause, u64>;

impl Truth {
    pub fn new(seed: u64) -> Truth {
        Truth { seed, ..Truth::default() }
    }

    /// Counts an event. Returns whether a check was due.
    pub fn event(&mut self, sched: &Scheduler, store: &Store, now: Ms) -> bool {
        self.events += 1;
        let is_time = self.events.is_multiple_of(EVERY);
        if is_time {
            self.check(sched, store, now);
        }
        is_time
    }

    fn check(&mut self, sched: &Scheduler, store: &Store, now: Ms) {
        let (mut sites, mut lists) = (BTreeMap::<WaitingPlace, Causes>::new(), BTreeMap::<&str, Causes>::new());
        let (mut total, mut unknown) = (Causes::new(), 0);
        for (no, message) in store.messages() {
            let mut own = Causes::new();
            for id in message.pending() {
                let status = sched.recipient_status(store, no, AddressId(id), now);
                if status.state == RecipientPlace::Unknown {
                    unknown += 1;
                    continue;
                }
                assert!(
                    status.next_try.is_none_or(|at| at > now),
                    "seed {}: a next try in the past: {status:?}",
                    self.seed
                );
                *own.entry(status.cause).or_default() += 1;
                let at = status
                    .site
                    .map_or_else(|| WaitingPlace::Domain(store.book.domain(AddressId(id))), WaitingPlace::Site);
                *sites.entry(at).or_default().entry(status.cause).or_default() += 1;
                *self.by_cause.entry(status.cause.name()).or_default() += 1;
            }
            let (mut counts, mut after) = (CauseCounts::default(), None);
            while !sched.causes_of(store, no, &mut after, 3, now, |_, _, count| counts.add(count)) {}
            assert_eq!(causes(&counts), own, "seed {}: message {no:?}", self.seed);
            for (cause, count) in own {
                *total.entry(cause).or_default() += count;
                let list = message.list().unwrap_or_default();
                *lists.entry(list).or_default().entry(cause).or_default() += count;
            }
        }
        let mut census = Census::default();
        while !census.step(sched, store, 7, now) {}
        assert_eq!(causes(&census.total), total, "seed {}", self.seed);
        let counted = census.total.recipients() + unknown;
        assert_eq!(counted, store.pending(), "seed {}: each pending recipient has one cause", self.seed);
        let counted = census.sites().map(|(site, counts)| (WaitingPlace::Site(site), causes(counts)));
        let unresolved = census.unresolved().map(|(domain, counts)| (WaitingPlace::Domain(domain), causes(counts)));
        assert_eq!(unresolved.chain(counted).collect::<BTreeMap<_, _>>(), sites, "seed {}", self.seed);
        let counted = census.lists.iter().map(|(list, counts)| (&**list, causes(counts)));
        assert_eq!(counted.collect::<BTreeMap<_, _>>(), lists, "seed {}", self.seed);
        if unknown == 0 && !store.is_counting() {
            by_domain(sched, store, &sites);
        }
        self.checks += 1;
        self.recipients += census.total.recipients();
    }
}

/// Checks the store's own counts, which have no causes.
fn by_domain(sched: &Scheduler, store: &Store, sites: &BTreeMap<WaitingPlace, Causes>) {
    let mut waiting = BTreeMap::<WaitingPlace, u64>::new();
    for domain in (0..store.book.domains() as u32).map(DomainId) {
        let at = sched.site_of(domain).map_or(WaitingPlace::Domain(domain), WaitingPlace::Site);
        *waiting.entry(at).or_default() += u64::from(store.waiting_at(domain));
    }
    waiting.retain(|_, count| *count > 0);
    let sums = sites.iter().map(|(site, causes)| (*site, causes.values().sum::<u64>()));
    assert_eq!(sums.collect::<BTreeMap<_, _>>(), waiting);
}

fn causes(counts: &CauseCounts) -> Causes {
    counts.causes.iter().map(|count| (count.cause, count.recipients)).collect()
}
