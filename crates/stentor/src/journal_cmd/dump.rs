//! `stentor journal dump`: every readable record as a JSON line, or one content as stored.

use std::io::{self, Write};

use serde_json::{Map, Value, json};
use stentor_journal::{Disk, InspectedItem, Item, StoredContents, inspect};
use stentor_queue::event::Event;

use super::event_json::event;
use super::fold::slice_bytes;
use super::{Outcome, Problem};

pub fn records(disk: &dyn Disk, out: &mut dyn Write) -> Outcome {
    let (mut written, mut contents) = (Ok(()), StoredContents::new());
    inspect(disk, &mut |seen| contents.note(seen))?;
    let found = inspect(disk, &mut |seen| {
        if written.is_ok() {
            written = writeln!(out, "{}", line(seen, disk, &contents));
        }
    })?;
    written?;
    for finding in &found.findings {
        let damage = json!({"record": "damage", "file": finding.file, "offset": finding.offset, "what": finding.what});
        writeln!(out, "{damage}")?;
    }
    Ok(found.findings.is_empty())
}

fn line(seen: &InspectedItem<'_>, disk: &dyn Disk, contents: &StoredContents) -> Value {
    let place = json!({
        "seq": seen.batch_seq,
        "time_ms": seen.time,
        "file": seen.file,
        "generation": seen.generation,
        "batch_offset": seen.batch_offset,
        "offset": seen.offset,
    });
    let item = match seen.item {
        Item::Owner(payload) => match Event::decode(payload) {
            Ok(decoded) => json!({"record": "event", "event": event(&decoded)}),
            Err(error) => json!({"record": "event", "error": error.to_string(), "bytes": payload.len()}),
        },
        Item::Slice { number, slice } => {
            let named = json!({"record": "slice", "checkpoint": number, "content": slice.content});
            // A slice that no checkpoint in use names may be gone.
            let told = slice_bytes(disk, contents, slice)
                .and_then(|bytes| Event::decode(&bytes).map(|decoded| event(&decoded)).map_err(|e| e.to_string()))
                .map_or_else(|error| json!({"error": error}), |event| json!({"event": event}));
            merged([named, told])
        }
        Item::Piece { id, start, bytes, last, moved } => {
            json!({"record": "piece", "content": id, "start": start, "bytes": bytes.len(), "last": last, "moved": moved})
        }
        Item::CheckpointBegin => json!({"record": "checkpoint_begin"}),
        Item::ContentSlice(bytes) => json!({"record": "content_slice", "bytes": bytes.len()}),
        Item::CheckpointEnd { number, begin_seq, .. } => {
            json!({"record": "checkpoint_end", "number": number, "begin_seq": begin_seq})
        }
        Item::Void => json!({"record": "void"}),
        Item::Unknown { kind, bytes } => json!({"record": "unknown", "kind": kind, "bytes": bytes}),
    };
    merged([place, item])
}

/// Merges the fields of both objects.
fn merged(parts: [Value; 2]) -> Value {
    let mut all = Map::new();
    for part in parts {
        if let Value::Object(fields) = part {
            all.extend(fields);
        }
    }
    Value::Object(all)
}

/// Writes the readable part of one content, from its start.
pub fn content(disk: &dyn Disk, id: u64, out: &mut dyn Write) -> Outcome {
    let mut contents = StoredContents::new();
    inspect(disk, &mut |seen| contents.note(seen))?;
    let whole = contents.check(id);
    let mut failed: Option<io::Error> = None;
    let read = contents.read(disk, id, &mut |bytes| {
        out.write_all(bytes).map_err(|error| {
            let kind = error.kind();
            failed = Some(error);
            kind.into()
        })
    });
    if let Some(error) = failed {
        return Err(Problem::Output(error));
    }
    read.map_err(|error| Problem::Other(format!("content {id}: {error}")))?;
    match whole {
        Ok(_) => Ok(true),
        Err(lost) => {
            out.flush()?;
            eprintln!("stentor: content {id} from octet {}: {}", lost.from, lost.what);
            Ok(false)
        }
    }
}
