//! What a transaction's outcome changes: clocks of hosts, holds at sites, clocks of mailboxes and recipients, and what
//! the site is trusted with.
//!
//! What concerns the host or the site is charged before the recipients go back, so that they do not go straight to the
//! host that has just failed them.

use std::sync::Arc;

use super::clocks::{HoldKey, sender_key};
use super::conns::State;
use super::effects::{RcptOutcome, Stage};
use super::path::Path;
use super::reasons::Reply;
use super::sites::{HostNo, Pick};
use super::verdict::{Verdict, classify};
use super::{Ids, Scheduler, SourceNo};
use crate::ids::{ConnId, MessageNo, Ms, SiteId, TxId};
use crate::store::Store;

/// Connections lost in a row, in a transaction, until it is the host that has failed.
const LOSSES_MAX: u8 = 2;
/// Without the memory of hosts.
const FORGOTTEN_MS: Ms = 1_000;

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
}

impl<'a> Findings<'a> {
    fn of(results: &'a [RcptOutcome]) -> Findings<'a> {
        let mut found = Findings::default();
        for outcome in results {
            found.taken += 1;
            match classify(outcome) {
                Verdict::Delivered => found.delivered += 1,
                Verdict::Host => found.refused = found.refused.or(Some(outcome)),
                Verdict::Rate => found.rate = found.rate.or(Some(outcome)),
                Verdict::Lost => found.lost = found.lost.or(Some(outcome)),
                Verdict::LostAfterDot => {
                    found.lost = found.lost.or(Some(outcome));
                    found.message = found.message.or(Some(outcome));
                }
                Verdict::Sender => found.sender = found.sender.or(Some(outcome)),
                Verdict::Message => found.message = found.message.or(Some(outcome)),
                Verdict::TooMany => {
                    found.taken -= 1;
                    found.too_many += 1;
                }
                Verdict::Fail | Verdict::Mailbox | Verdict::Recipient => {}
            }
        }
        found
    }
}

fn reply_to(outcome: &RcptOutcome, host: &Arc<str>) -> Reply {
    Reply { code: outcome.code, dsn: outcome.dsn, text: outcome.text.clone(), host: Some(host.clone()) }
}

impl Scheduler {
    /// The outcomes of a transaction, after the delivered ones were applied to the store. Recipients without an outcome
    /// go again. The connection is ready for `take_work` unless `closed` follows.
    pub fn work_done(&mut self, store: &Store, conn: ConnId, tx: TxId, results: &[RcptOutcome], now: Ms) {
        let Some(entry) = self.conns.get(conn) else { return };
        let Some(at) = entry.txs.iter().position(|t| t.id == tx) else { return };
        let done = entry.txs.remove(at);
        let gap = now.saturating_sub(entry.since);
        entry.since = now;
        // The connection's making is part of its first transaction's xdelay.
        let begun = if entry.good == 0 && entry.begun == 1 { entry.opened } else { done.begun };
        let (site, source, host, good) = (entry.site, entry.source, entry.host, entry.good);
        let host_name = entry.host_name.clone();
        let is_ready = entry.txs.is_empty() && entry.state == State::Busy;
        if is_ready {
            entry.state = State::Ready;
        }
        let path = self.path(site, source);
        path.coming += usize::from(is_ready);
        path.under_way -= 1;
        self.heard(conn, now);
        let found = Findings::of(results);
        if let Some(outcome) = found.rate {
            self.too_fast(site, source, &reply_to(outcome, &host_name), now);
        } else if found.delivered > 0 {
            self.path(site, source).answered(gap, now);
            self.sites.get(site).history.delivered(now.saturating_sub(begun).min(Ms::from(u32::MAX)) as u32, now);
        }
        if found.refused.is_some() || found.lost.is_some() {
            if let Some(entry) = self.conns.get(conn) {
                entry.charged = true;
            }
            if let Some(outcome) = found.refused {
                self.refused_421(site, source, host, good, &reply_to(outcome, &host_name), now);
            } else if let Some(outcome) = found.lost {
                self.host_lost(site, source, host, &reply_to(outcome, &host_name), now);
            }
        } else {
            if let Some(entry) = self.conns.get(conn) {
                entry.good += 1;
            }
            self.host_well(host);
        }
        if found.delivered > 0 {
            self.site_good(site, source, done.no, done.sender, now);
        }
        self.charge_holds(store, site, source, done.no, &found, &host_name, now);
        if found.too_many > 0 && found.taken > 0 {
            let path = self.path(site, source);
            path.recipients_max = path.recipients_max.min(found.taken);
        }
        self.settle_recipients(store, done.no, done.ids, results, found.taken > 0, &host_name, now);
        self.report_if_last(store, done.no);
        // What stood back while as much was under way as may be.
        if !self.path(site, source).idle.is_empty() {
            self.consider(site, now);
        }
    }

