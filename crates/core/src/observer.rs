//! Observers of mail events, in addition to history, logs and counters: currently only telemetry.
//!
//! Promise: without an observer the cost is one check of an empty cell. An observer is called where the event happens,
//! never under the hub's lock, and must not block.

use stentor_mail::reply::Reply;
use stentor_queue::ids::{MessageId, Ms};
use stentor_queue::site::Target;
use stentor_sched::RcptOutcome;

use crate::Core;
use crate::assignment::Assignment;

/// Observes transactions on both sides.
pub trait Observer: Send + Sync {
    /// A transaction began over `smtp` or `http`, perhaps as part of the client's trace. `None`: it is not observed.
    fn begin(
        &self,
        id: MessageId,
        by: &'static str,
        parent: Option<TraceParent>,
        now: Ms,
    ) -> Option<Box<dyn Receiving>>;

    /// A transaction with a host ended.
    fn attempt(&self, core: &Core, assignment: &Assignment, outcomes: &[RcptOutcome], target: &Target);
}

/// An observed message on its way in.
pub trait Receiving: Send + Sync {
    /// The body begins.
    fn data(&mut self);

    /// The body has ended; the commit begins.
    fn end_of_data(&mut self);

    /// The transaction was answered.
    fn answered(self: Box<Self>, core: &Core, size: u64, reply: &Reply);
}

/// The `traceparent` header: `00-TRACE-SPAN-FLAGS` (W3C Trace Context).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceParent {
    pub trace: [u8; 16],
    pub span: [u8; 8],
    pub is_sampled: bool,
}
