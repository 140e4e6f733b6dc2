//! Notices new files: inotify on the folder, read by a separate thread, which ends when the watch is dropped.

use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use tokio::sync::Notify;

const BUFFER_BYTES: usize = 4096;

pub struct FolderWatch {
    changed: Arc<Notify>,
    /// Closing this ends the thread.
    stop: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl FolderWatch {
    /// # Errors
    /// The folder does not exist, or the system has no more watches, descriptors or threads.
    pub fn begin(path: &Path) -> io::Result<FolderWatch> {
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        inotify::add_watch(&fd, path, WatchFlags::MOVED_TO | WatchFlags::ONLYDIR)?;
        let (stopped, stop) = io::pipe()?;
        let changed = Arc::new(Notify::new());
        let notify = changed.clone();
        let thread = std::thread::Builder::new().name("submissions".to_owned());
        let thread = thread.spawn(move || follow(&fd, &stopped, &notify))?;
        Ok(FolderWatch { changed, stop: Some(stop), thread: Some(thread) })
    }

    /// Waits until a file got its final name; for ever without a watch.
    pub async fn changed(watch: Option<&FolderWatch>) {
        match watch {
            Some(watch) => watch.changed.notified().await,
            None => std::future::pending().await,
        }
    }
}

impl Drop for FolderWatch {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // It returns nothing, and panics end the process.
            let _ = thread.join();
        }
    }
}

fn follow(fd: &OwnedFd, stopped: &PipeReader, notify: &Notify) {
    // A look finds which files they were.
    let mut buffer = [0; BUFFER_BYTES];
    loop {
        let mut both = [PollFd::new(fd, PollFlags::IN), PollFd::new(stopped, PollFlags::IN)];
        match poll(&mut both, None) {
            Ok(_) if !both[1].revents().is_empty() => return,
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(_) => return,
        }
        while rustix::io::read(fd, &mut buffer).is_ok_and(|n| n > 0) {}
        notify.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renamed_file_is_noticed_and_the_thread_ends() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let watch = FolderWatch::begin(folder.path()).unwrap();
        std::fs::write(folder.path().join("new-1"), "x").unwrap();
        std::fs::rename(folder.path().join("new-1"), folder.path().join("mail-1")).unwrap();
        runtime.block_on(FolderWatch::changed(Some(&watch)));
        drop(watch);
        assert!(FolderWatch::begin(&folder.path().join("none")).is_err());
    }
}
