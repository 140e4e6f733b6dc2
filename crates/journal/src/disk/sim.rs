//! A disk in memory that loses unsynced data, for crash campaigns.
//!
//! Each file has two images: the data that a process sees, and the data that a power cut leaves. [`SimDisk::crash`]
//! keeps synced data and a seeded subset of the rest, torn at 512 bytes; names not covered by a directory sync may be
//! lost or restored, one by one. The same seed and the same calls give the same disk. A failed sync permanently loses a
//! seeded part of the data that it should have kept, while reads still show it and the next sync succeeds: as on Linux.
//!
//! Changing operations ([`Op`]) are numbered from 1, in total and per kind; power can be cut at one of them, and errors
//! aimed at one or at a range of them. A failed operation may have had its effect, or any part of it. A write without
//! enough space is done up to a block boundary, since file systems allocate by the block.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::sync::Arc;

use fastrand::Rng;
use parking_lot::{Mutex, MutexGuard};

use super::{Disk, DiskFile};

const SECTOR_BYTES: usize = 512;
const BLOCK_BYTES: usize = 4096;
/// Error numbers that operations may return.
pub const EIO: i32 = 5;
pub const ENOSPC: i32 = 28;
pub const EDQUOT: i32 = 122;

/// Kinds of operations that change something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Op {
    Create,
    Remove,
    Rename,
    Write,
    Preallocate,
    Sync,
    SyncDir,
}

/// All kinds.
pub const OPS: [Op; 7] = [Op::Create, Op::Remove, Op::Rename, Op::Write, Op::Preallocate, Op::Sync, Op::SyncDir];

/// The simulated disk; clones share it.
#[derive(Clone)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

struct State {
    rng: Rng,
    files: BTreeMap<u64, FileState>,
    next_file: u64,
    names: BTreeMap<String, u64>,
    durable_names: BTreeMap<String, u64>,
    pending_names: Vec<NameChange>,
    operations: u64,
    cut_at: Option<u64>,
    dead: bool,
    write_errors: BTreeSet<u64>,
    sync_errors: BTreeSet<u64>,
    /// Numbers of operations that fail, counted by kind.
    kind_errors: BTreeSet<(Op, u64)>,
    refusal: Option<Refusal>,
    counts: BTreeMap<Op, u64>,
    /// Number of EIO errors returned.
    failed: BTreeMap<Op, u64>,
    read_errors: Vec<(String, u64, u64)>,
    capacity: u64,
    ignore_syncs: bool,
    ignore_dir_syncs: bool,
    flips: bool,
    errors: u64,
    bytes_read: u64,
}

/// Operations `numbers`, counted together or within one kind, fail with `errno`.
struct Refusal {
    errno: i32,
    op: Option<Op>,
    numbers: Range<u64>,
}

#[derive(Default, Clone)]
struct FileState {
    live: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Pending>,
}

/// Bytes `start..end` of the live image may not be durable.
#[derive(Clone)]
enum Pending {
    Write { offset: usize, bytes: Vec<u8> },
    Length(usize),
}

#[derive(Clone)]
enum NameChange {
    Add(String, u64),
    Remove(String),
    Rename(String, String, u64),
}

impl FileState {
    fn sync(&mut self) {
        for change in std::mem::take(&mut self.pending) {
            apply(&mut self.durable, &change);
        }
    }
}

fn apply(image: &mut Vec<u8>, change: &Pending) {
    match change {
        Pending::Write { offset, bytes } => {
            let end = offset + bytes.len();
            if image.len() < end {
                image.resize(end, 0);
            }
            image[*offset..end].copy_from_slice(bytes);
        }
        Pending::Length(len) => {
            if image.len() < *len {
                image.resize(*len, 0);
            }
        }
    }
}

/// A sector has a flipped bit after a power cut once in this many times, if the disk does that.
const FLIP_ONE_IN: u32 = 8;

