//! The counts of who waits against the messages themselves.

use super::*;
use crate::ids::DomainId;

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
}

#[test]
fn counts_agree_with_the_messages_whatever_is_counted_when() {
    let mut rng = fastrand::Rng::with_seed(5);
    let mut store = with_addresses(ADDRESSES);
    for id in 1..=400u64 {
        // Small ones are counted at once, large ones in slices, while recipients of theirs settle.
        let wanted = if rng.u8(..) < 16 { rng.usize(1_025..5_000) } else { rng.usize(1..40) };
        let recipients: Vec<u32> = (0..wanted).map(|_| rng.u32(0..ADDRESSES)).collect();
        add(&mut store, accept(id, &recipients));
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
    // What settles while the start is being counted.
    for id in again.messages().map(|(_, message)| message.id().0).collect::<Vec<_>>() {
        again.count_on(rng.usize(0..60));
        again.apply(outcome(id, Fate::Bounced, &[rng.u32(0..ADDRESSES), rng.u32(0..ADDRESSES)]));
    }
    assert_counted(&mut again);
}
