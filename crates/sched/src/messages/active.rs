//! Extra state of a message that is in flight, held, failing, or being linked to its domains.
//!
//! It is created when one of these begins and removed when all have ended; a message that only waits has none.

use stentor_queue::ids::{AddressId, SiteId};
use stentor_queue::idset::IdSet;

use crate::effects::FailedRcpt;

/// Extra state of a message; see the module's head.
#[derive(Default)]
pub struct Active {
    /// Recipients in a transaction now.
    pub in_flight: IdSet,
    pub extra: Option<Box<RareState>>,
}

/// State that few messages have.
#[derive(Default)]
pub struct RareState {
    pub activation: Option<Activation>,
    /// Recipients pending at the last check for stragglers; 0 once `FastDone` was sent.
    pub pending_before: u32,
    pub failing: FailingRecipients,
    /// Sites with a deferral of this message.
    pub deferred_at: Vec<SiteId>,
    /// Where the message would be if no operator held it.
    pub held: Option<Box<PlacesIfReleased>>,
    /// Recipients that an operator is taking out.
    pub reserved: Option<Box<ReservedRcpts>>,
}

/// A large message that is being linked to its domains.
#[derive(Default)]
pub struct Activation {
    /// The last id looked at.
    pub cursor: Option<u32>,
    /// Domains whose recipients were taken meanwhile: they are not linked again.
    pub touched: IdSet,
}

/// Failed recipients on their way into a report.
#[derive(Default)]
pub struct FailingRecipients {
    /// Failures not reported yet.
    pub list: Vec<FailedRcpt>,
    /// Recipients of `list`, and those being journalled.
    pub ids: IdSet,
    /// Whether a timer for the gathering is set.
    pub timed: bool,
    /// Reports in a row that the journal refused.
    pub refused: u8,
}

/// Where a held message would be.
#[derive(Default)]
pub struct PlacesIfReleased {
    /// The message was held when it was accepted: no recipient waits anywhere.
    pub unseen: bool,
    pub sites: IdSet,
    /// Domains where it would wait, as in `Domain::bulk` and `Domain::explicit`.
    pub bulk: IdSet,
    pub explicit: IdSet,
}

/// Recipients that an operator is taking out.
#[derive(Default)]
pub struct ReservedRcpts {
    pub ids: IdSet,
    /// Recipients that were kept back when their turn came.
    pub met: IdSet,
}

impl Active {
    pub fn is_idle(&self) -> bool {
        self.in_flight.is_empty() && self.extra.as_ref().is_none_or(|extra| extra.is_idle())
    }

    pub fn is_failing(&self, id: AddressId) -> bool {
        self.extra.as_ref().is_some_and(|extra| extra.failing.ids.contains(id.0))
    }

    pub fn is_held(&self) -> bool {
        self.extra.as_ref().is_some_and(|extra| extra.held.is_some())
    }

    /// Whether an operator keeps the recipient back; if so, that its turn came is recorded.
    pub fn meets_reservation(&mut self, id: AddressId) -> bool {
        let Some(reserved) = self.extra.as_mut().and_then(|extra| extra.reserved.as_mut()) else { return false };
        let is_reserved = reserved.ids.contains(id.0);
        if is_reserved {
            reserved.met.insert(id.0);
        }
        is_reserved
    }
}

impl RareState {
    fn is_idle(&self) -> bool {
        let is_under_way = self.activation.is_some() || self.pending_before > 0 || !self.failing.is_idle();
        !is_under_way && self.deferred_at.is_empty() && self.held.is_none() && self.reserved.is_none()
    }
}

impl FailingRecipients {
    fn is_idle(&self) -> bool {
        self.ids.is_empty() && self.list.is_empty() && !self.timed
    }
}