/// Applies a seeded part of an unsynced change, sector by sector; with `flips`, some of it damaged.
fn apply_torn(image: &mut Vec<u8>, change: &Pending, rng: &mut Rng, flips: bool) {
    let Pending::Write { offset, bytes } = change else {
        if rng.bool() {
            apply(image, change);
        }
        return;
    };
    // Nothing, everything, a prefix and any subset are all likely.
    let mode = rng.u8(0..4);
    let sectors = bytes.len().div_ceil(SECTOR_BYTES);
    let prefix = rng.usize(0..=sectors);
    for index in 0..sectors {
        let kept = match mode {
            0 => false,
            1 => true,
            2 => index < prefix,
            _ => rng.bool(),
        };
        if kept {
            let start = index * SECTOR_BYTES;
            let end = bytes.len().min(start + SECTOR_BYTES);
            let mut sector = bytes[start..end].to_vec();
            if flips && rng.u32(0..FLIP_ONE_IN) == 0 {
                let at = rng.usize(0..sector.len());
                sector[at] ^= 1 << rng.u8(0..8);
            }
            apply(image, &Pending::Write { offset: offset + start, bytes: sector });
        }
    }
}

fn power_is_off() -> io::Error {
    io::Error::other("simulated power cut")
}

fn input_output() -> io::Error {
    io::Error::from_raw_os_error(EIO)
}

impl SimDisk {
    /// An empty disk; `seed` decides what it loses.
    pub fn new(seed: u64) -> SimDisk {
        SimDisk {
            state: Arc::new(Mutex::new(State {
                rng: Rng::with_seed(seed),
                files: BTreeMap::new(),
                next_file: 1,
                names: BTreeMap::new(),
                durable_names: BTreeMap::new(),
                pending_names: Vec::new(),
                operations: 0,
                cut_at: None,
                dead: false,
                write_errors: BTreeSet::new(),
                sync_errors: BTreeSet::new(),
                kind_errors: BTreeSet::new(),
                refusal: None,
                counts: BTreeMap::new(),
                failed: BTreeMap::new(),
                read_errors: Vec::new(),
                capacity: u64::MAX,
                ignore_syncs: false,
                ignore_dir_syncs: false,
                flips: false,
                errors: 0,
                bytes_read: 0,
            })),
        }
    }

    /// Number of changing operations so far.
    pub fn operations(&self) -> u64 {
        self.state.lock().operations
    }

    /// Number of bytes read from files so far.
    pub fn bytes_read(&self) -> u64 {
        self.state.lock().bytes_read
    }

    /// Cuts the power within operation `number`: it may have had any part of its effect, and everything after fails.
    pub fn cut_at(&self, number: u64) {
        self.state.lock().cut_at = Some(number);
    }

    /// True once the cut has happened.
    pub fn is_cut(&self) -> bool {
        self.state.lock().dead
    }

    /// Operation `number` fails with EIO if it is a write (a seeded part is written).
    pub fn fail_write_at(&self, number: u64) {
        self.state.lock().write_errors.insert(number);
    }

    /// Operation `number` fails with EIO if it is a sync (a seeded part of what is pending is lost for good).
    pub fn fail_sync_at(&self, number: u64) {
        self.state.lock().sync_errors.insert(number);
    }

    /// The `nth` operation of this kind (from 1) fails with EIO.
    pub fn fail_nth(&self, op: Op, nth: u64) {
        self.state.lock().kind_errors.insert((op, nth));
    }

    /// From now on the operations with these numbers (from 1, of this kind or of all) fail with this error number,
    /// until the next call. `0..0` refuses none.
    pub fn refuse(&self, errno: i32, op: Option<Op>, numbers: Range<u64>) {
        self.state.lock().refusal = Some(Refusal { errno, op, numbers });
    }

    /// How many operations of this kind have failed with EIO.
    pub fn failed(&self, op: Op) -> u64 {
        self.state.lock().failed.get(&op).copied().unwrap_or(0)
    }

    /// How many operations have failed for lack of space.
    pub fn was_full(&self) -> u64 {
        let state = self.state.lock();
        state.errors - state.failed.values().sum::<u64>()
    }

    /// Reads of `name` that touch `start..end` fail with EIO.
    pub fn fail_reads(&self, name: &str, start: u64, end: u64) {
        self.state.lock().read_errors.push((name.to_owned(), start, end));
    }

