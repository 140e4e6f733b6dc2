//! What a transaction's outcome changes: clocks of hosts, holds at sites, clocks of mailboxes and recipients, and what
//! the site is trusted with.
//!
//! What concerns the host or the site is charged before the recipients go back, so that they do not go straight to the
//! host that has just failed them.

use std::sync::Arc;

use super::charges::{Charge, RETURN_BEHIND, RETURN_RATE, RETURNS_MAX};
use super::clocks::{HoldKey, sender_key};
use super::conns::{State, Tx};
use super::effects::{RcptOutcome, Stage};
use super::failing::{Drain, DrainWhat};
use super::path::{Path, RECIPIENTS_UNLIMITED};
use super::reasons::Reply;
use super::sites::HostNo;
use super::verdict::{Judge, Verdict};
use super::{Ids, Scheduler, SourceNo};
use crate::ids::{ConnId, MessageNo, Ms, SiteId, TxId};
use crate::store::Store;

/// What a transaction's outcomes say about host and site, first of each kind.
#[derive(Default)]
struct Findings<'a> {
    refused: Option<&'a RcptOutcome>,
    rate: Option<&'a RcptOutcome>,
    lost: Option<&'a RcptOutcome>,
    sender: Option<&'a RcptOutcome>,
    message: Option<&'a RcptOutcome>,
    /// Outcomes other than "too many recipients".
    taken: usize,
    too_many: usize,
    delivered: usize,
    /// Recipients that got a fate.
    settled: usize,
    /// Recipients that got a fate or a clock.
    answered: usize,
}

impl<'a> Findings<'a> {
    fn of(results: &'a [RcptOutcome], judge: Judge) -> Findings<'a> {
        let mut found = Findings::default();
        for outcome in results {
            found.taken += 1;
            let verdict = judge.verdict(outcome);
            found.settled += usize::from(verdict.is_final());
            found.answered += usize::from(!matches!(
                verdict,
                Verdict::Host | Verdict::Rate | Verdict::TooMany | Verdict::Lost | Verdict::LostAfterDot
            ));
            match verdict {
                Verdict::Delivered => found.delivered += 1,
                Verdict::Host => found.refused = found.refused.or(Some(outcome)),
                Verdict::Rate => found.rate = found.rate.or(Some(outcome)),
                Verdict::Lost => found.lost = found.lost.or(Some(outcome)),
                Verdict::LostAfterDot => {
                    found.lost = found.lost.or(Some(outcome));
                    found.message = found.message.or(Some(outcome));
                }
                Verdict::Sender => found.sender = found.sender.or(Some(outcome)),
                Verdict::Message | Verdict::Unreadable => found.message = found.message.or(Some(outcome)),
                Verdict::TooMany => {
                    found.taken -= 1;
                    found.too_many += 1;
                }
                Verdict::Refused | Verdict::Fail | Verdict::Mailbox | Verdict::Recipient => {}
            }
        }
        // It left among its replies to the content (LMTP): the others may have their copies too. And each try would deliver
        // one more, and so have no clock, but cost the content for all.
        if found.delivered > 0 {
            found.message = found.message.or(found.refused).or(found.lost);
        }
        found
    }
}

fn reply_to(outcome: &RcptOutcome, host: &Arc<str>) -> Reply {
    let host = Some(host.clone()).filter(|_| outcome.stage != Stage::Unreadable);
    Reply { code: outcome.code, dsn: outcome.dsn, text: outcome.text.clone(), host }
}

impl Scheduler {
    /// The outcomes of a transaction, after the delivered ones were applied to the store. Recipients without an outcome
    /// go again. The connection is ready for `take_work` unless `closed` follows.
    pub fn work_done(&mut self, store: &Store, conn: ConnId, tx: TxId, results: &[RcptOutcome], now: Ms) {
        let now = self.steady(now);
        let Some(entry) = self.conns.get(conn) else { return };
        let Some(at) = entry.txs.iter().position(|t| t.id == tx) else { return };
        let done = entry.txs.remove(at);
        let gap = now.saturating_sub(entry.since);
        entry.since = now;
        // The connection's making is part of its first transaction's xdelay.
        let begun = if entry.good == 0 && entry.begun == 1 { entry.opened } else { done.begun };
        let (site, source, host) = (entry.site, entry.source, entry.host);
        let host_name = entry.host_name.clone();
        let is_ready = entry.txs.is_empty() && entry.state == State::Busy;
        if is_ready {
            entry.state = State::Ready;
        }
        let judge = Judge::of(results, entry.lmtp);
        let found = Findings::of(results, judge);
        (entry.settled, entry.delivered) = (entry.settled || found.settled > 0, entry.delivered || found.delivered > 0);
        let path = self.path(site, source);
        path.coming += usize::from(is_ready);
        path.under_way -= 1;
        self.heard(conn, now);
        if let Some(outcome) = found.rate {
            self.too_fast(site, source, &reply_to(outcome, &host_name), now);
        } else if found.delivered > 0 {
            self.path(site, source).answered(gap, now);
            self.sites.get(site).history.delivered(now.saturating_sub(begun).min(Ms::from(u32::MAX)) as u32, now);
        }
        if found.delivered > 0 {
            self.site_good(site, (source, host), done.no, done.sender, now);
        }
        let is_held = if let Some(outcome) = found.refused.or(found.lost) {
            self.charge_end(conn, done.no, outcome, found.refused.is_some(), now)
        } else {
            if found.answered > 0 {
                self.host_well(host, found.delivered > 0);
            }
            if let Some(entry) = self.conns.get(conn) {
                entry.good += 1;
            }
            false
        };
        let is_held =
            self.charge_holds(store, site, (source, host), &done, &found, results.len(), &host_name, now) || is_held;
        // Those that wait for the same hold have had their attempt with it.
        if (is_held || found.sender.is_some())
            && self.is_over_age(store, done.no, now)
            && let Some(outcome) = found.message.or(found.sender).or(found.refused).or(found.lost).or(found.rate)
        {
            let reply = reply_to(outcome, &host_name);
            self.drains.push_back(Drain { what: DrainWhat::Message(site, done.no), expired_only: true, reply });
        }
        if found.too_many > 0 && found.taken > 0 {
            let path = self.path(site, source);
            // Refused again within what was learned: then it is not a number that one could learn.
            let is_known = done.ids.len() <= path.recipients_max && path.recipients_max != RECIPIENTS_UNLIMITED;
            let max = if is_known { found.taken.min(done.ids.len() / 2).max(1) } else { found.taken };
            path.recipients_max = path.recipients_max.min(max);
        }
        self.settle_recipients(store, done.no, done.ids, (results, judge), is_held, &host_name, now);
        if self.sites.get(site).holds > 0 && self.waits_in_line(site, done.no) {
            // Or a connection would be opened to see that it is held.
            self.held_back(store, site, done.no, now);
        }
        self.report_if_last(store, done.no);
        // What stood back while as much was under way as may be.
        if !self.path(site, source).idle.is_empty() {
            self.consider(site, now);
        }
    }

