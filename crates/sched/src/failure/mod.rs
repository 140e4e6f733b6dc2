//! What a failure changes: what each reply means, and every clock that follows from it.
//!
//! **Promise.** The clock hangs on what failed, and only on that; and no sequence of replies, connection ends or both
//! leads to a new attempt without a clock that grows, or without using up something finite that only a delivery gives
//! back (`endings` has the table).
//!
//! | file | decides |
//! |---|---|
//! | `verdict` | what a reply means |
//! | `wording` | which limit its words are about |
//! | `findings` | what a transaction's outcomes say about host, sender and message |
//! | `cause`, `block_list` | what views call it |
//! | `consequence` | what a verdict leads to for the recipient |
//! | `results` | carries a transaction's outcomes to the owners below |
//! | `endings` | what the end of a connection costs its host and the messages on it |
//! | `hosts` | the clock of a host |
//! | `limits` | what a refusal teaches: rate, connections, transactions, recipients at a time |
//! | `deferrals` | clocks of a message and of a sender's domain at a site |
//! | `next_host` | 4xx at MAIL: which host is asked next |
//! | `mailboxes`, `recipients` | clocks of a mailbox, and of one recipient of one message |
//! | `drains`, `reports` | recipients that will not be tried again, on their way into a report |
//!
//! To change what follows a 4xx, begin in `verdict` and `consequence`; how long it lasts is in the clock's own file.

pub mod block_list;
pub mod cause;
mod consequence;
pub mod deferrals;
pub mod drains;
pub mod endings;
mod findings;
pub mod hosts;
mod limits;
pub mod mailboxes;
mod next_host;
mod recipients;
pub mod reports;
pub mod results;
pub mod verdict;
mod wording;

use std::collections::VecDeque;

use deferrals::Deferrals;
use drains::Drain;
use mailboxes::Mailboxes;
use recipients::Recipients;
use stentor_queue::ids::{AddressId, DomainId, MessageNo, Ms};
use stentor_queue::idset::IdSet;

use crate::reasons::Reason;

/// See the module's page.
#[derive(Default)]
pub struct Failures {
    pub mailboxes: Mailboxes,
    pub recipients: Recipients,
    pub deferrals: Deferrals,
    pub drains: VecDeque<Drain>,
}

impl Failures {
    /// Clocks of all kinds in force or with a history, those of hosts apart.
    pub fn clocks(&self) -> usize {
        self.mailboxes.len() + self.recipients.len() + self.deferrals.len()
    }

    /// Whether a clock of before the start may keep one of a small message's recipients back.
    pub fn has_recalled(&self, no: MessageNo, pending: &IdSet) -> bool {
        let may = self.recipients.are_recalled() || !self.mailboxes.is_empty();
        may && pending.iter().map(AddressId).any(|id| self.mailboxes.contains(id) || self.recipients.contains(no, id))
    }

    /// Whether a clock keeps back a recipient that is looked at; its mailbox's notes the message.
    pub fn keeps_back(&mut self, no: MessageNo, id: AddressId, now: Ms) -> bool {
        self.recipients.are_recalled() && self.recipients.wait(no, id, now).is_some()
            || self.mailboxes.keeps_back(id, no, now)
    }

    /// Whether a clock of before the start keeps the recipient back: it waits there then.
    pub fn keeps_recalled_back(&mut self, no: MessageNo, id: AddressId, now: Ms) -> bool {
        self.recipients.wait(no, id, now).is_some() || self.mailboxes.keeps_back(id, no, now)
    }

    /// The last reply about a recipient that is being retried, 0 if there was none.
    pub fn last_reason(&self, no: MessageNo, id: AddressId) -> Reason {
        let own = self.recipients.reason(no, id);
        own.or_else(|| self.mailboxes.probe_reason(no, id)).unwrap_or_default()
    }
}

/// Jitter that is the same for what failed together, so that it can go together again: one transaction's recipients.
fn same_jitter(seed: u64, domain: Option<DomainId>, no: u32) -> fastrand::Rng {
    let domain = domain.map_or(u32::MAX, |domain| domain.0);
    fastrand::Rng::with_seed(seed ^ u64::from(domain) << 32 ^ u64::from(no))
}
