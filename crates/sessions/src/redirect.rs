//! Resolves the target of a rule's redirect to people, programs and lists, with the look-ups of any recipient. For a
//! list the message is a post like any other, and is refused if its sender may not post. An alias's people get the
//! sender that they would get if a client named the alias.
//!
//! Failure: a redirect to an unknown address is 451, since the configuration is wrong. One that leads the message back
//! to its own program or alias is 554. `/dev/null` is not a failure: the message is accepted and dropped.

use std::collections::BTreeMap;
use std::sync::Arc;

use stentor_addresses::untagged;
use stentor_core::Settings;
use stentor_core::intake::IntakeRefusal;
use stentor_core::people::{MailReader, MailReaders, today};
use stentor_lists::check_delivered_to;
use stentor_mail::address::Address;
use stentor_mail::headers::HeaderFacts;
use stentor_mail::reply::{Enhanced, Reply};
use stentor_queue::ids::Ms;
use stentor_rules::NextHop;

const NOBODY: Reply = Reply::fixed(451, Enhanced::new(4, 3, 5), "Server configuration error");

/// Returns the readers of the message. The caller must check whether lists accept it.
///
/// # Errors
/// The message is refused.
pub async fn redirected(
    settings: &Settings,
    address: &Address,
    facts: &HeaderFacts,
    now: Ms,
) -> Result<MailReaders, Reply> {
    let found = settings.readers_of(address, now).await.map_err(IntakeRefusal::reply)?;
    if found.is_nobody() {
        return Err(NOBODY);
    }
    check_forwarded(facts, address, &found)?;
    for MailReader { to, .. } in &found.people {
        if let Some(alias) = alias_of(settings, &to.address, to.route.hop.as_ref()) {
            check_delivered_to(facts, &alias)?;
        }
    }
    Ok(found)
}

/// Checks an alias that a rule names like one that a client names. Otherwise mail that returns from its people would be
/// sent to all of them again, and double in each pass.
pub(super) fn check_forwarded(facts: &HeaderFacts, address: &Address, found: &MailReaders) -> Result<(), Reply> {
    if found.stand_behind(address) { check_delivered_to(facts, address) } else { Ok(()) }
}

/// The address as [`AcceptedRcpt::via`](super::judge::AcceptedRcpt) has it for one who reads its mail.
pub(super) fn via(address: &Arc<Address>, reader: &MailReader) -> Option<Arc<Address>> {
    (**address != reader.to.address || reader.owner.is_some()).then(|| address.clone())
}

/// Key of a separate envelope for readers of an alias: the alias, whether the reader is a program or file of it, and
/// the alias's owner.
pub(super) type AliasEnvelope = (Address, bool, Option<Address>);

/// Returns the separate envelope of a recipient that is a program or file, or a target of an alias named by a rule.
pub(super) fn alias_envelope(
    settings: &Settings,
    to: &Address,
    hop: Option<&Arc<NextHop>>,
    via: Option<&Address>,
    owner: Option<&Address>,
) -> Option<AliasEnvelope> {
    let program = alias_of(settings, to, hop).map(|alias| (alias, true));
    let (alias, is_program) = program.or_else(|| via.map(|alias| (alias.clone(), false)))?;
    Some((alias, is_program, owner.cloned()))
}

/// The envelope senders that those have who get a message that a rule redirects or copies to an address, in their
/// order.
pub fn senders(settings: &Settings, address: &Address, found: &MailReaders, sender: &str, now: Ms) -> Vec<String> {
    let address = Arc::new(address.clone());
    let of = |reader: &MailReader| {
        let MailReader { to, owner } = reader;
        let via = via(&address, reader);
        let envelope = alias_envelope(settings, &to.address, to.route.hop.as_ref(), via.as_deref(), owner.as_ref())?;
        Some((is_same(&to.address, &envelope.0), envelope))
    };
    let mut groups: BTreeMap<(bool, AliasEnvelope), Vec<&Address>> = BTreeMap::new();
    for reader in &found.people {
        if let Some(group) = of(reader) {
            groups.entry(group).or_default().push(&reader.to.address);
        }
    }
    let sender_of = |reader: &MailReader| match of(reader).and_then(|group| groups.get_key_value(&group)) {
        None => sender.to_owned(),
        Some(((_, (.., owner)), to)) => alias_sender(settings, owner.clone(), sender, &mut to.iter().copied(), now),
    };
    found.people.iter().map(sender_of).collect()
}

/// Returns the envelope sender for an alias's targets, unless the message is itself a report: the alias's owner, else
/// an address that returns through this server, if that is configured.
pub(super) fn alias_sender(
    settings: &Settings,
    owner: Option<Address>,
    sender: &str,
    to: &mut dyn Iterator<Item = &Address>,
    now: Ms,
) -> String {
    if sender.is_empty() {
        return String::new();
    }
    let forwarder = || settings.rules.forwarder(sender, to, today(now));
    owner.or_else(forwarder).map_or_else(|| sender.to_owned(), |sender| sender.as_str().to_owned())
}

/// Compares as a mailbox compares its address with Delivered-To.
pub(super) fn is_same(to: &Address, alias: &Address) -> bool {
    to.as_str().eq_ignore_ascii_case(alias.as_str())
}

/// Returns the alias of this program or file, if the next hop is the service for these.
pub(super) fn alias_of(settings: &Settings, to: &Address, hop: Option<&Arc<NextHop>>) -> Option<Address> {
    if hop.is_none() || hop != settings.program().as_ref() {
        return None;
    }
    let (local, _) = untagged(to.local())?;
    format!("{local}@{}", to.domain()).parse().ok()
}
