use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn encoded(set: &IdSet) -> Vec<u8> {
    let mut buf = Vec::new();
    set.encode(&mut buf);
    assert!(buf.len() <= set.encoded_bytes_max());
    buf
}

fn assert_same(set: &IdSet, model: &BTreeSet<u32>) {
    assert!(set.iter().eq(model.iter().copied()), "{set:?} is not {model:?}");
    assert_eq!(set.len(), model.len());
    assert_eq!(set.is_empty(), model.is_empty());
    assert_eq!(set.min(), model.first().copied());
    assert_eq!(set.max(), model.last().copied());
    assert_eq!(set, &model.iter().copied().collect::<IdSet>(), "the form is not part of the value");
}

/// Ids from a narrow and a wide range, so that all forms and several containers occur.
fn ids(max: usize) -> impl Strategy<Value = BTreeSet<u32>> {
    let id = prop_oneof![0u32..200, 0u32..300_000, any::<u32>(), Just(u32::MAX), 65_530u32..65_600];
    prop_oneof![
        vec(id, 0..max).prop_map(|v| v.into_iter().collect()),
        (0u32..100_000, 0u32..300).prop_map(|(a, n)| (a..a + n).collect()),
    ]
}

#[derive(Debug, Clone)]
enum Op {
    Insert(u32),
    Remove(u32),
    Union(BTreeSet<u32>),
    Subtract(BTreeSet<u32>),
    Optimize,
    Reload,
    Share,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (0u32..150).prop_map(Op::Insert),
        2 => any::<u32>().prop_map(Op::Insert),
        4 => (0u32..150).prop_map(Op::Remove),
        1 => ids(90).prop_map(Op::Union),
        1 => ids(90).prop_map(Op::Subtract),
        1 => Just(Op::Optimize),
        1 => Just(Op::Reload),
        1 => Just(Op::Share),
    ]
}

proptest! {
    #[test]
    fn behaves_like_a_set(ops in vec(op(), 0..120)) {
        let (mut set, mut model) = (IdSet::new(), BTreeSet::new());
        let mut shared: Vec<(IdSet, BTreeSet<u32>)> = Vec::new();
        for op in ops {
            match op {
                Op::Insert(id) => prop_assert_eq!(set.insert(id), model.insert(id)),
                Op::Remove(id) => prop_assert_eq!(set.remove(id), model.remove(&id)),
                Op::Union(ids) => {
                    let mut other: IdSet = ids.iter().copied().collect();
                    other.optimize();
                    set.union_with(&other);
                    model.extend(ids);
                }
                Op::Subtract(ids) => {
                    let mut other: IdSet = ids.iter().copied().collect();
                    other.optimize();
                    let there = model.intersection(&ids).count();
                    prop_assert_eq!(set.subtract(&other), there);
                    model.retain(|id| !ids.contains(id));
                }
                Op::Optimize => set.optimize(),
                Op::Reload => set = IdSet::decode(&mut Reader::new(&encoded(&set))).unwrap(),
                Op::Share => shared.push((set.clone(), model.clone())),
            }
            assert_same(&set, &model);
        }
        for (set, model) in &shared {
            assert_same(set, model);
        }
    }

    #[test]
    fn combinations_match_the_model(a in ids(200), b in ids(200), packed: (bool, bool)) {
        let mut x: IdSet = a.iter().copied().collect();
        let mut y: IdSet = b.iter().copied().collect();
        if packed.0 { x.optimize(); }
        if packed.1 { y.optimize(); }
        assert_same(&x.union(&y), &a.union(&b).copied().collect());
        assert_same(&x.intersection(&y), &a.intersection(&b).copied().collect());
        assert_same(&x.difference(&y), &a.difference(&b).copied().collect());
        prop_assert_eq!(x.intersection_len(&y), a.intersection(&b).count());
        prop_assert_eq!(x == y, a == b);
        for after in b.iter().copied().chain([0, u32::MAX]) {
            prop_assert!(x.iter_from(after).eq(a.iter().copied().filter(|id| *id > after)));
            let (later, earlier): (Vec<u32>, Vec<u32>) = a.iter().partition(|id| **id > after);
            prop_assert!(x.iter_around(after).eq(later.into_iter().chain(earlier)));
            prop_assert_eq!(x.contains(after), a.contains(&after));
        }
    }

    #[test]
    fn any_bytes_are_a_set_or_an_error(bytes in vec(any::<u8>(), 0..300)) {
        let _ = IdSet::decode(&mut Reader::new(&bytes));
    }

    #[test]
    fn a_damaged_set_is_a_set_or_an_error(set in ids(200), at: prop::sample::Index, byte: u8, cut: prop::sample::Index) {
        let mut bytes = encoded(&set.iter().copied().collect());
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(set) = IdSet::decode(&mut Reader::new(&bytes)) {
            let _ = set.iter().count();
            let mut changed = set.clone();
            changed.insert(7);
            changed.remove(7);
            let _ = encoded(&changed);
        }
        bytes.truncate(cut.index(bytes.len()));
        let _ = IdSet::decode(&mut Reader::new(&bytes));
    }
}

#[test]
fn a_clone_of_many_shares_until_it_changes() {
    let mut all: IdSet = (0..1_000_000).collect();
    all.optimize();
    assert!(all.heap_bytes() < 1024, "a full list is runs: {} bytes", all.heap_bytes());
    let mut copy = all.clone();
    let (Form::Many { bits: a, .. }, Form::Many { bits: b, .. }) = (&all.0, &copy.0) else { panic!("bitmaps") };
    assert!(Arc::ptr_eq(a, b));
    for id in (0..1_000_000).step_by(2) {
        assert!(copy.remove(id));
    }
    assert_eq!((all.len(), copy.len()), (1_000_000, 500_000));
    assert!(copy.heap_bytes() < 140_000, "a changed one is no list of runs: {} bytes", copy.heap_bytes());
    assert!(encoded(&all).len() < 1024);
}

#[test]
fn one_id_takes_few_bytes() {
    assert_eq!(encoded(&IdSet::one(9)).len(), 2);
    assert_eq!(encoded(&IdSet::one(1_000_000)).len(), 4);
    assert_eq!(encoded(&IdSet::new()).len(), 1);
}
