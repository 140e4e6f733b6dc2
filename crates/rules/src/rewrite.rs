//! Address rewriting in envelopes and headers: canonical tables and masquerading for incoming mail, as in Postfix's
//! cleanup(8), and generic tables for outgoing mail, as in its smtp(8).
//!
//! Promise: a sender is looked up in the tables for senders, then in those for all addresses; a recipient in the
//! tables for recipients, then in those for all. Then masquerading is applied, except to envelope recipients. A
//! canonical result is looked up again in the same tables until it no longer changes; a generic result is not. One
//! address becomes exactly one address.
//!
//! Failure: an unavailable table, a loop, or a value that is not a single address defers the message.

use stentor_addresses::{AddressRole, ExpansionTarget, parse};
use stentor_mail::address::Address;
use stentor_mail::domain::is_at_or_below;
use stentor_mail::reply::Reply;

use crate::addresses::{Masquerade, extension};
use crate::book::Rulebook;
use crate::decision::{MISCONFIGURED, PendingLookup, UNAVAILABLE};
use crate::explain::{Step, note};
use crate::facts::{Field, LookupResult, Subject, TableId, Tables};
use crate::rule::Dialect;

/// Maximum repeated lookups of one address.
const TURNS_MAX: usize = 50;

/// Position of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Envelope,
    Header,
}

/// Why an address cannot be rewritten.
enum Stop {
    Pending,
    Refuse(Reply),
}

impl Rulebook {
    /// Returns the rewritten address, or `None` if it does not change. The inner error is a reply: the message is
    /// deferred.
    ///
    /// # Errors
    /// A table's answer must be fetched first.
    pub fn canonical(
        &self,
        address: &Address,
        role: AddressRole,
        part: Part,
        tables: &dyn Tables,
        mut steps: Option<&mut Vec<Step>>,
    ) -> Result<Result<Option<Address>, Reply>, PendingLookup> {
        let rewriting = &self.addresses.rewriting;
        let own = match role {
            AddressRole::Sender => &rewriting.sender_canonical,
            AddressRole::Recipient => &rewriting.recipient_canonical,
        };
        let mut now = address.clone();
        for ids in [own, &rewriting.canonical] {
            match self.mapped(now, ids, tables, &mut steps) {
                Ok(next) => now = next,
                Err(Stop::Pending) => return Err(PendingLookup),
                Err(Stop::Refuse(reply)) => return Ok(Err(reply)),
            }
        }
        if (role, part) != (AddressRole::Recipient, Part::Envelope)
            && let Some(shorter) = rewriting.masquerade.address(&now)
        {
            note(&mut steps, || (format!("masquerade {now}"), String::new(), shorter.to_string()));
            now = shorter;
        }
        Ok(Ok((now != *address).then_some(now)))
    }

    /// Returns the rewritten address for mail to other hosts, or `None` if it does not change; errors as in
    /// [`Rulebook::canonical`].
    ///
    /// # Errors
    /// A table's answer must be fetched first.
    pub fn generic(
        &self,
        address: &Address,
        role: AddressRole,
        tables: &dyn Tables,
        mut steps: Option<&mut Vec<Step>>,
    ) -> Result<Result<Option<Address>, Reply>, PendingLookup> {
        let own = &self.addresses;
        if own.srs.as_ref().is_some_and(|srs| srs.is_ours(address.local(), address.domain())) {
            // A rewritten SRS address would no longer lead back through this server.
            note(&mut steps, || (format!("generic {address}"), String::new(), "stays: an SRS address".to_owned()));
            return Ok(Ok(None));
        }
        for id in &own.generic.tables {
            // As with sendmail's class G, and its genericstable for senders.
            let is_asked = self.dialect(*id) != Dialect::Genericstable
                || role == AddressRole::Sender
                    && (self.has_own(address.domain()) || own.generic.has_domain(address.domain()));
            if !is_asked {
                continue;
            }
            match self.turn(address, "generic", *id, tables, &mut steps) {
                Ok(None) => {}
                Ok(Some(found)) => return Ok(Ok(Some(found).filter(|found| found != address))),
                Err(Stop::Pending) => return Err(PendingLookup),
                Err(Stop::Refuse(reply)) => return Ok(Err(reply)),
            }
        }
        Ok(Ok(None))
    }

    fn mapped(
        &self,
        address: Address,
        ids: &[TableId],
        tables: &dyn Tables,
        steps: &mut Option<&mut Vec<Step>>,
    ) -> Result<Address, Stop> {
        let mut now = address;
        for _ in 0..TURNS_MAX {
            let mut next = None;
            for id in ids {
                next = self.turn(&now, "canonical", *id, tables, steps)?;
                if next.is_some() {
                    break;
                }
            }
            match next {
                Some(next) if next != now => now = next,
                _ => return Ok(now),
            }
        }
        note(steps, || (format!("canonical {now}"), String::new(), "leads back to itself".to_owned()));
        Err(Stop::Refuse(MISCONFIGURED))
    }

    /// One lookup.
    fn turn(
        &self,
        address: &Address,
        what: &str,
        id: TableId,
        tables: &dyn Tables,
        steps: &mut Option<&mut Vec<Step>>,
    ) -> Result<Option<Address>, Stop> {
        let subject = Subject::Mailbox { address: address.as_str(), is_local: self.has_names(address.domain()) };
        let asked = || format!("{what} {}", self.table_name(id));
        let found = match tables.ask(id, Field::Recipient, subject) {
            LookupResult::Found(found) => found,
            LookupResult::NotFound => {
                note(steps, || (asked(), String::new(), format!("has nothing for {address}")));
                return Ok(None);
            }
            LookupResult::Pending => return Err(Stop::Pending),
            LookupResult::Unavailable(why) => {
                note(steps, || (asked(), String::new(), format!("unavailable: {why}")));
                return Err(Stop::Refuse(UNAVAILABLE));
            }
        };
        // As in Postfix: of these tables, `propagate_unmatched_extensions` includes only canonical.
        let extension = match self.dialect(id) {
            Dialect::Canonical => extension(address.local(), &found.key),
            _ => String::new(),
        };
        let next = match parse(&found.value).as_deref() {
            Ok([ExpansionTarget::Domain(domain)]) => format!("{}@{domain}", address.local()).parse().ok(),
            Ok([ExpansionTarget::Address(text)]) => self.named(text, &extension),
            _ => None,
        };
        note(steps, || (asked(), found.place.clone(), format!("{}: {}", found.key, found.value)));
        if next.is_none() {
            note(steps, || (asked(), found.place.clone(), format!("{:?} is not one address", found.value)));
        }
        next.map(Some).ok_or(Stop::Refuse(MISCONFIGURED))
    }
}

impl Masquerade {
    /// The address without hidden subdomains, if it has any.
    fn address(&self, address: &Address) -> Option<Address> {
        let (local, domain) = (address.local(), address.domain());
        let (is_hidden, parent) = self.domains.iter().find(|(_, parent)| is_at_or_below(domain, parent))?;
        let is_excepted = self.exceptions.iter().any(|name| name.eq_ignore_ascii_case(local));
        if !is_hidden || is_excepted || domain == &**parent {
            return None;
        }
        format!("{local}@{parent}").parse().ok()
    }
}
