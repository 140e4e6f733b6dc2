//! Cooperative yielding for CPU-bound work.

/// Octets until other tasks of the thread get their turn: about a tenth of a millisecond of a scan, some milliseconds
/// of a conversion.
pub const TURN_BYTES: usize = 256 * 1024;

/// Counts the octets of the current turn.
#[derive(Default)]
pub struct Turns {
    octets: usize,
}

impl Turns {
    /// Counts processed octets; yields when the turn is used up.
    pub async fn advance(&mut self, octets: usize) {
        self.octets += octets;
        if self.octets >= TURN_BYTES {
            self.octets = 0;
            tokio::task::yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    /// A content of 64 MiB beside a task that always wants to run: the task runs once in each turn.
    #[tokio::test]
    async fn others_run_between_turns() {
        const PIECE: usize = 64 * 1024;
        const PIECES: usize = 1024;
        let (runs, is_done) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
        let local = tokio::task::LocalSet::new();
        let (counter, ends) = (runs.clone(), is_done.clone());
        local.spawn_local(async move {
            while !ends.get() {
                counter.set(counter.get() + 1);
                tokio::task::yield_now().await;
            }
        });
        let scan = async move {
            let mut turns = Turns::default();
            for _ in 0..PIECES {
                turns.advance(PIECE).await;
            }
            is_done.set(true);
        };
        local.spawn_local(scan);
        local.await;
        assert!(runs.get() >= PIECES * PIECE / TURN_BYTES, "{}", runs.get());
    }
}
