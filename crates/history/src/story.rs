//! Extracts the story of a message, a recipient or a domain from a history.

use std::collections::{HashSet, VecDeque};
use std::io;
use std::ops::ControlFlow;

use stentor_records::record::{Ms, Record};
use stentor_records::trace::MailTrace;

use crate::reader::Reader;

/// The subject and period of a story.
pub struct StoryQuery<'a> {
    /// A queue id, a Message-ID, a recipient or a domain (also `@domain`); or a sender.
    pub what: &'a str,
    /// Whether `what` is a sender, as given by the client or of the envelope, or a sender's domain.
    pub is_sender: bool,
    /// Start of the shown records. Messages with none since then are left out unless pending; older attempts are only
    /// counted.
    pub from: Ms,
    /// Pending recipients according to the running server, with the queue ids of their messages.
    pub pending: &'a [(String, String)],
    /// Largest number of messages; if there are more, the last ones are shown.
    pub messages_max: usize,
}

/// Returns the story, and the number of places where records are missing. It reads the history three times: for the
/// messages whose records name the subject, for everything about those messages, and for sessions and look-ups that
/// failed for their recipients' domains meanwhile.
///
/// # Errors
/// Fails if the files cannot be read.
pub fn story(reader: &Reader, query: &StoryQuery<'_>) -> io::Result<(MailTrace, u64)> {
    let story = if query.is_sender { MailTrace::of_sender(query.what) } else { MailTrace::new(query.what) };
    let mut story = story.since(query.from);
    let what = story.what.clone();
    let (mut ids, mut known) = (VecDeque::new(), HashSet::new());
    let mut note = |story: &mut MailTrace, id: &str| {
        if !id.is_empty() && known.insert(id.to_owned()) {
            ids.push_back(id.to_owned());
        }
        if ids.len() > query.messages_max
            && let Some(oldest) = ids.pop_front()
        {
            // The message may appear again.
            known.remove(&oldest);
            story.leave_out(&oldest);
        }
    };
    // Filters contain neither senders nor the domains of recipients.
    let is_scan = is_scan(query);
    let mut first = |record: &Record<'_>| {
        if is_scan && !story.is_about(record) {
            return ControlFlow::Continue(());
        }
        match record {
            Record::Refused(_) if is_scan => story.add(record),
            Record::Accepted(accepted) => note(&mut story, accepted.id),
            Record::Attempt(attempt) => note(&mut story, attempt.id),
            Record::Note(taken) => note(&mut story, taken.id),
            _ => {}
        }
        ControlFlow::Continue(())
    };
    let seen = if is_scan {
        reader.scan(query.from, Ms::MAX, &mut first)?
    } else {
        reader.find(&what, query.from, Ms::MAX, &mut first)?
    };
    for (id, _) in query.pending {
        note(&mut story, id);
    }
    let kept: HashSet<&str> = ids.iter().map(String::as_str).collect();
    let is_kept = |id: &str| kept.contains(id);
    for (id, address) in query.pending.iter().filter(|(id, _)| is_kept(id)) {
        story.mark_pending(id, address);
    }
    for id in &ids {
        story.expect(id);
    }
    let keys: Vec<&str> = ids.iter().map(String::as_str).chain([what.as_str()]).collect();
    reader.find_any(&keys, 0, Ms::MAX, &mut |record| {
        // All records of a message are needed to know its state.
        let is_wanted = record.at() >= query.from || is_kept(id(record));
        if is_wanted && !is_unreached(record) && !(is_scan && matches!(record, Record::Refused(_))) {
            story.add(record);
        }
        ControlFlow::Continue(())
    })?;
    let domains = story.domains();
    let keys: Vec<&str> = domains.iter().map(String::as_str).collect();
    let from = story.begin().unwrap_or(0).max(query.from);
    reader.find_any(&keys, from, Ms::MAX, &mut |record| {
        if is_unreached(record) {
            story.add(record);
        }
        ControlFlow::Continue(())
    })?;
    story.finish();
    Ok((story, seen.damaged))
}

/// Whether all records of the period are read: for a sender or a domain.
pub fn is_scan(query: &StoryQuery<'_>) -> bool {
    let domain = query.what.strip_prefix('@').unwrap_or(query.what);
    query.is_sender || domain.contains('.') && !domain.contains(['@', '<'])
}

/// The queue id of the record's message; empty if none.
fn id<'a>(record: &Record<'a>) -> &'a str {
    match record {
        Record::Accepted(r) => r.id,
        Record::Attempt(r) => r.id,
        Record::Note(r) => r.id,
        Record::Refused(_) | Record::Machine(_) => "",
    }
}

/// Whether a sender, or its domain, has a record since `from`. Reads until the first match.
///
/// # Errors
/// Fails if the files cannot be read.
pub fn has_sender(reader: &Reader, sender: &str, from: Ms) -> io::Result<bool> {
    let story = MailTrace::of_sender(sender);
    let mut has = false;
    reader.scan(from, Ms::MAX, &mut |record| {
        has = story.is_about(record);
        if has { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(has)
}

fn is_unreached(record: &Record<'_>) -> bool {
    matches!(record, Record::Attempt(attempt) if attempt.unreached.is_some())
}
