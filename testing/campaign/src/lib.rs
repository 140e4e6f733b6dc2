//! Crash campaign: the real committer, hub, store, scheduler and journal over a simulated disk that loses unsynced
//! data.
//!
//! Promise: a run is determined by its seed and the point of the power cut; the same numbers repeat the run. After each
//! cut the disk is opened as a start opens it and compared with a naive model of what was promised ([`ledger`],
//! [`model`]); then the recovered server runs until the queue is empty. docs/design/campaign.md says what is checked,
//! and how to replay a failure. The checks are themselves checked: each [`Mutation`] must be found.

mod hosts;
pub mod ledger;
mod life;
pub mod model;
mod scenario;
#[cfg(test)]
mod tests;
mod verify;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fastrand::Rng;
use ledger::Ledger;
use life::Life;
pub use life::Shared;
use scenario::Scenario;
pub use scenario::{MUTATIONS, Mutation, Refusal, RefusalDuration};
use serde::Serialize;
use stentor_journal::{EDQUOT, EIO, ENOSPC, OPS, SimDisk};
use stentor_queue::book::split_hop;

/// 2027-01-15, the campaign's beginning of time.
const START_MS: u64 = 1_800_000_000_000;
/// One recovered server in so many is cut again.
const SECOND_CUT_ONE_IN: u64 = 3;
const SECOND_CUT_OPERATIONS_MAX: u64 = 60;
/// One store in so many is spoilt, on a copy.
const SPOILT_ONE_IN: u64 = 4;
/// Runs of a mutation until it must have been found.
const MUTATION_SEEDS: u64 = 200;
const MUTATION_CUT_STEP: usize = 3;

/// Where the power goes: at a write or sync counted from 1; `variant` is another choice of what is forgotten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cut {
    pub at: u64,
    pub variant: u64,
}

/// Errors given out, by kind.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Faults(pub BTreeMap<String, u64>);

impl Faults {
    fn of(disk: &SimDisk) -> Faults {
        let kinds = OPS.map(|op| (format!("eio_{op:?}").to_lowercase(), disk.failed(op)));
        let full = ("enospc".to_owned(), disk.was_full());
        Faults(kinds.into_iter().chain([full]).filter(|(_, count)| *count > 0).collect())
    }

    fn add(&mut self, more: &Faults) {
        for (kind, count) in &more.0 {
            *self.0.entry(kind.clone()).or_default() += count;
        }
    }

    pub fn total(&self) -> u64 {
        self.0.values().sum()
    }
}

/// What a run did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Run {
    /// Writes and syncs of the first life.
    pub operations: u64,
    /// Those right after which somebody was told 250.
    pub acknowledged_at: Vec<u64>,
    pub cuts: u64,
    pub faults: Faults,
    pub verbs: u64,
    /// Recipients that were queue-only and that a run of the queue let go.
    pub drained: u64,
    /// Recipients that the operator released from the quarantine.
    pub released: u64,
    /// Recipients that missed a post and that the operator sent it again.
    pub resent: u64,
    /// Acknowledged copies of recipients to other servers.
    pub copied: u64,
    pub acknowledged: u64,
    pub repeats: u64,
    pub window: u64,
    pub checkpoints: u64,
    pub recycled: u64,
    pub slices_kept: u64,
    pub bytes_moved: u64,
    pub ids_reused: u64,
    /// Stores, cut and stopped, that verify was asked about; and those that had been spoilt.
    pub verified: u64,
    pub spoilt: u64,
    /// The longest time for which mail was refused for want of room after there was some.
    pub recovery_ms: u64,
}

/// A promise that was broken.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Failure {
    pub seed: u64,
    pub cut: Option<u64>,
    pub variant: u64,
    pub what: String,
}

/// The sums of a campaign.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Figures {
    pub seeds: u64,
    pub cuts: u64,
    /// Within one write or sync of an acknowledgement.
    pub cuts_near_acknowledgement: u64,
    pub faults: u64,
    pub faults_by_kind: Faults,
    /// Operator's verbs that became durable.
    pub verbs: u64,
    /// Recipients that were queue-only and that a run of the queue let go.
    pub drained: u64,
    /// Recipients that the operator released from the quarantine.
    pub released: u64,
    /// Recipients that missed a post and that the operator sent it again.
    pub resent: u64,
    /// Acknowledged copies of recipients to other servers.
    pub copied: u64,
    pub acknowledged_recipients: u64,
    pub repeated_copies: u64,
    pub repeat_window_max: u64,
    pub checkpoints: u64,
    pub segments_recycled: u64,
    /// Slices of the state that a checkpoint only named.
    pub slices_kept: u64,
    pub bytes_moved: u64,
    /// Ids of forgotten addresses given out again.
    pub ids_reused: u64,
    /// Stores as a cut or a stop left them that verify called sound, and spoilt ones that it called damaged.
    pub verified_sound: u64,
    pub verified_damaged: u64,
    pub mutations: u64,
    pub mutations_caught: u64,
    /// Runs with a disk that refused for a while, and the longest time for which mail was refused after that.
    pub refused_runs: u64,
    pub recovery_ms_max: u64,
}