    fn path(&mut self, site: SiteId, source: SourceNo) -> &mut Path {
        &mut self.sites.get(site).paths[source as usize]
    }

    /// A rate reply: less at a time from now on.
    fn too_fast(&mut self, site: SiteId, source: SourceNo, reply: &Reply, now: Ms) {
        let reason = self.reasons.keep(reply.clone());
        self.sites.get(site).reason = reason;
        if self.cfg.strategies.adaptation {
            self.path(site, source).too_fast(now);
        }
    }

    #[allow(clippy::too_many_arguments)] // the parts of one transaction's end
    fn charge_holds(
        &mut self,
        store: &Store,
        site: SiteId,
        source: SourceNo,
        no: MessageNo,
        found: &Findings,
        host: &Arc<str>,
        now: Ms,
    ) {
        if let Some(outcome) = found.sender {
            if let Some(message) = store.message(no) {
                self.hold(site, HoldKey::Sender(sender_key(message.sender())), &reply_to(outcome, host), false, now);
            }
            self.trust_less(site, source, &reply_to(outcome, host));
        }
        if let Some(outcome) = found.message {
            self.hold(site, HoldKey::Message(no), &reply_to(outcome, host), false, now);
        } else if let Some(outcome) = found.lost {
            // Once is the network; a message that loses its connection again is held, or it would hold up the rest.
            self.hold(site, HoldKey::Message(no), &reply_to(outcome, host), true, now);
        }
    }

