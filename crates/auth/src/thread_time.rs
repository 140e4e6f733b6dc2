//! The processor time of a thread.

use rustix::time::{ClockId, clock_gettime};

/// Processor time of this thread since its start, in microseconds.
pub(crate) fn thread_us() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec.cast_unsigned() * 1_000_000 + time.tv_nsec.cast_unsigned() / 1_000
}
