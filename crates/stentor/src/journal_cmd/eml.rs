//! `stentor journal salvage --eml`: writes each waiting message to a file, with its envelope beside it.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde_json::json;
use stentor_journal::Disk;
use stentor_queue::ids::AddressId;

use super::event_json;
use super::fold::{JournalState, SavedMessage, fold};
use super::{Outcome, Problem, fresh_dir};

/// Mail is private.
const FILE_MODE: u32 = 0o600;

pub fn run(disk: &dyn Disk, to: &Path, out: &mut dyn Write) -> Outcome {
    fresh_dir(to)?;
    let folded = fold(disk)?;
    for line in folded.damage() {
        writeln!(out, "damage: {line}")?;
    }
    let (mut whole, mut partial) = (0, 0);
    for saved in folded.messages() {
        match export(&folded, disk, &saved, to)? {
            None => whole += 1,
            Some(why) => {
                partial += 1;
                writeln!(out, "message {}: {why}", saved.slice.accept.id)?;
            }
        }
    }
    writeln!(out, "{whole} messages written to {}, and {partial} incomplete ones", to.display())?;
    Ok(folded.is_sound() && partial == 0)
}

/// Returns what is missing, if anything; the file is then named `ID.partial.eml`.
fn export(folded: &JournalState, disk: &dyn Disk, saved: &SavedMessage, to: &Path) -> Result<Option<String>, Problem> {
    let accept = &saved.slice.accept;
    let lost = folded.contents.check(accept.content.0).err();
    let name = if lost.is_some() { format!("{}.partial.eml", accept.id) } else { format!("{}.eml", accept.id) };
    let path = to.join(name);
    let failed = |source| Problem::File { path: path.clone(), source };
    let mut file = BufWriter::new(create(&path).map_err(failed)?);
    file.write_all(&accept.prefix).map_err(failed)?;
    // Merge values behind the message are no part of it.
    let mut left = accept.size.saturating_sub(accept.prefix.len() as u64);
    let mut write = |bytes: &[u8]| {
        let bytes = &bytes[..(bytes.len() as u64).min(left) as usize];
        left -= bytes.len() as u64;
        file.write_all(bytes)
    };
    folded.contents.read(disk, accept.content.0, &mut write).map_err(failed)?;
    file.flush().map_err(failed)?;
    let why = lost.map(|lost| format!("content {} damaged from octet {}: {}", accept.content.0, lost.from, lost.what));
    let nameless = (saved.nameless > 0).then(|| format!("the addresses of {} recipients are lost", saved.nameless));
    let missing: Vec<String> = why.into_iter().chain(nameless).collect();

    let mut envelope = event_json::accept(accept);
    let recipients = accept.recipients.iter().map(AddressId).map(|id| {
        let params = accept.params.iter().find(|(other, _)| *other == id).map(|(_, params)| params);
        json!({
            "address": folded.store.book.text(id),
            "notify": params.and_then(|params| params.notify),
            "orcpt": params.and_then(|params| params.orcpt.as_deref()),
        })
    });
    envelope["recipients"] = recipients.collect();
    if let Some(fields) = envelope.as_object_mut() {
        // These parts are in the file and with the recipients.
        fields.remove("prefix");
        fields.remove("params");
    }
    if !missing.is_empty() {
        envelope["missing"] = json!(missing);
    }
    let path = to.join(format!("{}.json", accept.id));
    let failed = |source| Problem::File { path: path.clone(), source };
    writeln!(create(&path).map_err(failed)?, "{envelope}").map_err(failed)?;
    Ok((!missing.is_empty()).then(|| missing.join("; ")))
}

fn create(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path)
}
