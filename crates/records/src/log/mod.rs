//! Logs of sendmail, Postfix, Exim and ourselves, read a block at a time.
//!
//! Promise: whatever the bytes, each line is parsed, skipped as another program's, or counted as not understood. There
//! is never a panic, and memory stays within the limits here. Each line identifies its program (by its first byte and
//! the program's name), so one file may mix several. Text is borrowed from the block; only state that later lines of a
//! message need is kept (`state.rs`).
//!
//! Other MTAs report a permanent failure in one line, which becomes two records as in our own log: the attempt, and the
//! fate of its recipients (`mailer` is `bounce`).

mod exim;
mod own;
mod postfix;
mod sendmail;
mod stamp;
mod state;
mod text;

use memchr::memchr;

use self::stamp::Stamps;
use self::state::State;
use crate::civil::Zone;
use crate::record::{Attempt, Ms, Record, Stat};

/// Longer lines are skipped; sendmail's lines end at 4 KiB, syslog's at 8 KiB.
pub const LINE_BYTES_MAX: usize = 64 * 1024;

/// Counts of lines by result.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Counters {
    pub lines: u64,
    /// Octets, line ends included.
    pub bytes: u64,
    /// Records made from the lines.
    pub records: u64,
    /// Lines of other programs, or about events that are not counted.
    pub other: u64,
    /// Broken, truncated, binary or overlong lines.
    pub not_understood: u64,
}

/// The kind of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Line {
    /// The line became a record, or part of one.
    Read,
    Other,
    Broken,
}

pub type Sink<'s> = dyn FnMut(&Record<'_>) + 's;

pub struct Parser {
    stamps: Stamps,
    state: State,
    counters: Counters,
    /// The beginning of a line whose end is in the next block.
    carry: Vec<u8>,
    /// Skipping the rest of an overlong line.
    overlong: bool,
}

impl Parser {
    /// Creates a parser. Times without a zone are in `zone`; those without a year are the latest not after `reference`,
    /// with a day's tolerance.
    pub fn new(zone: Zone, reference: Ms) -> Parser {
        Parser {
            stamps: Stamps::new(zone, reference),
            state: State::default(),
            counters: Counters::default(),
            carry: Vec::new(),
            overlong: false,
        }
    }

    /// Starts another file, last written at `reference`. State about messages is kept.
    pub fn file(&mut self, reference: Ms, sink: &mut Sink<'_>) {
        self.finish(sink);
        self.stamps.file(reference);
    }

    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Reads whole lines; an unfinished last line waits for the next block.
    pub fn block(&mut self, mut block: &[u8], sink: &mut Sink<'_>) {
        self.counters.bytes += block.len() as u64;
        if self.overlong || !self.carry.is_empty() {
            let Some(end) = memchr(b'\n', block) else {
                self.keep(block);
                return;
            };
            if self.overlong {
                self.overlong = false;
            } else {
                self.keep(&block[..end]);
                if self.overlong {
                    // The line ended after all: there is no rest to skip.
                    self.overlong = false;
                } else {
                    let carry = std::mem::take(&mut self.carry);
                    self.line(&carry, sink);
                    self.carry = carry;
                    self.carry.clear();
                }
            }
            block = &block[end + 1..];
        }
        while let Some(end) = memchr(b'\n', block) {
            self.line(&block[..end], sink);
            block = &block[end + 1..];
        }
        if !block.is_empty() {
            self.keep(block);
        }
    }

    /// Handles the end of input: the last line may have no line end.
    pub fn finish(&mut self, sink: &mut Sink<'_>) {
        let carry = std::mem::take(&mut self.carry);
        if !carry.is_empty() {
            self.line(&carry, sink);
        }
        self.overlong = false;
    }

    fn keep(&mut self, part: &[u8]) {
        if self.overlong {
            return;
        }
        if self.carry.len() + part.len() > LINE_BYTES_MAX {
            self.carry.clear();
            self.overlong = true;
            self.counters.lines += 1;
            self.counters.not_understood += 1;
        } else {
            self.carry.extend_from_slice(part);
        }
    }

    fn line(&mut self, line: &[u8], sink: &mut Sink<'_>) {
        self.counters.lines += 1;
        // A machine that crashed leaves zeros in place of a line.
        let start = line.iter().position(|byte| *byte != 0).unwrap_or(line.len());
        let line = line[start..].strip_suffix(b"\r").unwrap_or(&line[start..]);
        let kind = if line.len() > LINE_BYTES_MAX || (line.is_empty() && start > 0) {
            Line::Broken
        } else if line.is_empty() {
            Line::Other
        } else {
            let Parser { stamps, state, counters, .. } = self;
            let mut out = Out { sink, records: &mut counters.records };
            match std::str::from_utf8(line) {
                Ok(line) => read(line, stamps, state, &mut out),
                Err(_) => read(&String::from_utf8_lossy(line), stamps, state, &mut out),
            }
        };
        match kind {
            Line::Read => {}
            Line::Other => self.counters.other += 1,
            Line::Broken => self.counters.not_understood += 1,
        }
    }
}

