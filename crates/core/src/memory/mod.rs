//! Limits the process's memory: budgets for the bodies of incoming messages ([`Memory`]), and the limit of its control
//! group ([`MemoryGroup`]).

mod budget;
mod group;

pub use budget::{Memory, PIECE_BYTES, Reservation};
pub use group::{MemoryGroup, Pressure, bodies_bytes};
