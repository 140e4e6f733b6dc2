//! A store in which mail waits comes to rest: cleaning costs a bounded part of the traffic, and nothing without
//! traffic.

use std::sync::Arc;

use proptest::prelude::*;
use stentor_journal::{Batch, Journal, Options, SimDisk};

/// Largest part of a large body that a session hands over at once, and limit for the octets that the server's committer
/// moves with a batch.
const PIECE_BYTES: usize = 256 * 1024;
const CLEAN_BYTES_MAX: usize = 512 * 1024;
/// A batch of small mail: it takes one block, which is more than its octets.
const MAIL_BYTES: usize = 3000;
const BLOCK_BYTES: u64 = 4096;
const MIB: u64 = 1024 * 1024;
/// Octets moved per octet that comes or goes, at most (`docs/design/journal-recovery.md`, Cleaning).
const MOVED_FACTOR: u64 = 8;

struct Store {
    journal: Journal,
    batch: Batch,
    clean_bytes_max: usize,
    /// Octets that the owner wrote, in whole blocks, and octets of contents that it dropped.
    came: u64,
    went: u64,
    rounds: u64,
    /// Slices of the owner's state in a checkpoint, each of one block: their number, and those still to write.
    slices: usize,
    slices_left: usize,
}

impl Store {
    fn open(disk: &SimDisk, segment_bytes: u64) -> Store {
        let options = Options { segment_bytes, reserve_segments: 0, seed: 1, ..Options::default() };
        let (journal, _) = Journal::open(Arc::new(disk.clone()), options, &mut |_| Ok(())).unwrap();
        let clean_bytes_max = CLEAN_BYTES_MAX.min(segment_bytes as usize / 2);
        Store { journal, batch: Batch::new(), clean_bytes_max, came: 0, went: 0, rounds: 0, slices: 0, slices_left: 0 }
    }

    /// Stores a body of `bytes` octets, with one batch for each piece.
    fn take(&mut self, bytes: usize, piece_bytes: usize) -> u64 {
        let id = self.journal.next_content_id();
        let mut left = bytes;
        while left > 0 {
            let count = left.min(piece_bytes);
            left -= count;
            self.batch.content(id, left == 0, &vec![b'x'; count]);
            self.batch.record(b"event");
            self.turn();
        }
        id
    }

    fn drop(&mut self, id: u64) {
        self.went += self.journal.reader().len(id).unwrap_or(0);
        self.batch.record(b"outcome");
        self.batch.drop_content(id);
        self.turn();
    }

    /// Commits a batch in the way of the server's committer.
    fn turn(&mut self) {
        if !self.batch.is_empty() {
            self.came += (self.batch.bytes() as u64).next_multiple_of(BLOCK_BYTES);
        }
        if self.journal.checkpoint_running() && self.slices_left > 0 {
            self.slices_left -= 1;
            self.journal.record_slice(&mut self.batch, &[b's'; BLOCK_BYTES as usize]);
        } else if self.journal.checkpoint_running() {
            self.journal.end_checkpoint(&mut self.batch);
        } else if self.journal.checkpoint_due() {
            self.journal.begin_checkpoint(&mut self.batch);
            self.slices_left = self.slices;
        }
        if self.journal.clean_due() {
            self.journal.clean(&mut self.batch, self.clean_bytes_max);
        }
        self.rounds += 1;
        self.journal.commit(&mut self.batch, self.rounds).unwrap();
        while self.journal.preparer().prepare().unwrap() {}
    }

    fn is_at_rest(&self) -> bool {
        !self.journal.checkpoint_running() && !self.journal.checkpoint_due() && !self.journal.clean_due()
    }

    /// Runs the work that continues without mail to its end. Returns the number of turns; `None`: it does not end.
    fn run_until_idle(&mut self, turns_max: u64) -> Option<u64> {
        (0..turns_max).find(|_| {
            let is_at_rest = self.is_at_rest();
            if !is_at_rest {
                self.turn();
            }
            is_at_rest
        })
    }

    fn moved(&self) -> u64 {
        self.journal.statistics().bytes_moved
    }

    /// Upper bound for waiting octets and the overhead of their pieces.
    fn occupied(&self) -> u64 {
        let space = self.journal.space();
        space.live_content_bytes * 2 + space.contents as u64 * 64
    }

    fn written(&self) -> u64 {
        self.journal.statistics().bytes_written
    }
}

