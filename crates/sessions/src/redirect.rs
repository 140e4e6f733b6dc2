//! Whom a rule's redirect leads to: people, programs and lists, by the look-ups of any recipient. To a list the message is a post like
//! any: it is refused where its sender may not post.
//!
//! Failure: a redirect to an address that nobody has is 451, since the configuration is wrong; one that leads the message back to a
//! program or an alias that it comes from is 554. What is `/dev/null` is no failure: the message is taken and dropped.

use std::sync::Arc;

use stentor_addresses::untagged;
use stentor_lists::check_delivered_to;
use stentor_mail::address::Address;
use stentor_mail::headers::HeaderFacts;
use stentor_mail::reply::Reply;
use stentor_queue::ids::Ms;

use stentor_engine::core::Settings;
use stentor_engine::core::intake::Refused;
use stentor_engine::core::people::Readers;

const NOBODY: Reply = Reply::fixed(451, (4, 3, 5), "Server configuration error");

/// Those who get the message; lists are asked whether they take it by the caller.
///
/// # Errors
/// The message is refused.
pub async fn redirected(
    settings: &Settings,
    (address, now): (&Address, Ms),
    facts: &HeaderFacts,
) -> Result<Readers, Reply> {
    let found = settings.readers_of(address, now).await.map_err(Refused::reply)?;
    if found.is_nobody() {
        return Err(NOBODY);
    }
    check_forwarded(facts, address, &found)?;
    for to in &found.people {
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

/// The address as [`Asked::via`](super::judge::Asked) has it for one who reads its mail.
pub(super) fn via(address: &Arc<Address>, reader: &Address) -> Option<Arc<Address>> {
    (**address != *reader).then(|| address.clone())
}

/// The alias whose program or file this is, if it goes to the service of these.
pub(super) fn alias_of(settings: &Settings, to: &Address, hop: Option<&Arc<str>>) -> Option<Address> {
    if hop.is_none() || hop != settings.program().as_ref() {
        return None;
    }
    let (local, _) = untagged(to.local())?;
    format!("{local}@{}", to.domain()).parse().ok()
}
