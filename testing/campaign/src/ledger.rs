//! The outside view: what clients were answered, what hosts received, and what a cut may duplicate.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use stentor_queue::event::Fate;

use crate::model::Model;

/// A message, by Message-ID, and one of its recipients.
pub type Pair = (String, String);

#[derive(Default)]
pub struct Ledger {
    /// After the last batch that became durable.
    pub durable: Model,
    /// What a start may find instead: batches refused or cut whose fate on the disk is open.
    pub open: Vec<Model>,
    /// Outcomes that are applied and wait for a batch.
    pub unsynced: Vec<(String, Fate, BTreeSet<String>)>,
    /// Contents by Message-ID.
    pub bodies: BTreeMap<String, Arc<Vec<u8>>>,
    /// What was answered with 250.
    pub acknowledged: BTreeMap<String, BTreeSet<String>>,
    /// Recipients whose fate was decided.
    pub ended: BTreeSet<Pair>,
    pub copies: BTreeMap<Pair, u32>,
    /// Another copy of these is within the promise: lost after the dot, or in the window of a cut.
    pub doubtful: BTreeSet<Pair>,
    pub repeats: u64,
    pub window_max: u64,
    /// A checkpoint was begun: what operators did before it may be gone from the log.
    pub had_checkpoint: bool,
}

impl Ledger {
    pub fn outcome(&mut self, key: &str, fate: Fate, who: BTreeSet<String>) {
        self.ended.extend(who.iter().map(|address| (key.to_owned(), address.clone())));
        self.unsynced.push((key.to_owned(), fate, who));
    }

    /// A host has the message.
    pub fn copy(&mut self, key: &str, address: &str) -> Result<(), String> {
        let pair = (key.to_owned(), address.to_owned());
        let copies = self.copies.entry(pair.clone()).or_default();
        *copies += 1;
        if self.durable.is_quarantined(key, address) {
            return Err(format!("{key} to {address} is in the quarantine and leaves"));
        }
        if *copies == 1 {
            return Ok(());
        }
        self.repeats += 1;
        if self.doubtful.contains(&pair) {
            return Ok(());
        }
        Err(format!("{address} got {copies} copies of {key}, none of them in the window of a cut"))
    }

    /// Judges what a start found after a cut at which `past_dot` were past their end of data.
    pub fn recovered(&mut self, found: Model, past_dot: BTreeSet<Pair>) -> Result<(), String> {
        let whole = !self.had_checkpoint;
        let mut candidates = std::iter::once(&self.durable).chain(&self.open);
        let Some(candidate) = candidates.find(|candidate| candidate.may_replay_as(&found, whole)) else {
            return Err(format!("replayed state is not the durable one: {}", self.durable.difference(&found)));
        };
        let audit = candidate.audit.clone();
        let mut window = past_dot;
        for (key, fate, who) in self.unsynced.drain(..) {
            if fate == Fate::Delivered {
                window.extend(who.into_iter().map(|address| (key.clone(), address)));
            }
        }
        let is_pending =
            |pair: &Pair| found.entry(&pair.0, &pair.1).is_some_and(|entry| entry.pending.contains(&pair.1));
        window.retain(|pair| is_pending(pair) && self.copies.contains_key(pair));
        self.window_max = self.window_max.max(window.len() as u64);
        self.doubtful.extend(window);
        if let Some(pair) = self.copies.keys().find(|pair| is_pending(pair) && !self.doubtful.contains(*pair)) {
            return Err(format!("{} of {} would get another copy outside of the window", pair.1, pair.0));
        }
        for (key, who) in &self.acknowledged {
            for address in who {
                let pair = (key.clone(), address.clone());
                let is_there = is_pending(&pair) || found.is_quarantined(key, address);
                if !is_there && !self.ended.contains(&pair) {
                    return Err(format!("{address} of {key} was acknowledged and is missing"));
                }
            }
        }
        self.durable = Model { audit, ..found };
        self.open.clear();
        Ok(())
    }

    /// After everything was worked off.
    pub fn drained(&self) -> Result<(), String> {
        if let Some((key, entry)) = self.durable.messages.first_key_value() {
            return Err(format!("{key} is never finished: {entry:?}"));
        }
        if let Some((key, entry)) = self.durable.quarantine.first_key_value() {
            return Err(format!("{key} is left in the quarantine: {entry:?}"));
        }
        for (key, who) in &self.acknowledged {
            if let Some(address) = who.iter().find(|address| !self.ended.contains(&(key.clone(), (*address).clone()))) {
                return Err(format!("{address} of {key} was acknowledged and has no fate"));
            }
        }
        Ok(())
    }
}
