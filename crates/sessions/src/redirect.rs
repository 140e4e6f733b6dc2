//! Whom a rule's redirect leads to: people, programs and lists, by the look-ups of any recipient. To a list the message is a post like
//! any: it is refused where its sender may not post. What an alias's people get has the sender that it has if a client names the alias.
//!
//! Failure: a redirect to an address that nobody has is 451, since the configuration is wrong; one that leads the message back to a
//! program or an alias that it comes from is 554. What is `/dev/null` is no failure: the message is taken and dropped.

use std::collections::BTreeMap;
use std::sync::Arc;

use stentor_addresses::untagged;
use stentor_lists::check_delivered_to;
use stentor_mail::address::Address;
use stentor_mail::headers::HeaderFacts;
use stentor_mail::reply::Reply;
use stentor_queue::ids::Ms;

use stentor_engine::core::Settings;
use stentor_engine::core::intake::Refused;
use stentor_engine::core::people::{Reader, Readers, today};

const NOBODY: Reply = Reply::fixed(451, (4, 3, 5), "Server configuration error");

/// Those who get the message; lists are asked whether they take it by the caller.
///
/// # Errors
/// The message is refused.
pub async fn redirected(
    settings: &Settings,
    address: &Address,
    facts: &HeaderFacts,
    now: Ms,
) -> Result<Readers, Reply> {
    let found = settings.readers_of(address, now).await.map_err(Refused::reply)?;
    if found.is_nobody() {
        return Err(NOBODY);
    }
    check_forwarded(facts, address, &found)?;
    for Reader { to, .. } in &found.people {
        if let Some(alias) = alias_of(settings, &to.address, to.hop.as_ref()) {
            check_delivered_to(facts, &alias)?;
        }
    }
    Ok(found)
}

/// An alias that a rule names is checked as one that a client names: mail that comes back from its people would be sent to all of them
/// again, and so double in each pass.
pub(super) fn check_forwarded(facts: &HeaderFacts, address: &Address, found: &Readers) -> Result<(), Reply> {
    if found.stand_behind(address) { check_delivered_to(facts, address) } else { Ok(()) }
}

/// The address as [`AcceptedRcpt::via`](super::judge::AcceptedRcpt) has it for one who reads its mail.
pub(super) fn via(address: &Arc<Address>, reader: &Reader) -> Option<Arc<Address>> {
    (**address != reader.to.address || reader.owner.is_some()).then(|| address.clone())
}

/// What an envelope is for that a reader of an alias gets, beside those of other recipients: the alias, whether it is for a program or
/// file of it, and who owns the alias.
pub(super) type AliasEnvelope = (Address, bool, Option<Address>);

/// The envelope of a recipient that is a program or file, or was reached by an alias that a rule named.
pub(super) fn alias_envelope(
    settings: &Settings,
    to: &Address,
    hop: Option<&Arc<str>>,
    via: Option<&Address>,
    owner: Option<&Address>,
) -> Option<AliasEnvelope> {
    let program = alias_of(settings, to, hop).map(|alias| (alias, true));
    let (alias, is_program) = program.or_else(|| via.map(|alias| (alias.clone(), false)))?;
    Some((alias, is_program, owner.cloned()))
}

/// The envelope senders that those have who get a message that a rule redirects or copies to an address, in their order.
pub fn senders(settings: &Settings, address: &Address, found: &Readers, sender: &str, now: Ms) -> Vec<String> {
    let address = Arc::new(address.clone());
    let of = |reader: &Reader| {
        let Reader { to, owner } = reader;
        let via = via(&address, reader);
        let envelope = alias_envelope(settings, &to.address, to.hop.as_ref(), via.as_deref(), owner.as_ref())?;
        Some((is_same(&to.address, &envelope.0), envelope))
    };
    let mut groups: BTreeMap<(bool, AliasEnvelope), Vec<&Address>> = BTreeMap::new();
    for reader in &found.people {
        if let Some(group) = of(reader) {
            groups.entry(group).or_default().push(&reader.to.address);
        }
    }
    let sender_of = |reader: &Reader| match of(reader).and_then(|group| groups.get_key_value(&group)) {
        None => sender.to_owned(),
        Some(((_, (.., owner)), to)) => alias_sender(settings, owner.clone(), sender, &mut to.iter().copied(), now),
    };
    found.people.iter().map(sender_of).collect()
}

/// The envelope sender of what an alias expands to, but of what is itself a report: who owns it reads what comes back, else it comes back
/// through this server, if that is configured.
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

/// As a mailbox compares its address with Delivered-To.
pub(super) fn is_same(to: &Address, alias: &Address) -> bool {
    to.as_str().eq_ignore_ascii_case(alias.as_str())
}

/// The alias whose program or file this is, if it goes to the service of these.
pub(super) fn alias_of(settings: &Settings, to: &Address, hop: Option<&Arc<str>>) -> Option<Address> {
    if hop.is_none() || hop != settings.program().as_ref() {
        return None;
    }
    let (local, _) = untagged(to.local())?;
    format!("{local}@{}", to.domain()).parse().ok()
}
