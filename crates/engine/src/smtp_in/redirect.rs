//! Whom a rule's redirect leads to: people and programs, by the look-ups of any recipient.
//!
//! Failure: a redirect to an address that nobody has is 451, since the configuration is wrong; one that leads the message back to a
//! program that it comes from is 554. What is `/dev/null` is no failure: the message is taken and dropped.

use std::sync::Arc;

use stentor_addresses::untagged;
use stentor_lists::check_delivered_to;
use stentor_mail::address::Address;
use stentor_mail::headers::HeaderFacts;
use stentor_mail::reply::Reply;
use stentor_queue::ids::Ms;

use crate::core::Settings;
use crate::core::envelope::To;
use crate::core::intake::Refused;

const NOBODY: Reply = Reply::fixed(451, (4, 3, 5), "Server configuration error");

/// Those who get the message, and whether the address stands for `/dev/null`, by itself or beside them.
///
/// # Errors
/// The message is refused.
pub async fn redirected(
    settings: &Settings,
    (address, now): (&Address, Ms),
    facts: &HeaderFacts,
) -> Result<(Vec<To>, bool), Reply> {
    let (people, has_null) = settings.people_or_null(address, now).await.map_err(Refused::reply)?;
    if people.is_empty() && !has_null {
        return Err(NOBODY);
    }
    for to in &people {
        if let Some(alias) = alias_of(settings, &to.address, to.hop.as_ref()) {
            check_delivered_to(facts, &alias)?;
        }
    }
    Ok((people, has_null))
}

/// The alias whose program or file this is, if it goes to the service of these.
pub(super) fn alias_of(settings: &Settings, to: &Address, hop: Option<&Arc<str>>) -> Option<Address> {
    if hop.is_none() || hop != settings.program().as_ref() {
        return None;
    }
    let (local, _) = untagged(to.local())?;
    format!("{local}@{}", to.domain()).parse().ok()
}
