//! Suppressed recipients get no mail: they are removed from each transaction before it begins. Recipients that fail
//! without a transaction, because their domain's hosts are gone, are removed likewise instead of being reported.
//!
//! Promise: an entry that is in force when a transaction begins has an effect on it, however long its recipients have
//! waited. A suppressed recipient ends as removed, as if an operator had removed it: the outcome names the entry's
//! scope and reason, and no DSN is sent. Transactional mail, such as a password reset, is checked only against entries
//! for all mail. A trusted client's sender or a user decides which mail that is, never an untrusted client.
//!
//! Bounds: a look-up is made per recipient and transaction, under the hub's lock, and not at all without entries. After
//! [`ROUNDS_MAX`] transactions without other recipients the connection asks again later, so that the lock is released.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use smallvec::SmallVec;
use stentor_mail::address::Address;
use stentor_mail::reply::{Enhanced, Reply};
use stentor_queue::event::{Envelope, Fate};
use stentor_queue::ids::{AddressId, ConnId, MessageNo, Ms};
use stentor_queue::idset::IdSet;
use stentor_queue::message::Message;
use stentor_registry::{Scope, SuppressionError, SuppressionMatch};
use stentor_sched::{FailedRcpt, Work};

use crate::assignment::Assignment;
use crate::hub::Hub;
use crate::{Core, Settings, log};

/// Transactions of suppressed recipients taken in a row.
const ROUNDS_MAX: usize = 8;
/// How often expired entries are deleted.
const DELETE_PAUSE: Duration = Duration::from_hours(1);

/// Suppressed recipients of a transaction with the same scope and reason.
struct SuppressedGroup {
    found: SuppressionMatch,
    ids: IdSet,
}

type SuppressedGroups = SmallVec<[SuppressedGroup; 2]>;

/// Returns the scope of a manager's mail. It numbers its posts after `+`; the scope has all of them.
///
/// # Errors
/// The sender is not a valid address.
pub fn sender_scope(sender: &str) -> Result<Scope, SuppressionError> {
    let base = sender.parse::<Address>().ok().and_then(|address| address.without_detail());
    Scope::sender(base.as_ref().map_or(sender, Address::as_str))
}

/// Takes the next transaction for a connection, if there is one, without suppressed recipients.
pub fn take_assignment(core: &Core, hub: &mut Hub, conn: ConnId, now: Ms) -> Option<Assignment> {
    let work = take_work(core, hub, conn, now)?;
    Assignment::of(hub, work, now)
}

fn take_work(core: &Core, hub: &mut Hub, conn: ConnId, now: Ms) -> Option<Work> {
    let mut work = hub.take_work(conn, now)?;
    if core.registry.is_empty() {
        return Some(work);
    }
    for _ in 1..ROUNDS_MAX {
        if remove_suppressed(core, hub, conn, &mut work, now) {
            return Some(work);
        }
        work = hub.take_work(conn, now)?;
    }
    if remove_suppressed(core, hub, conn, &mut work, now) {
        return Some(work);
    }
    hub.wake(conn);
    None
}

/// Deletes entries that have ended, now and then. Runs until the process ends.
pub async fn delete_expired(core: Arc<Core>) {
    loop {
        // A failure is reported where the registry fails.
        while core.registry.delete_expired(core.clock.now()).await.is_ok_and(|deleted| deleted > 0) {}
        tokio::time::sleep(DELETE_PAUSE).await;
    }
}

/// Takes suppressed recipients out of a transaction. Returns whether others are left.
fn remove_suppressed(core: &Core, hub: &mut Hub, conn: ConnId, work: &mut Work, now: Ms) -> bool {
    let mut are_left = true;
    for SuppressedGroup { found, ids } in suppressed(core, hub, work.no, &work.ids, now) {
        let (by, count) = (found.to_string(), ids.len() as u64);
        if let Some(id) = hub.store.message(work.no).map(Message::id) {
            log::suppressed(core, hub, id, &ids, &by, now);
        }
        are_left = hub.remove_from_work(conn, work, &ids, &by, now);
        core.counters.suppressed.fetch_add(count, Ordering::Relaxed);
    }
    are_left
}

/// Removes failed recipients that are suppressed. Returns the others, which are reported.
pub fn remove_failed(core: &Arc<Core>, no: MessageNo, mut failures: Vec<FailedRcpt>) -> Vec<FailedRcpt> {
    if core.registry.is_empty() {
        return failures;
    }
    let failed: Vec<AddressId> = failures.iter().map(|failure| failure.id).collect();
    core.with(|hub, now| {
        for SuppressedGroup { found, ids } in suppressed(core, hub, no, &failed, now) {
            let by = found.to_string();
            if let Some(id) = hub.store.message(no).map(Message::id) {
                log::suppressed(core, hub, id, &ids, &by, now);
            }
            let ended: Vec<AddressId> = ids.iter().map(AddressId).collect();
            hub.sched.bounced(no, &ended);
            hub.outcome_by(no, Fate::Removed, &ids, Some(&by), now);
            core.counters.suppressed.fetch_add(ids.len() as u64, Ordering::Relaxed);
            failures.retain(|failure| !ids.contains(failure.id.0));
        }
    });
    failures
}

/// Returns the list and the sender for which a message's recipients may be suppressed: neither for transactional mail.
fn scopes<'a>(settings: &Settings, envelope: &Envelope<'a>) -> (Option<&'a str>, &'a str) {
    let is_trusted = envelope.list.is_none() && !settings.is_strangers(envelope.origin);
    let is_transactional = settings.is_transactional(envelope.is_transactional, envelope.sender, is_trusted);
    if is_transactional { (None, "") } else { (envelope.list, envelope.sender) }
}

/// Whether a recipient of a message is suppressed.
pub fn is_suppressed(core: &Core, message: &Message, address: &str, now: Ms) -> bool {
    let (list, sender) = scopes(&core.settings(), &message.envelope());
    !core.registry.is_empty() && core.registry.is_suppressed(address, list, sender, now).is_some()
}

/// The reply to RCPT for a suppressed recipient.
pub fn refusal(found: SuppressionMatch) -> Reply {
    Reply::new(550, Enhanced::new(5, 7, 1), format!("Recipient is {found}"))
}

fn suppressed(core: &Core, hub: &Hub, no: MessageNo, recipients: &[AddressId], now: Ms) -> SuppressedGroups {
    let mut all = SuppressedGroups::new();
    let Some(message) = hub.store.message(no) else { return all };
    let (list, sender) = scopes(&core.settings(), &message.envelope());
    for id in recipients {
        let Some(found) = core.registry.is_suppressed(hub.store.book.text(*id), list, sender, now) else { continue };
        match all.iter_mut().find(|group| group.found == found) {
            Some(group) => drop(group.ids.insert(id.0)),
            None => all.push(SuppressedGroup { found, ids: IdSet::one(id.0) }),
        }
    }
    all
}