    /// Limits the total size of all files; beyond it, ENOSPC.
    pub fn set_capacity(&self, bytes: u64) {
        self.state.lock().capacity = bytes;
    }

    /// Limits the bytes that may be allocated from now on beyond the existing ones.
    pub fn set_spare(&self, bytes: u64) {
        let mut state = self.state.lock();
        state.capacity = state.used_bytes().saturating_add(bytes);
    }

    /// Makes file syncs do nothing and report success: a mutation to test the tests.
    pub fn ignore_syncs(&self) {
        self.state.lock().ignore_syncs = true;
    }

    /// Makes directory syncs do nothing and report success: a mutation to test the tests.
    pub fn ignore_dir_syncs(&self) {
        self.state.lock().ignore_dir_syncs = true;
    }

    /// From now on a power cut may also flip bits in unsynced writes.
    pub fn flip_unsynced(&self) {
        self.state.lock().flips = true;
    }

    /// How many operations have failed with EIO or ENOSPC.
    pub fn errors(&self) -> u64 {
        self.state.lock().errors
    }

    /// Inverts one bit of a file, in both images.
    pub fn flip_bit(&self, name: &str, offset: u64, bit: u8) {
        let mut state = self.state.lock();
        if let Some(file) = state.by_name(name) {
            for image in [&mut file.live, &mut file.durable] {
                if let Some(byte) = image.get_mut(offset as usize) {
                    *byte ^= 1 << (bit & 7);
                }
            }
        }
    }

    /// The bytes of a file as a process sees them.
    pub fn contents(&self, name: &str) -> Option<Vec<u8>> {
        self.state.lock().by_name(name).map(|file| file.live.clone())
    }

    /// Creates a durable file, replacing one of the same name.
    pub fn put(&self, name: &str, bytes: &[u8]) {
        let mut state = self.state.lock();
        let id = state.next_file;
        state.next_file += 1;
        state.files.insert(id, FileState { live: bytes.to_vec(), durable: bytes.to_vec(), pending: Vec::new() });
        state.names.insert(name.to_owned(), id);
        state.durable_names.insert(name.to_owned(), id);
    }

    /// The disk as the next start would find it after a power cut now. This disk is unchanged; choosing the lost data
    /// advances the seed, so that crashing twice may give two different disks.
    #[must_use]
    pub fn crash(&self) -> SimDisk {
        let mut state = self.state.lock();
        let mut rng = Rng::with_seed(state.rng.u64(..));
        let mut names = state.durable_names.clone();
        for change in &state.pending_names {
            if rng.bool() {
                apply_name(&mut names, change);
            }
        }
        let mut files = BTreeMap::new();
        for id in names.values() {
            let Some(file) = state.files.get(id) else { continue };
            let mut image = file.durable.clone();
            for change in &file.pending {
                apply_torn(&mut image, change, &mut rng, state.flips);
            }
            files.insert(*id, FileState { live: image.clone(), durable: image, pending: Vec::new() });
        }
        let after = SimDisk::new(rng.u64(..));
        {
            let mut fresh = after.state.lock();
            fresh.next_file = state.next_file;
            fresh.files = files;
            fresh.names.clone_from(&names);
            fresh.durable_names = names;
            fresh.capacity = state.capacity;
            fresh.ignore_syncs = state.ignore_syncs;
            fresh.ignore_dir_syncs = state.ignore_dir_syncs;
            fresh.flips = state.flips;
        }
        after
    }

