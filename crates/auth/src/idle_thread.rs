//! A thread that works only while no other thread of the machine wants the processor (`SCHED_IDLE`, sched(7)), and rests after each job
//! for [`REST`] times what the job took: what it leaves in the caches, and a processor that it must first be taken from, cost others too.
//!
//! Failure: where the system does not allow that policy, it works like any other thread, and rests all the same.

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

/// A quarter of one processor is all that jobs get.
const REST: u64 = 3;

type Job = Box<dyn FnOnce() + Send>;

/// Ends, after its last job, when it is dropped.
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

    /// What `job` returns; None if it panicked. It is done even if nobody waits for it any more.
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
