//! Verify and a start agree about a store: no false alarm, and no damage missed.

use std::collections::BTreeSet;
use std::sync::Arc;

use fastrand::Rng;
use stentor_journal::{Disk, Inspection, Item, Journal, SegmentState, SimDisk, StoredContents, inspect};

use crate::model::{Mutation, Owner, State, check_contents, open, small};

/// All findings, those about the contents of `state` and the checkpoint's slices included.
pub fn findings(disk: &SimDisk, state: &State) -> (Inspection, Vec<String>) {
    let (mut contents, mut named) = (StoredContents::new(), Vec::new());
    let found = inspect(disk, &mut |seen| {
        contents.note(seen);
        if let Item::Slice { number, slice } = seen.item {
            named.push((number, slice.content));
        }
    })
    .unwrap();
    let mut wanted: BTreeSet<u64> = state.messages.values().map(|message| message.content).collect();
    wanted.extend(named.iter().filter(|(number, _)| *number == found.checkpoint).map(|(_, content)| *content));
    let flaws = contents.flaws(&found, |id| wanted.contains(&id));
    let all = found.findings.iter().chain(&flaws);
    let all = all.map(|finding| format!("{}, offset {}: {}", finding.file, finding.offset, finding.what)).collect();
    (found, all)
}

/// A store after some batches of a seeded run, as a cut left it.
fn store(seed: u64, steps: usize) -> (SimDisk, State) {
    let disk = SimDisk::new(seed);
    let (journal, _, state) = open(&disk).unwrap();
    let preparer = journal.preparer();
    let mut owner = Owner::new(journal, state, seed, Mutation::None);
    for _ in 0..steps {
        owner.fill();
        if owner.rng.u8(0..4) == 0 {
            let _ = preparer.prepare();
        }
        if owner.commit().is_err() {
            // It put too much into one batch.
            break;
        }
    }
    (disk.crash(), owner.durable)
}

/// The state in the log, if it can be read to its end.
fn replayed(disk: &SimDisk) -> Option<State> {
    let mut state = State::default();
    let opened = Journal::open(Arc::new(disk.crash()), small(), &mut |record| {
        state.apply(record.payload);
        Ok(())
    });
    opened.ok().map(|_| state)
}

/// Whether a start succeeds and all waiting content is unchanged.
fn starts(disk: &SimDisk, state: &State) -> bool {
    // On a copy, because a start changes files.
    open(&disk.crash()).is_ok_and(|(journal, _, found)| found == *state && check_contents(&journal, state).is_ok())
}

#[test]
fn a_store_that_was_stopped_has_no_findings() {
    for seed in 0..120 {
        let (disk, state) = store(seed, 10 + seed as usize);
        let (_, findings) = findings(&disk, &state);
        assert_eq!(findings, Vec::<String>::new(), "seed {seed}");
    }
}

#[derive(Debug, Clone, Copy)]
enum Damage {
    /// A bit of a batch that a start reads, except the last one.
    Log,
    /// A bit of a segment's header.
    Header,
    /// A bit anywhere.
    Anywhere,
    Removed,
    Truncated,
}

const DAMAGES: [Damage; 5] = [Damage::Log, Damage::Header, Damage::Anywhere, Damage::Removed, Damage::Truncated];

/// Does the damage. Returns whether a start must be affected.
fn spoil(disk: &SimDisk, damage: Damage, rng: &mut Rng) -> bool {
    let mut batches = Vec::new();
    let found = inspect(disk, &mut |seen| {
        batches.push((seen.file.to_owned(), seen.offset, seen.batch_seq));
    })
    .unwrap();
    let in_log = |state| matches!(state, SegmentState::Log | SegmentState::Head | SegmentState::Abandoned);
    let log: Vec<_> = found.segments.iter().filter(|segment| in_log(segment.state) && segment.batches > 0).collect();
    let Some(segment) = log.get(rng.usize(0..log.len().max(1))) else { return false };
    let is_read = segment.last_seq >= found.replay_from;
    match damage {
        Damage::Log => {
            batches.retain(|(_, _, seq)| *seq >= found.replay_from && *seq < found.last_seq);
            let Some((file, offset, _)) = batches.get(rng.usize(0..batches.len().max(1))) else { return false };
            // At the latest in the last octet of the record's word: within the checksum.
            disk.flip_bit(file, offset - 1, rng.u8(0..8));
            true
        }
        Damage::Header => {
            disk.flip_bit(&segment.file, rng.u64(0..4096), rng.u8(0..8));
            is_read
        }
        Damage::Anywhere => {
            let segment = &found.segments[rng.usize(0..found.segments.len())];
            disk.flip_bit(&segment.file, rng.u64(0..segment.bytes), rng.u8(0..8));
            false
        }
        Damage::Removed => {
            disk.remove(&segment.file).unwrap();
            disk.sync_dir().unwrap();
            is_read && segment.state != SegmentState::Head
        }
        Damage::Truncated => {
            let image = disk.contents(&segment.file).unwrap();
            let kept = rng.usize(1..segment.end as usize / 4096) * 4096;
            disk.put(&segment.file, &image[..kept]);
            is_read && segment.state != SegmentState::Head
        }
    }
}

