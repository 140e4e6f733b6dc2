//! What a seed decides: faults, mutations, layout. Same seed, same run.

use fastrand::Rng;
use stentor_journal::{Op, Options, SimDisk};
use stentor_queue::ids::Ms;
use stentor_sched::{Backoff, SchedConfig};

/// A deliberate error that the checks must find.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutation {
    None,
    /// The sync before 250 does nothing.
    NoSync,
    /// Syncs of the directory do nothing.
    NoDirSync,
    /// A message's record is durable in a batch before its content's.
    RecordFirst,
    /// Outcomes are applied and never journaled.
    OutcomeLost,
    /// An address interned for a refused batch stays in the book.
    InternKept,
    /// The id of a forgotten address is given out again before a checkpoint is complete.
    ReusedEarly,
    /// An operator is told of a hold or a release before it is durable.
    VerbEarly,
    /// A slice that the durable checkpoint names is dropped before the next one is durable.
    SliceDropped,
    /// A start does not know what is queue-only.
    QueueOnlyForgotten,
    /// A copy to another server is acknowledged and not kept.
    CopyLost,
    /// A start does not know what is in the quarantine, and sends it.
    QuarantineForgotten,
}

pub const MUTATIONS: [Mutation; 11] = [
    Mutation::NoSync,
    Mutation::NoDirSync,
    Mutation::RecordFirst,
    Mutation::OutcomeLost,
    Mutation::InternKept,
    Mutation::ReusedEarly,
    Mutation::VerbEarly,
    Mutation::SliceDropped,
    Mutation::QueueOnlyForgotten,
    Mutation::CopyLost,
    Mutation::QuarantineForgotten,
];

/// Operations that are rare: errors are aimed at one of the first of a kind.
const RARE: [(Op, u64); 5] =
    [(Op::Create, 8), (Op::Rename, 8), (Op::Remove, 6), (Op::SyncDir, 12), (Op::Preallocate, 8)];

/// When the disk is nearly full and when it has room again.
#[derive(Clone, Copy, Debug)]
pub struct Shortage {
    pub from: Ms,
    pub to: Ms,
    pub spare_bytes: u64,
}

/// A disk that refuses: from this write or sync on (counted as cuts are), for so many, or for so long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// EIO, ENOSPC or EDQUOT.
    pub errno: i32,
    pub from: u64,
    pub duration: RefusalDuration,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RefusalDuration {
    Operations(u64),
    /// From the first one that is met.
    Time(Ms),
}

impl Refusal {
    pub(crate) fn begin(&self, disk: &SimDisk) {
        let until = match self.duration {
            RefusalDuration::Operations(count) => self.from.saturating_add(count),
            RefusalDuration::Time(_) => u64::MAX,
        };
        disk.refuse(self.errno, None, self.from..until);
    }
}

pub struct Scenario {
    pub clients: u32,
    /// How often the operator does something.
    pub verbs: u32,
    pub shortage: Option<Shortage>,
    pub refusal: Option<Refusal>,
    write_errors: Vec<u64>,
    sync_errors: Vec<u64>,
    rare_errors: Vec<(Op, u64)>,
    flips: bool,
}

impl Scenario {
    pub fn new(seed: u64, mutation: Mutation) -> Scenario {
        let mut rng = Rng::with_seed(seed ^ 0xFA17);
        let faulty = rng.bool() || mutation == Mutation::InternKept;
        let count = if faulty { rng.usize(1..4) } else { 0 };
        let clients = rng.u32(8..20);
        let mut rare_errors = Vec::new();
        for (op, most) in RARE {
            if faulty && rng.bool() {
                rare_errors.push((op, rng.u64(1..=most)));
            }
        }
        Scenario {
            clients,
            verbs: rng.u32(0..9),
            write_errors: (0..count).map(|_| rng.u64(12..160)).collect(),
            sync_errors: (0..count).map(|_| rng.u64(12..160)).collect(),
            rare_errors,
            shortage: (rng.u8(0..4) == 0).then(|| {
                let from = rng.u64(1..1500);
                Shortage { from, to: from + rng.u64(1..1500), spare_bytes: rng.u64(0..3) * 16 * 1024 }
            }),
            flips: rng.bool(),
            refusal: None,
        }
    }

    /// The same clients and operator on a disk with this trouble and no other.
    pub fn refused(seed: u64, refusal: Refusal) -> Scenario {
        Scenario {
            shortage: None,
            write_errors: Vec::new(),
            sync_errors: Vec::new(),
            rare_errors: Vec::new(),
            refusal: Some(refusal),
            ..Scenario::new(seed, Mutation::None)
        }
    }

    pub fn faults(&self, disk: &SimDisk) {
        for number in &self.write_errors {
            disk.fail_write_at(*number);
        }
        for number in &self.sync_errors {
            disk.fail_sync_at(*number);
        }
        for (op, nth) in &self.rare_errors {
            disk.fail_nth(*op, *nth);
        }
        if let Some(refusal) = &self.refusal {
            refusal.begin(disk);
        }
    }

    pub fn mutate(&self, disk: &SimDisk, mutation: Mutation) {
        if self.flips {
            disk.flip_unsynced();
        }
        match mutation {
            Mutation::NoSync => disk.ignore_syncs(),
            Mutation::NoDirSync => disk.ignore_dir_syncs(),
            _ => {}
        }
    }
}

/// Tiny segments and early checkpoints: whatever happens once a day happens every few batches.
pub fn options() -> Options {
    Options {
        segment_bytes: 14 * 4096,
        batch_bytes_max: 12 * 4096,
        pool_ready_min: 1,
        pool_ready_max: 3,
        spare_segments: 2,
        reserve_segments: 2,
        checkpoint_bytes_min: 24 * 4096,
        clean_live_percent_max: 40,
        clean_total_percent_max: 80,
        seed: 0x057E_4704,
    }
}

/// Short clocks: simulated time costs nothing, but each retry is an event.
pub fn sched() -> SchedConfig {
    let clock = Backoff::new(500, 4_000);
    SchedConfig {
        connections_max: 6,
        slow_connections_max: 2,
        connections_per_site_max: 2,
        recipients_per_transaction_max: 4,
        transactions_per_connection_max: 8,
        idle_ms: 200,
        resolves_max: 4,
        host_retry: clock,
        site_retry: clock,
        mailbox_retry: clock,
        recipient_retry: clock,
        domain_retry: clock,
        lifetime_ms: 15_000,
        bounce_gather_ms: 50,
        ..SchedConfig::default()
    }
}
