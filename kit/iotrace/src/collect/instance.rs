//! A folder in tracefs that is ours alone: own buffers, own events, own switch. Others' traces do not see it, and it
//! does not touch the global buffer.
//!
//! States: made (off) → configured → on ⇄ off → gone. It goes with the value that owns it; with the process, by the
//! [`Guardian`] and by the kernel's `disable_on_free`, which stops the tracing when `free_buffer` is closed; should all
//! of that be ended at once, [`sweep`] takes it away at the next start.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use stentor_measure::guardian::{Guarded, quoted};
use stentor_measure::{Guardian, MeasureError};

use crate::collect::decode::Stream;
use crate::collect::kernel::{Tracefs, explained};
use crate::collect::page::{Layout, used_bytes};

/// Instances of ours: `stentor-PID-N`.
const PREFIX: &str = "stentor-";
/// How long the kernel may take to let go of closed readers.
const REMOVE_WAIT: Duration = Duration::from_secs(5);

/// A folder of tracefs with the files of an instance: one of ours, or the top one.
#[derive(Clone, Debug)]
pub struct Folder {
    pub path: PathBuf,
}

impl Folder {
    /// To a file that is there: what it held before is replaced.
    pub fn write(&self, name: &str, value: &str) -> Result<(), MeasureError> {
        self.put(name, value, OpenOptions::new().write(true).truncate(true))
    }

    pub fn append(&self, name: &str, value: &str) -> Result<(), MeasureError> {
        self.put(name, value, OpenOptions::new().append(true))
    }

    fn put(&self, name: &str, value: &str, how: &OpenOptions) -> Result<(), MeasureError> {
        let path = self.path.join(name);
        how.open(&path).and_then(|mut file| file.write_all(value.as_bytes())).map_err(|error| explained(&path, error))
    }

    pub fn read(&self, name: &str) -> Result<String, MeasureError> {
        let path = self.path.join(name);
        fs::read_to_string(&path).map_err(|error| explained(&path, error))
    }

    /// Empties the buffers of all CPUs, and their counts of losses.
    pub fn clear(&self) -> Result<(), MeasureError> {
        self.write("trace", "")
    }

    /// The CPUs that have buffers, by number.
    pub fn cpus(&self) -> Vec<u16> {
        let names = fs::read_dir(self.path.join("per_cpu")).into_iter().flatten().flatten();
        let mut cpus: Vec<u16> =
            names.filter_map(|entry| entry.file_name().to_str()?.strip_prefix("cpu")?.parse().ok()).collect();
        cpus.sort_unstable();
        cpus
    }

    pub fn stats(&self, cpu: u16) -> Stats {
        self.read(&format!("per_cpu/cpu{cpu}/stats")).map(|text| Stats::parse(&text)).unwrap_or_default()
    }
}

/// A private instance.
#[derive(Debug)]
pub struct Instance {
    pub folder: Folder,
    /// Kept open, so that switching is one system call.
    switch: Option<File>,
    /// Its closing stops the tracing and frees the buffers, also when the process is killed.
    free: Option<File>,
    guarded: Option<Guarded>,
}

/// What a CPU's buffer has lost so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Overwritten, dropped or refused.
    pub lost: u64,
    /// Waiting to be read.
    pub bytes: u64,
}

impl Stats {
    /// `per_cpu/cpuN/stats`.
    pub fn parse(text: &str) -> Stats {
        let mut stats = Stats::default();
        for line in text.lines() {
            let Some((key, value)) = line.split_once(':') else { continue };
            let value = value.trim().parse::<u64>().unwrap_or(0);
            match key {
                "overrun" | "commit overrun" | "dropped events" => stats.lost += value,
                "bytes" => stats.bytes = value,
                _ => {}
            }
        }
        stats
    }
}

impl Instance {
    /// Made switched off, with the clock of `CLOCK_MONOTONIC` and buffers of so many KiB for each CPU.
    pub fn make(tracefs: &Tracefs, guardian: &Arc<Guardian>, buffer_kib: u32) -> Result<Instance, MeasureError> {
        let (path, guarded) = fresh(tracefs, guardian)?;
        let mut instance = Instance { folder: Folder { path }, switch: None, free: None, guarded: Some(guarded) };
        let folder = instance.folder.clone();
        folder.write("tracing_on", "0")?;
        instance.switch = Some(instance.open_for_writing("tracing_on")?);
        folder.write("trace_clock", "mono")?;
        folder.write("buffer_size_kb", &buffer_kib.to_string())?;
        // Where the kernel lacks one of these, the guardian alone has to do.
        if folder.write("options/disable_on_free", "1").is_ok() {
            instance.free = instance.open_for_writing("free_buffer").ok();
        }
        Ok(instance)
    }

    fn open_for_writing(&self, name: &str) -> Result<File, MeasureError> {
        let path = self.folder.path.join(name);
        OpenOptions::new().write(true).open(&path).map_err(|error| explained(&path, error))
    }

    /// Of one event: on, with the filter if there is one.
    pub fn enable(&self, event: &str, filter: Option<&str>) -> Result<(), MeasureError> {
        if let Some(filter) = filter {
            self.folder.write(&format!("events/{event}/filter"), filter)?;
        }
        self.folder.write(&format!("events/{event}/enable"), "1")
    }

