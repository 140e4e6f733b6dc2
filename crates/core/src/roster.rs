//! Members in the registry, as versions of a list in the queue.
//!
//! Promise: a post goes to the members at the time of its RCPT. The version in force has the roster's stamp; if the
//! stamp differs, the changes since are applied to it, or all members are read where those are not known, as after a
//! restored backup. Changes made in the meantime are found by the next post.
//!
//! Failure: a registry that cannot be read defers posts (451), since somebody may have left.

use std::collections::HashMap;
use std::io::{self, Read};
use std::sync::Arc;

use stentor_lists::subscribers::{self, Occurrence};
use stentor_queue::idset::IdSet;
use stentor_registry::{MEMBER_ROWS_MAX, Member, MemberDelivery, MemberQuery, RegistryError, RosterChange};

use crate::Core;
use crate::intake::IntakeRefusal;
use crate::interner::AddressInterner;

/// What distinguishes stamps of rosters from those of files.
const STAMP: &str = "registry ";

#[derive(Debug, thiserror::Error)]
pub enum RosterError {
    #[error("{0}")]
    Read(#[from] io::Error),
    #[error(transparent)]
    Refused(#[from] IntakeRefusal),
}

/// The roster's stamp of the version in force, if its members are from the registry.
fn stamp_in_force(core: &Arc<Core>, name: &str) -> Option<String> {
    core.with(|hub, _| hub.store.list(name).and_then(|list| list.stamp.strip_prefix(STAMP).map(str::to_owned)))
}

/// Whether the version in force has all changes.
pub fn is_current(core: &Arc<Core>, name: &str) -> bool {
    let stamp = stamp_in_force(core, name);
    stamp.is_some() && core.registry.roster_since(name, stamp.as_deref()).is_none()
}

/// Brings the version in force up to date. Blocks.
pub fn refresh(core: &Arc<Core>, name: &Arc<str>) -> Result<(), RosterError> {
    let stamp = stamp_in_force(core, name);
    let Some(delta) = core.registry.roster_since(name, stamp.as_deref()) else {
        // Only the names are missing.
        let stamp = format!("{STAMP}{}", stamp.unwrap_or_default());
        core.lists.read_roster_names(core, name, stamp, &mut MemberReader::new(core, name));
        return Ok(());
    };
    let ids = core.with(|hub, _| hub.store.list(name).map(|list| list.ids.clone()));
    let subscribers = if let (Some(changes), Some(ids)) = (delta.changes, ids.filter(|_| stamp.is_some())) {
        let mut interner = AddressInterner::new(core, ids);
        apply(core, &mut interner, &changes);
        interner.finish()?
    } else {
        let mut interner = AddressInterner::new(core, IdSet::default());
        subscribers::read(&mut MemberReader::new(core, name), &mut |subscriber| {
            interner.add(subscriber.address);
            Occurrence::First
        })?;
        let subscribers = interner.finish()?;
        tracing::info!(list = %name, subscribers = subscribers.ids.len(), "members read from the registry");
        subscribers
    };
    let stamp = format!("{STAMP}{}", delta.stamp);
    subscribers.put_in_force(core, name, stamp.clone())?;
    core.lists.read_roster_names(core, name, stamp, &mut MemberReader::new(core, name));
    Ok(())
}

/// Applies the latest change of each address.
fn apply(core: &Arc<Core>, interner: &mut AddressInterner<'_>, changes: &[RosterChange]) {
    let mut latest = HashMap::with_capacity(changes.len());
    for change in changes {
        latest.insert(change.address.as_str().to_ascii_lowercase(), change);
    }
    for change in latest.into_values() {
        let address = change.address.as_str();
        let ids: Vec<u32> = core.with(|hub, _| {
            let book = &hub.store.book;
            // The book's spellings are those with capitals.
            let lower = book.lookup(&address.to_ascii_lowercase());
            let all = book.lookup(address).into_iter().chain(lower).chain(book.spellings(address));
            all.map(|id| id.0).collect()
        });
        // Another spelling counts from now on.
        interner.remove(&ids);
        if change.delivery == Some(MemberDelivery::Mail) {
            interner.add(address);
        }
    }
}

/// The members who get posts, as the lines of a subscribers file.
struct MemberReader<'a> {
    core: &'a Core,
    query: MemberQuery,
    lines: Vec<u8>,
    at: usize,
    is_done: bool,
}

impl MemberReader<'_> {
    fn new<'a>(core: &'a Core, list: &str) -> MemberReader<'a> {
        let query = MemberQuery { list: Some(list.to_owned()), rows_max: MEMBER_ROWS_MAX, ..MemberQuery::default() };
        MemberReader { core, query, lines: Vec::new(), at: 0, is_done: false }
    }

    fn next_page(&mut self) -> Result<(), RegistryError> {
        let rows = self.core.registry.members_blocking(self.query.clone())?;
        self.is_done = rows.len() < MEMBER_ROWS_MAX;
        self.query.after = rows.last().map(|row| row.member.subject().text());
        self.lines.clear();
        self.at = 0;
        for row in rows.iter().filter(|row| row.member.delivery == MemberDelivery::Mail) {
            append_line(&row.member, &mut self.lines);
        }
        Ok(())
    }
}

/// Appends `"Name" <address>`, or the address.
fn append_line(member: &Member, lines: &mut Vec<u8>) {
    if !member.name.is_empty() {
        lines.push(b'"');
        for octet in member.name.bytes() {
            if matches!(octet, b'"' | b'\\') {
                lines.push(b'\\');
            }
            lines.push(octet);
        }
        lines.extend_from_slice(b"\" ");
    }
    lines.push(b'<');
    lines.extend_from_slice(member.address.as_str().as_bytes());
    lines.extend_from_slice(b">\n");
}

impl Read for MemberReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.lines.len() {
            if self.is_done {
                return Ok(0);
            }
            self.next_page().map_err(io::Error::other)?;
        }
        let count = (&self.lines[self.at..]).read(buffer)?;
        self.at += count;
        Ok(count)
    }
}
