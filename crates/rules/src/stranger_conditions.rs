//! A rule's conditions on an untrusted client.

use std::sync::Arc;

use stentor_reputation::{DnsList, DnsListSubject, HeloFault, RateOver};

/// Conditions that must all hold, while none of `not` may.
#[derive(Debug, Clone, Default)]
pub struct StrangerConditions {
    pub(crate) lists: Vec<Arc<DnsList>>,
    pub(crate) score: Option<(i32, Arc<[Arc<DnsList>]>)>,
    pub(crate) helo: Vec<HeloFault>,
    pub(crate) sender: bool,
    pub(crate) early: Option<bool>,
    pub(crate) rates: Vec<RateOver>,
    pub(crate) greylisted: bool,
}

impl StrangerConditions {
    pub fn list(&mut self, list: Arc<DnsList>) {
        self.lists.push(list);
    }

    /// The sum of the weights of the matching lists is at least this.
    pub fn score(&mut self, least: i32, lists: Arc<[Arc<DnsList>]>) {
        self.score = Some((least, lists));
    }

    pub fn helo(&mut self, fault: HeloFault) {
        self.helo.push(fault);
    }

    /// The sender's domain does not accept mail.
    pub fn sender_unknown(&mut self) {
        self.sender = true;
    }

    /// The client spoke before our greeting, or did not.
    pub fn early(&mut self, is_early: bool) {
        self.early = Some(is_early);
    }

    /// The client connects more often than this.
    pub fn rate(&mut self, over: RateOver) {
        self.rates.push(over);
    }

    /// Greylisting defers the mail.
    pub fn greylisted(&mut self) {
        self.greylisted = true;
    }

    /// Whether a DNS list is queried, by its name or in a score.
    pub(crate) fn queries(&self, list: &DnsList) -> bool {
        let scored = self.score.iter().flat_map(|(_, lists)| lists.iter());
        self.lists.iter().chain(scored).any(|queried| queried.name == list.name)
    }

    /// Whether evaluation starts a greylisting delay.
    pub fn asks_greylist(&self) -> bool {
        self.greylisted
    }

    /// Whether the matching lists can be named.
    pub fn names_lists(&self) -> bool {
        !self.lists.is_empty() || self.score.is_some()
    }

    pub fn is_empty(&self) -> bool {
        !self.asks_dns() && !self.sees_early() && !self.counts() && !self.greylisted
    }

    /// Whether the DNS may be queried.
    pub(crate) fn asks_dns(&self) -> bool {
        !self.lists.is_empty() || self.score.is_some() || !self.helo.is_empty() || self.sender
    }

    /// Whether it matters that a client speaks before the greeting.
    pub(crate) fn sees_early(&self) -> bool {
        self.early.is_some()
    }

    /// Whether connections must be counted.
    pub(crate) fn counts(&self) -> bool {
        !self.rates.is_empty()
    }

    /// Whether the client's name must be known.
    pub(crate) fn needs_name(&self) -> bool {
        let scored = self.score.iter().flat_map(|(_, lists)| lists.iter());
        self.lists.iter().chain(scored).any(|list| list.of == DnsListSubject::ClientName)
    }
}
