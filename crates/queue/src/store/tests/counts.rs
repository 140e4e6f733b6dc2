//! Checks the counts of waiting messages and recipients against the messages themselves.

use stentor_mail::Class;

use super::*;
use crate::ids::DomainId;
use crate::store::Largest;

const ADDRESSES: u32 = 6_000;

fn assert_counted(store: &mut Store) {
    while store.is_counting() {
        store.count_on(700);
    }
    let mut wanted = (vec![0u32; ADDRESSES as usize], vec![0u32; store.book.domains()]);
    for (_, message) in store.messages() {
        for id in message.pending() {
            wanted.0[id as usize] += 1;
            wanted.1[store.book.domain(AddressId(id)).0 as usize] += 1;
        }
    }
    assert!((0..ADDRESSES).all(|id| store.waiting_for(AddressId(id)) == wanted.0[id as usize]));
    assert!((0..wanted.1.len()).all(|id| store.waiting_at(DomainId(id as u32)) == wanted.1[id]));
    let octets: u64 = store.messages().map(|(_, message)| message.size()).sum();
    assert_eq!(store.octets(), octets);
    assert_sized(store);
}

/// The walk from the largest down shows each message of several recipients once, class by class.
fn assert_sized(store: &Store) {
    let (mut walk, mut seen, mut class) = (Largest::default(), Vec::new(), Vec::new());
    let mut least = usize::MAX;
    while let Some(is_through) =
        store.largest_step(&mut walk, 7, |no, message| class.push((message.pending().len(), no)))
    {
        if is_through {
            assert!(class.iter().all(|(pending, _)| *pending < least), "classes do not overlap");
            least = class.iter().map(|(pending, _)| *pending).min().unwrap_or(least);
            seen.append(&mut class);
        }
    }
    seen.sort_unstable();
    let pending = store.messages().map(|(no, message)| (message.pending().len(), no));
    let mut all: Vec<_> = pending.filter(|(pending, _)| *pending > 1).collect();
    all.sort_unstable();
    assert_eq!(seen, all);
    let bulk = store.messages().filter(|(_, message)| message.class() == Class::Bulk);
    assert_eq!(store.pending_bulk(), bulk.map(|(_, message)| message.pending().len() as u64).sum::<u64>());
    let (from, until) = store.number_bounds();
    for at in [0, 1_795_000_000_150, 1_795_000_000_151, u64::MAX] {
        let first = store.messages().find(|(_, message)| message.accepted() >= at).map_or(until, |(no, _)| no.0);
        let found = store.first_where(from, until, |message| message.accepted() >= at);
        assert!(
            found <= first && store.messages_between(found, until).map(|(no, _)| no.0).next().unwrap_or(until) == first
        );
    }
}

#[test]
fn counts_agree_with_the_messages_whatever_is_counted_when() {
    let mut rng = fastrand::Rng::with_seed(5);
    let mut store = with_addresses(ADDRESSES);
    for id in 1..=400u64 {
        // Small messages are counted at once, large ones in slices, while some of their recipients end.
        let wanted = if rng.u8(..) < 16 { rng.usize(1_025..5_000) } else { rng.usize(1..40) };
        let recipients: Vec<u32> = (0..wanted).map(|_| rng.u32(0..ADDRESSES)).collect();
        let mut accept = accept(id, &recipients);
        accept.class = if id % 3 == 0 { Class::Bulk } else { Class::Ordinary };
        add(&mut store, accept);
        for _ in 0..rng.u8(0..6) {
            let ids: Vec<u32> = (0..rng.u32(1..60)).map(|_| rng.u32(0..ADDRESSES)).collect();
            store.apply(outcome(rng.u64(1..=id), Fate::Delivered, &ids));
        }
        if rng.bool() {
            let whole = store.message(store.oldest().unwrap().0).unwrap();
            let (id, ids): (u64, Vec<u32>) = (whole.id().0, whole.pending().iter().collect());
            store.apply(outcome(id, Fate::Removed, &ids));
        }
        store.count_on(rng.usize(0..600));
        if id % 50 == 0 {
            assert_counted(&mut store);
        }
    }
    let mut again = Store::new();
    for record in slices(&mut store) {
        again.apply_record(&record).unwrap();
    }
    assert!(!again.is_counting(), "a replay counts at its end");
    again.replayed().unwrap();
    assert!(again.is_counting());
    // Recipients that end while the start is being counted.
    for id in again.messages().map(|(_, message)| message.id().0).collect::<Vec<_>>() {
        again.count_on(rng.usize(0..60));
        again.apply(outcome(id, Fate::Bounced, &[rng.u32(0..ADDRESSES), rng.u32(0..ADDRESSES)]));
    }
    assert_counted(&mut again);
}
