//! What was behind an event, as timelines and requests keep it.

/// No job, no wake.
pub const NONE: u32 = u32::MAX;

/// What was behind an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// A thread did it, within a job of [`History::jobs`](super::timeline::History::jobs) or [`NONE`].
    Thread {
        tid: i32,
        job: u32,
    },
    /// The completion of a request.
    Request(u32),
    Timer,
    /// Something came from the network.
    Network,
    Interrupt,
    Unknown,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin {
    pub ns: u64,
    pub cause: Cause,
}
