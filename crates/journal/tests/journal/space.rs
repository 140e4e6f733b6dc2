//! Disk use stays bounded, whatever the history; restart follows the checkpoint.

use std::collections::VecDeque;
use std::sync::Arc;

use stentor_journal::{Batch, CheckpointStep, Journal, SimDisk};

use crate::model::{Mutation, Owner, check_contents, content_bytes, open, small};

fn disk_bytes(disk: &SimDisk) -> usize {
    let names = stentor_journal::Disk::list(disk).unwrap();
    names.iter().filter_map(|name| disk.contents(name)).map(|bytes| bytes.len()).sum()
}

fn checkpoint(journal: &mut Journal, batch: &mut Batch) {
    journal.begin_checkpoint(batch);
    journal.commit(batch, 1).unwrap();
    while journal.end_checkpoint(batch) == CheckpointStep::More {
        journal.commit(batch, 1).unwrap();
    }
    journal.commit(batch, 1).unwrap();
}

#[test]
fn churn_with_stragglers_does_not_grow_the_disk() {
    let disk = SimDisk::new(1);
    let (mut journal, _, _) = open(&disk).unwrap();
    let mut batch = Batch::new();
    let mut stragglers = Vec::new();
    let mut largest = 0;
    for round in 0..3000u64 {
        let id = journal.next_content_id();
        batch.content(id, true, &content_bytes(id, 3000));
        batch.record(b"event");
        if round % 100 == 0 {
            stragglers.push(id);
        } else {
            batch.drop_content(id);
        }
        if journal.clean_due() {
            journal.clean(&mut batch, 16_000);
        }
        journal.commit(&mut batch, round).unwrap();
        if journal.checkpoint_due() {
            checkpoint(&mut journal, &mut batch);
        }
        largest = largest.max(disk_bytes(&disk));
    }
    // 30 stragglers of 3000 bytes, the log up to the checkpoint (40 blocks, and as much again while it is written), the
    // pool.
    assert!(largest <= 14 * 16 * 4096, "{largest} bytes, {:?}", journal.space());
    assert_eq!(journal.space().contents, stragglers.len());
    assert_eq!(journal.space().live_content_bytes, 3000 * stragglers.len() as u64);
    let reader = journal.reader();
    let mut buffer = vec![0; 3000];
    for id in stragglers {
        assert_eq!(reader.read_at(id, 0, &mut buffer).unwrap(), 3000);
        assert_eq!(buffer, content_bytes(id, 3000));
    }
    let statistics = journal.statistics();
    assert!(statistics.recycled > 150, "{statistics:?}");
    assert!(statistics.bytes_prepared <= 14 * 16 * 4096, "segments are used again: {statistics:?}");
}

#[test]
fn replay_after_many_checkpoints_is_short_and_right() {
    let mut disk = SimDisk::new(2);
    let mut state = None;
    for start in 0..12 {
        let (journal, report, found) = open(&disk).unwrap();
        assert!(state.is_none_or(|state| state == found), "start {start}");
        let live = journal.space().live_content_bytes;
        assert!(report.bytes < 60 * 16 * 4096 / 3 + live / 8, "{report:?}, {live}");
        check_contents(&journal, &found).unwrap();
        let mut owner = Owner::new(journal, found, 100 + start, Mutation::None);
        for _ in 0..80 {
            owner.fill();
            owner.commit().unwrap();
        }
        owner.check_contents().unwrap();
        state = Some(owner.durable.clone());
        disk = disk.crash();
    }
}

