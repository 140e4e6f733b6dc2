//! Applies a transaction's outcomes.
//!
//! Host and site are charged before the recipients go back, so that they do not go straight to the host that has just
//! failed them.

use std::sync::Arc;

use stentor_queue::cause::Cause;
use stentor_queue::ids::{AddressId, ConnId, MessageNo, Ms, SiteId, TxId};
use stentor_queue::idset::IdSet;
use stentor_queue::store::Store;

use super::consequence::Consequence;
use super::deferrals::{DeferralKey, RETURN_BEHIND, RETURN_RATE, RETURNS_MAX, sender_key};
use super::drains::{Drain, DrainWhat};
use super::findings::{Findings, reply_to};
use super::limits::{recipients_max, reduce_trust, transactions_max};
use super::refusals::MailProfile;
use super::reports::{gather, report_if_last};
use super::verdict::Judge;
use crate::Scheduler;
use crate::effects::{Ids, RcptOutcome, SessionSoFar, Stage};
use crate::flows::SourceSet;
use crate::reasons::HostReply;
use crate::sites::{Hop, HostNo};
use crate::state::SchedState;

/// RFC 5321 section 3.8: the host closes the connection.
const REPLY_SERVICE_NOT_AVAILABLE: u16 = 421;

/// A transaction that has ended on a connection.
pub struct EndedTransaction {
    pub hop: Hop,
    pub host_name: Arc<str>,
    pub session: SessionSoFar,
    pub no: MessageNo,
    pub ids: Ids,
    /// When it began; for the first transaction of a connection, when the connection began.
    pub begun: Ms,
    /// Time spent waiting for the last reply.
    pub gap_ms: Ms,
    /// The sender's key, kept where the site has deferrals: the message may be gone now.
    pub sender: Option<u64>,
}

/// An ended transaction with its outcomes.
struct Done<'a> {
    ended: EndedTransaction,
    outcomes: &'a [RcptOutcome],
    judge: Judge,
    found: Findings<'a>,
}

impl Done<'_> {
    fn reply(&self, outcome: &RcptOutcome) -> HostReply {
        reply_to(outcome, &self.ended.host_name)
    }
}

impl Scheduler {
    /// Reports the outcomes of a transaction, after delivered ones were applied to the store. Recipients without an
    /// outcome go again. The connection is ready for `take_work` unless `closed` follows.
    pub fn work_done(&mut self, store: &Store, conn: ConnId, tx: TxId, results: &[RcptOutcome], now: Ms) {
        let now = self.steady(now);
        let Some(ended) = self.connections(now).end_transaction(conn, tx) else { return };
        let judge = Judge::of(results, ended.session);
        let found = Findings::of(results, judge);
        if let Some(entry) = self.pool.get(conn) {
            entry.decided |= found.decided > 0;
            entry.delivered |= found.delivered > 0;
        }
        self.connections(now).heard(conn);
        let done = Done { ended, outcomes: results, judge, found };
        let hop = done.ended.hop;
        self.note_service(&done, now);
        let is_deferred = self.charge_host_of(conn, &done, now);
        let is_deferred = self.charge_message(store, &done, now) || is_deferred;
        let (no, found) = (done.ended.no, &done.found);
        // Recipients that wait for the same deferral have had their attempt with this one.
        if is_deferred
            && self.state.is_over_age(store, no, now)
            && let Some(outcome) =
                found.message.or(found.sender).or(found.refused).or(found.lost).or(found.rate).or(found.limited)
        {
            let what = DrainWhat::Message(hop.site, no);
            self.failure.drains.push_back(Drain::expired(what, &done.reply(outcome)));
        }
        if found.too_many > 0 && found.taken > 0 && found.limited.is_none() {
            recipients_max(self.state.path(hop.site, hop.source), done.ended.ids.len(), found.taken);
        }
        self.apply_outcomes(store, &done, is_deferred, now);
        if self.state.sites.get(hop.site).deferrals > 0 && self.state.waits_in_line(hop.site, no) {
            // Otherwise a connection would be opened only to find it deferred.
            self.failure.deferrals.keeps_back(&mut self.state, store, hop.site, no, now);
        }
        report_if_last(&mut self.state, store, no);
        // Mail that waited while as many transactions as allowed were in flight.
        if !self.state.path(hop.site, hop.source).idle.is_empty() {
            self.consider(hop.site, now);
        }
    }