    /// Counts an operation; fails if the power is off.
    fn enter(&self, op: Op) -> io::Result<(MutexGuard<'_, State>, Trouble)> {
        let mut state = self.state.lock();
        if state.dead {
            return Err(power_is_off());
        }
        state.operations += 1;
        let count = state.counts.entry(op).or_default();
        *count += 1;
        let nth = *count;
        if state.cut_at == Some(state.operations) {
            state.dead = true;
            return Ok((state, Trouble::Dying));
        }
        let aimed = match op {
            Op::Write => state.write_errors.contains(&state.operations),
            Op::Sync | Op::SyncDir => state.sync_errors.contains(&state.operations),
            _ => false,
        };
        // A sync that is ignored cannot fail either.
        let is_made = match op {
            Op::Sync => !state.ignore_syncs,
            Op::SyncDir => !state.ignore_dir_syncs,
            _ => true,
        };
        if is_made && (aimed || state.kind_errors.contains(&(op, nth))) {
            state.errors += 1;
            *state.failed.entry(op).or_default() += 1;
            return Ok((state, Trouble::Fails(EIO)));
        }
        if is_made && let Some(errno) = state.refused(op, nth) {
            state.errors += 1;
            if errno == EIO {
                *state.failed.entry(op).or_default() += 1;
            }
            return Ok((state, Trouble::Fails(errno)));
        }
        Ok((state, Trouble::None))
    }

    fn change_name(&self, op: Op, make: impl FnOnce(&State) -> io::Result<NameChange>) -> io::Result<()> {
        let (mut state, trouble) = self.enter(op)?;
        let change = make(&state)?;
        if !trouble.is_failure() || state.rng.bool() {
            apply_name(&mut state.names, &change);
            state.pending_names.push(change);
        }
        trouble.result()
    }
}

/// How an operation is disturbed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trouble {
    None,
    /// It fails with this error number.
    Fails(i32),
    /// The power goes off during it.
    Dying,
}

impl Trouble {
    fn result(self) -> io::Result<()> {
        match self {
            Trouble::None => Ok(()),
            Trouble::Fails(errno) => Err(io::Error::from_raw_os_error(errno)),
            Trouble::Dying => Err(power_is_off()),
        }
    }

    fn is_failure(self) -> bool {
        matches!(self, Trouble::Fails(_))
    }
}

fn apply_name(names: &mut BTreeMap<String, u64>, change: &NameChange) {
    match change {
        NameChange::Add(name, id) => {
            names.insert(name.clone(), *id);
        }
        NameChange::Remove(name) => {
            names.remove(name);
        }
        // Half a rename may survive: a file under both names is legal, one under neither would be wrong.
        NameChange::Rename(from, to, id) => {
            if names.get(from) == Some(id) {
                names.remove(from);
                names.insert(to.clone(), *id);
            }
        }
    }
}

impl State {
    /// The error of the operation that was just counted, the `nth` of its kind.
    fn refused(&self, op: Op, nth: u64) -> Option<i32> {
        let refusal = self.refusal.as_ref()?;
        let number = match refusal.op {
            Some(kind) if kind != op => return None,
            Some(_) => nth,
            None => self.operations,
        };
        refusal.numbers.contains(&number).then_some(refusal.errno)
    }

    fn by_name(&mut self, name: &str) -> Option<&mut FileState> {
        let id = *self.names.get(name)?;
        self.files.get_mut(&id)
    }

    fn lookup(&self, name: &str) -> io::Result<u64> {
        self.names.get(name).copied().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    fn used_bytes(&self) -> u64 {
        self.names.values().filter_map(|id| self.files.get(id)).map(|file| file.live.len() as u64).sum()
    }

    fn file(&mut self, id: u64) -> io::Result<&mut FileState> {
        self.files.get_mut(&id).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    /// Fails with ENOSPC if growing file `id` to `len` would exceed the capacity.
    fn check_room(&mut self, id: u64, len: usize) -> io::Result<()> {
        let now = self.file(id)?.live.len();
        if len > now && self.used_bytes() + (len - now) as u64 > self.capacity {
            return Err(io::Error::from_raw_os_error(ENOSPC));
        }
        Ok(())
    }
}

impl Disk for SimDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.state.lock().names.keys().cloned().collect())
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let id = self.state.lock().lookup(name)?;
        Ok(Arc::new(SimFile { disk: self.clone(), id }))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let (mut state, trouble) = self.enter(Op::Create)?;
        if state.names.contains_key(name) {
            return Err(io::Error::from(io::ErrorKind::AlreadyExists));
        }
        let id = state.next_file;
        if !trouble.is_failure() || state.rng.bool() {
            state.next_file += 1;
            state.files.insert(id, FileState::default());
            state.names.insert(name.to_owned(), id);
            state.pending_names.push(NameChange::Add(name.to_owned(), id));
        }
        drop(state);
        trouble.result()?;
        Ok(Arc::new(SimFile { disk: self.clone(), id }))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.change_name(Op::Remove, |state| state.lookup(name).map(|_| NameChange::Remove(name.to_owned())))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.change_name(Op::Rename, |state| {
            Ok(NameChange::Rename(from.to_owned(), to.to_owned(), state.lookup(from)?))
        })
    }

    fn sync_dir(&self) -> io::Result<()> {
        let (mut state, trouble) = self.enter(Op::SyncDir)?;
        if trouble == Trouble::Dying || state.ignore_dir_syncs {
            return trouble.result();
        }
        // A failed sync has made some of the first names durable; the others are left for a later one.
        let all = state.pending_names.len();
        let kept = if trouble.is_failure() { state.rng.usize(0..=all) } else { all };
        let done: Vec<NameChange> = state.pending_names.drain(..kept).collect();
        for change in &done {
            apply_name(&mut state.durable_names, change);
        }
        trouble.result()
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let state = self.state.lock();
        Ok(state.capacity.saturating_sub(state.used_bytes()))
    }
}

