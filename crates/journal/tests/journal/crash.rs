//! Power cuts at every write of seeded runs, twice in a row, and a proof that the checker finds errors.

use stentor_journal::{Batch, SimDisk};

use crate::model::{Message, Mutation, Owner, State, check_contents, content_bytes, open, record};
use crate::verifying::findings;

/// State of a run before the power went off: the acknowledged state, and the state if the last batch were durable too.
struct ExpectedState {
    durable: State,
    candidate: State,
    operations: u64,
}

/// Runs an owner until `steps` batches are committed or the power is cut.
fn run(disk: &SimDisk, seed: u64, steps: usize, mutation: Mutation) -> Result<ExpectedState, String> {
    let (journal, _, state) = match open(disk) {
        Ok(opened) => opened,
        Err(_) if disk.is_cut() => {
            return Ok(ExpectedState { durable: State::default(), candidate: State::default(), operations: 0 });
        }
        Err(error) => return Err(format!("open: {error}")),
    };
    let mut owner = Owner::new(journal, state, seed, mutation);
    let preparer = owner.journal.preparer();
    for _ in 0..steps {
        owner.fill();
        if owner.rng.u8(0..4) == 0 {
            let _ = preparer.prepare();
        }
        if let Err(error) = owner.commit() {
            if !disk.is_cut() {
                return Err(format!("commit: {error}"));
            }
            break;
        }
    }
    if !disk.is_cut() {
        owner.check_contents()?;
        if mutation == Mutation::None && steps >= 60 && owner.kept == 0 {
            return Err("no slice was kept".to_owned());
        }
    }
    Ok(ExpectedState { durable: owner.durable, candidate: owner.state, operations: disk.operations() })
}

/// Opens the store that a cut left, and compares.
fn check(disk: &SimDisk, before: &ExpectedState) -> Result<(), String> {
    // Not compared with newer state than the acknowledged one: verify accepts what a start would.
    let (_, findings) = findings(disk, &State::default());
    if let Some(finding) = findings.first() {
        return Err(format!("verify calls what the cut left damaged: {finding}"));
    }
    let (journal, _, state) = open(disk).map_err(|error| format!("after the cut: {error}"))?;
    if state != before.durable && state != before.candidate {
        let lost = before.durable.messages.keys().filter(|id| !state.messages.contains_key(id));
        let (lost, found): (Vec<_>, usize) = (lost.collect(), state.messages.len());
        return Err(format!("replayed state is not the acknowledged one: {found} messages, lost {lost:?}"));
    }
    check_contents(&journal, &state)
}

/// One run, cut at operation `cut`; recovery; a second run, cut somewhere; recovery.
fn cut_twice(seed: u64, cut: u64, steps: usize, mutation: Mutation, prepare: fn(&SimDisk)) -> Result<(), String> {
    let disk = SimDisk::new(seed);
    prepare(&disk);
    disk.cut_at(cut);
    let before = run(&disk, seed, steps, mutation)?;
    let mut next = disk.crash();
    for _ in 0..2 {
        check(&next, &before)?;
        next = disk.crash();
    }
    let (_, _, recovered) = open(&next).map_err(|error| error.to_string())?;
    next.cut_at(next.operations() + 1 + (seed * 31 + cut * 7) % 60);
    let mut second = run(&next, seed + 1000, steps, mutation)?;
    if next.operations() == 0 || second.operations == 0 {
        second = ExpectedState { durable: recovered.clone(), candidate: recovered, operations: 0 };
    }
    check(&next.crash(), &second)
}

fn campaign(
    seeds: std::ops::Range<u64>,
    steps: usize,
    mutation: Mutation,
    prepare: fn(&SimDisk),
) -> Result<u64, String> {
    let mut cuts = 0;
    for seed in seeds {
        let whole = SimDisk::new(seed);
        prepare(&whole);
        let operations = run(&whole, seed, steps, mutation)?.operations;
        for cut in 1..=operations {
            cut_twice(seed, cut, steps, mutation, prepare).map_err(|what| format!("seed {seed}, cut {cut}: {what}"))?;
            cuts += 1;
        }
    }
    Ok(cuts)
}

