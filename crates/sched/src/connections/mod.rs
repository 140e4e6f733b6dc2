//! Connections: the pool, admission and lifecycles.
//!
//! `Connecting -> Ready -> Busy <-> Ready -> Idle -> (Woken ->) Busy ... -> Closing -> gone`
//!
//! | file | decides |
//! |---|---|
//! | `pool` | nothing: it holds the connections and counts them |
//! | `admission` | whether a site gets a connection: path, host and budget; the line for the budget |
//! | `offers` | whether an offer gets a connection, after another host refused the sender at MAIL |
//! | `lifecycle` | what an event changes: greeted, taken, answered, idle, closed |
//! | `lanes` | what silence changes |
//!
//! At most `connections_max` are charged to the fast lane, the last `ordinary_reserve` of them for sites where ordinary
//! mail waits. A site that needs a connection while the budget is used up waits in line (`flows`), and an idle
//! connection is closed for it. If ordinary mail waits in line, a connection that has only bulk mail to send closes
//! after its transaction. If bulk mail waits, it closes after `TURN_TRANSACTIONS`.

mod admission;
mod lanes;
mod lifecycle;
mod offers;
pub mod pool;

use stentor_queue::ids::Ms;

use crate::failure::deferrals::Deferrals;
use crate::state::SchedState;
pub use lanes::silence_ms;
use pool::Pool;

/// Lifecycles of connections: `lifecycle` and `lanes`.
pub struct Connections<'a> {
    pub state: &'a mut SchedState,
    pub pool: &'a mut Pool,
    pub now: Ms,
}

/// Admission of new connections: `admission` and `offers`.
pub struct Admission<'a> {
    pub state: &'a mut SchedState,
    pub pool: &'a mut Pool,
    pub deferrals: &'a mut Deferrals,
    pub now: Ms,
}

impl Admission<'_> {
    fn connections(&mut self) -> Connections<'_> {
        Connections { state: self.state, pool: self.pool, now: self.now }
    }
}
