//! Upper bounds on what a world may see, and its required end.
//!
//! Clocks bound attempts as follows. Between two deliveries at a host each of its sites has one connection at first,
//! and then those that a clock allows; a host's and a message's clocks begin with pauses of seconds and become minutes,
//! a recipient's and a mailbox's begin with minutes. So in ten seconds a host gets a few connections for each site.
//! Beyond that it gets one for each message that arrived and each clock that ran out, and some for each delivery. A
//! delivery also pays for sixteen early probes in the half minute after the next failure.

use std::collections::HashMap;

use stentor_queue::ids::{AddressId, Ms, SiteId};

const TEN_SECONDS: Ms = 10_000;
/// A host that has delivered something within an hour of its failure is probed ahead of its clock for 30 s.
const EARLY_MS: Ms = HOUR + 31_000;
/// One probe a second after its failure, then one every two seconds.
const EARLY_IN_TEN_SECONDS: usize = 6;
const HOUR: Ms = 3_600_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Delivered,
    Bounced,
    Expired,
}

#[derive(Default)]
pub struct Ledger {
    /// When connections to a host were opened.
    connects: HashMap<usize, Vec<Ms>>,
    /// When a recipient of a message was handed out.
    attempts: HashMap<(u64, AddressId), Vec<Ms>>,
    /// When copies were delivered, by host and by message.
    deliveries: HashMap<usize, Vec<Ms>>,
    message_deliveries: HashMap<u64, Vec<Ms>>,
    /// When a transaction of a message delivered to some of a site's recipients and left others unanswered.
    dealt: HashMap<(u64, SiteId), Vec<Ms>>,
    /// When a transaction of a message delivered to all of its recipients.
    pub whole: HashMap<(u64, SiteId), Vec<Ms>>,
    /// When messages arrived.
    pub arrivals: Vec<Ms>,
    /// When an operator flushed everything.
    pub flushes: Vec<Ms>,
    pub ends: HashMap<(u64, AddressId), End>,
    pub connections: u64,
    pub transactions: u64,
    pub recipients: usize,
    pub sites_per_host: usize,
}

/// How many of the sorted times lie in `from..to`.
fn within(times: &[Ms], from: Ms, to: Ms) -> usize {
    times.partition_point(|at| *at < to) - times.partition_point(|at| *at < from)
}

impl Ledger {
    pub fn new(sites_per_host: usize) -> Ledger {
        Ledger { sites_per_host, ..Ledger::default() }
    }

    fn allowances(&self, host: usize, from: Ms, to: Ms) -> (usize, usize) {
        let delivered = self.deliveries.get(&host).map_or(0, |at| within(at, from.saturating_sub(TEN_SECONDS), to));
        let came = within(&self.arrivals, from.saturating_sub(TEN_SECONDS), to);
        let flushed = within(&self.flushes, from.saturating_sub(TEN_SECONDS), to);
        (delivered, came + flushed)
    }

    pub fn connect(&mut self, host: usize, now: Ms) -> Result<(), String> {
        self.connections += 1;
        let list = self.connects.entry(host).or_default();
        list.push(now);
        let from = now.saturating_sub(TEN_SECONDS);
        let (few, many) = (within(list, from, now + 1), within(list, now.saturating_sub(HOUR), now + 1));
        if few < 5 {
            return Ok(());
        }
        let (delivered, came) = self.allowances(host, from, now + 1);
        // Each site once per expired clock: at most one per recipient, since those clocks take minutes.
        let is_probed =
            self.deliveries.get(&host).is_some_and(|at| within(at, now.saturating_sub(EARLY_MS), now + 1) > 0);
        let early = if is_probed { EARLY_IN_TEN_SECONDS } else { 0 };
        let most = 4 * self.sites_per_host * (1 + came) + self.recipients + 3 * delivered + early;
        if few > most {
            return Err(format!("{few} connections to host {host} within 10 s, at most {most}"));
        }
        let (delivered, came) = self.allowances(host, now.saturating_sub(HOUR), now + 1);
        // Six pauses, and clocks that double from a minute to an hour, for a host, a message and a recipient.
        let most = 20 * (self.sites_per_host + self.recipients) * (1 + came + delivered);
        if many > most {
            Err(format!("{many} connections to host {host} within an hour, at most {most}"))
        } else {
            Ok(())
        }
    }

    pub fn attempt(&mut self, key: (u64, AddressId), now: Ms) -> Result<(), String> {
        self.transactions += 1;
        let list = self.attempts.entry(key).or_default();
        list.push(now);
        let from = now.saturating_sub(TEN_SECONDS);
        let few = within(list, from, now + 1);
        let delivered = self.message_deliveries.get(&key.0).map_or(0, |at| within(at, from, now + 1));
        let flushed = within(&self.flushes, from, now + 1);
        // The returns without a clock (16), and the transaction sizes that are learned.
        let most = 24 * (1 + delivered + flushed);
        if few > most { Err(format!("{few} attempts of {key:?} within 10 s, at most {most}")) } else { Ok(()) }
    }

    /// Records a partial delivery. Each one would pay for the next, at the price of sending the content to all.
    /// `at_once`: transactions that may be in flight together.
    pub fn dealt(&mut self, key: (u64, SiteId), at_once: usize, now: Ms) -> Result<(), String> {
        let list = self.dealt.entry(key).or_default();
        list.push(now);
        let from = now.saturating_sub(TEN_SECONDS);
        let few = within(list, from, now + 1);
        let whole = self.whole.get(&key).map_or(0, |at| within(at, from, now + 1));
        let most = at_once * (1 + whole + within(&self.flushes, from, now + 1));
        if few > most {
            Err(format!("{few} transactions of {key:?} left unanswered in part within 10 s, at most {most}"))
        } else {
            Ok(())
        }
    }

    pub fn delivered(&mut self, host: usize, key: (u64, AddressId), now: Ms) {
        self.deliveries.entry(host).or_default().push(now);
        self.message_deliveries.entry(key.0).or_default().push(now);
    }

    pub fn end(&mut self, key: (u64, AddressId), end: End) -> Result<(), String> {
        match self.ends.insert(key, end) {
            Some(before) => Err(format!("{key:?} ended twice: {before:?}, {end:?}")),
            None => Ok(()),
        }
    }
}
