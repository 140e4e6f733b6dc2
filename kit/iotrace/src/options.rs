//! Options of `stentor-kit iotrace`, and checks of their combination.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use stentor_measure::{MeasureError, OutputArgs};

use crate::collect::Scope;
use crate::collect::list::CollectorChoice;
use crate::operation::{Access, FileState, Order, Path as Way, Sync, Work};

/// Operations of a run if not told otherwise.
const COUNT: u32 = 50;
const COUNT_MAX: i64 = 1_000_000;
/// A head fits, and what a run holds in memory stays small.
const SIZE_MIN: u64 = 32;
const SIZE_MAX: u64 = 64 << 20;
const MEMORY_MIB: u64 = 1024;
/// More of what is free is not taken without being told.
const MEMORY_SHARE: u64 = 4;
/// What devices address at least.
const SECTOR: u32 = 512;

/// Ends `--help`.
pub const EXAMPLES: &str = "\
Needs root, except with --read. Tracing is always switched off again at the end.

Examples:
  stentor-kit iotrace /var/spool /mnt/ssd --size 4K,1M --sync fdatasync --out results --plot
  stentor-kit iotrace /var/spool --file new,growing,preallocated,recycled
  stentor-kit iotrace /var/spool/postfix --pid 812 --seconds 10
  stentor-kit iotrace --command -- dd if=/dev/zero of=x bs=64k count=20 conv=fsync
  trace-cmd report | stentor-kit iotrace --read -";

#[derive(Args, Clone, Debug)]
pub struct IotraceArgs {
    /// Directories to write to, with separate rows [default: the current one]. With --pid or --command: the file
    /// system to trace, or none.
    #[arg(value_name = "DIR")]
    pub directories: Vec<PathBuf>,
    /// Bytes per operation: `4K,8K,1M`.
    #[arg(long, value_delimiter = ',', value_parser = size, default_value = "4K,8K,1M", value_name = "BYTES")]
    pub size: Vec<u32>,
    /// Operations per run.
    #[arg(long, default_value_t = COUNT, value_parser = clap::value_parser!(u32).range(1..=COUNT_MAX))]
    pub count: u32,
    /// Kind of operation.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "write")]
    pub access: Vec<Access>,
    /// Order of offsets in the file.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "sequential")]
    pub order: Vec<Order>,
    /// Use the page cache, or bypass it.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "buffered")]
    pub path: Vec<Way>,
    /// How to make a write durable.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "fsync")]
    pub sync: Vec<Sync>,
    /// State of the file beforehand: new and empty each time, growing, with reserved blocks, or already written.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "growing")]
    pub file: Vec<FileState>,
    /// Trace this process and its children instead of the generator.
    #[arg(long, value_name = "PID", conflicts_with_all = ["command", "read", "loss"])]
    pub pid: Option<i32>,
    /// Trace the program after `--`, and its children: `--command -- dd if=/dev/zero of=x`.
    #[arg(long, requires = "program", conflicts_with_all = ["read", "loss"])]
    pub command: bool,
    /// With --pid and --command: end the trace after this many seconds, or when the program has ended. A command still
    /// running then is ended too.
    #[arg(long, default_value_t = 5.0, value_parser = seconds)]
    pub seconds: f64,
    /// Program for --command, and its arguments.
    #[arg(last = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
    /// Summarise the output of `trace-cmd report` or a `trace` file of ftrace; `-` is standard input.
    #[arg(long, value_name = "FILE")]
    pub read: Option<PathBuf>,
    /// Measure how many events are lost, by buffer, scope and number of CPUs.
    #[arg(long, conflicts_with = "read")]
    pub loss: bool,
    /// Collector to use.
    #[arg(long, value_enum, default_value = "auto")]
    pub collector: CollectorChoice,
    /// List the collectors, what each records, and whether it works here.
    #[arg(long)]
    pub collectors: bool,
    /// Events to trace.
    #[arg(long, value_enum, default_value = "fs")]
    pub scope: Scope,
    /// For the function graph: trace only calls below these functions; empty: all.
    #[arg(long, value_delimiter = ',', default_value = "vfs_write,vfs_read,vfs_fsync_range", value_name = "NAMES")]
    pub functions: Vec<String>,
    /// For the function graph: maximum depth of calls; 0: unlimited.
    #[arg(long, default_value_t = 0, value_name = "CALLS")]
    pub depth: u32,
    /// Buffer size per CPU. If it is too small, events are lost, and the report warns.
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(16..=4_194_304), value_name = "KIB")]
    pub buffer_kib: u32,
    /// Memory for the events of a run and their analysis; a trace ends when it is full. Default: 1024, at most a
    /// quarter of what is free.
    #[arg(long, value_parser = clap::value_parser!(u32).range(8..=1_048_576), value_name = "MIB")]
    pub memory_mib: Option<u32>,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `4096`, `4K`, `1M`: binary multiples.