/// Passes records to the consumer.
struct Out<'s, 'f> {
    sink: &'s mut Sink<'f>,
    records: &'s mut u64,
}

impl Out<'_, '_> {
    fn put(&mut self, record: &Record<'_>) {
        *self.records += 1;
        (self.sink)(record);
    }

    /// Passes on an attempt, and the fate of its recipients if it was their last.
    fn attempt(&mut self, attempt: Attempt<'_>) {
        let fate = (attempt.stat == Stat::Bounced).then(|| Attempt { mailer: "bounce", ..attempt.clone() });
        self.put(&Record::Attempt(attempt));
        if let Some(fate) = fate {
            self.put(&Record::Attempt(fate));
        }
    }
}

/// Time of the first line that has one, for sorting files.
pub fn first_time(block: &[u8], zone: &Zone, reference: Ms) -> Option<Ms> {
    let mut stamps = Stamps::new(zone.clone(), reference);
    block.split(|byte| *byte == b'\n').find_map(|line| {
        let line = std::str::from_utf8(line).ok()?.trim_start_matches('\0');
        if line.starts_with('{') {
            return stamps
                .rfc3339(&text::between(line, "\"time\":\"", "\"").map(|time| format!("{time} "))?)
                .map(|found| found.0);
        }
        let line = line.strip_prefix('<').and_then(|rest| rest.split_once('>')).map_or(line, |(_, rest)| rest);
        let line = line.strip_prefix("1 ").unwrap_or(line);
        stamps.rfc3164(line).or_else(|| stamps.rfc3339(line)).or_else(|| stamps.exim(line)).map(|found| found.0)
    })
}

/// Reads one line of any program.
fn read(line: &str, stamps: &mut Stamps, state: &mut State, out: &mut Out<'_, '_>) -> Line {
    match line.as_bytes()[0] {
        b'{' => own::json(line, out),
        b'<' => match line.find('>').map(|end| &line[end + 1..]) {
            Some(rest) if !rest.is_empty() && !rest.starts_with('<') => syslog(rest, stamps, state, out),
            _ => Line::Broken,
        },
        b'0'..=b'9' => match stamps.exim(line) {
            Some((at, rest)) => exim::line(at, rest, state, out),
            None => syslog(line, stamps, state, out),
        },
        _ => syslog(line, stamps, state, out),
    }
}

/// Reads `Nov 22 03:00:00 host program[pid]: message` (RFC 3164), the same with a time of RFC 3339, or RFC 5424.
fn syslog(line: &str, stamps: &mut Stamps, state: &mut State, out: &mut Out<'_, '_>) -> Line {
    let (at, tag, message) = if let Some(rest) = line.strip_prefix("1 ") {
        let Some((at, rest)) = stamps.rfc3339(rest) else { return Line::Broken };
        let mut words = rest.splitn(5, ' ');
        let (Some(_host), Some(program), Some(pid), Some(_msgid), Some(rest)) =
            (words.next(), words.next(), words.next(), words.next(), words.next())
        else {
            return Line::Broken;
        };
        // Structured data would have to be separated from the message; MTAs send none.
        let Some(message) = rest.strip_prefix("- ") else { return Line::Other };
        (at, (program, pid), message.trim_start_matches('\u{feff}'))
    } else {
        let Some((at, rest)) = stamps.rfc3164(line).or_else(|| stamps.rfc3339(line)) else { return Line::Broken };
        let Some(space) = memchr(b' ', rest.as_bytes()) else { return Line::Broken };
        let tagged = &rest[space + 1..];
        let Some(colon) = tagged.find(": ") else { return Line::Other };
        let tag = &tagged[..colon];
        if tag.contains(' ') {
            // `last message repeated 3 times`, kernels, ...
            return Line::Other;
        }
        let tag = tag.split_once('[').map_or((tag, ""), |(program, pid)| (program, pid.trim_end_matches(']')));
        (at, tag, &tagged[colon + 2..])
    };
    let (program, pid) = tag;
    if let Some(slash) = program.rfind('/') {
        return postfix::line(at, &program[slash + 1..], pid, message, state, out);
    }
    match program {
        "sendmail" | "sm-mta" | "sm-msp-queue" | "sm-msp" | "sm-que" | "sm-acceptingconnections" => {
            sendmail::line(at, pid, message, false, state, out)
        }
        "stentor" => sendmail::line(at, pid, message, true, state, out),
        // Exim may put its own time before the rest.
        "exim" | "exim4" => match stamps.exim(message) {
            Some((at, rest)) => exim::line(at, rest, state, out),
            None => exim::line(at, message, state, out),
        },
        _ => Line::Other,
    }
}

#[cfg(test)]
mod tests;
