//! Logs as input: `--from FILE...` of the observing commands.
//!
//! Promise: files are read in the order of their first entries (rotated ones may be named in any order), gzip is
//! recognised by its first bytes, `-` is standard input; with `--follow` the newest is followed through rotation by
//! renaming or truncation. One thread reads and unpacks, the caller's thread parses; between them are at most
//! `BLOCKS_MAX` blocks. An unreadable file does not stop the others: the error is printed on standard error and shows
//! in the exit code.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use flate2::read::MultiGzDecoder;
use stentor_control::format::plural;
use stentor_records::civil::Zone;
use stentor_records::log::{Counters, Parser, first_time};
use stentor_records::record::{Ms, Record};

mod tail;
pub mod zone;

/// Small enough for a processor's cache, large enough for the disk.
const BLOCK_BYTES: usize = 256 * 1024;
const BLOCKS_MAX: usize = 8;
/// What is looked at to find a file's first time.
const PEEK_BYTES: u64 = 64 * 1024;
/// How often a followed file is looked at, and whoever follows is called although nothing came.
const TICK: Duration = Duration::from_millis(250);

/// Which logs.
#[derive(Args, Clone, Debug, Default)]
pub struct From {
    /// Read these logs of sendmail, Postfix, Exim or Stentor, including rotated and gzipped ones; - is standard input.
    #[arg(long = "from", value_name = "FILE", num_args = 1..)]
    pub files: Vec<PathBuf>,
    /// Follow the newest file as it grows and rotates.
    #[arg(long, requires = "files")]
    pub follow: bool,
    /// Time zone for output, and for log times without one: local, utc, +01:00, Europe/Vienna.
    #[arg(long, value_name = "ZONE", default_value = "local", conflicts_with = "utc", allow_hyphen_values = true,
        value_parser = zone_name)]
    pub zone: String,
    /// The same as --zone utc.
    #[arg(long)]
    pub utc: bool,
}

/// The value of `--zone`.
fn zone_name(text: &str) -> Result<String, String> {
    zone::named(text).map(|_| text.to_owned())
}

impl From {
    pub fn is_given(&self) -> bool {
        !self.files.is_empty()
    }

    pub fn zone_name(&self) -> &str {
        if self.utc {
            "UTC"
        } else if self.zone == "local" {
            ""
        } else {
            &self.zone
        }
    }

    /// The time zone that was asked for.
    pub fn zone(&self) -> Result<Zone, String> {
        if self.utc { Ok(Zone::utc()) } else { zone::named(&self.zone) }
    }
}

/// What whoever follows is called with.
pub enum TailEvent<'a, 'r> {
    Record(&'a Record<'r>),
    /// Nothing came for a moment.
    Idle,
}

/// What was read, and whether all of it could be.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadSummary {
    pub counters: Counters,
    pub failed: bool,
}

impl ReadSummary {
    /// Says on standard error what was not understood.
    pub fn print(&self) {
        match self.counters.not_understood {
            0 => {}
            1 => eprintln!("stentor: 1 of {} lines not understood", self.counters.lines),
            count => eprintln!("stentor: {count} of {} lines not understood", self.counters.lines),
        }
    }
}

