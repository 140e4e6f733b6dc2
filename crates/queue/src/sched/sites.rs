//! Sites and host addresses: where mail goes, what it may cost there, and which target is next.
//!
//! A host address has one clock for everybody. While it has failed and not yet proven itself again, one connection (the
//! probe) may try it once its clock has run out; its outcome decides for all sites that use the address.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use smallvec::SmallVec;

use super::conns::Slot;
use super::reasons::ReasonNo;
use super::tables::{Parts, Pieces};
use crate::ids::{DomainId, MessageNo, Ms, SiteId};
use crate::idset::IdSet;
use crate::site::{SitePlan, Target};

/// Index of a class in per-class tables: ordinary, bulk.
pub(super) const ORDINARY: usize = 0;
pub(super) const CLASSES: usize = 2;

pub(super) type HostNo = u32;
/// A transaction's size at a site that has not refused one.
pub(super) const RECIPIENTS_UNLIMITED: usize = usize::MAX;

pub(super) struct Host {
    /// Failures in a row; 0 is healthy.
    pub fails: u8,
    /// Transactions lost in a row.
    pub losses: u8,
    /// Not tried before this time.
    pub until: Ms,
    /// The connection that tries it while it has failed.
    pub probe: Option<Slot>,
    pub reason: ReasonNo,
    /// Who is woken when it comes back.
    pub sites: Vec<SiteId>,
}

pub(super) struct Site {
    pub key: Arc<str>,
    pub mixes_domains: bool,
    pub targets: SmallVec<[(Target, HostNo); 1]>,
    /// Domains resolved to it, in the order in which they came; those that moved away since are skipped.
    pub domains: Vec<DomainId>,
    /// The messages that wait here, per class.
    pub waiting: [IdSet; CLASSES],
    /// Idle connections, the last used last.
    pub idle: SmallVec<[Slot; 2]>,
    pub conns: usize,
    /// Connections on their way to a `take_work`: connecting, woken, or between two transactions.
    pub coming: usize,
    /// Whether a transaction has succeeded since the last trouble; until then it gets one connection.
    pub proven: bool,
    /// Connections that it may have; grows with successes.
    pub limit: usize,
    /// No growth before this time (a refusal told us where the limit is).
    pub grow_at: Ms,
    /// Learned from 452 4.5.3.
    pub recipients_max: usize,
    /// Learned from a 421 behind that many transactions.
    pub transactions_max: u32,
    /// Active holds (messages or senders) here.
    pub holds: u32,
    pub reason: ReasonNo,
    /// An armed timer's time, 0 if none.
    pub timer_at: Ms,
    /// Choices for ordinary mail since bulk had one.
    pub turn: u8,
    /// Whether it stands in the line for the budget, per class.
    pub wants: [bool; CLASSES],
    /// Whether it stands in the line of sites to look at.
    pub dirty: bool,
}

impl Site {
    pub fn waits(&self) -> bool {
        !self.waiting[0].is_empty() || !self.waiting[1].is_empty()
    }

    pub fn waiting_messages(&self) -> usize {
        self.waiting[0].len() + self.waiting[1].len()
    }

    /// The class whose turn it is among those that wait: ordinary first, bulk after `ordinary_per_bulk` of them.
    pub fn class_due(&self, ordinary_per_bulk: u8) -> Option<usize> {
        match (self.waiting[0].is_empty(), self.waiting[1].is_empty()) {
            (true, true) => None,
            (false, true) => Some(ORDINARY),
            (true, false) => Some(1),
            (false, false) => Some(usize::from(self.turn >= ordinary_per_bulk)),
        }
    }

    pub fn class_served(&mut self, class: usize) {
        self.turn = if class == ORDINARY { self.turn.saturating_add(1) } else { 0 };
    }

    /// Connections that it may have now.
    pub fn allowed(&self) -> usize {
        if self.proven { self.limit } else { 1 }
    }

    /// The oldest waiting message.
    pub fn oldest_of_all(&self, newest: u32) -> Option<MessageNo> {
        let all = (0..CLASSES).filter_map(|class| self.oldest(class, newest));
        // Cyclic order: the distance from the oldest possible number.
        all.min_by_key(|no| no.0.wrapping_sub(newest).wrapping_sub(1))
    }

    /// The oldest waiting message of a class. Numbers wrap: those above the newest are older than all below it.
    pub fn oldest(&self, class: usize, newest: u32) -> Option<MessageNo> {
        oldest(&self.waiting[class], newest)
    }
}

pub(super) fn oldest(set: &IdSet, newest: u32) -> Option<MessageNo> {
    if set.max()? > newest { set.iter_from(newest).next().map(MessageNo) } else { set.min().map(MessageNo) }
}