/// The run that a panic belongs to.
pub static CURRENT: [AtomicU64; 3] = [AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)];

/// One run: until the cut, if there is one, then again and again until everything is worked off.
pub fn run(shared: &Shared, seed: u64, cut: Option<Cut>, mutation: Mutation) -> Result<Run, String> {
    let (at, variant) = cut.map_or((0, 0), |cut| (cut.at, cut.variant));
    for (slot, value) in CURRENT.iter().zip([seed, at, variant]) {
        slot.store(value, Ordering::Relaxed);
    }
    run_scenario(shared, seed, cut, mutation, &Scenario::new(seed, mutation))
}

/// The same with a disk that refuses, and no cut.
pub fn run_refused(shared: &Shared, seed: u64, refusal: Refusal) -> Result<Run, String> {
    for (slot, value) in CURRENT.iter().zip([seed, refusal.from, 0]) {
        slot.store(value, Ordering::Relaxed);
    }
    run_scenario(shared, seed, None, Mutation::None, &Scenario::refused(seed, refusal))
}

fn run_scenario(
    shared: &Shared,
    seed: u64,
    cut: Option<Cut>,
    mutation: Mutation,
    scenario: &Scenario,
) -> Result<Run, String> {
    let (at, variant) = cut.map_or((0, 0), |cut| (cut.at, cut.variant));
    let mut rng = Rng::with_seed(seed ^ at.rotate_left(20) ^ variant.rotate_left(40));
    let mut disk = SimDisk::new(rng.u64(..));
    scenario.mutate(&disk, mutation);
    scenario.faults(&disk);
    if cut.is_some() {
        disk.cut_at(at);
    }
    let time = Arc::new(AtomicU64::new(START_MS));
    let (mut ledger, mut past_dot, mut run) = (Ledger::default(), BTreeSet::new(), Run::default());
    for number in 0.. {
        let (time, seed) = (time.clone(), seed.wrapping_add(number));
        let mut was_cut = true;
        if let Some(mut life) = Life::start(shared, &disk, &mut ledger, time, seed, mutation, past_dot.clone())? {
            if number == 0 {
                life.plan(scenario);
            }
            was_cut = life.run()?;
            past_dot = life.past_dot();
            let statistics = life.committer.log().statistics();
            run.checkpoints += statistics.checkpoints;
            run.recycled += statistics.recycled;
            run.slices_kept += statistics.slices_kept;
            run.bytes_moved += statistics.bytes_moved;
            run.ids_reused += life.core.with(|hub, _| hub.store.book.reused());
            run.verbs += life.verbs;
            run.drained += life.drained;
            run.released += life.released;
            run.resent += life.resent;
            run.recovery_ms = run.recovery_ms.max(life.recovery_ms);
            if number == 0 {
                run.acknowledged_at = std::mem::take(&mut life.acknowledged_at);
            }
        }
        if number == 0 {
            run.operations = disk.operations();
        }
        run.faults.add(&Faults::of(&disk));
        if !was_cut {
            if mutation == Mutation::None {
                verify::is_sound(&disk.crash())?;
                run.verified += 1;
            }
            break;
        }
        run.cuts += 1;
        disk = disk.crash();
        disk.set_capacity(u64::MAX);
        if mutation == Mutation::None {
            verify::is_sound(&disk)?;
            run.verified += 1;
            let mut choice = Rng::with_seed(seed ^ at.rotate_left(30) ^ number);
            if choice.u64(0..SPOILT_ONE_IN) == 0 {
                run.spoilt += u64::from(verify::finds_damage(&disk, &mut choice)?);
            }
        }
        if number == 0 && rng.u64(0..SECOND_CUT_ONE_IN) == 0 {
            disk.cut_at(rng.u64(1..SECOND_CUT_OPERATIONS_MAX));
        }
    }
    run.acknowledged = ledger.acknowledged.values().map(|who| who.len() as u64).sum();
    let is_copy = |entry: &&String| split_hop(entry).1.is_some();
    run.copied = ledger.acknowledged.values().map(|who| who.iter().filter(is_copy).count() as u64).sum();
    run.repeats = ledger.repeats;
    run.window = ledger.window_max;
    Ok(run)
}