/// Reads all; with `--follow` until the process ends.
pub fn feed(from: &From, sink: &mut dyn FnMut(&Record<'_>)) -> Result<ReadSummary, String> {
    follow(from, &mut |fed| {
        if let TailEvent::Record(record) = fed {
            sink(record);
        }
        ControlFlow::Continue(())
    })
}

/// Reads all; with `--follow` until the caller has enough. Without, it is called without `Idle`.
pub fn follow(from: &From, sink: &mut dyn FnMut(TailEvent<'_, '_>) -> ControlFlow<()>) -> Result<ReadSummary, String> {
    let zone = from.zone()?;
    let (send, blocks) = sync_channel(BLOCKS_MAX);
    let reading = Reading { files: from.files.clone(), follow: from.follow, zone: zone.clone(), send };
    let reader = std::thread::Builder::new().name("reader".into()).spawn(move || reading.run());
    // Not joined: it may wait for standard input. It ends with the channel or the process.
    reader.map_err(|error| format!("cannot start a reader thread: {error}"))?;
    let summary = parse(zone, &blocks, from.follow, sink);
    if summary.failed && summary.counters.records == 0 {
        return Err("no mail log entries found".to_owned());
    }
    Ok(summary)
}

fn parse(
    zone: Zone,
    blocks: &Receiver<Piece>,
    ticks: bool,
    sink: &mut dyn FnMut(TailEvent<'_, '_>) -> ControlFlow<()>,
) -> ReadSummary {
    let mut parser = Parser::new(zone, now());
    let mut failed = false;
    let mut file = FileSoFar::default();
    let over = Cell::new(false);
    let sink = std::cell::RefCell::new(sink);
    let mut records = |record: &Record<'_>| {
        // A block is parsed to its end; what comes of it after the caller has had enough is dropped.
        if !over.get() && (sink.borrow_mut())(TailEvent::Record(record)).is_break() {
            over.set(true);
        }
    };
    while !over.get() {
        let piece = if ticks {
            match blocks.recv_timeout(TICK) {
                Ok(piece) => piece,
                Err(RecvTimeoutError::Timeout) => {
                    if (sink.borrow_mut())(TailEvent::Idle).is_break() {
                        break;
                    }
                    continue;
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        } else {
            let Ok(piece) = blocks.recv() else { break };
            piece
        };
        match piece {
            Piece::File(path, written) => {
                parser.file(written, &mut records);
                failed |= file.ends(parser.counters());
                file = FileSoFar { path, before: parser.counters() };
            }
            Piece::Block(block) => parser.block(&block, &mut records),
            Piece::Wrong(why) => {
                eprintln!("stentor: {why}");
                failed = true;
            }
        }
    }
    if !over.get() {
        parser.finish(&mut records);
        failed |= file.ends(parser.counters());
    }
    ReadSummary { counters: parser.counters(), failed }
}

/// The file that is being read, and what had been counted before it.
#[derive(Default)]
struct FileSoFar {
    path: PathBuf,
    before: Counters,
}

impl FileSoFar {
    /// At its end. Says on standard error, and returns, whether it is no log at all: no line has the form of a log's.
    fn ends(&self, counters: Counters) -> bool {
        let lines = counters.lines - self.before.lines;
        let is_no_log = lines > 0 && counters.not_understood - self.before.not_understood == lines;
        if is_no_log {
            let lines = plural(lines, "line");
            eprintln!(
                "stentor: {}: not a log of sendmail, Postfix, Exim or Stentor: none of {lines} understood",
                self.path.display()
            );
        }
        is_no_log
    }
}

/// Milliseconds since 1970.
pub fn now() -> Ms {
    ms_of(SystemTime::now())
}

fn ms_of(time: SystemTime) -> Ms {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// What the reading thread hands over.
enum Piece {
    /// This file begins, last written then.
    File(PathBuf, Ms),
    Block(Vec<u8>),
    Wrong(String),
}

/// Nobody wants more.
struct Enough;

struct Reading {
    files: Vec<PathBuf>,
    follow: bool,
    zone: Zone,
    send: SyncSender<Piece>,
}

impl Reading {
    fn run(self) {
        let files = in_order(&self.files, &self.zone);
        for (index, path) in files.iter().enumerate() {
            let last = index + 1 == files.len();
            let read = if self.follow && last && !is_stdin(path) {
                tail::follow(path, &mut |piece| self.put(piece))
            } else {
                self.whole(path)
            };
            if read.is_err() {
                return;
            }
        }
    }

    fn put(&self, piece: Piece) -> Result<(), Enough> {
        self.send.send(piece).map_err(|_| Enough)
    }

    fn whole(&self, path: &Path) -> Result<(), Enough> {
        let (mut input, written) = match open(path) {
            Ok(opened) => opened,
            Err(error) => return self.put(Piece::Wrong(format!("{}: {error}", path.display()))),
        };
        self.put(Piece::File(path.to_owned(), written))?;
        loop {
            let (block, error) = read_block(&mut *input);
            if !block.is_empty() {
                self.put(Piece::Block(block))?;
            } else if error.is_none() {
                return Ok(());
            }
            if let Some(error) = error {
                return self
                    .put(Piece::Wrong(format!("{}: {error}; using the part that could be read", path.display())));
            }
        }
    }
}

/// Up to a block; what there is at once if it comes slowly. Empty at the end.
fn read_block(input: &mut dyn Read) -> (Vec<u8>, Option<io::Error>) {
    let mut block = vec![0; BLOCK_BYTES];
    loop {
        match input.read(&mut block) {
            Ok(count) => {
                block.truncate(count);
                return (block, None);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (Vec::new(), Some(error)),
        }
    }
}

fn is_stdin(path: &Path) -> bool {
    path == Path::new("-")
}

/// The input, unpacked, and when it was last written.
fn open(path: &Path) -> io::Result<(Box<dyn Read>, Ms)> {
    if is_stdin(path) {
        return Ok((unpacked(Box::new(io::stdin()))?, now()));
    }
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_dir() {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "is a directory"));
    }
    // A pipe was written when it was read.
    let written = if metadata.is_file() { metadata.modified().map_or_else(|_| now(), ms_of) } else { now() };
    Ok((unpacked(Box::new(file))?, written))
}

fn unpacked(mut input: Box<dyn Read>) -> io::Result<Box<dyn Read>> {
    let mut magic = Vec::with_capacity(2);
    input.by_ref().take(2).read_to_end(&mut magic)?;
    let is_gzip = magic == [0x1f, 0x8b];
    let whole = io::Cursor::new(magic).chain(input);
    if is_gzip {
        // Larger reads of the packed form, and many members (`cat a.gz b.gz`).
        return Ok(Box::new(MultiGzDecoder::new(BufReader::with_capacity(BLOCK_BYTES, whole))));
    }
    Ok(Box::new(whole))
}

/// By the time of the first entry, then as they were named; standard input and files without any last.
fn in_order(files: &[PathBuf], zone: &Zone) -> Vec<PathBuf> {
    if files.len() < 2 {
        return files.to_vec();
    }
    let mut order: Vec<(Ms, usize)> =
        files.iter().enumerate().map(|(index, path)| (first_time_of(path, zone).unwrap_or(Ms::MAX), index)).collect();
    order.sort_unstable();
    order.into_iter().map(|(_, index)| files[index].clone()).collect()
}

fn first_time_of(path: &Path, zone: &Zone) -> Option<Ms> {
    // What is read from these would be gone.
    if is_stdin(path) || !std::fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let (input, written) = open(path).ok()?;
    let mut begin = Vec::new();
    // A file that is cut short may still have a first line.
    let _ = input.take(PEEK_BYTES).read_to_end(&mut begin);
    first_time(&begin, zone, written)
}

#[cfg(test)]
mod tests;