#[test]
fn old_batches_of_a_recycled_segment_are_not_replayed() {
    let disk = SimDisk::new(3);
    let (mut journal, _, _) = open(&disk).unwrap();
    let mut batch = Batch::new();
    for number in 0..200u32 {
        batch.record(format!("old {number}").as_bytes());
        journal.commit(&mut batch, 1).unwrap();
    }
    checkpoint(&mut journal, &mut batch);
    let recycled = journal.statistics().recycled;
    assert!(recycled > 5);
    // Continues in a recycled segment: after the new batches there are whole old ones, with consecutive numbers.
    for number in 0..20u32 {
        batch.record(format!("new {number}").as_bytes());
        journal.commit(&mut batch, 1).unwrap();
    }
    let mut seen = Vec::new();
    Journal::open(Arc::new(disk.crash()), small(), &mut |record| {
        seen.push(String::from_utf8(record.payload.to_vec())?);
        Ok(())
    })
    .unwrap();
    assert_eq!(seen, (0..20).map(|number| format!("new {number}")).collect::<Vec<_>>());
}

#[test]
fn content_ids_are_not_used_twice() {
    let disk = SimDisk::new(4);
    let (mut journal, _, _) = open(&disk).unwrap();
    let mut batch = Batch::new();
    let mut last = 0;
    for _ in 0..50 {
        last = journal.next_content_id();
        batch.content(last, true, b"x");
        batch.drop_content(last);
        journal.commit(&mut batch, 1).unwrap();
    }
    checkpoint(&mut journal, &mut batch);
    drop(journal);
    assert!(open(&disk).unwrap().0.next_content_id() > last);
}

#[test]
fn another_segment_size_takes_over() {
    let disk = SimDisk::new(5);
    let (mut journal, _, _) = open(&disk).unwrap();
    let mut batch = Batch::new();
    batch.content(1, true, b"kept");
    journal.commit(&mut batch, 1).unwrap();
    drop(journal);
    let options = || stentor_journal::Options { segment_bytes: 32 * 4096, ..small() };
    let (mut journal, _) = Journal::open(Arc::new(disk.clone()), options(), &mut |_| Ok(())).unwrap();
    for _ in 0..60 {
        batch.record(b"event");
        journal.commit(&mut batch, 1).unwrap();
    }
    checkpoint(&mut journal, &mut batch);
    while journal.clean_due() {
        journal.clean(&mut batch, 4096);
        journal.commit(&mut batch, 1).unwrap();
    }
    journal.preparer().prepare().unwrap();
    assert!(disk.contents("seg-00000000").is_none(), "the old size is removed once it is empty");
    drop(journal);
    let (journal, _) = Journal::open(Arc::new(disk.crash()), options(), &mut |_| Ok(())).unwrap();
    let mut buffer = [0; 8];
    assert_eq!(journal.reader().read_at(1, 0, &mut buffer).unwrap(), 4);
    assert_eq!(&buffer[..4], b"kept");
}

/// A history: its shape, the sizes of segments and contents, the largest number of live contents, the number of
/// batches.
#[derive(Debug, Clone, Copy)]
struct History {
    finish: Finish,
    segment_bytes: u64,
    content_bytes_max: u64,
    live_max: usize,
    rounds: u64,
    /// Number of slices (each a sixteenth of a segment) that checkpoints name; one in this many changes in between.
    slices: (usize, usize),
}

