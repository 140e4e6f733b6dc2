//! Generic addresses: senders and recipients in envelope and header as other hosts see them.
//!
//! Promise: addresses are looked up once per SMTP transaction, before anything is sent. LMTP, including local delivery,
//! gets the stored addresses, which are also those logged and reported. Nothing is looked up, read or kept if no table
//! is configured.
//!
//! Failure: if a table cannot be asked, times out or has an unusable entry for the sender or an address of the header,
//! the transaction is deferred; for a recipient, only that recipient. This does not count against the host.

use std::io;
use std::time::Duration;

use stentor_addresses::{AddressChange, AddressRole, addresses, header_octets, replaced};
use stentor_core::assignment::{Assignment, EarlierTries, GenericAddresses};
use stentor_core::{Core, Settings};
use stentor_mail::address::Address;
use stentor_mail::headers::HEADER_BYTES_MAX;
use stentor_mail::reply::{Enhanced, Reply};
use stentor_queue::site::Target;
use stentor_rules::{PendingLookup, Step};
use stentor_sched::{RcptOutcome, Stage};
use stentor_smtp::client::Extensions;
use tokio::time::timeout;

use super::body::{self, ContentError};
use super::outcome;

/// How long tables may take for one transaction.
const TABLES_S_MAX: u64 = 60;
const SLOW: Reply = Reply::fixed(451, Enhanced::new(4, 3, 0), "Table lookup timed out");
const TABLE_FAILED: Enhanced = Enhanced::new(4, 3, 0);
/// Octets of a header read at a time.
const READ_BYTES: usize = 16 * 1024;
/// Addresses looked up before other tasks get a turn.
const AT_ONCE: usize = 1_000;

/// Whether any address sent to this host may differ from the stored one.
pub fn applies(settings: &Settings, target: &Target) -> bool {
    !target.lmtp && !settings.rules.addresses.generic.is_empty()
}

/// Looks up the addresses of a transaction. Recipients that cannot be looked up are deferred; the others remain open.
///
/// # Errors
/// The whole transaction waits.
pub async fn rewrite(core: &Core, settings: &Settings, assignment: &mut Assignment) -> Result<(), ContentError> {
    body::load(core, assignment)?;
    let limit = Duration::from_secs(TABLES_S_MAX);
    let found = timeout(limit, looked_up(core, settings, assignment)).await;
    let GenericLookups { generic, has_utf8, failed } = found.unwrap_or(Err(ContentError::Table(SLOW)))?;
    if let Some((_, reply)) = failed.last().filter(|_| failed.len() == assignment.len()) {
        return Err(ContentError::Table(reply.clone()));
    }
    if !failed.is_empty() {
        let mut outcomes = deferred(assignment, &SLOW);
        for (position, reply) in &failed {
            outcomes[*position as usize] = one(assignment, *position as usize, reply);
        }
        let is_open = |position: &u32| failed.binary_search_by_key(position, |(at, _)| *at).is_err();
        let open = (0..assignment.len() as u32).filter(is_open).collect();
        assignment.tried = Some(Box::new(EarlierTries { tries: 1, blamed: Extensions::NONE, outcomes, open }));
    }
    // A UTF-8 address in the header has the same requirements as a message with SMTPUTF8.
    if has_utf8 {
        (assignment.eight_bit, assignment.smtputf8) = (true, true);
    }
    assignment.generic = Some(Box::new(generic));
    Ok(())
}

/// Returns the outcomes of a transaction whose addresses cannot be looked up now.
pub fn deferred(assignment: &Assignment, reply: &Reply) -> Vec<RcptOutcome> {
    outcome::same(assignment, Stage::Table, 0, reply.enhanced.unwrap_or(TABLE_FAILED), &reply.text)
}

fn one(assignment: &Assignment, position: usize, reply: &Reply) -> RcptOutcome {
    RcptOutcome {
        id: assignment.id_at(position),
        stage: Stage::Table,
        code: 0,
        dsn: Some(reply.enhanced.unwrap_or(TABLE_FAILED)),
        text: (*reply.text).into(),
    }
}

#[derive(Default)]
struct GenericLookups {
    generic: GenericAddresses,
    /// A header address was replaced by a non-ASCII one.
    has_utf8: bool,
    /// Recipients whose look-up failed, by position.
    failed: Vec<(u32, Reply)>,
}

