//! Finds sites by the names that operators use.

use std::sync::Arc;

use stentor_control::ErrorCode;
use stentor_control::problem::Problem;
use stentor_core::hub::Hub;
use stentor_mail::address::{Address, normalise_domain};
use stentor_queue::ids::{AddressId, DomainId, SiteId};
use stentor_queue::message::Message;
use stentor_records::escape::unescaped;
use stentor_sched::WaitingPlace;

/// Maximum recipients or addresses examined to count those of one message.
pub const LOOKS_MAX: usize = 2_048;

/// Finds a site by its name, as shown or as in a log line, or by a domain that it serves; returns its name too.
pub fn find(hub: &Hub, name: &str) -> Option<(SiteId, Arc<str>)> {
    let name = &*unescaped(name);
    let of_domain =
        || hub.store.book.domains_named(&name.to_ascii_lowercase()).find_map(|domain| hub.sched.site_of(domain));
    let site = hub.sched.site_named(name).or_else(of_domain)?;
    Some((site, hub.sched.site_name(site)?.into()))
}

/// As [`find`], also for a domain without a site, which has not been looked up.
pub fn find_at(hub: &Hub, name: &str) -> Option<(WaitingPlace, Arc<str>)> {
    if let Some((site, name)) = find(hub, name) {
        return Some((WaitingPlace::Site(site), name));
    }
    let domain = hub.store.book.domains_named(&name.to_ascii_lowercase()).next()?;
    Some((WaitingPlace::Domain(domain), hub.store.book.domain_name(domain).into()))
}

/// Whether a domain's mail is at a place.
pub fn is_at(hub: &Hub, domain: DomainId, at: WaitingPlace) -> bool {
    match at {
        WaitingPlace::Site(site) => hub.sched.site_of(domain) == Some(site),
        WaitingPlace::Domain(wanted) => domain == wanted,
    }
}

/// A message's pending recipients at a place; `None` if counting them takes too many look-ups.
pub fn pending_at(hub: &Hub, message: &Message, at: WaitingPlace) -> Option<u64> {
    let (pending, book) = (message.pending(), &hub.store.book);
    let is_there = |id: u32| book.try_domain(AddressId(id)).is_some_and(|domain| is_at(hub, domain, at));
    if pending.len() <= LOOKS_MAX {
        return Some(pending.iter().filter(|id| is_there(*id)).count() as u64);
    }
    // Count from the site's addresses, if they are few.
    let (mut looks, mut count) = (0, 0);
    let domains: Box<dyn Iterator<Item = DomainId>> = match at {
        WaitingPlace::Site(site) => Box::new(hub.sched.domains_at(site)),
        WaitingPlace::Domain(domain) => Box::new(std::iter::once(domain)),
    };
    for domain in domains {
        let addresses = book.addresses_of(domain);
        looks += 1 + addresses.len();
        if looks > LOOKS_MAX {
            return None;
        }
        count += addresses.iter().filter(|id| pending.contains(*id)).count() as u64;
    }
    Some(count)
}

/// Normalises an address or `@domain` to the queue's form; empty for the null sender.
pub fn pattern(text: &str) -> Result<String, Problem> {
    let bad = |why: &dyn std::fmt::Display| Problem::new(ErrorCode::BadRequest, format!("{text:?}: {why}"));
    match text.strip_prefix('@') {
        _ if text.is_empty() => Ok(String::new()),
        Some(domain) => normalise_domain(domain).map(|domain| format!("@{domain}")).map_err(|error| bad(&error)),
        None => Address::parse(text.as_bytes(), true)
            .map(|address| address.as_str().to_owned())
            .map_err(|error| bad(&error)),
    }
}