    /// Records rate replies and deliveries with the site.
    fn note_service(&mut self, done: &Done<'_>, now: Ms) {
        let (hop, found) = (done.ended.hop, &done.found);
        if let Some(outcome) = found.rate {
            self.failure.too_fast(&mut self.state, hop, &done.reply(outcome), now);
        } else if found.delivered > 0 {
            self.state.path(hop.site, hop.source).answered(done.ended.gap_ms, now);
            let xdelay_ms = now.saturating_sub(done.ended.begun).min(Ms::from(u32::MAX)) as u32;
            self.state.sites.get(hop.site).history.delivered(xdelay_ms, now);
        }
        let is_past_mail = |outcome: &RcptOutcome| matches!(outcome.stage, Stage::Rcpt | Stage::Data | Stage::Final);
        if done.outcomes.iter().any(is_past_mail) {
            self.failure.deferrals.sender_accepted(&mut self.state, &done.ended, found.delivered > 0, now);
        }
        if found.delivered == 0 {
            return;
        }
        // The site is proven and may have one more connection.
        let default = self.state.cfg.connections_per_site_max;
        let entry = self.state.sites.get(hop.site);
        let max = entry.connections_max(default);
        entry.paths[hop.source as usize].good(max, now);
        if entry.deferrals > 0 {
            let deferrals = &mut self.failure.deferrals;
            deferrals.drop(&mut self.state, hop.site, DeferralKey::Message(done.ended.no));
            deferrals.site_takes_mail(&mut self.state, hop.site, hop.host, now);
        }
    }

    /// Charges the host's clock. Returns whether the message is deferred now.
    fn charge_host_of(&mut self, conn: ConnId, done: &Done<'_>, now: Ms) -> bool {
        let found = &done.found;
        if let Some(outcome) = found.refused.or(found.lost) {
            let Some(end) = self.connections(now).charge(conn) else { return false };
            let (no, is_refused) = (done.ended.no, found.refused.is_some());
            return self.failure.interrupted(&mut self.state, end, no, is_refused, &done.reply(outcome), now);
        }
        if found.answered > 0 {
            self.host_succeeded(done.ended.hop.host, found.delivered > 0, now);
        }
        if let Some(outcome) = found.limited {
            let leaves = outcome.code == REPLY_SERVICE_NOT_AVAILABLE;
            let good = self.connections(now).spend(conn, leaves) + u32::from(found.delivered > 0);
            let (hop, no, reply) = (done.ended.hop, done.ended.no, done.reply(outcome));
            transactions_max(&mut self.state, hop, good, &reply);
            return self.failure.deferrals.returned(&mut self.state, hop.site, no, RETURN_BEHIND, &reply, now);
        }
        if let Some(entry) = self.pool.get(conn) {
            entry.good += 1;
        }
        false
    }

