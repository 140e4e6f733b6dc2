//! `stentor address ADDR`: what an address resolves to at this server, its place in the address book, and its waiting
//! messages.
//!
//! Promise: an address is known if the address book has it, or if it is a list, an alias or a virtual user here; so is
//! one that this server refuses. A name without a domain gets `origin`, as local programs may write it.

use std::sync::Arc;

use stentor_control::{AddressView, ControlReply, ErrorCode, HostsHistoryView, MailboxHistoryView};
use stentor_core::Core;
use stentor_core::hub::Hub;
use stentor_mail::address::{Address, AddressError};
use stentor_queue::ids::{AddressId, DomainId, Ms};

use super::suppressions;
use crate::verify;
use crate::views::recipient;

/// Messages examined per hold of the lock: some tens of nanoseconds each.
const MESSAGES_STEP: usize = 8_192;
/// Maximum queue ids named; all are counted.
const MESSAGES_SHOWN_MAX: usize = 50;

/// Answers for an address in any spelling.
pub async fn address(core: &Arc<Core>, text: &str) -> ControlReply {
    let origin = core.settings().rules.addresses.origin.clone();
    let parsed = match Address::parse(text.as_bytes(), true) {
        Err(AddressError::NoDomain) if !origin.is_empty() => format!("{text}@{origin}").parse(),
        parsed => parsed,
    };
    let address: Address = match parsed {
        Ok(address) => address,
        Err(error) => return ControlReply::error(ErrorCode::BadRequest, format!("{text}: {error}")),
    };
    let unknown = || ControlReply::error(ErrorCode::NotFound, format!("{address} is not in recent mail or any list"));
    let found = core.with(|hub, now| {
        let ids = hub.store.book.entries_of(address.as_str());
        let view = view(hub, *ids.first()?, now);
        Some((ids, view, hub.store.number_bounds()))
    });
    let here = verify::describe_targets(core, &address).await;
    let suppressions = suppressions::of(core, address.as_str()).await;
    let Some((ids, mut view, (mut next, until))) = found else {
        if here.is_empty() && suppressions.is_empty() {
            return unknown();
        }
        let (now, domain) = (core.clock.now(), address.domain().to_owned());
        let address = address.as_str().to_owned();
        return ControlReply::Address(Box::new(AddressView {
            address,
            now,
            here,
            domain,
            suppressions,
            ..AddressView::default()
        }));
    };
    (view.here, view.suppressions) = (here, suppressions);
    let mut oldest = None;
    while next != until {
        next = core.with(|hub, _| {
            let mut messages = hub.store.messages_between(next, until);
            for (no, message) in messages.by_ref().take(MESSAGES_STEP) {
                let Some(id) = ids.iter().find(|id| message.pending().contains(id.0)) else { continue };
                view.messages_total += 1;
                oldest.get_or_insert((no, *id));
                if view.messages.len() < MESSAGES_SHOWN_MAX {
                    view.messages.push(message.id().to_string());
                }
            }
            messages.next().map_or(until, |(no, _)| no.0)
        });
        tokio::task::yield_now().await;
    }
    view.pending = oldest.map(|(no, id)| core.with(|hub, now| recipient(hub, no, id, now)));
    ControlReply::Address(Box::new(view))
}

fn view(hub: &Hub, id: AddressId, now: Ms) -> AddressView {
    let book = &hub.store.book;
    let mailbox = book.history(id);
    let domain = book.try_domain(id);
    let site = domain.and_then(|domain| hub.sched.site_of(domain)).and_then(|site| hub.sched.site_name(site));
    let lists = hub.store.lists().filter(|(_, list)| list.ids.contains(id.0));
    let lists: Vec<String> = lists.map(|(name, _)| name.to_owned()).collect();
    let name = |list: &str| format!("subscriber:{list}:{}", book.text(id));
    let is_suspended = |list: &&String| hub.store.is_suspended(&name(list));
    let reason = |list: &String| Some((list.clone(), hub.store.suspended_reason(&name(list))?.to_owned()));
    AddressView {
        address: book.text(id).to_owned(),
        now,
        here: Vec::new(),
        id: id.0,
        domain: domain.map_or("", |domain| book.domain_name(domain)).to_owned(),
        site: site.map(str::to_owned),
        suspended: lists.iter().filter(is_suspended).cloned().collect(),
        suspended_reasons: lists.iter().filter_map(reason).collect(),
        lists,
        suppressions: Vec::new(),
        messages_total: 0,
        messages: Vec::new(),
        pending: None,
        mailbox: MailboxHistoryView {
            last_seen: mailbox.last_seen(),
            last: mailbox.last().name().to_owned(),
            deliveries: mailbox.deliveries(),
            xdelay_ms: mailbox.xdelay_ms(),
            refusals: mailbox.refusals(),
            refused_since: mailbox.refused_since(),
        },
        hosts: domain.map(|domain| hosts_history(hub, domain, now)).unwrap_or_default(),
    }
}

pub fn hosts_history(hub: &Hub, domain: DomainId, now: Ms) -> HostsHistoryView {
    let history = hub.store.book.site_history(domain);
    let (answered, failed) = history.counts(now);
    HostsHistoryView {
        last_success: history.last_success(),
        last_failure: history.last_failure(),
        answered,
        failed,
        xdelay_ms: history.xdelay_ms(),
        p99_ms: history.p99_ms(),
        connections: history.connections(),
    }
}
