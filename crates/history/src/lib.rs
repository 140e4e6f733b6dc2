//! The history: records of events in the life of mail, kept for a limited time in an embedded store of append-only
//! files.
//!
//! Promise: an append costs the caller well under a microsecond, whatever the disk does. An appended record is in the
//! file within a second and synced within some seconds. The directory never exceeds its limit. Damage is skipped and
//! counted, and the rest is read. The journal, not the history, is the authoritative record of mail: history that
//! cannot be written is dropped and counted, and the history records the loss.
//!
//! [`History`] appends, [`Reader`] reads; the format is in `docs/design/history-format.md`.

mod append;
mod block;
mod codec;
mod file;
mod files;
mod filter;
pub mod fuzz;
mod position;
mod reader;
mod shared;
mod story;
mod varint;
mod writer;

pub use append::{History, StoreStatus};
pub use block::BLOCK_BYTES;
pub use codec::{TEXT_BYTES_MAX, TO_MAX};
pub use filter::matches;
pub use position::{NoPosition, Position};
pub use reader::{ConsumerProgress, Reader, ScanControl, ScanCounts};
pub use shared::Config;
pub use story::{StoryQuery, has_sender, is_scan, story};