async fn looked_up(core: &Core, settings: &Settings, assignment: &Assignment) -> Result<GenericLookups, ContentError> {
    let mut found = GenericLookups::default();
    if !assignment.sender.is_empty() {
        let sender =
            address(settings, &assignment.sender, AddressRole::Sender, None).await.map_err(ContentError::Table)?;
        found.generic.sender = sender.map(|sender| sender.as_str().to_owned());
    }
    for position in 0..assignment.len() {
        if position % AT_ONCE == AT_ONCE - 1 {
            tokio::task::yield_now().await;
        }
        match address(settings, assignment.address(position), AddressRole::Recipient, None).await {
            Ok(None) => {}
            Ok(Some(to)) => found.generic.recipients.push((position as u32, to.as_str().to_owned())),
            Err(reply) => found.failed.push((position as u32, reply)),
        }
    }
    // Our own fields before it name no sender or recipient.
    let stored = stored_header(core, assignment)?;
    let octets = stored.len() as u64;
    if let Some((header, has_utf8)) = header(settings, &stored).await? {
        found.has_utf8 = has_utf8;
        found.generic.header = Some((header, octets));
    }
    Ok(found)
}

/// Returns the address that other hosts see, if it differs. `steps` collects the look-ups.
pub async fn address(
    settings: &Settings,
    text: &str,
    role: AddressRole,
    mut steps: Option<&mut Vec<Step>>,
) -> Result<Option<Address>, Reply> {
    let Ok(address) = text.parse::<Address>() else { return Ok(None) };
    let (rules, tables) = (&settings.rules, settings.tables.questions());
    loop {
        let mut asked = Vec::new();
        let noted = steps.is_some().then_some(&mut asked);
        match rules.generic(&address, role, &tables, noted) {
            Ok(found) => {
                match &mut steps {
                    Some(steps) => steps.append(&mut asked),
                    None if found.is_err() => {
                        let _ = rules.generic(&address, role, &tables, Some(&mut asked));
                        let why = asked.last().map(ToString::to_string).unwrap_or_default();
                        tracing::warn!(%address, "generic address lookup failed; the mail waits: {why}");
                    }
                    None => {}
                }
                return found;
            }
            Err(PendingLookup) => tables.fetch().await,
        }
    }
}

/// Returns the header fields with replaced addresses, and whether any of these is not ASCII; `None` if nothing changes.
async fn header(settings: &Settings, fields: &[u8]) -> Result<Option<(Vec<u8>, bool)>, ContentError> {
    let mut changes: Vec<AddressChange> = Vec::new();
    for (n, found) in addresses(fields).into_iter().enumerate() {
        if n % AT_ONCE == AT_ONCE - 1 {
            tokio::task::yield_now().await;
        }
        if let Some(to) = address(settings, &found.address, found.role, None).await.map_err(ContentError::Table)? {
            let (local, domain) = (to.local().to_owned(), to.domain().to_owned());
            changes.push(AddressChange { old: found, local, domain });
        }
    }
    let has_utf8 = changes.iter().any(|change| !change.local.is_ascii() || !change.domain.is_ascii());
    Ok((!changes.is_empty()).then(|| (replaced(fields, &changes), has_utf8)))
}

/// Reads the header of the stored content.
pub(super) fn stored_header(core: &Core, assignment: &Assignment) -> io::Result<Vec<u8>> {
    let len = assignment.content_len();
    let mut read = Vec::new();
    loop {
        // Octets after the last complete line may belong to another field.
        let end = header_octets(&read);
        let is_whole = read[end..].contains(&b'\n') || read.len() as u64 == len || read.len() as u64 > HEADER_BYTES_MAX;
        if is_whole {
            read.truncate(end);
            return Ok(read);
        }
        let at = read.len();
        let wanted = (len - at as u64).min(at.max(READ_BYTES) as u64) as usize;
        if let Some(body) = &assignment.body {
            read.extend_from_slice(&body[at..at + wanted]);
            continue;
        }
        read.resize(at + wanted, 0);
        let octets = core.reader.read_at(assignment.content.0, at as u64, &mut read[at..])?;
        if octets == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        read.truncate(at + octets);
    }
}
