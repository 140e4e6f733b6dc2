//! Limits readings of the history's files for pages and API calls, so that many callers do not take the disk, memory
//! and blocking pool away from mail.
//!
//! Promise: a reading keeps its slot until it ends, even if its caller leaves, so repeated requests that hang up cannot
//! start more readings. A caller who leaves while waiting starts no reading.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// Concurrent readings: a long one does not block all others.
const READINGS_MAX: usize = 2;

pub struct Readings(Arc<Semaphore>);

impl Default for Readings {
    fn default() -> Readings {
        Readings(Arc::new(Semaphore::new(READINGS_MAX)))
    }
}

impl Readings {
    /// Does the work on the blocking pool once a slot is free. `None`: the server is stopping.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        // The semaphore is never closed.
        let place = self.0.clone().acquire_owned().await.ok()?;
        let done = tokio::task::spawn_blocking(move || {
            let done = work();
            drop(place);
            done
        });
        done.await.ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn who_hangs_up_keeps_the_place_until_the_reading_has_ended() {
        let readings = Arc::new(Readings::default());
        let (begun, mut begins) = mpsc::channel();
        let mut ends = Vec::new();
        for _ in 0..READINGS_MAX {
            let (end, ended) = mpsc::channel::<()>();
            let (readings, begun) = (readings.clone(), begun.clone());
            let asker = tokio::spawn(async move {
                readings
                    .run(move || {
                        let _ = begun.send(());
                        let _ = ended.recv();
                    })
                    .await
            });
            let waiting = tokio::task::spawn_blocking(move || (begins.recv(), begins));
            let begins_again = waiting.await.unwrap();
            begins_again.0.unwrap();
            begins = begins_again.1;
            asker.abort();
            assert!(asker.await.unwrap_err().is_cancelled());
            ends.push(end);
        }
        assert_eq!(readings.0.available_permits(), 0, "both go on");
        drop(ends);
        assert_eq!(readings.run(|| 1).await, Some(1));
    }
}
