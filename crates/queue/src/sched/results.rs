//! What a transaction's outcome changes: clocks of hosts, holds at sites, clocks of mailboxes and recipients, and what
//! the site is trusted with.
//!
//! What concerns the host or the site is charged before the recipients go back, so that they do not go straight to the
//! host that has just failed them.

use std::sync::Arc;

use super::clocks::{HoldKey, sender_key};
use super::conns::State;
use super::effects::RcptOutcome;
use super::reasons::Reply;
use super::sites::{HostNo, Pick};
use super::verdict::{Verdict, classify};
use super::{Ids, Scheduler};
use crate::ids::{ConnId, MessageNo, Ms, SiteId, TxId};
use crate::store::Store;

/// Connections lost in a row, in a transaction, until it is the host that has failed.
const LOSSES_MAX: u8 = 2;

/// What a transaction's outcomes say about host and site, first of each kind.
#[derive(Default)]
struct Findings<'a> {
    refused: Option<&'a RcptOutcome>,
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
        entry.since = now;
        let (site, host, good) = (entry.site, entry.host, entry.good);
        let host_name = entry.host_name.clone();
        if entry.txs.is_empty() && entry.state == State::Busy {
            entry.state = State::Ready;
            self.sites.get(site).coming += 1;
        }
        let found = Findings::of(results);
        if found.refused.is_some() || found.lost.is_some() {
            if let Some(entry) = self.conns.get(conn) {
                entry.charged = true;
            }
            if let Some(outcome) = found.refused {
                self.refused_421(site, host, good, &reply_to(outcome, &host_name), now);
            } else if let Some(outcome) = found.lost {
                self.host_lost(site, host, &reply_to(outcome, &host_name), now);
            }
        } else {
            if let Some(entry) = self.conns.get(conn) {
                entry.good += 1;
            }
            self.host_well(host);
        }
        if found.delivered > 0 {
            self.site_good(site, done.no, done.sender, now);
        }
        self.charge_holds(store, site, done.no, &found, &host_name, now);
        if found.too_many > 0 && found.taken > 0 {
            let entry = self.sites.get(site);
            entry.recipients_max = entry.recipients_max.min(found.taken);
        }
        self.settle_recipients(store, done.no, done.ids, results, found.taken > 0, &host_name, now);
        self.report_if_last(store, done.no);
    }

    fn charge_holds(&mut self, store: &Store, site: SiteId, no: MessageNo, found: &Findings, host: &Arc<str>, now: Ms) {
        if let Some(outcome) = found.sender {
            if let Some(message) = store.message(no) {
                self.hold(site, HoldKey::Sender(sender_key(message.sender())), &reply_to(outcome, host), false, now);
            }
            self.trust_less(site, &reply_to(outcome, host));
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
                Verdict::Lost | Verdict::Sender | Verdict::Message | Verdict::LostAfterDot if !over_age => {
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
        for i in 0..self.sites.host(host).sites.len() {
            let site = self.sites.host(host).sites[i];
            self.sites.mark_dirty(site);
        }
    }

    /// A delivery: the site is proven and may have one connection more.
    fn site_good(&mut self, site: SiteId, no: MessageNo, sender: Option<u64>, now: Ms) {
        let max = self.cfg.connections_per_site_max;
        let entry = self.sites.get(site);
        entry.proven = true;
        if entry.limit < max && now >= entry.grow_at {
            entry.limit += 1;
        }
        entry.limit = entry.limit.min(max);
        if entry.holds > 0 {
            self.drop_hold(site, HoldKey::Message(no));
            if let Some(sender) = sender {
                self.drop_hold(site, HoldKey::Sender(sender));
            }
        }
    }

    fn trust_less(&mut self, site: SiteId, reply: &Reply) {
        let reason = self.reasons.keep(reply.clone());
        let entry = self.sites.get(site);
        (entry.proven, entry.limit, entry.reason) = (false, 1, reason);
    }

    /// 421 to a command. On a connection that had served us it is a limit of the host, else the host's failure.
    pub(super) fn refused_421(&mut self, site: SiteId, host: HostNo, good: u32, reply: &Reply, now: Ms) {
        if good > 0 {
            let reason = self.reasons.keep(reply.clone());
            let entry = self.sites.get(site);
            entry.transactions_max = entry.transactions_max.min(good);
            entry.reason = reason;
        } else {
            self.host_refused(site, host, reply, now);
        }
    }

    /// No session, or one refused before it did anything. Beside connections that work it is a limit on their number.
    pub(super) fn host_refused(&mut self, site: SiteId, host: HostNo, reply: &Reply, now: Ms) {
        let min_ms = self.cfg.host_retry.min_ms;
        let entry = self.sites.get(site);
        let working = entry.conns.saturating_sub(entry.coming);
        if reply.code == 421 && entry.proven && working > 0 {
            (entry.limit, entry.grow_at) = (working, now + min_ms);
            entry.reason = self.reasons.keep(reply.clone());
        } else {
            self.host_failed(site, host, reply, now);
        }
    }

    /// A connection lost in a transaction. The site is suspect; the host has failed if it happens again.
    pub(super) fn host_lost(&mut self, site: SiteId, host: HostNo, reply: &Reply, now: Ms) {
        self.trust_less(site, reply);
        let entry = self.sites.host(host);
        entry.losses = entry.losses.saturating_add(1);
        if entry.losses >= LOSSES_MAX || entry.fails > 0 {
            self.host_failed(site, host, reply, now);
        }
    }

    fn host_failed(&mut self, site: SiteId, host: HostNo, reply: &Reply, now: Ms) {
        let reason = self.reasons.keep(reply.clone());
        let entry = &mut self.sites.hosts[host as usize];
        if entry.until <= now {
            entry.fails = entry.fails.saturating_add(1);
            entry.until = now + self.cfg.host_retry.delay_ms(entry.fails, &mut self.rng);
        }
        (entry.reason, entry.losses) = (reason, 0);
        self.sites.get(site).reason = reason;
        if matches!(self.sites.pick(site, now, &mut self.rng), Pick::Wait(_)) {
            self.site_down(site, reply, now);
        }
        self.sites.mark_dirty(site);
    }
}
