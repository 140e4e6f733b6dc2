//! `stentor journal verify`: prints a line per segment, then the findings.

use std::io::Write;

use stentor_journal::Disk;
use stentor_queue::ids::ContentId;

use super::Outcome;
use super::fold::{JournalState, fold};

pub fn run(disk: &dyn Disk, out: &mut dyn Write) -> Outcome {
    let folded = fold(disk)?;
    let live = folded.contents.live_bytes(|id| folded.store.has_content(ContentId(id)) || folded.slices.contains(&id));
    writeln!(out, "segment       state       generation  batches  sequence         live bytes  other bytes  end")?;
    for segment in &folded.found.segments {
        let live = live.get(&segment.generation).copied().unwrap_or(0);
        let sequence =
            if segment.batches == 0 { "-".to_owned() } else { format!("{}-{}", segment.first_seq, segment.last_seq) };
        writeln!(
            out,
            "{:<13} {:<11} {:>10} {:>8}  {sequence:<15} {live:>11} {:>12}  {}",
            segment.file,
            segment.state.name(),
            segment.generation,
            segment.batches,
            segment.end.saturating_sub(live),
            segment.end,
        )?;
    }
    if let Some((file, offset)) = &folded.found.torn {
        writeln!(out, "{file}, offset {offset}: a torn batch; it was never acknowledged, so this is not damage")?;
    }
    let damage = damaged(&folded);
    for line in &damage {
        writeln!(out, "DAMAGED {line}")?;
    }
    let sound = damage.is_empty();
    writeln!(
        out,
        "{}: {} segments, last batch {}, {} messages waiting for {} recipients, {} in the quarantine, {} addresses, {} lists",
        if sound { "sound" } else { "DAMAGED" },
        folded.found.segments.len(),
        folded.found.last_seq,
        folded.store.len(),
        folded.store.pending(),
        folded.store.totals().fates.quarantined,
        folded.store.book.len(),
        folded.store.lists().count(),
    )?;
    Ok(sound)
}

/// Everything damaged or lost, one line each.
pub fn damaged(folded: &JournalState) -> Vec<String> {
    let mut lines: Vec<String> = folded.damage().collect();
    for saved in folded.messages() {
        let accept = &saved.slice.accept;
        if let Err(why) = folded.contents.check(accept.content.0) {
            let (id, content) = (accept.id, accept.content.0);
            lines.push(format!("message {id}: content {content} damaged from octet {}: {}", why.from, why.what));
        }
        if saved.nameless > 0 {
            lines.push(format!("message {}: the addresses of {} recipients are lost", accept.id, saved.nameless));
        }
    }
    lines
}
