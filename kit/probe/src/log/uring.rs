//! A kernel ring (`io_uring`) that makes one write durable at a time.
//!
//! Promise: a call returns only when the kernel has completed everything submitted, so it never touches a buffer that
//! its owner has back. After an error of the ring itself (not of a write) every further call fails.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use io_uring::squeue::{Entry, Flags};
use io_uring::types::{Fd, FsyncFlags};
use io_uring::{IoUring, opcode};

use super::plan::SyncCall;

/// A write and its sync.
const ENTRIES: u32 = 2;
const WRITE: u64 = 0;
const SYNC: u64 = 1;

/// How the write becomes durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durable {
    /// A sync linked to it: begun by the kernel when the write is complete, in the same submission.
    Linked(SyncCall),
    /// `RWF_DSYNC` on the write.
    Dsync,
}

pub struct Ring {
    ring: IoUring,
    /// It may hold entries whose buffers are gone: never submit again.
    is_broken: bool,
}

impl Ring {
    /// Errors: `PermissionDenied` where the system forbids rings, `Unsupported` where it has none.
    pub fn new() -> io::Result<Ring> {
        IoUring::new(ENTRIES).map(|ring| Ring { ring, is_broken: false })
    }

    /// Writes all of `bytes` at `offset` and makes it durable, in one submission.
    pub fn write(&mut self, file: &File, bytes: &[u8], offset: u64, durable: Durable) -> io::Result<()> {
        let too_long = |_| io::Error::new(io::ErrorKind::InvalidInput, "a write of 4 GiB or more");
        let len = u32::try_from(bytes.len()).map_err(too_long)?;
        let fd = Fd(file.as_raw_fd());
        let write = opcode::Write::new(fd, bytes.as_ptr(), len).offset(offset);
        let results = match durable {
            Durable::Dsync => {
                let dsync = rustix::io::ReadWriteFlags::DSYNC.bits().cast_signed();
                let write = write.rw_flags(dsync).build().user_data(WRITE);
                self.complete(&[write])?
            }
            Durable::Linked(call) => {
                let flags = match call {
                    SyncCall::Fdatasync => FsyncFlags::DATASYNC,
                    SyncCall::Fsync => FsyncFlags::empty(),
                };
                let write = write.build().flags(Flags::IO_LINK).user_data(WRITE);
                let sync = opcode::Fsync::new(fd).flags(flags).build().user_data(SYNC);
                self.complete(&[write, sync])?
            }
        };
        // The write first: where it failed or was short, the sync was cancelled because of that.
        let written = checked(results[WRITE as usize])?;
        if written != len {
            return Err(io::Error::new(io::ErrorKind::WriteZero, "a write through io_uring was incomplete"));
        }
        if matches!(durable, Durable::Linked(_)) {
            checked(results[SYNC as usize])?;
        }
        Ok(())
    }

    /// Submits the entries and waits until all are complete; what became of each, by its number.
    #[allow(unsafe_code)]
    fn complete(&mut self, entries: &[Entry]) -> io::Result<[i32; ENTRIES as usize]> {
        if self.is_broken {
            return Err(io::Error::other("the ring failed before"));
        }
        // SAFETY: the entries point to `bytes` and `file` of `write`, which both outlive this call, and the kernel uses
        // them between submission and completion alone. This function returns `Ok` when all entries have been reaped,
        // and `Err` when as many completions have been reaped as were submitted. Entries that were not submitted then
        // stay in the ring, and are never submitted: `is_broken` keeps further calls from it, and without SQPOLL the
        // kernel takes entries within such a call alone.
        unsafe { self.ring.submission().push_multiple(entries) }
            .map_err(|_| io::Error::other("the ring still has entries of before"))?;
        let mut results = [0; ENTRIES as usize];
        let (mut submitted, mut completed) = (0, 0);
        let mut failed = None;
        while completed < entries.len() && (failed.is_none() || completed < submitted) {
            let wanted = if failed.is_none() { entries.len() } else { submitted } - completed;
            match self.ring.submit_and_wait(wanted) {
                Ok(count) => submitted += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if failed.is_none() => failed = Some(error),
                // There is nothing to do but to wait for what is under way.
                Err(_) => std::thread::yield_now(),
            }
            for done in self.ring.completion() {
                if let Some(result) = results.get_mut(done.user_data() as usize) {
                    *result = done.result();
                }
                completed += 1;
            }
        }
        self.is_broken = failed.is_some();
        failed.map_or(Ok(results), Err)
    }
}

fn checked(result: i32) -> io::Result<u32> {
    u32::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn what_is_written_through_a_ring_is_in_the_file() {
        let Ok(mut ring) = Ring::new() else {
            // Past the capture of output, so that nobody overlooks it.
            let _ = writeln!(std::io::stderr(), "\n*** SKIPPED: io_uring is forbidden here ***");
            return;
        };
        let file = tempfile::tempfile().unwrap();
        for (at, durable) in
            [Durable::Linked(SyncCall::Fdatasync), Durable::Linked(SyncCall::Fsync), Durable::Dsync].iter().enumerate()
        {
            ring.write(&file, &[at as u8 + 1; 700], at as u64 * 700, *durable).unwrap();
        }
        let mut bytes = vec![0; 2101];
        let len = std::os::unix::fs::FileExt::read_at(&file, &mut bytes, 0).unwrap();
        assert_eq!((len, bytes[0], bytes[699], bytes[700], bytes[2099]), (2100, 1, 1, 2, 3));
        // A file that may not be written to: the write's own error, not that of the cancelled sync.
        let closed = File::open("/dev/null").unwrap();
        let error = ring.write(&closed, b"x", 0, Durable::Linked(SyncCall::Fsync)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(9));
        // And the ring can be used again.
        ring.write(&file, b"again", 0, Durable::Dsync).unwrap();
    }
}