struct SimFile {
    disk: SimDisk,
    id: u64,
}

impl DiskFile for SimFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut state = self.disk.state.lock();
        if state.dead {
            return Err(power_is_off());
        }
        let end = offset + buffer.len() as u64;
        let hit = |(name, from, to): &(String, u64, u64)| {
            state.names.get(name) == Some(&self.id) && offset < *to && end > *from
        };
        if state.read_errors.iter().any(hit) {
            return Err(input_output());
        }
        let file = state.files.get(&self.id).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        let start = file.live.len().min(offset as usize);
        let count = buffer.len().min(file.live.len() - start);
        buffer[..count].copy_from_slice(&file.live[start..start + count]);
        state.bytes_read += count as u64;
        Ok(count)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let (mut state, trouble) = self.disk.enter(Op::Write)?;
        let room = state.check_room(self.id, offset as usize + bytes.len());
        // A failed write leaves a part of its data.
        let part = match trouble {
            Trouble::Fails(ENOSPC | EDQUOT) => {
                state.rng.usize(0..bytes.len().div_ceil(BLOCK_BYTES).max(1)) * BLOCK_BYTES
            }
            _ if trouble.is_failure() || room.is_err() => state.rng.usize(0..=bytes.len()),
            _ => bytes.len(),
        };
        let len = state.file(self.id)?.live.len();
        let part = if room.is_err() { part.min(len.saturating_sub(offset as usize)) } else { part };
        let file = state.file(self.id)?;
        let change = Pending::Write { offset: offset as usize, bytes: bytes[..part].to_vec() };
        if part > 0 {
            apply(&mut file.live, &change);
            file.pending.push(change);
        }
        trouble.result()?;
        state.errors += u64::from(room.is_err());
        room
    }

    fn sync_data(&self) -> io::Result<()> {
        let (mut state, trouble) = self.disk.enter(Op::Sync)?;
        if trouble == Trouble::Dying || state.ignore_syncs {
            return trouble.result();
        }
        let mut rng = state.rng.fork();
        let file = state.file(self.id)?;
        if trouble.is_failure() {
            for change in std::mem::take(&mut file.pending) {
                apply_torn(&mut file.durable, &change, &mut rng, false);
            }
        } else {
            file.sync();
        }
        trouble.result()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.disk.state.lock().file(self.id)?.live.len() as u64)
    }

    fn preallocate(&self, len: u64) -> io::Result<()> {
        let (mut state, trouble) = self.disk.enter(Op::Preallocate)?;
        if let Err(error) = state.check_room(self.id, len as usize) {
            trouble.result()?;
            state.errors += 1;
            return Err(error);
        }
        if !trouble.is_failure() || state.rng.bool() {
            let file = state.file(self.id)?;
            let change = Pending::Length(len as usize);
            apply(&mut file.live, &change);
            file.pending.push(change);
        }
        trouble.result()
    }
}
