//! Failures: the meaning of each reply, and every clock that follows from it.
//!
//! **Promise.** Only the thing that failed gets a clock. No sequence of replies and connection ends leads to a new
//! attempt without either a growing clock or the use of a finite allowance that only a delivery restores (`endings` has
//! the table).
//!
//! | file | decides |
//! |---|---|
//! | `verdict` | what a reply means |
//! | `wording` | which limit its words refer to |
//! | `findings` | what a transaction's outcomes show about host, sender and message |
//! | `cause`, `block_list` | the cause that views show |
//! | `consequence` | what a verdict means for the recipient |
//! | `results` | passes a transaction's outcomes to the owners below |
//! | `endings` | what the end of a connection costs its host and the messages on it |
//! | `hosts` | the clock of a host |
//! | `limits` | what a refusal teaches: rate, connections, transactions, recipients at a time |
//! | `deferrals` | clocks of a message and of a sender's domain at a site |
//! | `next_host`, `refusals` | 4xx at MAIL: which host is asked next, and for which of the sender's mail |
//! | `mailboxes`, `recipients` | clocks of a mailbox, and of one recipient of one message |
//! | `drains`, `reports` | recipients that will not be tried again, on their way into a report |
//!
//! To change the reaction to a 4xx, begin in `verdict` and `consequence`. The lengths of the clocks are in
//! `SchedConfig` (`config.rs`).

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
pub mod refusals;
pub mod reports;
pub mod results;
pub mod verdict;
mod wording;

use std::collections::VecDeque;

use deferrals::Deferrals;
use drains::Drain;
use mailboxes::Mailboxes;
use recipients::RecipientClocks;
use stentor_queue::ids::{AddressId, DomainId, MessageNo, Ms};
use stentor_queue::idset::IdSet;

use crate::reasons::Reason;

/// State of failures: all clocks and drains; see the module's head.
#[derive(Default)]
pub struct FailureState {
    pub mailboxes: Mailboxes,
    pub recipients: RecipientClocks,
    pub deferrals: Deferrals,
    pub drains: VecDeque<Drain>,
}

impl FailureState {
    /// Number of clocks of all kinds that run or have a history, except those of hosts.
    pub fn clocks(&self) -> usize {
        self.mailboxes.len() + self.recipients.len() + self.deferrals.len()
    }

    /// Whether a clock from before the start may keep back a recipient of a small message.
    pub fn has_recalled(&self, no: MessageNo, pending: &IdSet) -> bool {
        let may = self.recipients.are_recalled() || !self.mailboxes.is_empty();
        may && pending.iter().map(AddressId).any(|id| self.mailboxes.contains(id) || self.recipients.contains(no, id))
    }

    /// Whether a clock keeps back a recipient whose turn has come; a mailbox's clock records the message.
    pub fn keeps_back(&mut self, no: MessageNo, id: AddressId, now: Ms) -> bool {
        self.recipients.are_recalled() && self.recipients.wait(no, id, now).is_some()
            || self.mailboxes.keeps_back(id, no, now)
    }

    /// Whether a clock from before the start keeps the recipient back; if so it waits there.
    pub fn keeps_recalled_back(&mut self, no: MessageNo, id: AddressId, now: Ms) -> bool {
        self.recipients.wait(no, id, now).is_some() || self.mailboxes.keeps_back(id, no, now)
    }

    /// The last reply about a recipient that is being retried; the default if there was none.
    pub fn last_reason(&self, no: MessageNo, id: AddressId) -> Reason {
        let own = self.recipients.reason(no, id);
        own.or_else(|| self.mailboxes.probe_reason(no, id)).unwrap_or_default()
    }
}

/// Jitter shared by recipients that failed together, so that they can go again in one transaction.
fn same_jitter(seed: u64, domain: Option<DomainId>, no: u32) -> fastrand::Rng {
    let domain = domain.map_or(u32::MAX, |domain| domain.0);
    fastrand::Rng::with_seed(seed ^ u64::from(domain) << 32 ^ u64::from(no))
}