#[test]
fn nothing_acknowledged_is_lost_by_a_cut_at_any_operation() {
    let cuts = campaign(0..6, 60, Mutation::None, |_| {}).unwrap_or_else(|what| panic!("{what}"));
    assert!(cuts > 1000, "{cuts} cuts");
}

#[test]
fn the_checker_bites_without_syncs() {
    let outcome = campaign(0..10, 30, Mutation::None, SimDisk::ignore_syncs);
    assert!(outcome.is_err(), "no loss was seen in {outcome:?} cuts");
}

#[test]
fn the_checker_bites_without_directory_syncs() {
    let outcome = campaign(0..10, 30, Mutation::None, SimDisk::ignore_dir_syncs);
    assert!(outcome.is_err(), "no loss was seen in {outcome:?} cuts");
}

#[test]
fn the_checker_bites_when_a_record_comes_before_its_content() {
    let outcome = campaign(0..10, 30, Mutation::RecordBeforeContent, |_| {});
    assert!(outcome.is_err(), "no loss was seen in {outcome:?} cuts");
}

#[test]
fn the_checker_bites_when_a_slice_that_is_still_needed_is_dropped() {
    let outcome = campaign(0..10, 200, Mutation::SliceDroppedEarly, |_| {});
    assert!(outcome.is_err(), "no loss was seen in {outcome:?} cuts");
}

#[test]
fn the_checker_bites_when_a_slice_that_has_changed_is_kept() {
    let outcome = campaign(0..10, 60, Mutation::SliceKeptStale, |_| {});
    assert!(outcome.is_err(), "no loss was seen in {outcome:?} cuts");
}

/// One content, alone in a segment before the checkpoint, whose last reference ends in a batch that needs a new
/// segment. A cut within that commit must leave either the end or the content.
fn drop_in_a_commit_that_recycles(too_early: bool) -> Result<(), String> {
    for cut in 1..12 {
        let disk = SimDisk::new(cut);
        let (mut journal, _, _) = open(&disk).map_err(|error| error.to_string())?;
        let mut batch = Batch::new();
        let id = journal.next_content_id();
        batch.content(id, true, &content_bytes(id, 500));
        batch.record(&record(b'A', &[1, id, 500]));
        journal.commit(&mut batch, 1).map_err(|error| error.to_string())?;
        let state = State { messages: [(1, Message { content: id, len: 500 })].into() };
        let filler = vec![b'F'; 50_001 / 8 * 8 + 1];
        for step in 0..4 {
            if step == 1 {
                journal.begin_checkpoint(&mut batch);
            } else if step == 2 {
                batch.record(&record(b'S', &[1, id, 500]));
                journal.end_checkpoint(&mut batch);
            }
            batch.record(&filler);
            journal.commit(&mut batch, 1).map_err(|error| error.to_string())?;
        }
        batch.record(&record(b'F', &[1]));
        batch.record(&filler);
        if too_early {
            journal.drop_content(id);
        } else {
            batch.drop_content(id);
        }
        disk.cut_at(disk.operations() + cut);
        let acknowledged = journal.commit(&mut batch, 1).is_ok();
        let durable = if acknowledged { State::default() } else { state };
        check(&disk.crash(), &ExpectedState { durable, candidate: State::default(), operations: 0 })
            .map_err(|what| format!("cut {cut}: {what}"))?;
    }
    Ok(())
}

#[test]
fn content_is_kept_until_its_end_is_durable() {
    drop_in_a_commit_that_recycles(false).unwrap_or_else(|what| panic!("{what}"));
}

#[test]
fn the_checker_bites_when_content_is_dropped_too_early() {
    assert!(drop_in_a_commit_that_recycles(true).is_err());
}

#[test]
fn the_run_reaches_checkpoints_recycling_and_cleaning() {
    let disk = SimDisk::new(3);
    let (journal, _, state) = open(&disk).unwrap();
    let mut owner = Owner::new(journal, state, 3, Mutation::None);
    for _ in 0..150 {
        owner.fill();
        owner.commit().unwrap();
    }
    owner.check_contents().unwrap();
    let statistics = owner.journal.statistics();
    assert!(statistics.checkpoints >= 3, "{statistics:?}");
    assert!(statistics.recycled >= 5, "{statistics:?}");
    assert!(statistics.bytes_moved > 0, "{statistics:?}");
}