/// A large message waits: measures the octets written after it, alone and beside light traffic.
fn wait(segment_bytes: u64, sixteenths: u64) {
    let bytes = segment_bytes * sixteenths / 16;
    let what = format!("{bytes} octets in segments of {segment_bytes}");
    let mut store = Store::open(&SimDisk::new(sixteenths), segment_bytes);
    store.take(bytes as usize, PIECE_BYTES);
    let turns_max = 100 + 8 * bytes.div_ceil(PIECE_BYTES as u64);
    assert!(
        store.run_until_idle(turns_max).is_some(),
        "{what}: no rest after {turns_max} turns: {:?}",
        store.journal.statistics()
    );
    assert!(store.moved() <= 2 * bytes, "{what}: {} moved", store.moved());
    // One mail of 3,000 octets after the other, each removed a while later, until the log has used several segments.
    let (came, written, moved) = (store.came, store.written(), store.moved());
    let mut pending = std::collections::VecDeque::new();
    let mails = 3 * segment_bytes / (MAIL_BYTES as u64 + BLOCK_BYTES);
    for _ in 0..mails {
        pending.push_back(store.take(MAIL_BYTES, PIECE_BYTES));
        if pending.len() > 5 {
            store.drop(pending.pop_front().unwrap());
        }
        assert!(store.run_until_idle(turns_max).is_some(), "{what}: no rest beside light traffic");
    }
    let (came, written, moved) = (store.came - came, store.written() - written, store.moved() - moved);
    assert!(written <= 3 * came, "{what}: {came} octets came, {written} were written, {moved} of them moved");
}

#[test]
fn a_large_message_costs_no_writes_while_it_waits() {
    for sixteenths in [5, 16, 24, 40, 80, 160, 320] {
        wait(MIB, sixteenths);
    }
    for sixteenths in [5, 16, 24, 64, 320] {
        wait(16 * MIB, sixteenths);
    }
}

/// Two bodies arrive piece by piece, in turn; one goes. The remaining pieces are packed as tightly as possible.
#[test]
fn large_pieces_are_packed_when_half_of_them_go() {
    for (segment_bytes, pieces) in [(MIB, 80), (2 * MIB, 80), (16 * MIB, 200)] {
        let disk = SimDisk::new(7);
        let mut store = Store::open(&disk, segment_bytes);
        let ids = [store.journal.next_content_id(), store.journal.next_content_id()];
        for piece in 0..pieces {
            for id in ids {
                store.batch.content(id, piece + 1 == pieces, &vec![b'x'; PIECE_BYTES]);
                store.turn();
            }
        }
        assert!(store.run_until_idle(10_000).is_some());
        store.drop(ids[0]);
        assert!(store.run_until_idle(10_000).is_some(), "{segment_bytes}: no rest");
        let space = store.journal.space();
        let bound = space.live_content_bytes * 3 / 2 + 2 * segment_bytes;
        assert!(space.disk_bytes <= bound, "{segment_bytes}: {space:?}, {bound}");
    }
}

/// An event in the life of a store.
#[derive(Debug, Clone)]
enum Step {
    Take {
        bytes: usize,
        piece_bytes: usize,
    },
    /// A waiting content goes.
    Drop(prop::sample::Index),
    /// No mail for a while.
    Quiet,
    /// A power cut and a start.
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Up to 20 segments at once, in pieces of up to a third of a segment.
    let large =
        (1usize..1_400_000, 1000usize..22_000).prop_map(|(bytes, piece_bytes)| Step::Take { bytes, piece_bytes });
    let small = (1usize..9_000).prop_map(|bytes| Step::Take { bytes, piece_bytes: bytes });
    let go = any::<prop::sample::Index>().prop_map(Step::Drop);
    let step = prop_oneof![1 => large, 40 => small, 30 => go, 8 => Just(Step::Quiet), 1 => Just(Step::Restart)];
    prop::collection::vec(step, 1..300)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever happened before, all work ends without mail, and moved octets are paid for by octets that came and
    /// went, and by one look at the live content at each start.
    #[test]
    fn cleaning_is_paid_for_by_traffic(blocks in 16u64..64, slices in 0usize..100, steps in steps()) {
        let mut disk = SimDisk::new(blocks);
        let mut store = Store { slices, ..Store::open(&disk, blocks * BLOCK_BYTES) };
        let (mut waiting, mut starts, mut moved) = (Vec::new(), 0, 0);
        for step in steps {
            match step {
                Step::Take { bytes, piece_bytes } => waiting.push(store.take(bytes, piece_bytes)),
                Step::Drop(_) if waiting.is_empty() => {}
                Step::Drop(index) => {
                    let id = waiting.swap_remove(index.index(waiting.len()));
                    store.drop(id);
                }
                Step::Quiet => {
                    let live = store.journal.space().live_content_bytes;
                    prop_assert!(store.run_until_idle(1000 + 10 * slices as u64 + live / 500).is_some(), "no rest: {:?}, checkpoint {}, clean {}", store.journal.statistics(), store.journal.checkpoint_due(), store.journal.clean_due());
                }
                Step::Restart => {
                    starts += store.occupied();
                    moved += store.moved();
                    let (came, went) = (store.came, store.went);
                    disk = disk.crash();
                    store = Store { came, went, slices, ..Store::open(&disk, blocks * BLOCK_BYTES) };
                    store.journal.retain_contents(&mut |id| waiting.contains(&id)).unwrap();
                }
            }
            let paid = MOVED_FACTOR * (store.came + store.went) + starts;
            prop_assert!(moved + store.moved() <= paid, "{} and {moved} moved, {paid} paid", store.moved());
        }
    }
}
