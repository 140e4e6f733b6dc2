//! Charges the end of a connection, so that no host can make us retry endlessly.
//!
//! | the connection | what it costs |
//! |---|---|
//! | had delivered something | nothing for the host; its limit of transactions is learned |
//! | had decided a recipient's fate, but delivered nothing | a pause for the host: 1, 2, 4, 8, 16, 30 s, then `host_retry` |
//! | was refused at once by the network; was lost before anything was done, for the first time | the same pause |
//! | got 421 or 521 while others to the host work | the path's window shrinks below its previous size |
//! | was refused AUTH, got 521, lacks something that the mail requires | `host_retry` for the host, and no early probe |
//! | any other | `host_retry` for the host |
//!
//! A message that comes back without a clock uses up some of its returns at the site (`RETURNS_MAX`); the message that
//! the host refused uses up most. When none are left it is deferred there, and each further return doubles that clock.
//! While the host serves other messages it is not charged: one message that is never accepted must not stop a host.
//!
//! A host that worked a moment ago is probed ahead of these clocks, as often as its last delivery allows
//! (`sites::early`).

use std::sync::Arc;

use smallvec::SmallVec;
use stentor_queue::cause::Cause;
use stentor_queue::ids::{MessageNo, Ms, SiteId};

use super::FailureState;
use super::cause::{of_421, of_loss};
use super::deferrals::{RETURN_BEHIND, RETURN_RATE, RETURNS_MAX, STAND_BACK_MS};
use super::hosts::Charge;
use super::limits::{crowded, host_full, reduce_trust, transactions_max};
use super::wording::{limits_rate, limits_session, may_limit_session};
use crate::effects::{CloseReason, NoSession};
use crate::reasons::HostReply;
use crate::sites::{Hop, Pick};
use crate::state::SchedState;

/// The host does not accept mail (RFC 7504 section 3).
const NO_MAIL_HERE: u16 = 521;

/// A connection that has ended, or has been asked to.
#[derive(Clone, Copy)]
pub struct Ending {
    pub hop: Hop,
    /// Transactions that were answered on the connection.
    pub good: u32,
    pub delivered: bool,
    /// Whether a recipient got a fate.
    pub decided: bool,
    /// Connections of the path that remain, if the host has greeted one.
    pub others: usize,
    /// Whether the host has been charged already.
    pub charged: bool,
    /// Whether the connection was asked to give way.
    pub cut: bool,
}

/// A closed connection and the messages that were open on it.
pub struct ClosedConnection {
    pub end: Ending,
    pub open: SmallVec<[MessageNo; 1]>,
    pub host_name: Arc<str>,
}

impl FailureState {
    /// Charges a connection that never became a session, while `working` others of the path are open.
    pub fn no_session(
        &mut self,
        state: &mut SchedState,
        hop: Hop,
        working: usize,
        why: NoSession,
        reply: &HostReply,
        now: Ms,
    ) {
        match why {
            NoSession::Reply { code: 421 | NO_MAIL_HERE, .. } if working > 0 => {
                host_full(state, hop, working, reply, now);
            }
            NoSession::Reply { code: NO_MAIL_HERE, .. } => {
                self.charge_host(state, hop, Charge::Sure, reply, now);
                self.takes_no_mail(state, hop.host, reply, now);
            }
            NoSession::Unfit { .. } => {
                // The same finding again does not lengthen the host's clock.
                state.sites.host(hop.host).retries = 0;
                self.charge_host(state, hop, Charge::Sure, reply, now);
                self.close_unfit_host(state, hop, reply, now);
            }
            NoSession::Unreachable => self.charge_host(state, hop, Charge::Pause, reply, now),
            NoSession::Auth => self.charge_host(state, hop, Charge::Sure, reply, now),
            NoSession::Failed | NoSession::Tls | NoSession::Reply { .. } => {
                self.charge_host(state, hop, Charge::Retry, reply, now);
            }
        }
    }