    /// 421, or the connection is lost: charged once, for the transaction in front. Whether the message is held now.
    fn charge_end(&mut self, conn: ConnId, no: MessageNo, outcome: &RcptOutcome, is_refused: bool, now: Ms) -> bool {
        let Some(end) = self.ending(conn) else { return false };
        let Some(entry) = self.conns.get(conn) else { return false };
        let reply = reply_to(outcome, &entry.host_name);
        let (is_cut, is_charged) = (entry.cut, std::mem::replace(&mut entry.charged, true));
        if is_charged {
            self.returned(end.site, no, RETURN_BEHIND, &reply, now)
        } else if is_cut {
            self.charge_host(end.site, end.source, end.host, Charge::Retry, &reply, now);
            self.returned(end.site, no, RETURN_BEHIND, &reply, now)
        } else if is_refused {
            self.refused_421(end, Some(no), &reply, now)
        } else {
            self.host_lost(end, Some(no), &reply, now)
        }
    }

    pub(super) fn path(&mut self, site: SiteId, source: SourceNo) -> &mut Path {
        &mut self.sites.get(site).paths[source as usize]
    }

    /// A rate reply: less at a time from now on.
    pub(super) fn too_fast(&mut self, site: SiteId, source: SourceNo, reply: &Reply, now: Ms) {
        let reason = self.reasons.keep(reply.clone());
        self.sites.get(site).reason = reason;
        if self.cfg.strategies.adaptation {
            self.path(site, source).too_fast(now);
            // What is over its lifetime there has had its chance with this attempt, else one of it would go with each pause.
            if self.path(site, source).pace.as_ref().is_some_and(|pace| pace.is_refused_again()) {
                let reply = reply.clone();
                self.drains.push_back(Drain { what: DrainWhat::Site(site, source), expired_only: true, reply });
            }
        }
    }

