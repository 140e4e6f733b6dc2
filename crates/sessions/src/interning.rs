//! Interns many recipients in batches of their own before their message is accepted, so that neither the acceptance's
//! batch nor the time under the hub's lock grows with them. Addresses that are interned and then not used do no harm.

use std::sync::Arc;

use stentor_core::committer::MergedRecipients;
use stentor_core::envelope::{EnvelopeRcpt, EnvelopeRecipients, NewEnvelope};
use stentor_core::intake::{IntakeRefusal, InternedAddresses, Job};
use stentor_core::interner::INTERN_ADDRESSES_MAX;
use stentor_core::next_hops::own_hop_by_rule;
use stentor_core::pins::Pin;
use stentor_core::route::Route;
use stentor_core::{Core, Settings};
use stentor_queue::event::RcptParams;
use stentor_queue::ids::AddressId;
use stentor_queue::idset::IdSet;
use stentor_rules::NextHop;
use stentor_tls_policy::Wish;
use tokio::sync::oneshot;

/// Octets of addresses above which they are interned ahead, however few they are.
const INTERN_AHEAD_BYTES: usize = 128 * 1024;

/// The recipients of one envelope interned so far.
#[derive(Default)]
struct InternedRecipients {
    merged: MergedRecipients,
    /// Pin of the last batch: it also protects those before it.
    pinned: Option<Pin>,
}

impl InternedRecipients {
    /// Interns one batch of entries, each with its parameters.
    async fn add(
        &mut self,
        core: &Core,
        entries: Vec<String>,
        params: impl Iterator<Item = RcptParams>,
    ) -> Result<(), IntakeRefusal> {
        let (answer, ticket) = oneshot::channel();
        core.intake.push(Job::Intern { addresses: entries, answer });
        let InternedAddresses { ids, pin } = ticket.await.unwrap_or(Err(IntakeRefusal::Stopping))?;
        for (id, params) in ids.into_iter().zip(params) {
            self.merged.add(id, params);
        }
        self.pinned = Some(pin);
        Ok(())
    }

    fn recipients(mut self) -> Option<EnvelopeRecipients> {
        let pin = self.pinned?;
        let params = self.merged.params();
        Some(EnvelopeRecipients::Interned(self.merged.ids, params, pin))
    }
}

/// Interns any number of recipients. The ids stay valid while the pins exist.
pub(super) async fn intern(core: &Core, all: &[EnvelopeRcpt]) -> Result<(IdSet, Vec<Pin>), IntakeRefusal> {
    let mut pins = Vec::new();
    let mut ids = IdSet::new();
    for chunk in all.chunks(INTERN_ADDRESSES_MAX) {
        let (answer, ticket) = oneshot::channel();
        core.intake.push(Job::Intern { addresses: chunk.iter().map(|to| to.entry().into_owned()).collect(), answer });
        let interned = ticket.await.unwrap_or(Err(IntakeRefusal::Stopping))?;
        interned.ids.iter().for_each(|id| _ = ids.insert(id.0));
        pins.push(interned.pin);
    }
    Ok((ids, pins))
}

/// Interns the recipients of large envelopes.
pub(super) async fn intern_ahead(
    core: &Core,
    mut envelopes: Vec<NewEnvelope>,
) -> Result<Vec<NewEnvelope>, IntakeRefusal> {
    for envelope in &mut envelopes {
        let EnvelopeRecipients::Addresses(addresses) = &mut envelope.recipients else { continue };
        let bytes: usize = addresses.iter().map(|to| to.address.as_str().len()).sum();
        if addresses.len() <= INTERN_ADDRESSES_MAX && bytes <= INTERN_AHEAD_BYTES {
            continue;
        }
        let mut ahead = InternedRecipients::default();
        for chunk in addresses.chunks_mut(INTERN_ADDRESSES_MAX) {
            let entries = chunk.iter().map(|to| to.entry().into_owned()).collect();
            ahead.add(core, entries, chunk.iter_mut().map(|to| std::mem::take(&mut to.params))).await?;
        }
        if let Some(recipients) = ahead.recipients() {
            envelope.recipients = recipients;
        }
    }
    Ok(envelopes)
}

/// The subscribers whose copies of a post are sent in another way.
pub(super) enum Subscribers<'a> {
    /// All subscribers of the list.
    Of(&'a str),
    /// These subscribers, whose ids are pinned: some of the list's subscribers were replaced.
    These(&'a IdSet),
}

/// Returns a list's subscribers as recipients with the next hop that a rule names, or with a TLS wish. A subscriber
/// that already has a next hop keeps it.
pub(super) async fn subscribers_at(
    core: &Arc<Core>,
    settings: &Settings,
    subscribers: Subscribers<'_>,
    hop: Option<&NextHop>,
    wish: Wish,
) -> Result<EnvelopeRecipients, IntakeRefusal> {
    let all: Vec<u32> = match &subscribers {
        Subscribers::Of(list) => {
            let all = core.with(|hub, _| hub.store.receiving_subscribers(list)).ok_or(IntakeRefusal::ListGone)?;
            all.iter().collect()
        }
        Subscribers::These(ids) => ids.iter().collect(),
    };
    let mut ahead = InternedRecipients::default();
    for chunk in all.chunks(INTERN_ADDRESSES_MAX) {
        let entries: Vec<String> = core.with(|hub, _| {
            let book = &hub.store.book;
            // An id is only certain to be the same address while the list contains it.
            let current = match &subscribers {
                Subscribers::Of(list) => hub.store.list(list).map(|list| &list.ids),
                Subscribers::These(ids) => Some(*ids),
            };
            let there = chunk.iter().filter(|id| current.is_some_and(|ids| ids.contains(**id)));
            let entry = |id: &u32| {
                let id = AddressId(*id);
                let domain = book.try_domain(id).map_or("", |domain| book.domain_name(domain));
                let (domain, own) = Route::split(domain);
                let by_rule = || own_hop_by_rule(settings, domain, hop?);
                let hop = own.hop.or_else(by_rule);
                Route { wish, hop }.entry(book.text(id)).into_owned()
            };
            there.map(entry).collect()
        });
        let params = std::iter::repeat_with(RcptParams::default);
        ahead.add(core, entries, params).await?;
    }
    Ok(ahead.recipients().unwrap_or(EnvelopeRecipients::List))
}