    /// Charges a connection that was lost or asked to close, with the messages that were open on it.
    pub fn ended(&mut self, state: &mut SchedState, gone: &ClosedConnection, why: &CloseReason, now: Ms) {
        let end = gone.end;
        let reply = |code, text: &Arc<str>, cause| {
            let host = Some(gone.host_name.clone());
            HostReply { code, dsn: None, text: text.clone(), cause, host }
        };
        let front = gone.open.first().copied().filter(|_| !end.charged);
        let reply = match why {
            CloseReason::Refused { text } => reply(421, text, of_421(text)),
            CloseReason::Lost { text } => reply(0, text, of_loss(text)),
            CloseReason::Normal => reply(0, &"closed".into(), Cause::Lost),
        };
        // A host may close a connection that was useful at any time.
        let in_vain = front.is_some() || !(end.delivered || end.decided);
        match why {
            _ if end.charged || !in_vain => {}
            // Our own decision, and not a failure.
            CloseReason::Normal => {}
            CloseReason::Refused { .. } => drop(self.refused_421(state, end, front, &reply, now)),
            CloseReason::Lost { .. } if end.cut => self.charge_host(state, end.hop, Charge::Retry, &reply, now),
            CloseReason::Lost { .. } => drop(self.lost(state, end, front, &reply, now)),
        }
        for no in gone.open.iter().skip(usize::from(front.is_some())) {
            self.deferrals.returned(state, end.hop.site, *no, RETURN_BEHIND, &reply, now);
        }
    }

    /// Charges a transaction that was answered with 421 (`is_refused`), or whose connection was lost. The host is
    /// charged once, for the message in front. Returns whether the message is deferred now.
    pub fn interrupted(
        &mut self,
        state: &mut SchedState,
        end: Ending,
        no: MessageNo,
        is_refused: bool,
        reply: &HostReply,
        now: Ms,
    ) -> bool {
        if !end.charged && !end.cut {
            return if is_refused {
                self.refused_421(state, end, Some(no), reply, now)
            } else {
                self.lost(state, end, Some(no), reply, now)
            };
        }
        if !end.charged {
            self.charge_host(state, end.hop, Charge::Retry, reply, now);
        }
        self.deferrals.returned(state, end.hop.site, no, RETURN_BEHIND, reply, now)
    }

    /// Charges a 421 to a command. After deliveries on the connection, 421 is a limit of the host; beside other working
    /// connections, a limit on their number; otherwise a failure of the host. Returns whether `front`, the message of
    /// that command, is deferred from now on.
    fn refused_421(
        &mut self,
        state: &mut SchedState,
        end: Ending,
        front: Option<MessageNo>,
        reply: &HostReply,
        now: Ms,
    ) -> bool {
        let Hop { site, source, .. } = end.hop;
        let adapts = state.cfg.strategies.adaptation;
        let is_of_session = Self::ends_session(state, end, reply);
        let cost = if !is_of_session && limits_rate(&reply.text) && adapts && state.path(site, source).proven {
            self.too_fast(state, end.hop, reply, now);
            RETURN_RATE
        } else if end.delivered {
            transactions_max(state, end.hop, end.good, reply);
            RETURN_BEHIND
        } else if end.others > 0 && !end.decided {
            crowded(state, end.hop, end.others, reply, now);
            // Without adaptation nothing is learned from the 421, and the next connection is opened at once.
            if adapts { RETURN_BEHIND } else { front_cost(state, site) }
        } else {
            let charge = if end.decided { Charge::Pause } else { Charge::Retry };
            return self.in_vain(state, end.hop, charge, front, reply, now);
        };
        front.is_some_and(|no| self.deferrals.returned(state, site, no, cost, reply, now))
    }

    /// Whether the 421 is a limit of the session. "Too many messages" alone may be one; but if the next session gets it
    /// before it has delivered anything, the host counts all of our mail.
    fn ends_session(state: &mut SchedState, end: Ending, reply: &HostReply) -> bool {
        let may_be = may_limit_session(&reply.text);
        let path = state.path(end.hop.site, end.hop.source);
        path.counts_all_sessions |= may_be && !end.delivered;
        end.delivered && (limits_session(&reply.text) || may_be && !path.counts_all_sessions)
    }