    /// Charges the clocks of the sender and of the message at the site. Returns whether the message is deferred now.
    fn charge_message(&mut self, store: &Store, done: &Done<'_>, now: Ms) -> bool {
        let (hop, no, found) = (done.ended.hop, done.ended.no, &done.found);
        let (state, deferrals) = (&mut self.state, &mut self.failure.deferrals);
        if let Some(outcome) = found.sender
            && let Some(message) = store.message(no)
        {
            let (sender, reply) = (sender_key(message.sender()), done.reply(outcome));
            reduce_trust(state, hop, &reply);
            if deferrals.is_about_message(state, hop, no, sender) {
                deferrals.defer(state, hop.site, no, &reply, now);
                return true;
            }
            let mail = MailProfile::of(no, message);
            let has_clock = deferrals.sender_refused(state, hop, mail, sender, &reply, now);
            let is_refused = deferrals.sender_wait(state, hop.site, sender, SourceSet::ALL, now).is_some();
            if has_clock && is_refused {
                for no in deferrals.overdue(state, store, hop, sender, &mail, now) {
                    self.failure.drains.push_back(Drain::expired(DrainWhat::Message(hop.site, no), &reply));
                }
            }
            return is_refused;
        }
        if let Some(outcome) = found.message {
            deferrals.defer(state, hop.site, no, &done.reply(outcome), now);
            // A recipient that has had a copy would get another one each time the others get theirs.
            if outcome.stage == Stage::LostAfterDot && found.delivered == 0 {
                deferrals.await_site(state, hop.site, no, Some(hop.host));
            }
            return true;
        }
        if let Some(outcome) = found.rate {
            // Its path pauses for a while.
            let cost = if state.cfg.strategies.adaptation { RETURN_RATE } else { RETURNS_MAX };
            return deferrals.returned(state, hop.site, no, cost, &done.reply(outcome), now);
        }
        // The caller reported no outcome for some recipients.
        if done.outcomes.len() < done.ended.ids.len() {
            let host = Some(done.ended.host_name.clone());
            let reply = HostReply { code: 0, dsn: None, text: "no outcome".into(), cause: Cause::Message, host };
            return deferrals.returned(state, hop.site, no, RETURNS_MAX / 2, &reply, now);
        }
        false
    }

    fn apply_outcomes(&mut self, store: &Store, done: &Done<'_>, is_deferred: bool, now: Ms) {
        let no = done.ended.no;
        let over_age = self.state.is_over_age(store, no, now);
        let mut open = done.ended.ids.clone();
        for outcome in done.outcomes {
            let Some(at) = open.iter().position(|open| *open == outcome.id) else { continue };
            open.swap_remove(at);
            let may_expire = over_age && !self.domains.keeps(&self.state, store, no, outcome.id);
            let consequence = Consequence::of(done.judge.verdict(outcome), may_expire, is_deferred);
            self.apply(store, no, outcome, consequence, done, now);
        }
        for id in open {
            self.requeue(store, no, id, now);
        }
    }

    fn apply(
        &mut self,
        store: &Store,
        no: MessageNo,
        outcome: &RcptOutcome,
        consequence: Consequence,
        done: &Done<'_>,
        now: Ms,
    ) {
        let id = outcome.id;
        if !self.state.messages.is_live(no) {
            return self.end_clocks(store, no, id, now);
        }
        let was_in_flight = self.state.no_longer_in_flight(no, id);
        match consequence {
            Consequence::Again | Consequence::AgainAlone => {
                if consequence == Consequence::AgainAlone {
                    self.release_mailbox(store, no, id, now);
                }
                if was_in_flight {
                    self.make_ready(store, no, id, now);
                }
            }
            Consequence::Delivered => self.mailbox_succeeded(store, no, id, now),
            Consequence::DeferMailbox => self.defer_mailbox(store, no, id, &done.reply(outcome), now),
            Consequence::DeferRecipient => self.defer_recipient(store, no, id, &done.reply(outcome), now),
            Consequence::Refused => {
                self.notices.strike(&mut self.state, no, outcome, now);
                self.fail(store, no, id, false, &done.reply(outcome), now);
            }
            Consequence::Failed => self.fail(store, no, id, false, &done.reply(outcome), now),
            Consequence::Expired => self.fail(store, no, id, true, &done.reply(outcome), now),
        }
    }

    /// Fails a recipient for good. `expired`: the last failure was temporary and its lifetime is over.
    pub(crate) fn fail(
        &mut self,
        store: &Store,
        no: MessageNo,
        id: AddressId,
        expired: bool,
        reply: &HostReply,
        now: Ms,
    ) {
        self.end_clocks(store, no, id, now);
        gather(&mut self.state, store, no, id, expired, reply, now);
    }