#[test]
fn damage_that_a_start_would_suffer_from_is_found() {
    let (mut refused, mut certain) = ([0; 5], [0; 5]);
    for seed in 0..400 {
        let mut rng = Rng::with_seed(seed);
        let (disk, state) = store(seed, rng.usize(12..130));
        for (kind, damage) in DAMAGES.into_iter().enumerate() {
            let disk = disk.crash();
            let must_suffer = spoil(&disk, damage, &mut rng);
            // Without its head a store is an older one, with other contents.
            let (_, findings) = findings(&disk, &replayed(&disk).unwrap_or_else(|| state.clone()));
            let is_well = starts(&disk, &state);
            // A missing or truncated head cannot be distinguished from one that had not got so far.
            let is_torn = open(&disk.crash()).is_ok();
            assert!(!must_suffer || !findings.is_empty(), "seed {seed}, {damage:?}: not found");
            assert!(!must_suffer || !is_well, "seed {seed}, {damage:?}: a start goes well");
            assert!(
                is_torn || !findings.is_empty(),
                "seed {seed}, {damage:?}: the start is refused, verify is content"
            );
            refused[kind] += u32::from(!is_torn);
            certain[kind] += u32::from(must_suffer);
        }
    }
    println!("starts refused {refused:?}, damage that had to be found {certain:?}");
    assert!(refused.iter().all(|count| *count > 20), "{refused:?}");
}

/// Damage to content before the checkpoint is found: a start does not read it, but the recipient of the mail would.
#[test]
fn rot_in_waiting_content_is_found_though_a_start_does_not_read_it() {
    let mut rotten = 0;
    for seed in 0..200 {
        let mut rng = Rng::with_seed(seed);
        let (disk, state) = store(seed, rng.usize(60..130));
        let mut pieces = Vec::new();
        let found = inspect(&disk, &mut |seen| {
            if let Item::Piece { id, bytes, .. } = seen.item
                && !bytes.is_empty()
            {
                pieces.push((id, seen.file.to_owned(), seen.generation, seen.offset, bytes.len() as u64));
            }
        })
        .unwrap();
        let is_old =
            |generation| found.segments.iter().any(|s| s.generation == generation && s.state == SegmentState::Old);
        let wanted: BTreeSet<u64> = state.messages.values().map(|message| message.content).collect();
        pieces.retain(|(id, _, generation, ..)| wanted.contains(id) && is_old(*generation));
        let Some((id, file, _, offset, len)) = pieces.get(rng.usize(0..pieces.len().max(1))) else { continue };
        disk.flip_bit(file, offset + rng.u64(0..*len), rng.u8(0..8));
        let is_well = starts(&disk, &state);
        let (_, findings) = findings(&disk, &state);
        // Nobody needs an older copy of moved content.
        assert!(is_well || !findings.is_empty(), "seed {seed}: content {id} is rotten in {file}, and nothing is said");
        rotten += u32::from(!is_well);
    }
    assert!(rotten > 20, "{rotten}");
}

#[test]
fn a_start_reads_the_log_once() {
    let mut kept_slices = 0;
    for seed in 0..40 {
        let (disk, _) = store(seed, 40 + 2 * seed as usize);
        let (mut named, mut slices) = (BTreeSet::new(), 0);
        let found = inspect(&disk, &mut |seen| {
            if let Item::Slice { number, slice } = seen.item {
                named.insert((number, slice.content));
            }
        })
        .unwrap();
        inspect(&disk, &mut |seen| {
            if let Item::Piece { id, bytes, .. } = seen.item
                && named.contains(&(found.checkpoint, id))
                && seen.batch_seq < found.replay_from
            {
                slices += bytes.len() as u64;
                kept_slices += 1;
            }
        })
        .unwrap();
        let in_log = |state| matches!(state, SegmentState::Log | SegmentState::Head | SegmentState::Abandoned);
        let log: u64 = found.segments.iter().filter(|segment| in_log(segment.state)).map(|segment| segment.bytes).sum();
        let headers = 2 * 4096 * found.segments.len() as u64;
        let before = disk.bytes_read();
        let (_, report, _) = open(&disk).unwrap();
        let read = disk.bytes_read() - before;
        assert!(read >= report.bytes, "seed {seed}: the log is {} octets, {read} were read", report.bytes);
        assert!(
            read <= log + headers + slices,
            "seed {seed}: {read} octets were read, the log is {log}, slices {slices}"
        );
    }
    assert!(kept_slices > 0, "no slice lay before the log");
}
