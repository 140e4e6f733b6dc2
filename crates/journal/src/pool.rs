//! Segments ready to become the head.
//!
//! States of a slot: being prepared (`new-`), ready, excess (to be removed). A segment is zero-filled once, when it is
//! created, so that later syncs write data and no file-system metadata; recycled ones are used as they are. Preparing
//! belongs off the commit path ([`Preparer`]). A commit that finds none ready makes one itself, reserved but not
//! filled, so that it waits for a few small writes and not for a whole segment. Later syncs of that segment write
//! metadata as well.
//!
//! The pool also owns the state *out of space* of a full disk. It begins with the first call that the disk refuses for
//! lack of space: making a segment, writing a header or a batch. It ends when another segment is obtained: made, or
//! freed. Until then each [`Preparer::prepare`] tries to make one, however many are ready and whatever the limits say,
//! so that free space is found as soon as there is some.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::disk::{Disk, DiskFile};
use crate::error::is_full;

const ZERO_BYTES: usize = 1024 * 1024;
pub(crate) const SEGMENT_PREFIX: &str = "seg-";
pub(crate) const NEW_PREFIX: &str = "new-";

pub(crate) fn segment_name(slot: u32) -> String {
    format!("{SEGMENT_PREFIX}{slot:08x}")
}

/// The slot in a segment's file name.
pub(crate) fn parse_segment_name(name: &str) -> Option<u32> {
    let digits = name.strip_prefix(SEGMENT_PREFIX)?;
    (digits.len() == 8).then(|| u32::from_str_radix(digits, 16).ok())?
}

/// A free segment of the configured size.
pub(crate) struct FreeSegment {
    pub slot: u32,
    pub file: Arc<dyn DiskFile>,
}

/// How a new segment is filled.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fill {
    Zeros,
    /// Space is reserved only.
    Nothing,
}

pub(crate) struct Pool {
    disk: Arc<dyn Disk>,
    segment_bytes: u64,
    ready_min: usize,
    state: Mutex<State>,
    bytes_prepared: AtomicU64,
}

struct State {
    /// The number of segments that may be ready without all files together exceeding [`Pool::limit`], and the number
    /// that may be made for that.
    ready_max: usize,
    made_max: usize,
    ready: Vec<FreeSegment>,
    /// Names of files to remove.
    excess: Vec<String>,
    next_slot: u32,
    preparing: usize,
    is_out_of_room: bool,
}

impl Pool {
    pub fn new(disk: Arc<dyn Disk>, segment_bytes: u64, ready_min: usize, ready_max: usize, next_slot: u32) -> Pool {
        let (ready, excess) = (Vec::new(), Vec::new());
        let state =
            State { ready_max, made_max: ready_max, ready, excess, next_slot, preparing: 0, is_out_of_room: false };
        Pool { disk, segment_bytes, ready_min, state: Mutex::new(state), bytes_prepared: AtomicU64::new(0) }
    }

    /// Takes a ready segment. It is then in use, so there is space for one less until the owner sets the limit again
    /// ([`Pool::limit`]): otherwise another would be filled at once, and removed when the next is freed.
    pub fn take(&self) -> Option<FreeSegment> {
        let mut state = self.state.lock();
        let ready = state.ready.pop();
        if ready.is_some() {
            state.ready_max = state.ready_max.saturating_sub(1);
            state.made_max = state.made_max.saturating_sub(1);
        }
        ready
    }

    pub fn ready(&self) -> usize {
        self.state.lock().ready.len()
    }

    pub fn bytes_prepared(&self) -> u64 {
        self.bytes_prepared.load(Ordering::Relaxed)
    }

    /// True from the first call refused for lack of space until a segment is obtained again.
    pub fn is_out_of_room(&self) -> bool {
        self.state.lock().is_out_of_room
    }

    /// Call this for every failure that may be due to lack of space. Returns whether it was.
    pub fn heed(&self, error: &io::Error) -> bool {
        let is_full = is_full(error);
        if is_full {
            self.state.lock().is_out_of_room = true;
        }
        is_full
    }

    /// Adds a free segment, which ends *out of space*; beyond `ready_max` it is marked for removal.
    pub fn give(&self, ready: FreeSegment) {
        let mut state = self.state.lock();
        let ready_max = state.ready_max.max(usize::from(state.is_out_of_room));
        state.is_out_of_room = false;
        if state.ready.len() < ready_max {
            state.ready.push(ready);
        } else {
            state.excess.push(segment_name(ready.slot));
        }
    }