    /// Charges a connection that was lost in a transaction or before its first one. The path becomes suspect.
    fn lost(
        &mut self,
        state: &mut SchedState,
        end: Ending,
        front: Option<MessageNo>,
        reply: &HostReply,
        now: Ms,
    ) -> bool {
        let Hop { site, host, .. } = end.hop;
        reduce_trust(state, end.hop, reply);
        if end.delivered {
            transactions_max(state, end.hop, end.good, reply);
            let cost = front_cost(state, site);
            return front.is_some_and(|no| self.came_back(state, site, no, cost, reply, now));
        }
        let is_first = state.sites.host(host).fails == 0;
        let charge = if end.decided || is_first { Charge::Pause } else { Charge::Retry };
        self.in_vain(state, end.hop, charge, front, reply, now)
    }

    /// Charges a connection that delivered nothing.
    fn in_vain(
        &mut self,
        state: &mut SchedState,
        hop: Hop,
        charge: Charge,
        front: Option<MessageNo>,
        reply: &HostReply,
        now: Ms,
    ) -> bool {
        let is_deferred = front.is_some_and(|no| {
            let cost = self.vain_cost(state, hop, no, now);
            self.came_back(state, hop.site, no, cost, reply, now)
        });
        // The message is the cause, not the host.
        if is_deferred && state.sites.host(hop.host).fails == 0 {
            return true;
        }
        self.charge_host(state, hop, charge, reply, now);
        if let Some(no) = front.filter(|_| !is_deferred) {
            self.stand_back(state, hop, no, now);
        }
        is_deferred
    }

    /// Number of returns that the message in front uses up: none while a host of the path is probed early, which a
    /// delivery has paid for; and few if the host has taken nothing since the message first came back: then the host
    /// may be the cause.
    fn vain_cost(&self, state: &mut SchedState, hop: Hop, no: MessageNo, now: Ms) -> u8 {
        let since = self.deferrals.returned_since(hop.site, no);
        let path = &state.sites.list[hop.site.0 as usize].paths[usize::from(hop.source)];
        let is_probed_early = path.hosts.iter().any(|no| state.sites.hosts[*no as usize].is_probed_early(now));
        let host = &state.sites.hosts[hop.host as usize];
        if is_probed_early {
            0
        } else if host.fails == 0 && since.is_some_and(|since| host.good_at <= since) {
            RETURN_BEHIND
        } else {
            front_cost(state, hop.site)
        }
    }

    /// Records that a message in flight comes back. Returns whether it is deferred now.
    fn came_back(
        &mut self,
        state: &mut SchedState,
        site: SiteId,
        no: MessageNo,
        cost: u8,
        reply: &HostReply,
        now: Ms,
    ) -> bool {
        let is_deferred = self.deferrals.returned(state, site, no, cost, reply, now);
        if is_deferred {
            self.deferrals.await_site(state, site, no, None);
        }
        is_deferred
    }

    /// Keeps the message back if no host may be tried for a while, so that others are tried first.
    fn stand_back(&mut self, state: &mut SchedState, hop: Hop, no: MessageNo, now: Ms) {
        let own = state.waits_in_line(hop.site, no);
        if state.sites.get(hop.site).lines.len() > usize::from(own)
            && let Pick::Wait(Some(until)) = state.sites.pick(hop.site, hop.source, now, &mut state.rng)
        {
            self.deferrals.stand_back(state, hop.site, no, until + STAND_BACK_MS);
        }
    }
}

/// Number of returns that a message uses up if the host looked at it: each target of the site may refuse it once, a
/// single target twice.
fn front_cost(state: &mut SchedState, site: SiteId) -> u8 {
    let targets = state.sites.get(site).targets.len().clamp(2, usize::from(RETURNS_MAX)) as u8;
    RETURNS_MAX.div_ceil(targets)
}