    /// Called when the mailbox has taken a message.
    fn mailbox_succeeded(&mut self, store: &Store, no: MessageNo, id: AddressId, now: Ms) {
        self.notices.end_strikes_of(&self.state, no, id);
        let waiters = self.failure.mailboxes.succeeded(no, id);
        if let Some(waiters) = waiters.filter(|_| self.state.flows.coalesces).cloned() {
            self.mailbox_returned(id, &waiters);
        }
        self.end_clocks(store, no, id, now);
    }

    /// Defers the mailbox after 4.2.x, for all messages. Those past their lifetime expire.
    fn defer_mailbox(&mut self, store: &Store, no: MessageNo, id: AddressId, reply: &HostReply, now: Ms) {
        let reason = self.state.reasons.keep(reply.clone());
        let domain = store.book.try_domain(id);
        self.failure.mailboxes.refused(&mut self.state, no, id, domain, reason, now);
        let is_kept = |state: &SchedState, no| self.domains.keeps(state, store, no, id);
        for old in self.failure.mailboxes.take_over_age(&self.state, store, id, is_kept, now) {
            if self.state.messages.is_held(old) {
                self.make_ready(store, old, id, now);
            } else if self.state.messages.is_live(old) {
                self.fail(store, old, id, true, reply, now);
            }
        }
    }

    /// Defers a recipient after another 4xx at RCPT; after several messages in a row, the mailbox.
    fn defer_recipient(&mut self, store: &Store, no: MessageNo, id: AddressId, reply: &HostReply, now: Ms) {
        let reason = self.state.reasons.keep(reply.clone());
        if !self.failure.recipients.contains(no, id) && self.failure.mailboxes.strike(id) {
            return self.defer_mailbox(store, no, id, reply, now);
        }
        let domain = store.book.try_domain(id);
        self.failure.recipients.refused(&mut self.state, no, id, domain, reason, now);
        self.release_mailbox(store, no, id, now);
    }

    /// Ends the clocks of a recipient that is finished or waits for something other than its clocks: its own clock is
    /// forgotten, and if it was its mailbox's probe, the other messages for that mailbox go ahead.
    pub(crate) fn end_clocks(&mut self, store: &Store, no: MessageNo, id: AddressId, now: Ms) {
        self.failure.recipients.forget(no, id);
        self.release_mailbox(store, no, id, now);
    }

    fn release_mailbox(&mut self, store: &Store, no: MessageNo, id: AddressId, now: Ms) {
        if let Some(waiters) = self.failure.mailboxes.release(no, id, now) {
            for waiter in &waiters {
                self.make_ready(store, MessageNo(waiter), id, now);
            }
        }
    }

    /// Ends the clocks of recipients that the choice found no longer pending.
    pub(crate) fn end_clocks_of_gone(&mut self, store: &Store, now: Ms) {
        for (no, id) in std::mem::take(&mut self.waits.gone) {
            self.end_clocks(store, no, id, now);
        }
    }

    /// Records a normal answer of the host: its clock, if any, ends for everybody.
    fn host_succeeded(&mut self, host: HostNo, delivered: bool, now: Ms) {
        if !self.state.sites.host(host).succeeded(delivered, now) {
            return;
        }
        if self.state.flows.coalesces {
            let at = self.state.sites.host(host).sites.clone();
            for site in at.iter().map(SiteId) {
                self.coalescing.site_returned(&mut self.state, site);
            }
        }
        self.state.sites.wake_sites_of(host);
    }

    /// Whether an address must be kept because of its mailbox's clock.
    pub fn knows_address(&self, id: AddressId) -> bool {
        self.failure.mailboxes.contains(id)
    }

    /// Forgets addresses whose ids will be reused.
    pub fn forget_addresses(&mut self, ids: &IdSet) {
        self.notices.forget_strikes(ids);
        self.failure.mailboxes.forget(ids);
    }
}
