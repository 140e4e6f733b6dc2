//! What a rule can ask about an untrusted client.

use std::sync::Arc;

use stentor_strangers::{DnsList, HeloFault, Of, RateOver};

/// All that are given must hold, and none of `not`.
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

    /// The weights of all these lists that list are at least this.
    pub fn score(&mut self, least: i32, lists: Arc<[Arc<DnsList>]>) {
        self.score = Some((least, lists));
    }

    pub fn helo(&mut self, fault: HeloFault) {
        self.helo.push(fault);
    }

    /// The sender's domain takes no mail.
    pub fn sender_unknown(&mut self) {
        self.sender = true;
    }

    /// The client spoke before our greeting, or did not.
    pub fn early(&mut self, is_early: bool) {
        self.early = Some(is_early);
    }

    /// The client comes more often.
    pub fn rate(&mut self, over: RateOver) {
        self.rates.push(over);
    }

    /// The mail has to be tried again.
    pub fn greylisted(&mut self) {
        self.greylisted = true;
    }

    /// Whether asking begins the delay of a mail.
    pub fn asks_greylist(&self) -> bool {
        self.greylisted
    }

    /// Whether it can be said which lists list.
    pub fn names_lists(&self) -> bool {
        !self.lists.is_empty() || self.score.is_some()
    }

    pub fn is_empty(&self) -> bool {
        !self.asks_dns() && !self.sees_early() && !self.counts() && !self.greylisted
    }

    /// Whether the DNS may be asked.
    pub(crate) fn asks_dns(&self) -> bool {
        !self.lists.is_empty() || self.score.is_some() || !self.helo.is_empty() || self.sender
    }

    /// Whether it matters that a client speaks before the greeting.
    pub(crate) fn sees_early(&self) -> bool {
        self.early.is_some()
    }

    /// Whether clients have to be counted.
    pub(crate) fn counts(&self) -> bool {
        !self.rates.is_empty()
    }

    /// Whether the client's name has to be known.
    pub(crate) fn needs_name(&self) -> bool {
        let scored = self.score.iter().flat_map(|(_, lists)| lists.iter());
        self.lists.iter().chain(scored).any(|list| list.of == Of::ClientName)
    }
}
