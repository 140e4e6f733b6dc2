//! The durable log: one log for content and events, one write and one sync per batch, then the owner may reply 250.
//!
//! Promise: every batch for which [`Journal::commit`] returned `Ok` is found again by [`Journal::open`], in order,
//! despite power cuts and kills, on a medium that honours `fdatasync`. A torn tail is cut; damage before it makes the
//! start fail and is reported with its position. The proof, the format and the assumptions are in
//! `docs/design/journal-format.md`.
//!
//! The journal knows nothing of mail: records are opaque, content is bytes under a number, time is an argument, and the
//! disk is the trait [`Disk`]: [`RealDisk`] is a directory, [`SimDisk`] a faulty one for tests that loses unsynced
//! data.
//!
//! Owners know it as a [`Log`]; [`VolatileLog`] is another one, in memory, for their tests. How an owner uses it:
//! - fill a [`Batch`] (content pieces, then the records that refer to them), [`Journal::commit`] it, reuse it;
//! - drop content with [`Batch::drop_content`] in the batch whose record ends the last reference;
//! - after open call [`Journal::retain_contents`] with the contents that the replayed state refers to;
//! - when [`Journal::checkpoint_due`]: [`Journal::begin_checkpoint`], own slices plus one [`Journal::checkpoint_slice`]
//!   per batch, [`Journal::end_checkpoint`] until it returns done; own slices are ordinary records, or
//!   [`Journal::write_slice`] and, in later checkpoints, [`Journal::keep_slice`] while they have not changed;
//! - when [`Journal::clean_due`]: [`Journal::clean`] adds copies of old live content to the batch;
//! - [`Journal::cleaner`] lets another thread do the reads for cleaning ([`Cleaner::read`]), so that no commit waits
//!   for them;
//! - call [`Preparer::prepare`] from another thread now and then, so that commits need not make segments.

mod batch;
mod building;
mod checkpoint;
mod clean;
mod commit;
mod disk;
mod error;
mod format;
mod fuzz;
mod inspect;
mod journal;
mod log;
mod pace;
mod pages;
mod pool;
mod read_ahead;
mod reader;
mod recovery;
mod replay;
mod scan;
mod table;
mod volatile;

pub use batch::Batch;
pub use checkpoint::CheckpointStep;
pub use disk::real::RealDisk;
pub use disk::sim::{EDQUOT, EIO, ENOSPC, OPS, Op, SimDisk};
pub use disk::{Disk, DiskFile};
pub use error::{CommitError, JournalError};
pub use format::{
    BATCH_HEADER_BYTES as BATCH_OVERHEAD_BYTES, BLOCK_BYTES, RECORD_HEADER_BYTES as RECORD_OVERHEAD_BYTES, Slice,
};
#[doc(hidden)]
pub use fuzz::recover_for_fuzz;
pub use inspect::{
    InspectedItem, Inspection, Irregularity, Item, MissingPart, SegmentState, SegmentSummary, StoredContents,
    abandoned, inspect, verify,
};
pub use read_ahead::Cleaner;
/// Bytes that a piece of content takes in a batch besides its own.
pub const PIECE_OVERHEAD_BYTES: usize = RECORD_OVERHEAD_BYTES + format::PIECE_HEADER_BYTES;
pub use journal::{Journal, Options, Receipt, Space, Statistics};
pub use log::Log;
pub use pace::Pace;
pub use pool::Preparer;
pub use reader::ContentReader;
pub use recovery::RecoveryReport;
pub use replay::{Record, Replay};
pub use volatile::VolatileLog;

/// Milliseconds since the Unix epoch.
pub type Ms = u64;