    /// Clocks of the sender and of the message at the site. Whether the message is held now.
    #[allow(clippy::too_many_arguments)] // the parts of one transaction's end
    fn charge_holds(
        &mut self,
        store: &Store,
        site: SiteId,
        (source, host_no): (SourceNo, HostNo),
        done: &Tx,
        found: &Findings,
        outcomes: usize,
        host: &Arc<str>,
        now: Ms,
    ) -> bool {
        if let Some(outcome) = found.sender {
            if let Some(message) = store.message(done.no) {
                self.sender_refused(site, host_no, sender_key(message.sender()), &reply_to(outcome, host), now);
            }
            self.trust_less(site, source, &reply_to(outcome, host));
        }
        if let Some(outcome) = found.message {
            self.hold_message_at(site, done.no, &reply_to(outcome, host), now);
            return true;
        }
        let adapts = self.cfg.strategies.adaptation;
        match found.rate {
            // Its path waits for a while.
            Some(outcome) if adapts => self.returned(site, done.no, RETURN_RATE, &reply_to(outcome, host), now),
            Some(outcome) => self.returned(site, done.no, RETURNS_MAX, &reply_to(outcome, host), now),
            // The shell had nothing to say of some.
            None if outcomes < done.ids.len() => {
                let reply = Reply { code: 0, dsn: None, text: "no outcome".into(), host: Some(host.clone()) };
                self.returned(site, done.no, RETURNS_MAX / 2, &reply, now)
            }
            None => false,
        }
    }

    #[allow(clippy::too_many_arguments)] // the parts of one transaction's end
    fn settle_recipients(
        &mut self,
        store: &Store,
        no: MessageNo,
        mut open: Ids,
        (results, judge): (&[RcptOutcome], Judge),
        is_held: bool,
        host: &Arc<str>,
        now: Ms,
    ) {
        let over_age = self.is_over_age(store, no, now);
        for outcome in results {
            let id = outcome.id;
            let Some(at) = open.iter().position(|open| *open == id) else { continue };
            open.swap_remove(at);
            let verdict = judge.verdict(outcome);
            match verdict {
                Verdict::TooMany => {
                    self.requeue(store, no, id, now);
                    continue;
                }
                // Where all hosts are left alone now, what is too old there expires as a whole (`site_down`).
                Verdict::Host if !(is_held && over_age) => {
                    self.requeue(store, no, id, now);
                    continue;
                }
                Verdict::Rate
                | Verdict::Lost
                | Verdict::Sender
                | Verdict::Message
                | Verdict::Unreadable
                | Verdict::LostAfterDot
                    if !over_age =>
                {
                    // Not the mailbox's doing: what waits for it behind this message need not wait for this hold.
                    self.release_mailbox(store, no, id, now);
                    self.requeue(store, no, id, now);
                    continue;
                }
                _ => {}
            }
            if !self.messages.is_live(no) {
                self.settle(store, no, id, now);
                continue;
            }
            self.no_longer_in_flight(no, id);
            match verdict {
                Verdict::Delivered => self.mailbox_well(store, no, id, now),
                Verdict::Refused => {
                    self.strike(no, outcome, now);
                    self.fail(store, no, id, false, &reply_to(outcome, host), now);
                }
                Verdict::Fail => self.fail(store, no, id, false, &reply_to(outcome, host), now),
                Verdict::Mailbox => self.mailbox_failed(store, no, id, &reply_to(outcome, host), now),
                Verdict::Recipient if !over_age => {
                    self.recipient_failed(store, no, id, &reply_to(outcome, host), now);
                }
                _ => self.fail(store, no, id, true, &reply_to(outcome, host), now),
            }
        }
        for id in open {
            self.requeue(store, no, id, now);
        }
    }

    /// A delivery: the site is proven and may have one connection more.
    fn site_good(
        &mut self,
        site: SiteId,
        (source, host): (SourceNo, HostNo),
        no: MessageNo,
        sender: Option<u64>,
        now: Ms,
    ) {
        let default = self.cfg.connections_per_site_max;
        let entry = self.sites.get(site);
        let max = entry.connections_max(default);
        let path = &mut entry.paths[source as usize];
        path.good(max, now);
        if entry.holds > 0 {
            self.drop_hold(site, HoldKey::Message(no));
            if let Some(sender) = sender {
                self.sender_taken(site, host, sender);
            }
        }
    }

    fn trust_less(&mut self, site: SiteId, source: SourceNo, reply: &Reply) {
        let reason = self.reasons.keep(reply.clone());
        self.sites.get(site).reason = reason;
        self.path(site, source).distrust();
    }
}
