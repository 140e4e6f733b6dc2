//! The story of a message, a recipient or a domain, out of a history's files.

use std::io;
use std::ops::ControlFlow;

use stentor_stats::record::{Ms, Record};
use stentor_stats::trace::Story;

use crate::reader::Reader;

/// What is asked for.
pub struct Asked<'a> {
    /// A queue id, a Message-ID, a recipient or a domain.
    pub what: &'a str,
    /// Attempts before are left out.
    pub from: Ms,
    /// Pending recipients according to the running server, with the queue ids of their messages.
    pub pending: &'a [(String, String)],
    /// Of more messages, the last ones.
    pub messages_max: usize,
}

/// The story, and the number of places where records are missing. Three readings: whose records name it, everything about
/// those messages, and the sessions and look-ups that failed for their recipients' domains meanwhile.
///
/// # Errors
/// The files cannot be read.
pub fn story(reader: &Reader, asked: &Asked<'_>) -> io::Result<(Story, u64)> {
    let (mut ids, mut story): (Vec<String>, Story) = (Vec::new(), Story::new(asked.what));
    let mut note = |story: &mut Story, id: &str| {
        if !id.is_empty() && !ids.iter().any(|known| known == id) {
            ids.push(id.to_owned());
        }
        if ids.len() > asked.messages_max {
            // It may come back.
            story.leave_out(&ids.remove(0));
        }
    };
    let seen = reader.find(asked.what, asked.from, Ms::MAX, &mut |record| {
        match record {
            Record::Accepted(accepted) => note(&mut story, accepted.id),
            Record::Attempt(attempt) => note(&mut story, attempt.id),
            Record::Note(taken) => note(&mut story, taken.id),
            _ => {}
        }
        ControlFlow::Continue(())
    })?;
    for (id, _) in asked.pending {
        note(&mut story, id);
    }
    let is_kept = |id: &str| ids.iter().any(|kept| kept == id);
    for (id, address) in asked.pending.iter().filter(|(id, _)| is_kept(id)) {
        story.mark_pending(id, address);
    }
    let keys: Vec<&str> = ids.iter().map(String::as_str).chain([asked.what]).collect();
    reader.find_any(&keys, 0, Ms::MAX, &mut |record| {
        // An acceptance may be older than what was asked for.
        if (record.at() >= asked.from || matches!(record, Record::Accepted(_))) && !is_unreached(record) {
            story.add(record);
        }
        ControlFlow::Continue(())
    })?;
    let domains = story.domains();
    let keys: Vec<&str> = domains.iter().map(String::as_str).collect();
    let from = story.begin().unwrap_or(0).max(asked.from);
    reader.find_any(&keys, from, Ms::MAX, &mut |record| {
        if is_unreached(record) {
            story.add(record);
        }
        ControlFlow::Continue(())
    })?;
    story.finish();
    Ok((story, seen.damaged))
}

fn is_unreached(record: &Record<'_>) -> bool {
    matches!(record, Record::Attempt(attempt) if attempt.unreached.is_some())
}
