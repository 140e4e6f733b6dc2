//! The checks of `replay.rs` notice errors; slices and ids are used again.

use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use super::*;

/// Runs some operations after which everything can be forgotten. Returns whether the checks found the error.
fn is_found(mutation: Mutation) -> bool {
    let mut runner = TestRunner::deterministic();
    let strategy = vec(op(), 30..80);
    (0..60).any(|_| {
        let ops = strategy.new_tree(&mut runner).unwrap().current();
        let run = || {
            let mut owner = Owner::new();
            owner.mutation = mutation;
            for op in ops {
                owner.step(op);
                owner.batch(true, 3, false);
            }
        };
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err()
    })
}

#[test]
fn forgetting_is_checked_by_what_it_must_not_do() {
    assert!(!is_found(Mutation::None));
    assert!(is_found(Mutation::ReusedEarly), "an id given out again before a checkpoint is complete");
    assert!(is_found(Mutation::FreshForgotten), "an address that a new message names was forgotten");
    assert!(is_found(Mutation::StaleSlice), "a slice without the newest outcomes was kept");
    assert!(is_found(Mutation::StalePost), "a slice without the newest recipients that missed a post was kept");
    assert!(is_found(Mutation::StaleQuarantine), "a slice with recipients that were released was kept");
}

/// Slices are kept, even across abandoned checkpoints and starts.
#[test]
fn unchanged_slices_are_named_again() {
    let mut owner = Owner::new();
    owner.step(Op::List(1, (0..200).collect()));
    owner.step(Op::Accept((0..20).collect(), false, false));
    let (mut again, mut written) = (0, 0);
    for round in 0..6 {
        owner.batch(true, 1000, false);
        while owner.cursor.is_some() || owner.sweep.is_some() {
            owner.batch(false, 1000, false);
        }
        if round > 0 {
            // There are 50 pages of addresses and one of messages; a start ages them.
            let (kept, new) = (owner.kept.again - again, owner.kept.last_content - written);
            assert!(kept >= 30 && new <= 20, "round {round}: {kept} kept, {new} written");
        }
        (again, written) = (owner.kept.again, owner.kept.last_content);
        match round {
            1 => owner.step(Op::Restart),
            2 => {
                owner.batch(true, 3, true);
                owner.batch(false, 0, false);
            }
            3 => owner.step(Op::Accept(vec![7], false, false)),
            _ => {}
        }
    }
}

/// Ids are reused: otherwise most runs with many addresses would need more ids.
#[test]
fn forgotten_ids_are_given_out_again() {
    let mut owner = Owner::new();
    for round in 0..30u16 {
        owner.step(Op::Accept((0..10).map(|n| round * 10 + n).collect(), false, false));
        owner.batch(false, 0, false);
        owner.record_fate(0, Fate::Delivered, u32::MAX);
        for _ in 0..12 {
            owner.batch(true, 1000, false);
        }
        assert!(owner.live.book.is_empty(), "round {round}: {} left", owner.live.book.len());
    }
    assert!(owner.live.book.id_bound() <= 30, "{} ids for 300 addresses", owner.live.book.id_bound());
}

/// The checker works: outcomes applied before the beginning but written after it would count twice.
#[test]
fn the_order_in_a_batch_matters() {
    let mut owner = Owner::new();
    owner.step(Op::Accept(vec![1], false, false));
    owner.step(Op::Accept(vec![1], false, false));
    owner.batch(false, 0, false);
    owner.record_fate(0, Fate::Delivered, u32::MAX);
    let slices = slices(&mut owner.live);
    let replay = |records: &[&Vec<u8>]| {
        let mut store = Store::new();
        for record in records {
            store.apply_record(record).unwrap();
        }
        store
    };
    let (begin, rest, waiting) = (&slices[0], slices[1..].iter(), &owner.waiting[0]);
    assert!(replay(&[waiting, begin].into_iter().chain(rest.clone()).collect::<Vec<_>>()).is_balanced());
    assert!(!replay(&[begin, waiting].into_iter().chain(rest).collect::<Vec<_>>()).is_balanced());
}