/// Which target a new connection goes to.
pub(super) enum Pick {
    Target(usize),
    /// All are under clocks; the earliest runs out then. `None`: others probe, their outcome wakes the site.
    Wait(Option<Ms>),
}

#[derive(Default)]
pub(super) struct Sites {
    pub list: Pieces<Site>,
    by_key: Parts<Arc<str>, SiteId>,
    pub hosts: Pieces<Host>,
    host_by_addr: Parts<SocketAddr, HostNo>,
    /// Sites to look at again, and those that want a connection while the budget is used up (per class).
    pub dirty: VecDeque<SiteId>,
    pub wanting: [VecDeque<SiteId>; CLASSES],
    /// Connections for ordinary mail's line since bulk's had one.
    pub turn: u8,
}

impl Sites {
    pub fn get(&mut self, site: SiteId) -> &mut Site {
        &mut self.list[site.0 as usize]
    }

    pub fn host(&mut self, host: HostNo) -> &mut Host {
        &mut self.hosts[host as usize]
    }

    /// The site of a plan; an existing one takes over the plan's targets.
    pub fn of_plan(&mut self, plan: SitePlan) -> SiteId {
        let known = self.by_key.get(&plan.key).copied();
        let id = if let Some(id) = known {
            id
        } else {
            let id = SiteId(self.list.len() as u32);
            self.by_key.insert(plan.key.clone(), id);
            self.list.push(Site {
                key: plan.key,
                mixes_domains: plan.mixes_domains,
                targets: SmallVec::new(),
                domains: Vec::new(),
                waiting: [IdSet::new(), IdSet::new()],
                idle: SmallVec::new(),
                conns: 0,
                coming: 0,
                proven: false,
                limit: 1,
                grow_at: 0,
                recipients_max: RECIPIENTS_UNLIMITED,
                transactions_max: u32::MAX,
                holds: 0,
                reason: 0,
                timer_at: 0,
                turn: 0,
                wants: [false; CLASSES],
                dirty: false,
            });
            id
        };
        let same = {
            let old = &self.list[id.0 as usize].targets;
            old.len() == plan.targets.len() && old.iter().zip(&plan.targets).all(|(a, b)| a.0 == *b)
        };
        if !same {
            let targets =
                plan.targets.into_iter().map(|t| (t.clone(), self.host_of(t.addr, id, known.is_none()))).collect();
            self.list[id.0 as usize].targets = targets;
        }
        id
    }

    fn host_of(&mut self, addr: SocketAddr, site: SiteId, new: bool) -> HostNo {
        let no = *self.host_by_addr.get_or_insert_with(addr, || {
            self.hosts.push(Host { fails: 0, losses: 0, until: 0, probe: None, reason: 0, sites: Vec::new() });
            (self.hosts.len() - 1) as HostNo
        });
        let sites = &mut self.hosts[no as usize].sites;
        if sites.last() != Some(&site) && (new || !sites.contains(&site)) {
            sites.push(site);
        }
        no
    }

    /// The best usable target: lowest preference, equal ones at random (RFC 5321 5.1).
    pub fn pick(&self, site: SiteId, now: Ms, rng: &mut fastrand::Rng) -> Pick {
        let targets = &self.list[site.0 as usize].targets;
        let (mut best, mut ties) = (None::<usize>, 0u32);
        let mut earliest = None::<Ms>;
        for (i, (target, host)) in targets.iter().enumerate() {
            let host = &self.hosts[*host as usize];
            if host.until > now {
                earliest = Some(earliest.map_or(host.until, |e| e.min(host.until)));
                continue;
            }
            if host.fails > 0 && host.probe.is_some() {
                continue;
            }
            match best {
                Some(b) if targets[b].0.preference < target.preference => {}
                Some(b) if targets[b].0.preference == target.preference => {
                    ties += 1;
                    if rng.u32(0..ties) == 0 {
                        best = Some(i);
                    }
                }
                _ => (best, ties) = (Some(i), 1),
            }
        }
        best.map_or(Pick::Wait(earliest), Pick::Target)
    }

    pub fn named(&self, key: &str) -> Option<SiteId> {
        self.by_key.get(&Arc::from(key)).copied()
    }

    pub fn mark_dirty(&mut self, site: SiteId) {
        let entry = &mut self.list[site.0 as usize];
        if !entry.dirty {
            entry.dirty = true;
            self.dirty.push_back(site);
        }
    }

    /// Puts a site in the line for a connection, once per class that waits there.
    pub fn want(&mut self, site: SiteId) {
        let entry = &mut self.list[site.0 as usize];
        let class = usize::from(entry.waiting[ORDINARY].is_empty());
        if !entry.wants[class] {
            entry.wants[class] = true;
            self.wanting[class].push_back(site);
        }
    }
}