    /// On or off: one `write`.
    pub fn switch(&self, on: bool) -> Result<(), MeasureError> {
        let Some(mut file) = self.switch.as_ref() else { return Ok(()) };
        let switched = file.write_all(if on { b"1" } else { b"0" });
        switched.map_err(|error| explained(&self.folder.path.join("tracing_on"), error))
    }

    /// The pages of a CPU, never waiting for any.
    pub fn pages(&self, cpu: u16) -> Result<Pages, MeasureError> {
        let path = self.folder.path.join(format!("per_cpu/cpu{cpu}/trace_pipe_raw"));
        let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let file = OpenOptions::new().read(true).custom_flags(flags).open(&path);
        Ok(Pages { file: file.map_err(|error| explained(&path, error))?, path })
    }
}

/// A folder with a name that is not taken: a dead process may have had our number.
fn fresh(tracefs: &Tracefs, guardian: &Arc<Guardian>) -> Result<(PathBuf, Guarded), MeasureError> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    const TRIES: usize = 100;
    let mut taken = 0;
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = tracefs.root.join("instances").join(format!("{PREFIX}{}-{number}", std::process::id()));
        if path.exists() && taken < TRIES {
            taken += 1;
            continue;
        }
        let guarded = guardian.guard(&undo(&path)).map_err(MeasureError::file("sh"))?;
        fs::create_dir(&path).map_err(|error| explained(&path, error))?;
        return Ok((path, guarded));
    }
}

/// The guardian's way. Readers that the kernel is still closing keep an instance busy for a moment.
fn undo(instance: &Path) -> String {
    format!(
        "p={}; if [ -d \"$p\" ]; then echo 0 > \"$p/tracing_on\"; echo 0 > \"$p/events/enable\"; \
         echo nop > \"$p/current_tracer\"; for t in 1 2 3 4 5 6 7 8 9 10; do rmdir \"$p\" && break; sleep 0.2; done; fi",
        quoted(instance)
    )
}

/// The process that made an instance, by its name.
fn owner(name: &str) -> Option<u32> {
    let (pid, number) = name.strip_prefix(PREFIX)?.split_once('-')?;
    number.parse::<u32>().ok()?;
    pid.parse().ok()
}

/// Removes instances of ours whose process is gone.
pub fn sweep(tracefs: &Tracefs) {
    for entry in fs::read_dir(tracefs.root.join("instances")).into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(owner) else { continue };
        if !Path::new(&format!("/proc/{pid}")).exists() {
            // Who still has a file of it open (in another PID namespace) keeps it: then this fails, and changes
            // nothing.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.switch(false);
        // Events first: the folder of an instance whose events are on may be busy with them.
        let _ = self.folder.write("events/enable", "0");
        self.switch = None;
        self.free = None;
        let begun = Instant::now();
        while let Err(error) = fs::remove_dir(&self.folder.path) {
            if error.kind() == ErrorKind::NotFound {
                break;
            }
            if begun.elapsed() > REMOVE_WAIT {
                // Perhaps somebody reads it: once more at our end.
                if let Some(guarded) = self.guarded.take() {
                    guarded.leave();
                }
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// An open `trace_pipe_raw`.
#[derive(Debug)]
pub struct Pages {
    file: File,
    path: PathBuf,
}

impl Pages {
    /// Reads what is there, at most `pages_max` pages; the octets that they hold. With tracing on (`is_on`) it ends
    /// once it has caught up with the writer, whose last page is never full, so that it does not chase what it causes
    /// itself.
    pub fn drain(
        &mut self,
        layout: &Layout,
        pages_max: usize,
        is_on: bool,
        stream: &mut Stream,
    ) -> Result<usize, MeasureError> {
        let mut page = vec![0; layout.page_bytes()];
        let (mut bytes, mut short) = (0, 0);
        for _ in 0..pages_max {
            let count = match self.file.read(&mut page) {
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(explained(&self.path, error)),
            };
            if count == 0 {
                break;
            }
            let used = used_bytes(&page[..count], layout);
            stream.push(&page[..used]);
            bytes += used;
            // The first short one may be the rest of a page that was read in part before.
            short = if used < layout.page_bytes() / 2 { short + 1 } else { 0 };
            if is_on && short == 2 {
                break;
            }
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_our_names_are_swept() {
        assert_eq!(owner("stentor-12-0"), Some(12));
        for name in ["stentor-12", "stentor-a-0", "stentor-12-x", "other-12-0", "stentor-test-collect"] {
            assert_eq!(owner(name), None, "{name}");
        }
    }

    #[test]
    fn the_guardian_switches_off_what_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let (made, never) = (folder.path().join("stentor-1-0"), folder.path().join("never-made"));
        let guardian = Guardian::start().unwrap();
        for path in [&made, &never] {
            guardian.guard(&undo(path)).unwrap().leave();
        }
        fs::create_dir(&made).unwrap();
        drop(guardian);
        // On an ordinary file system the `echo` makes a file, and `rmdir` fails: that it was written to is what is
        // seen.
        assert_eq!(fs::read_to_string(made.join("tracing_on")).unwrap(), "0\n");
        assert!(!never.exists());
    }

    #[test]
    fn losses_are_summed() {
        let text = "entries: 7\noverrun: 3\ncommit overrun: 1\nbytes: 4096\noldest event ts:  2.5\nnow ts: 9.1\n\
                    dropped events: 20\nread events: 5\n";
        assert_eq!(Stats::parse(text), Stats { lost: 24, bytes: 4096 });
        assert_eq!(Stats::parse("nothing"), Stats::default());
    }
}