fn size(text: &str) -> Result<u32, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor: u64 = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        other => return Err(format!("`{other}` is not a valid unit: use K or M (binary)")),
    };
    let bytes = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    match bytes {
        Some(bytes) if (SIZE_MIN..=SIZE_MAX).contains(&bytes) => Ok(bytes as u32),
        _ => Err(format!("a size is {SIZE_MIN} to {}M octets", SIZE_MAX >> 20)),
    }
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= 86_400.0 => Ok(seconds),
        _ => Err("more than 0, at most 86400".to_owned()),
    }
}

fn check_direct(path: Way, size: u32) -> Result<(), MeasureError> {
    if path == Way::Direct && !size.is_multiple_of(SECTOR) {
        return Err(MeasureError::Refused(format!(
            "direct I/O of {size} octets is not possible; use multiples of {SECTOR} (most devices: 4096)"
        )));
    }
    Ok(())
}

impl IotraceArgs {
    /// Octets that a run's events may take; a refusal of more than is free.
    pub fn memory_bytes_max(&self, free_mib: u64) -> Result<usize, MeasureError> {
        let mib = match self.memory_mib {
            Some(asked) if u64::from(asked) > free_mib => {
                return Err(MeasureError::Refused(format!(
                    "--memory-mib {asked} is more than is free ({free_mib} MiB); choose less, or trace less: fewer \
                     --seconds, a smaller --scope or --count"
                )));
            }
            Some(asked) => u64::from(asked),
            None => MEMORY_MIB.min(free_mib / MEMORY_SHARE).max(1),
        };
        Ok(usize::try_from(mib << 20).unwrap_or(usize::MAX))
    }

    /// All combinations of what was asked for that differ, in the order of the options.
    pub fn works(&self) -> Result<Vec<Work>, MeasureError> {
        let mut works: Vec<Work> = Vec::new();
        for &access in &self.access {
            for &size in &self.size {
                for &path in &self.path {
                    check_direct(path, size)?;
                    for &order in &self.order {
                        let work = Work { access, order, path, sync: Sync::None, file: FileState::Recycled, size };
                        for work in self.durable(work) {
                            if !works.contains(&work) {
                                works.push(work);
                            }
                        }
                    }
                }
            }
        }
        Ok(works)
    }

    /// Sync and file are questions of writes.
    fn durable(&self, work: Work) -> impl Iterator<Item = Work> {
        let all = self.file.iter().flat_map(|&file| self.sync.iter().map(move |&sync| (file, sync)));
        all.map(move |(file, sync)| if work.access == Access::Write { Work { sync, file, ..work } } else { work })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: IotraceArgs,
    }

    fn args(words: &[&str]) -> IotraceArgs {
        Line::try_parse_from([&["iotrace"], words].concat()).unwrap().args
    }

    #[test]
    fn sizes_and_their_refusals() {
        assert_eq!(["512", "4K", "8kib", "1M"].map(size), [Ok(512), Ok(4096), Ok(8192), Ok(1 << 20)]);
        for text in ["", "K", "4G", "31", "65M", "-1", "9999999999999999999999"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn combinations_are_made_once() {
        let works = args(&["/x"]).works().unwrap();
        assert_eq!(works.iter().map(|work| work.size).collect::<Vec<_>>(), [4096, 8192, 1 << 20]);
        let many = args(&["--access", "write,read", "--sync", "fsync,none", "--file", "new,recycled", "--size", "4K"]);
        // Four of writes; to a read neither sync nor state matters.
        assert_eq!(many.works().unwrap().len(), 5);
        let error = args(&["--path", "direct", "--size", "700"]).works().unwrap_err();
        assert!(error.to_string().contains("multiples of 512"), "{error}");
    }

    #[test]
    fn memory_is_bounded_by_what_is_free() {
        let mib = |words: &[&str], free| args(words).memory_bytes_max(free).map(|bytes| bytes >> 20);
        assert_eq!((mib(&[], 24_000).unwrap(), mib(&[], 400).unwrap(), mib(&[], 0).unwrap()), (1024, 100, 1));
        assert_eq!(mib(&["--memory-mib", "300"], 400).unwrap(), 300);
        let error = mib(&["--memory-mib", "500"], 400).unwrap_err().to_string();
        assert!(error.contains("more than is free (400 MiB)"), "{error}");
    }

    #[test]
    fn what_excludes_each_other_is_refused() {
        for words in [
            &["--pid", "1", "--command", "--", "dd"][..],
            &["--command"],
            &["--read", "x", "--loss"],
            &["--count", "0"],
            &["--seconds", "0"],
            &["--buffer-kib", "1"],
        ] {
            assert!(Line::try_parse_from([&["iotrace"], words].concat()).is_err(), "{words:?}");
        }
        assert_eq!(args(&["--command", "--", "dd", "of=x"]).program, ["dd", "of=x"]);
    }
}
