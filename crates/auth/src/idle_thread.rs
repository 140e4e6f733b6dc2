//! A thread that runs only while no other thread of the machine wants the processor (`SCHED_IDLE`, sched(7)), and rests
//! after each job for [`REST`] times the job's duration, since its use of caches and of preempted processors still
//! costs others.
//!
//! Failure: if the system does not allow that policy, it runs like any other thread, but rests all the same.

use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use thread_priority::ThreadPriority;
use thread_priority::unix::{
    NormalThreadSchedulePolicy, ThreadSchedulePolicy, set_thread_priority_and_policy, thread_native_id,
};
use tokio::sync::oneshot;

use crate::thread_time::thread_us;

/// Rest as a multiple of a job's duration: jobs get a quarter of one processor.
const REST: u64 = 3;

type Job = Box<dyn FnOnce() + Send>;

/// The thread; it ends after its last job when this is dropped.
pub(crate) struct IdleThread(mpsc::Sender<Job>);

impl IdleThread {
    pub fn start(name: &str) -> io::Result<IdleThread> {
        let (jobs, waiting) = mpsc::channel::<Job>();
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            let policy = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
            let _ = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, policy);
            for job in waiting {
                let begun = thread_us();
                job();
                thread::sleep(Duration::from_micros(REST * thread_us().saturating_sub(begun)));
            }
        })?;
        Ok(IdleThread(jobs))
    }

    /// Runs `job` and returns its result; `None` if it panicked. The job runs even if the future is dropped.
    pub async fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let (done, result) = oneshot::channel();
        let job = move || {
            let _ = done.send(job());
        };
        self.0.send(Box::new(job)).ok()?;
        result.await.ok()
    }
}

#[cfg(test)]
mod tests {
    use thread_priority::unix::{thread_schedule_policy, thread_schedule_policy_param};

    use super::*;

    #[tokio::test]
    async fn it_works_when_nobody_else_does() {
        let thread = IdleThread::start("idle").unwrap();
        let policy = thread.run(thread_schedule_policy).await.unwrap().unwrap();
        assert_eq!(policy, ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle));
        let own = thread_schedule_policy_param(thread_native_id()).unwrap().0;
        assert_eq!(own, ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Other), "it alone");
    }
}