    #[allow(clippy::too_many_arguments)] // the parts of one transaction's end
    fn settle_recipients(
        &mut self,
        store: &Store,
        no: MessageNo,
        mut open: Ids,
        results: &[RcptOutcome],
        some_taken: bool,
        host: &Arc<str>,
        now: Ms,
    ) {
        let over_age = self.is_over_age(store, no, now);
        for outcome in results {
            let id = outcome.id;
            let Some(at) = open.iter().position(|open| *open == id) else { continue };
            open.swap_remove(at);
            let verdict = match classify(outcome) {
                // Refused although it was alone: then it is not about how many they are.
                Verdict::TooMany if !some_taken => Verdict::Recipient,
                verdict => verdict,
            };
            match verdict {
                Verdict::Host | Verdict::TooMany => {
                    self.requeue(store, no, id, now);
                    continue;
                }
                Verdict::Rate | Verdict::Lost | Verdict::Sender | Verdict::Message | Verdict::LostAfterDot
                    if !over_age =>
                {
                    // Not the mailbox's doing: what waits for it behind this message need not wait for this hold.
                    self.settle(store, no, id, now);
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
                Verdict::Fail if outcome.stage == Stage::Rcpt => {
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

    /// The host has answered as a healthy host does: its clock ends, for everybody.
    fn host_well(&mut self, host: HostNo) {
        let entry = self.sites.host(host);
        entry.losses = 0;
        if entry.fails == 0 {
            return;
        }
        (entry.fails, entry.until, entry.probe) = (0, 0, None);
        if self.flows.coalesces {
            for i in 0..self.sites.host(host).sites.len() {
                let site = self.sites.host(host).sites[i];
                self.site_returned(site);
            }
        }
        self.wake_sites_of(host);
    }

    /// A delivery: the site is proven and may have one connection more.
    fn site_good(&mut self, site: SiteId, source: SourceNo, no: MessageNo, sender: Option<u64>, now: Ms) {
        let default = self.cfg.connections_per_site_max;
        let entry = self.sites.get(site);
        let max = entry.connections_max(default);
        let path = &mut entry.paths[source as usize];
        path.good(max, now);
        if entry.holds > 0 {
            self.drop_hold(site, HoldKey::Message(no));
            if let Some(sender) = sender {
                self.drop_hold(site, HoldKey::Sender(sender));
            }
        }
    }

    fn trust_less(&mut self, site: SiteId, source: SourceNo, reply: &Reply) {
        let reason = self.reasons.keep(reply.clone());
        self.sites.get(site).reason = reason;
        self.path(site, source).distrust();
    }

    /// 421 to a command. On a connection that had served us it is a limit of the host, else the host's failure.
    pub(super) fn refused_421(
        &mut self,
        site: SiteId,
        source: SourceNo,
        host: HostNo,
        good: u32,
        reply: &Reply,
        now: Ms,
    ) {
        if super::verdict::says_rate(&reply.text) && self.path(site, source).proven {
            self.too_fast(site, source, reply, now);
        } else if good > 0 {
            let reason = self.reasons.keep(reply.clone());
            self.sites.get(site).reason = reason;
            let path = self.path(site, source);
            path.transactions_max = path.transactions_max.min(good);
        } else {
            self.host_refused(site, source, host, 0, reply, now);
        }
    }

    /// No session, or one refused before it did anything. Beside connections that work it is a limit on their number.
    pub(super) fn host_refused(
        &mut self,
        site: SiteId,
        source: SourceNo,
        host: HostNo,
        beside: usize,
        reply: &Reply,
        now: Ms,
    ) {
        // Those that are still connecting count until they are refused too.
        let path = self.path(site, source);
        let working = if path.greeted.max(beside) > 0 { path.conns.max(beside) } else { 0 };
        if reply.code == 421 && working > 0 {
            let reason = self.reasons.keep(reply.clone());
            self.sites.get(site).reason = reason;
            self.path(site, source).crowded(working, now);
        } else {
            self.host_failed(site, source, host, reply, now);
        }
    }

    /// A connection lost in a transaction. The site is suspect; the host has failed if it happens again.
    pub(super) fn host_lost(&mut self, site: SiteId, source: SourceNo, host: HostNo, reply: &Reply, now: Ms) {
        self.trust_less(site, source, reply);
        let entry = self.sites.host(host);
        entry.losses = entry.losses.saturating_add(1);
        if entry.losses >= LOSSES_MAX || entry.fails > 0 {
            self.host_failed(site, source, host, reply, now);
        }
    }

    pub(super) fn host_failed(&mut self, site: SiteId, source: SourceNo, host: HostNo, reply: &Reply, now: Ms) {
        let reason = self.reasons.keep(reply.clone());
        let entry = &mut self.sites.hosts[host as usize];
        if entry.until <= now {
            entry.fails = entry.fails.saturating_add(1);
            entry.until = now + self.cfg.host_retry.delay_ms(entry.fails, &mut self.rng);
        }
        (entry.reason, entry.losses) = (reason, 0);
        let memory = self.cfg.strategies.memory;
        if !memory {
            (entry.until, entry.fails) = (now + FORGOTTEN_MS, 0);
        }
        let site_entry = self.sites.get(site);
        site_entry.reason = reason;
        site_entry.history.failed(now);
        if matches!(self.sites.pick(site, source, now, &mut self.rng), Pick::Wait(_)) {
            self.path(site, source).distrust();
            self.site_down(site, source, reply, now);
        }
        self.sites.mark_dirty(site);
    }
}
