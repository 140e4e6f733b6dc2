//! Thousands of power cuts, and the proof that the checks bite.

use stentor_campaign::{Cut, Figures, Mutation, Shared, campaign, find, full_disk, run};

const CUTS_MIN: u64 = 8_000;
/// Of seeds, where something rare has not happened by then.
const SEEDS_MAX: u64 = 100;
const REFUSED_SEEDS: u64 = 2;

fn shared() -> Shared {
    Shared::new().unwrap_or_else(|what| panic!("{what}"))
}

#[test]
fn nothing_is_lost_by_a_cut_at_any_write_or_sync() {
    let (shared, mut figures) = (shared(), Figures::default());
    let mut seed = 1;
    // A run of the queue that lets queue-only mail go is rare: one seed in thirty has some.
    while figures.cuts < CUTS_MIN || figures.drained == 0 && seed <= SEEDS_MAX {
        campaign(&shared, seed, &mut figures, &mut || true).unwrap_or_else(|failure| panic!("{failure:?}"));
        seed += 1;
    }
    println!("{figures:?}");
    assert!(figures.cuts_near_acknowledgement * 2 >= figures.cuts, "{figures:?}");
    assert!(figures.faults > 0 && figures.acknowledged_recipients > 0 && figures.repeat_window_max > 0, "{figures:?}");
    let kinds =
        ["eio_create", "eio_rename", "eio_remove", "eio_syncdir", "eio_preallocate", "eio_write", "eio_sync", "enospc"];
    let never: Vec<_> = kinds.iter().filter(|kind| !figures.faults_by_kind.0.contains_key(**kind)).collect();
    assert!(
        never.is_empty() && figures.verbs > 0 && figures.drained > 0 && figures.copied > 0,
        "never happened: {never:?}; {figures:?}"
    );
    assert!(figures.checkpoints > 0 && figures.segments_recycled > 0 && figures.bytes_moved > 0, "{figures:?}");
    assert!(figures.verified_sound > CUTS_MIN && figures.verified_damaged > CUTS_MIN / 10, "{figures:?}");
    assert!(figures.ids_reused > 0 && figures.slices_kept > 0, "{figures:?}");
}

#[test]
fn a_disk_that_refuses_anything_for_a_while_is_served_again_within_a_second() {
    let (shared, mut figures) = (shared(), Figures::default());
    for seed in 1..=REFUSED_SEEDS {
        full_disk(&shared, seed, &mut figures, &mut || true).unwrap_or_else(|failure| panic!("{failure:?}"));
    }
    println!("{figures:?}");
    assert!(figures.refused_runs > 1_000 && figures.faults > figures.refused_runs, "{figures:?}");
    assert!(figures.recovery_ms_max > 0, "mail was never refused: {figures:?}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let shared = shared();
    for seed in 1..6 {
        let cut = Some(Cut { at: 60, variant: 0 });
        let first = run(&shared, seed, cut, Mutation::None);
        assert_eq!(first, run(&shared, seed, cut, Mutation::None), "seed {seed}");
    }
}

fn is_caught(mutation: Mutation) {
    let failure = find(&shared(), mutation, 1).unwrap_or_else(|| panic!("{mutation:?} was not found"));
    println!("{mutation:?}: {failure:?}");
}

#[test]
fn a_skipped_sync_before_250_is_caught() {
    is_caught(Mutation::NoSync);
}

#[test]
fn a_skipped_directory_sync_is_caught() {
    is_caught(Mutation::NoDirSync);
}

#[test]
fn a_record_before_its_content_is_caught() {
    is_caught(Mutation::RecordFirst);
}

#[test]
fn an_outcome_that_is_not_journaled_is_caught() {
    is_caught(Mutation::OutcomeLost);
}

#[test]
fn a_copy_to_another_server_that_is_not_kept_is_caught() {
    is_caught(Mutation::CopyLost);
}

#[test]
fn an_address_kept_after_a_refused_batch_is_caught() {
    is_caught(Mutation::InternKept);
}

#[test]
fn an_id_given_out_again_too_early_is_caught() {
    is_caught(Mutation::ReusedEarly);
}

#[test]
fn a_verb_that_is_told_before_it_is_durable_is_caught() {
    is_caught(Mutation::VerbEarly);
}

#[test]
fn a_start_that_does_not_know_what_is_queue_only_is_caught() {
    is_caught(Mutation::QueueOnlyForgotten);
}

#[test]
fn a_slice_that_is_dropped_while_it_is_named_is_caught() {
    is_caught(Mutation::SliceDropped);
}
