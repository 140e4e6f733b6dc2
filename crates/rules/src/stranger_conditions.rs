//! What a rule can ask about an untrusted client.

use std::sync::Arc;

use stentor_strangers::{DnsList, HeloFault, Of};

/// All that are given must hold, and none of `not`.
#[derive(Debug, Clone, Default)]
pub struct StrangerConditions {
    pub(crate) lists: Vec<Arc<DnsList>>,
    pub(crate) score: Option<(i32, Arc<[Arc<DnsList>]>)>,
    pub(crate) helo: Vec<HeloFault>,
    pub(crate) sender: bool,
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

    pub fn is_empty(&self) -> bool {
        self.lists.is_empty() && self.score.is_none() && self.helo.is_empty() && !self.sender
    }

    /// Whether the client's name has to be known.
    pub(crate) fn needs_name(&self) -> bool {
        let scored = self.score.iter().flat_map(|(_, lists)| lists.iter());
        self.lists.iter().chain(scored).any(|list| list.of == Of::ClientName)
    }
}
