//! A disk that has no room, for one call or for long, at any point: commits work again and room is announced as soon as
//! there is some, and nothing acknowledged is lost.

use stentor_journal::{EDQUOT, EIO, ENOSPC, SimDisk};

use crate::model::{Mutation, Owner, check_contents, open};

const STEPS: usize = 80;
/// How many times a batch is tried before the disk is freed.
const TRIES_FULL: u64 = 4;
/// Turns (one run of the preparer, one commit) within which service must resume.
const TURNS_MAX: u64 = 2;

/// How long the disk refuses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum RefusalDuration {
    /// For this many calls.
    Calls(u64),
    UntilFreed,
}

/// Runs with a disk that refuses from operation `from` after its start on. Returns whether a refusal happened.
fn survives(seed: u64, errno: i32, from: u64, duration: RefusalDuration) -> Result<bool, String> {
    let disk = SimDisk::new(seed);
    let (journal, _, state) = open(&disk).map_err(|error| error.to_string())?;
    let mut owner = Owner::new(journal, state, seed, Mutation::None);
    let preparer = owner.journal.preparer();
    let calls = if let RefusalDuration::Calls(calls) = duration { calls } else { u64::MAX };
    let from = disk.operations() + from;
    disk.refuse(errno, None, from..from.saturating_add(calls));
    for step in 0..STEPS {
        owner.fill();
        let _ = preparer.prepare();
        let mut tries = 0;
        while let Err(error) = owner.commit() {
            if error.is_full() != (errno != EIO) {
                return Err(format!("errno {errno} was told as: {error}"));
            }
            if errno != EIO && !owner.journal.is_low() && !matches!(duration, RefusalDuration::Calls(_)) {
                return Err("refused for want of room, and said to have some".to_owned());
            }
            tries += 1;
            // Each try uses up one of the failing calls, or more.
            let tries_max = if let RefusalDuration::Calls(calls) = duration { calls } else { TRIES_FULL };
            if tries == TRIES_FULL && duration == RefusalDuration::UntilFreed {
                disk.refuse(errno, None, 0..0);
            }
            if tries > tries_max + TURNS_MAX {
                return Err(format!("step {step}: still refused: {error}"));
            }
            let _ = preparer.prepare();
        }
        if tries > 0 && duration != RefusalDuration::UntilFreed {
            // Remaining failing calls are meant for other operations.
            disk.refuse(errno, None, 0..0);
        }
        if tries > 0 {
            // An owner that asks whether there is room learns of it without a commit.
            for _ in 0..TURNS_MAX {
                let _ = preparer.prepare();
            }
            if owner.journal.is_low() {
                return Err(format!("step {step}: there is room, and nobody is told"));
            }
        }
    }
    let met = disk.errors() > 0;
    owner.check_contents()?;
    let (journal, _, state) = open(&disk.crash()).map_err(|error| format!("after a cut: {error}"))?;
    if state != owner.durable {
        return Err("replayed state is not the acknowledged one".to_owned());
    }
    check_contents(&journal, &state)?;
    Ok(met)
}

fn survives_at_each_operation(errno: i32, duration: RefusalDuration, stride: usize) {
    let mut met = 0;
    for from in (1..).step_by(stride) {
        match survives(from % 5, errno, from, duration) {
            Ok(true) => met += 1,
            Ok(false) => break,
            Err(what) => panic!("errno {errno} from operation {from} on ({duration:?}): {what}"),
        }
    }
    assert!(met > 50, "{met} runs met the error");
}

#[test]
fn room_is_found_again_after_one_call_that_had_none() {
    survives_at_each_operation(ENOSPC, RefusalDuration::Calls(1), 1);
    survives_at_each_operation(EDQUOT, RefusalDuration::Calls(1), 1);
    survives_at_each_operation(EIO, RefusalDuration::Calls(1), 1);
}

#[test]
fn room_is_found_again_after_a_few_calls_that_had_none() {
    survives_at_each_operation(ENOSPC, RefusalDuration::Calls(3), 2);
    survives_at_each_operation(EDQUOT, RefusalDuration::Calls(7), 3);
    survives_at_each_operation(EIO, RefusalDuration::Calls(3), 2);
}

#[test]
fn room_is_found_again_when_the_disk_is_freed() {
    survives_at_each_operation(ENOSPC, RefusalDuration::UntilFreed, 1);
    survives_at_each_operation(EDQUOT, RefusalDuration::UntilFreed, 2);
    survives_at_each_operation(EIO, RefusalDuration::UntilFreed, 2);
}