fn is_near(cut: u64, acknowledged_at: &[u64]) -> bool {
    acknowledged_at.iter().any(|at| cut.abs_diff(*at) <= 1)
}

/// A seed without a cut, then with a cut at every write and sync, then more beside acknowledgements until they are half
/// of all, those in second lives included.
/// `go_on` ends it early.
pub fn campaign(
    shared: &Shared,
    seed: u64,
    figures: &mut Figures,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<(), Failure> {
    let failure = |cut: Option<Cut>, what| Failure {
        seed,
        cut: cut.map(|cut| cut.at),
        variant: cut.map_or(0, |cut| cut.variant),
        what,
    };
    let whole = run(shared, seed, None, Mutation::None).map_err(|what| failure(None, what))?;
    figures.seeds += 1;
    let near: Vec<u64> = (1..=whole.operations).filter(|cut| is_near(*cut, &whole.acknowledged_at)).collect();
    let far = whole.operations as usize - near.len();
    let more = near.iter().cycle().take(if near.is_empty() { 0 } else { (2 * far).saturating_sub(near.len()) });
    let every = (1..=whole.operations).map(|at| Cut { at, variant: 0 });
    for cut in every.chain(more.enumerate().map(|(n, at)| Cut { at: *at, variant: n as u64 + 1 })) {
        if !go_on() {
            return Ok(());
        }
        let run = run(shared, seed, Some(cut), Mutation::None).map_err(|what| failure(Some(cut), what))?;
        figures.cuts += run.cuts;
        figures.cuts_near_acknowledgement += u64::from(is_near(cut.at, &whole.acknowledged_at));
        figures.faults += run.faults.total();
        figures.faults_by_kind.add(&run.faults);
        figures.verbs += run.verbs;
        figures.drained += run.drained;
        figures.released += run.released;
        figures.resent += run.resent;
        figures.copied += run.copied;
        figures.acknowledged_recipients += run.acknowledged;
        figures.repeated_copies += run.repeats;
        figures.repeat_window_max = figures.repeat_window_max.max(run.window);
        figures.checkpoints += run.checkpoints;
        figures.segments_recycled += run.recycled;
        figures.slices_kept += run.slices_kept;
        figures.bytes_moved += run.bytes_moved;
        figures.ids_reused += run.ids_reused;
        figures.verified_sound += run.verified;
        figures.verified_damaged += run.spoilt;
        figures.recovery_ms_max = figures.recovery_ms_max.max(run.recovery_ms);
    }
    Ok(())
}

/// A seed with a disk that refuses at each operation in turn: EIO, ENOSPC and EDQUOT, once, some times, and for a
/// while. `go_on` ends it early.
pub fn full_disk(
    shared: &Shared,
    seed: u64,
    figures: &mut Figures,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<(), Failure> {
    let failure = |at: Option<u64>, what| Failure { seed, cut: at, variant: 0, what };
    let never = Refusal { errno: ENOSPC, from: u64::MAX, duration: RefusalDuration::Operations(0) };
    let whole = run_refused(shared, seed, never).map_err(|what| failure(None, what))?;
    figures.seeds += 1;
    for from in 1..=whole.operations {
        for errno in [EIO, ENOSPC, EDQUOT] {
            for duration in [
                RefusalDuration::Operations(1),
                RefusalDuration::Operations(2 + from % 30),
                RefusalDuration::Time(1 + from * 37 % 3_000),
            ] {
                if !go_on() {
                    return Ok(());
                }
                let refusal = Refusal { errno, from, duration };
                let run = run_refused(shared, seed, refusal)
                    .map_err(|what| failure(Some(from), format!("{refusal:?}: {what}")))?;
                figures.refused_runs += 1;
                figures.faults += run.faults.total();
                figures.faults_by_kind.add(&run.faults);
                figures.acknowledged_recipients += run.acknowledged;
                figures.recovery_ms_max = figures.recovery_ms_max.max(run.recovery_ms);
            }
        }
    }
    Ok(())
}

/// Looks for a mutation; the first failure that shows it, if one does.
pub fn find(shared: &Shared, mutation: Mutation, first_seed: u64) -> Option<Failure> {
    for seed in first_seed..first_seed + MUTATION_SEEDS {
        // How long the run is; a mutation may well be seen without a cut, but it is cuts that must show it.
        let operations = run(shared, seed, None, Mutation::None).map_or(0, |run| run.operations);
        for at in (1..=operations).step_by(MUTATION_CUT_STEP) {
            let cut = Cut { at, variant: 0 };
            if let Err(what) = run(shared, seed, Some(cut), mutation) {
                return Some(Failure { seed, cut: Some(at), variant: 0, what });
            }
        }
    }
    None
}