    /// Keeps at most `ready_max` segments ready from now on, and makes none beyond `made_max`. Excess ones are removed.
    pub fn limit(&self, ready_max: usize, made_max: usize) {
        let mut state = self.state.lock();
        (state.ready_max, state.made_max) = (ready_max, made_max);
        while state.ready.len() > ready_max {
            let name = state.ready.pop().map(|ready| segment_name(ready.slot));
            state.excess.extend(name);
        }
    }

    /// Marks a slot that must not be used again.
    pub fn discard(&self, slot: u32) {
        self.state.lock().excess.push(segment_name(slot));
    }

    /// Removes excess segments; those that cannot be removed now (a full disk may refuse that too) remain marked.
    /// Returns how many were removed. The removal is made durable, so that an abandoned header cannot reappear beside a
    /// later one of the same generation; if that fails, the next open syncs the directory.
    pub fn remove_excess(&self) -> usize {
        let names = std::mem::take(&mut self.state.lock().excess);
        if names.is_empty() {
            return 0;
        }
        let is_left = |name: &String| match self.disk.remove(name) {
            Err(error) => error.kind() != io::ErrorKind::NotFound,
            Ok(()) => false,
        };
        let (left, gone): (Vec<String>, Vec<String>) = names.into_iter().partition(is_left);
        if !gone.is_empty() {
            let _ = self.disk.sync_dir();
        }
        self.state.lock().excess.extend(left);
        gone.len()
    }

    /// Creates a segment: space reserved, optionally zero-filled, synced, named, and the name synced.
    pub fn create(&self, fill: Fill) -> io::Result<FreeSegment> {
        // Removing excess segments first gains room.
        self.remove_excess();
        let slot = {
            let mut state = self.state.lock();
            let slot = state.next_slot;
            state.next_slot = slot.checked_add(1).ok_or(io::ErrorKind::StorageFull)?;
            slot
        };
        let (new_name, name) = (format!("{NEW_PREFIX}{slot:08x}"), segment_name(slot));
        let made = self.fill(&new_name, fill).and_then(|()| {
            self.disk.rename(&new_name, &name)?;
            self.disk.sync_dir()?;
            // Under its final name: a file may be closed and reopened while it is used.
            Ok(FreeSegment { slot, file: self.disk.open(&name)? })
        });
        match &made {
            Ok(_) => self.state.lock().is_out_of_room = false,
            Err(error) => {
                self.heed(error);
                // Under either name: the directory sync may have failed. Otherwise each attempt would leave a segment.
                self.state.lock().excess.extend([new_name, name]);
                self.remove_excess();
            }
        }
        made
    }

    fn fill(&self, name: &str, fill: Fill) -> io::Result<()> {
        let file = self.disk.create(name)?;
        file.preallocate(self.segment_bytes)?;
        if fill == Fill::Nothing {
            return file.sync_data();
        }
        let zeros = vec![0; ZERO_BYTES.min(self.segment_bytes as usize)];
        let mut offset = 0;
        while offset < self.segment_bytes {
            let count = zeros.len().min((self.segment_bytes - offset) as usize);
            file.write_at(offset, &zeros[..count])?;
            offset += count as u64;
        }
        file.sync_data()?;
        self.bytes_prepared.fetch_add(self.segment_bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Registers a segment as being prepared if one more is needed. Returns whether it is.
    fn begin_preparing(&self) -> bool {
        let mut state = self.state.lock();
        let enough = if state.is_out_of_room { state.ready.len() + 1 } else { self.ready_min.min(state.made_max) };
        let wants = state.ready.len() + state.preparing < enough;
        state.preparing += usize::from(wants);
        wants
    }
}

/// Does the slow work on the journal's segments from another thread.
#[derive(Clone)]
pub struct Preparer {
    pub(crate) pool: Arc<Pool>,
}

impl Preparer {
    /// Removes unneeded segments, or zero-fills one if fewer than `pool_ready_min` are ready or to find out whether
    /// there is space again. `Ok(true)`: something was done, call again. `Ok(false)`: nothing to do. A full disk is not
    /// an error here: it returns `Ok(false)`, to be called again after a pause.
    pub fn prepare(&self) -> io::Result<bool> {
        if self.pool.remove_excess() > 0 {
            return Ok(true);
        }
        if !self.pool.begin_preparing() {
            return Ok(false);
        }
        let made = self.pool.create(Fill::Zeros);
        self.pool.state.lock().preparing -= 1;
        match made {
            Ok(ready) => self.pool.give(ready),
            Err(error) if is_full(&error) => return Ok(false),
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// True while the disk is known to lack space for a segment: each [`Preparer::prepare`] tries to make one.
    pub fn is_out_of_room(&self) -> bool {
        self.pool.is_out_of_room()
    }
}
