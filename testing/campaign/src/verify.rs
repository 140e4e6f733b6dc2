//! `stentor journal verify` after a cut or a stop: no findings; after real damage: some.

use fastrand::Rng;
use stentor::journal_cmd::damage_of;
use stentor_journal::{Disk, Item, SegmentState, SimDisk, inspect};

/// No false alarm.
pub(crate) fn is_sound(disk: &SimDisk) -> Result<(), String> {
    let damage = damage_of(disk).map_err(|error| format!("verify: {error}"))?;
    damage.first().map_or(Ok(()), |line| Err(format!("verify calls a sound store damaged: {line}")))
}

/// Spoils a copy in one way; `Some` if there was something to spoil, and then verify must say so.
pub(crate) fn finds_damage(disk: &SimDisk, rng: &mut Rng) -> Result<bool, String> {
    let disk = disk.crash();
    let Some(what) = spoil(&disk, rng)? else { return Ok(false) };
    let damage = damage_of(&disk).map_err(|error| format!("verify: {error}"))?;
    if damage.is_empty() { Err(format!("verify does not find {what}")) } else { Ok(true) }
}

/// A record and its place.
struct Place {
    file: String,
    offset: u64,
    seq: u64,
}

/// In the log that a start reads: a flipped bit (not in the last batch, which is a torn one then), a segment removed,
/// or cut short.
fn spoil(disk: &SimDisk, rng: &mut Rng) -> Result<Option<String>, String> {
    let mut places = Vec::new();
    let found = inspect(disk, &mut |seen| {
        let len = if let Item::Piece { bytes, .. } = seen.item { bytes.len() as u64 } else { 1 };
        let offset = seen.offset + len.saturating_sub(1);
        places.push(Place { file: seen.file.to_owned(), offset, seq: seen.batch_seq });
    });
    let found = found.map_err(|error| format!("inspect: {error}"))?;
    if rng.bool() {
        places.retain(|place| place.seq >= found.replay_from && place.seq < found.last_seq);
        let Some(Place { file, offset, seq }) = places.get(rng.usize(0..places.len().max(1))) else { return Ok(None) };
        let bit = rng.u8(0..8);
        disk.flip_bit(file, *offset, bit);
        return Ok(Some(format!("bit {bit} at {file}, offset {offset}, batch {seq}")));
    }
    let is_needed = |state| matches!(state, SegmentState::Log | SegmentState::Abandoned);
    let mut needed: Vec<_> = found.segments.iter().filter(|segment| is_needed(segment.state)).collect();
    needed.retain(|segment| segment.batches > 0 && segment.last_seq >= found.replay_from);
    let Some(segment) = needed.get(rng.usize(0..needed.len().max(1))) else { return Ok(None) };
    let io = |error: std::io::Error| error.to_string();
    if rng.bool() {
        disk.remove(&segment.file).map_err(io)?;
        disk.sync_dir().map_err(io)?;
        return Ok(Some(format!("that {} is gone", segment.file)));
    }
    let mut image = disk.contents(&segment.file).unwrap_or_default();
    let blocks = segment.end as usize / 4096;
    image.truncate(rng.usize(1..blocks.max(2)) * 4096);
    disk.put(&segment.file, &image);
    Ok(Some(format!("that {} is cut short", segment.file)))
}