/// The largest use of the disk in a history, as a fraction of the limit promised in `docs/design/journal-recovery.md`
/// (Disk use).
fn largest_use(history: History, options: &stentor_journal::Options) -> f64 {
    let History { finish, segment_bytes, content_bytes_max, live_max, rounds, slices } = history;
    let seed = finish as u64;
    let disk = SimDisk::new(seed);
    let options = stentor_journal::Options { segment_bytes, reserve_segments: 0, seed: 1, ..options.clone() };
    let (mut journal, _) = Journal::open(Arc::new(disk.clone()), options, &mut |_| Ok(())).unwrap();
    let preparer = journal.preparer();
    let mut rng = fastrand::Rng::with_seed(seed);
    let (mut batch, mut live) = (Batch::new(), VecDeque::new());
    let (slices, changes_one_in) = slices;
    let mut state = vec![None; slices];
    // The next slice of the running checkpoint.
    let mut next_slice = 0;
    let mut most = 0.0f64;
    for round in 0..rounds {
        if live.len() < live_max {
            let id = journal.next_content_id();
            let bytes = rng.u64(1..=content_bytes_max) as usize;
            batch.content(id, true, &content_bytes(id, bytes));
            live.push_back((id, bytes));
        }
        batch.record(b"event");
        let done = finish.next(round, &mut live, live_max, &mut batch, &mut rng);
        if let Some((id, _)) = done {
            batch.drop_content(id);
        }
        if journal.clean_due() {
            journal.clean(&mut batch, segment_bytes as usize / 8);
        }
        // The owner's part: begin, then journal slices and the end with the following batches.
        if journal.checkpoint_running() {
            // As in the committer: all unchanged slices are named, and one is written per batch.
            for slice in state.iter_mut().skip(next_slice) {
                next_slice += 1;
                let is_kept = rng.usize(0..changes_one_in) > 0
                    && slice.is_some_and(|known| journal.keep_slice(&mut batch, known));
                if !is_kept {
                    let (id, bytes) = (journal.next_content_id(), vec![b's'; segment_bytes as usize / 16]);
                    *slice = journal.write_slice(&mut batch, id, &bytes);
                    break;
                }
            }
            if next_slice == slices {
                journal.end_checkpoint(&mut batch);
            }
        } else if journal.checkpoint_due() {
            journal.begin_checkpoint(&mut batch);
            next_slice = 0;
        }
        journal.commit(&mut batch, round).unwrap();
        while preparer.prepare().unwrap() {}
        let space = journal.space();
        let bound = space.live_content_bytes * 3 / 2 + 2 * segment_bytes;
        // The disk is endless: space that is not free is in use.
        let used = u64::MAX - stentor_journal::Disk::free_bytes(&disk).unwrap();
        // Space that is freed all at once is given back when cleaning has finished.
        let is_settled = !journal.clean_due() && !journal.checkpoint_running() && !journal.checkpoint_due();
        if slices > 0 && finish == Finish::Tides && !is_settled {
            continue;
        }
        most = most.max(used as f64 / bound as f64);
    }
    most
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Finish {
    Oldest,
    Newest,
    Any,
    Waves,
    /// All contents end at once.
    Tides,
}

impl Finish {
    /// The content that ends in this round, removed from `live`.
    fn next(
        self,
        round: u64,
        live: &mut VecDeque<(u64, usize)>,
        live_max: usize,
        batch: &mut Batch,
        rng: &mut fastrand::Rng,
    ) -> Option<(u64, usize)> {
        match self {
            Finish::Oldest if live.len() == live_max => live.pop_front(),
            Finish::Newest if live.len() == live_max => live.pop_back(),
            Finish::Any if live.len() == live_max => live.swap_remove_back(rng.usize(0..live_max)),
            // Fills up, then drains to a tenth, at random.
            Finish::Waves if round / 500 % 2 == 1 && live.len() > live_max / 10 => {
                let index = rng.usize(0..live.len());
                live.swap_remove_back(index)
            }
            Finish::Tides if live.len() == live_max => {
                live.drain(1..).for_each(|(id, _)| batch.drop_content(id));
                live.pop_front()
            }
            _ => None,
        }
    }
}

#[test]
fn disk_use_stays_under_live_bytes_and_a_half_whatever_the_history() {
    for finish in [Finish::Oldest, Finish::Newest, Finish::Any, Finish::Waves, Finish::Tides] {
        for (blocks, content_bytes_max, live_max, rounds, slices) in [
            (64, 12_000, 400, 3000, (0, 1)),
            (16, 3_000, 10, 1500, (0, 1)),
            (32, 500, 600, 2500, (0, 1)),
            (16, 200, 300, 2000, (0, 1)),
            (64, 3_000, 900, 2500, (0, 1)),
            (64, 12_000, 400, 3000, (60, 20)),
            (64, 3_000, 5, 2000, (12, 6)),
            (64, 3_000, 5, 2000, (60, 4)),
        ] {
            let segment_bytes = blocks * 4096;
            let history = History { finish, segment_bytes, content_bytes_max, live_max, rounds, slices };
            let most = largest_use(history, &stentor_journal::Options::default());
            // State that changes between checkpoints is much more than a sixteenth of the live content.
            let is_restless = slices.1 == 4;
            assert!(most <= if is_restless { 1.1 } else { 1.0 }, "{history:?}: {most} of the bound");
        }
    }
}

/// Each of these measures is needed: without one of them the test above fails.
#[test]
fn the_bound_is_broken_without_cleaning_with_rare_checkpoints_and_if_room_is_not_seen_to() {
    let large = History {
        finish: Finish::Waves,
        segment_bytes: 64 * 4096,
        content_bytes_max: 12_000,
        live_max: 400,
        rounds: 3000,
        slices: (0, 1),
    };
    let small = History { content_bytes_max: 3_000, live_max: 10, segment_bytes: 16 * 4096, ..large };
    let options = || stentor_journal::Options { spare_segments: 1000, ..Default::default() };
    let clean = largest_use(large, &stentor_journal::Options { clean_total_percent_max: 0, ..options() });
    let rare = largest_use(large, &stentor_journal::Options { checkpoint_bytes_min: 1 << 30, ..options() });
    let pool = largest_use(small, &options());
    assert!(clean > 1.0 && rare > 1.0 && pool > 1.0, "{clean} {rare} {pool}");
}

/// Relay beside a large backlog: checkpoints free as many segments as the log takes up to the next one.
#[test]
fn segments_go_round_without_being_made_again() {
    let segment_bytes = 64 * 4096;
    let disk = SimDisk::new(25);
    let options = stentor_journal::Options { segment_bytes, reserve_segments: 0, seed: 1, ..Default::default() };
    let (mut journal, _) = Journal::open(Arc::new(disk.clone()), options, &mut |_| Ok(())).unwrap();
    let preparer = journal.preparer();
    let (mut batch, mut early) = (Batch::new(), journal.statistics());
    for round in 0..6000u64 {
        let id = journal.next_content_id();
        batch.content(id, true, &content_bytes(id, 6000));
        // The first contents wait forever; each of the others is finished some rounds later.
        if id > 1500 + 20 {
            batch.drop_content(id - 20);
        }
        if journal.clean_due() {
            journal.clean(&mut batch, segment_bytes as usize / 8);
        }
        if journal.checkpoint_running() {
            journal.end_checkpoint(&mut batch);
        } else if journal.checkpoint_due() {
            journal.begin_checkpoint(&mut batch);
        }
        journal.commit(&mut batch, round).unwrap();
        while preparer.prepare().unwrap() {}
        if round == 3000 {
            early = journal.statistics();
        }
    }
    let late = journal.statistics();
    assert!(late.checkpoints > early.checkpoints + 5, "{late:?}");
    assert_eq!((late.bytes_prepared, late.unprepared), (early.bytes_prepared, early.unprepared), "{late:?}");
}

/// Relay without a pause beside 200,000 small messages and a state that changes: segments hold mail that is gone and
/// copies of waiting mail, and must not be cleaned again only because of that.
#[test]
fn relay_beside_much_that_waits_moves_little() {
    const RELAYED_BYTES: usize = 4096;
    let disk = SimDisk::new(27);
    let options = stentor_journal::Options { reserve_segments: 0, seed: 1, ..Default::default() };
    let (mut journal, _) = Journal::open(Arc::new(disk.clone()), options, &mut |_| Ok(())).unwrap();
    let mut rng = fastrand::Rng::with_seed(1);
    let (mut batch, mut state, mut next_slice) = (Batch::new(), [None; 100], 0);
    let (mut before, mut last) = (0, 0);
    for round in 0..4000u64 {
        // First the waiting contents, 200 messages a batch; then each batch relays twenty.
        let (contents, bytes, event) = if round < 1000 { (200, 650, 100) } else { (20, RELAYED_BYTES, 300) };
        for _ in 0..contents {
            let id = journal.next_content_id();
            batch.content(id, true, &vec![b'x'; bytes]);
            batch.record(&vec![0; event]);
            if round >= 1000 {
                batch.drop_content(std::mem::replace(&mut last, id));
            }
        }
        if journal.clean_due() {
            // As the server's committer does beside mail.
            let bytes_max = (4 * batch.bytes()).min(512 * 1024);
            journal.clean(&mut batch, bytes_max);
        }
        if journal.checkpoint_running() {
            for slice in state.iter_mut().skip(next_slice) {
                next_slice += 1;
                let is_kept = rng.u8(0..10) > 0 && slice.is_some_and(|known| journal.keep_slice(&mut batch, known));
                if !is_kept {
                    let id = journal.next_content_id();
                    *slice = journal.write_slice(&mut batch, id, &vec![b's'; 65536]);
                    break;
                }
            }
            if next_slice == state.len() {
                journal.end_checkpoint(&mut batch);
            }
        } else if journal.checkpoint_due() {
            journal.begin_checkpoint(&mut batch);
            next_slice = 0;
        }
        journal.commit(&mut batch, round).unwrap();
        while journal.preparer().prepare().unwrap() {}
        if round == 2000 {
            before = journal.statistics().bytes_moved;
        }
    }
    let moved = (journal.statistics().bytes_moved - before) as f64 / (2000 * 20 * RELAYED_BYTES) as f64;
    assert!(moved < 3.0, "{moved} octets moved for each that was relayed");
}

#[test]
fn where_nothing_stays_two_segments_take_turns() {
    let segment_bytes = 64 * 4096;
    let disk = SimDisk::new(26);
    let options = stentor_journal::Options { segment_bytes, reserve_segments: 0, seed: 1, ..Default::default() };
    let (mut journal, _) = Journal::open(Arc::new(disk.clone()), options, &mut |_| Ok(())).unwrap();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let preparer = journal.preparer();
    std::thread::scope(|scope| {
        // Whenever it can, also between taking a segment and the end of the commit that took it.
        scope.spawn(|| {
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                preparer.prepare().unwrap();
            }
        });
        let mut batch = Batch::new();
        for round in 0..4000u64 {
            batch.record(&[7; 6000]);
            if journal.checkpoint_running() {
                journal.end_checkpoint(&mut batch);
            } else if journal.checkpoint_due() {
                journal.begin_checkpoint(&mut batch);
            }
            journal.commit(&mut batch, round).unwrap();
        }
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    let statistics = journal.statistics();
    assert!(statistics.recycled > 90, "{statistics:?}");
    // The first ones, and occasionally another one if the preparer was interrupted between its check and its work. Not
    // one for each segment taken, as there would be if taking one did not lower the limit.
    assert!(statistics.bytes_prepared <= statistics.recycled / 4 * segment_bytes, "{statistics:?}");
    // Segments made that way are removed.
    while preparer.prepare().unwrap() {}
    assert!(disk_bytes(&disk) <= 3 * segment_bytes as usize, "{}", disk_bytes(&disk));
}

/// A journal with 200 small contents in old segments, every tenth of which is live: there is something to clean.
fn with_stragglers(disk: &SimDisk) -> Journal {
    let (mut journal, _, _) = open(disk).unwrap();
    let mut batch = Batch::new();
    for id in 1..=200u64 {
        batch.content(id, true, &content_bytes(id, 3000));
        if id % 10 != 0 {
            batch.drop_content(id);
        }
        journal.commit(&mut batch, id).unwrap();
    }
    checkpoint(&mut journal, &mut batch);
    assert!(journal.clean_due());
    journal
}

/// Reopens after a power cut; contents are kept although no record refers to them.
fn reopen(disk: &SimDisk) -> Journal {
    Journal::open(Arc::new(disk.crash()), small(), &mut |_| Ok(())).unwrap().0
}

fn check_stragglers(journal: &Journal) {
    let mut buffer = vec![0; 3000];
    for id in (10..=200).step_by(10) {
        assert_eq!(journal.reader().read_at(id, 0, &mut buffer).unwrap(), 3000);
        assert_eq!(buffer, content_bytes(id, 3000));
    }
}

#[test]
fn a_commit_copies_only_what_was_read_ahead() {
    let disk = SimDisk::new(21);
    let mut journal = with_stragglers(&disk);
    let mut batch = Batch::new();
    let cleaner = journal.cleaner();
    assert_eq!(journal.clean(&mut batch, 8000), 0, "a victim is named, and nothing is read");
    assert!(journal.clean_due());
    while cleaner.read() {}
    let copied = journal.clean(&mut batch, 8000);
    assert!(copied > 0 && copied <= 8000, "{copied}");
    assert_eq!(journal.clean(&mut batch, 8000), 0, "once per batch");
    let segments = journal.space().segments;
    let mut turns = 0;
    while journal.clean_due() {
        journal.commit(&mut batch, 1).unwrap();
        cleaner.read();
        assert!(journal.clean(&mut batch, 8000) <= 8000);
        turns += 1;
        assert!(turns < 1000, "cleaning comes to an end");
    }
    journal.commit(&mut batch, 1).unwrap();
    assert!(journal.space().segments < segments, "{:?}", journal.space());
    check_stragglers(&journal);
    check_stragglers(&reopen(&disk));
}

#[test]
fn a_victim_that_comes_free_is_not_read_on() {
    let disk = SimDisk::new(22);
    let mut journal = with_stragglers(&disk);
    let mut batch = Batch::new();
    let cleaner = journal.cleaner();
    journal.clean(&mut batch, 8000);
    cleaner.read();
    (10..=200).step_by(10).for_each(|id| journal.drop_content(id));
    assert!(!cleaner.read(), "it is somebody else's segment by now");
    assert_eq!(journal.clean(&mut batch, 8000), 0);
    assert!(!journal.clean_due());
}

#[test]
fn another_thread_reads_while_commits_go_on() {
    let disk = SimDisk::new(23);
    let mut journal = with_stragglers(&disk);
    let cleaner = journal.cleaner();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                if !cleaner.read() {
                    cleaner.wait(std::time::Duration::from_millis(1));
                }
            }
        });
        let mut batch = Batch::new();
        for id in 1000..3000u64 {
            batch.content(id, true, &content_bytes(id, 3000));
            if id % 50 != 0 {
                batch.drop_content(id);
            }
            journal.clean(&mut batch, 16_000);
            journal.commit(&mut batch, id).unwrap();
            if journal.checkpoint_due() {
                checkpoint(&mut journal, &mut batch);
            }
        }
        while journal.clean_due() {
            journal.clean(&mut batch, 16_000);
            journal.commit(&mut batch, 1).unwrap();
            std::thread::yield_now();
        }
        checkpoint(&mut journal, &mut batch);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    // Excess segments are removed.
    journal.preparer().prepare().unwrap();
    check_stragglers(&journal);
    // 60 stragglers of 3000 bytes, segments that the last checkpoint still needs, the pool.
    assert!(disk_bytes(&disk) < 60 * 3000 * 3 / 2 + 14 * 16 * 4096, "{:?}", journal.space());
    assert!(journal.statistics().bytes_moved > 0);
}

#[test]
fn a_commit_that_finds_nothing_ready_does_not_fill_a_segment() {
    let disk = SimDisk::new(24);
    let (mut journal, _, _) = open(&disk).unwrap();
    let mut batch = Batch::new();
    for id in 1..=60u64 {
        batch.content(id, true, &content_bytes(id, 3000));
        journal.commit(&mut batch, id).unwrap();
    }
    let statistics = journal.statistics();
    assert_eq!(statistics.bytes_prepared, 0);
    assert_eq!(statistics.unprepared as usize, journal.space().segments);
    let journal = reopen(&disk);
    let mut buffer = vec![0; 3000];
    for id in 1..=60 {
        journal.reader().read_at(id, 0, &mut buffer).unwrap();
        assert_eq!(buffer, content_bytes(id, 3000));
    }
}
