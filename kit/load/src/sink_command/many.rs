//! A sink in several processes: they accept from the same listening sockets, each up to its share of the connections,
//! and the command adds up their reports.
//!
//! Each process sends changed counters every 50 ms; at the end it sends its names (counters by recipient and domain),
//! its copies for the dump, and one hash per copy, so that duplicates that went to two processes are found. The maximum
//! of simultaneous connections is the largest sum seen at one such time.
//!
//! The death of a process is reported at once on standard error. Its last counters stay in the sums; anything after
//! them is lost, which is a warning and makes the command fail at its end. The others continue.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use hashbrown::HashSet;
use serde::{Deserialize, Serialize};
use stentor_lab::LabError;
use stentor_lab::Listening;
use stentor_lab::cli::RunOptions;
use stentor_lab::recorder::{Mode, Tallied, Tally, Top};
use stentor_lab::{Sink, SinkOptions};
use stentor_lab::{StoreAs, StoreOptions};
use stentor_measure::{Histogram, Stop};

use super::sink_progress::{SinkProgress, Total};
use super::{SinkArgs, look_every};
use crate::crew::{Crew, CrewMessage, Post, share};
use crate::error::LoadError;
use crate::procfs::ProcessUsage;

/// Names or hashes in one word.
const CHUNK: usize = 10_000;
/// A process that is to end and says nothing for so long is given up.
const PATIENCE: Duration = Duration::from_mins(1);

/// What a process says.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Word {
    /// New counters.
    Seen(Box<SinkProgress>),
    /// It has closed its connections: the last counters, and times of its store.
    Last(Box<(SinkProgress, Histogram)>),
    Names(Top),
    Hashes(Vec<u64>),
    /// A line of its dump.
    Mail(serde_json::Map<String, serde_json::Value>),
    /// Everything has been said.
    End,
}

/// The file of `--dump`, if there is one, until it cannot be written: the report comes all the same.
struct Dump(io::Result<Option<BufWriter<File>>>);

impl Dump {
    fn create(options: &RunOptions) -> Dump {
        Dump(options.dump.as_ref().map(|path| File::create(path).map(BufWriter::new)).transpose())
    }

    fn write(&mut self, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) {
        if let Ok(Some(out)) = &mut self.0
            && let Err(error) = write(out)
        {
            self.0 = Err(error);
        }
    }
}

/// What is known of one process.
#[derive(Default)]
struct MemberState {
    seen: SinkProgress,
    has_begun: bool,
    has_ended: bool,
}

/// The processes, as the command sees them.
pub(super) struct Many {
    crew: Crew<Word>,
    addresses: Vec<SocketAddr>,
    members: Vec<MemberState>,
    open_max: u64,
    warnings: Vec<String>,
    before: ProcessUsage,
}

/// What they hand over at the end.
#[derive(Default)]
struct SinkResults {
    names: Tally,
    hashes: HashSet<u64>,
    hashes_told: u64,
    times_us: Histogram,
}

impl Many {
    /// When it returns, all processes serve.
    pub fn start(options: &SinkOptions, count: usize) -> Result<Many, LoadError> {
        let before = ProcessUsage::own();
        let listening = Sink::listen(options)?;
        let addresses = listening.iter().map(Listening::address).collect::<io::Result<Vec<_>>>()?;
        let sockets: Vec<_> = listening.iter().map(AsFd::as_fd).collect();
        let crew = Crew::start(count, &sockets)?;
        // From here on they listen and this process does not: when all have died, nobody waits for them.
        drop(listening);
        let members = (0..count).map(|_| MemberState::default()).collect();
        let mut many = Many { crew, addresses, members, open_max: 0, warnings: Vec::new(), before };
        while !many.members.iter().all(|member| member.has_begun) {
            let next = many.crew.next(PATIENCE);
            match next {
                Some((number, CrewMessage::Word(Word::Seen(seen)))) => {
                    many.members[number].has_begun = true;
                    many.take(number, *seen);
                }
                Some((number, CrewMessage::Gone(why))) => {
                    return Err(LoadError::refused(format!("process {} of {count} did not start: {why}", number + 1)));
                }
                Some(_) | None => {
                    return Err(LoadError::refused("the processes did not start within one minute"));
                }
            }
        }
        Ok(many)
    }

    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    pub fn is_over(&self) -> bool {
        self.crew.is_empty()
    }

    /// Waits for so long, and adds up what was said.
    pub fn look(&mut self, wait: Duration) -> SinkProgress {
        let until = Instant::now() + wait;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if self.crew.is_empty() {
                std::thread::sleep(left);
            } else if let Some((number, said)) = self.crew.next(left) {
                match said {
                    CrewMessage::Word(Word::Seen(seen)) => self.take(number, *seen),
                    // Nothing else is said before the end.
                    CrewMessage::Word(_) => {}
                    CrewMessage::Gone(why) => self.lose(number, &why),
                }
            }
            if left.is_zero() {
                return self.sum();
            }
        }
    }

    fn take(&mut self, number: usize, seen: SinkProgress) {
        self.members[number].seen = seen;
        let open = self.members.iter().map(|member| member.seen.stats.open).sum();
        self.open_max = self.open_max.max(open);
    }

    fn lose(&mut self, number: usize, why: &str) {
        let (count, pid) = (self.members.len(), self.crew.pid(number));
        let stats = &mut self.members[number].seen.stats;
        let text = format!(
            "process {} of {count} (PID {pid}) of the sink died: {why}. Its {} connections were closed; {} of its \
             messages are counted, but not later ones, nor its recipients and copies",
            number + 1,
            stats.open,
            stats.transactions
        );
        stats.open = 0;
        // Nobody may be listening.
        let _ = writeln!(io::stderr(), "{text}");
        self.warnings.push(text);
    }

    fn sum(&self) -> SinkProgress {
        let mut sum = SinkProgress { used: ProcessUsage::own().since(&self.before), ..SinkProgress::default() };
        for member in &self.members {
            sum.add(&member.seen);
        }
        sum.stats.open_max = self.open_max;
        sum
    }

    /// Ends the processes and hears them out.
    pub fn finish(mut self, args: &SinkArgs, options: &RunOptions) -> Total {
        self.crew.dismiss();
        let mut dump = Dump::create(options);
        let mut handed = SinkResults::default();
        while let Some((number, said)) = self.crew.next(PATIENCE) {
            match said {
                CrewMessage::Word(Word::Mail(mut line)) => {
                    line.insert("process".to_owned(), (number + 1).into());
                    dump.write(|out| writeln!(out, "{}", serde_json::Value::Object(line)));
                }
                CrewMessage::Word(word) => self.hear(number, word, &mut handed),
                CrewMessage::Gone(_) if self.members[number].has_ended => {}
                CrewMessage::Gone(why) => self.lose(number, &why),
            }
        }
        if !self.crew.is_empty() {
            self.warnings
                .push(format!("a process did not respond for {} s at the end and was killed", PATIENCE.as_secs()));
        }
        dump.write(|out| handed.names.dump(out).and_then(|()| out.flush()));
        let mut seen = self.sum();
        seen.stats.duplicates += handed.hashes_told - handed.hashes.len() as u64;
        seen.met.set_times(&handed.times_us);
        let top = handed.names.top(args.top);
        Total {
            seen,
            top,
            processes: self.members.len(),
            warnings: self.warnings,
            dumped: dump.0.map(drop).map_err(LoadError::from),
        }
    }

    fn hear(&mut self, number: usize, word: Word, handed: &mut SinkResults) {
        match word {
            Word::Seen(seen) => self.take(number, *seen),
            Word::Last(last) => {
                handed.times_us.merge(&last.1);
                self.take(number, last.0);
            }
            Word::Names(names) => handed.names.join(&names),
            Word::Hashes(hashes) => {
                handed.hashes_told += hashes.len() as u64;
                handed.hashes.extend(hashes);
            }
            Word::End => self.members[number].has_ended = true,
            Word::Mail(_) => {}
        }
    }
}

/// The part of process `number`: serves at the command's sockets until it is dismissed, or the command is gone.
pub(super) fn serve(args: &SinkArgs, run: &RunOptions, number: usize, members: usize) -> Result<(), LoadError> {
    let mut post = Post::open()?;
    let mut options = args.sink_options()?;
    let sockets = post.sockets(options.addresses.len())?;
    let stop = Stop::never();
    let _orders = post.orders(&stop)?;
    stentor_lab::descriptors::raise();
    options.shared = true;
    options.connections_max = options.connections_max.map(|all| share(all, number, members));
    if let Some(StoreOptions { directory, as_: StoreAs::Journal, .. }) = &mut options.store {
        // A journal has one writer. Names of files tell the processes apart by themselves.
        directory.push(format!("process-{}", number + 1));
        std::fs::create_dir_all(directory).map_err(LabError::Store)?;
    }
    let mut sink = Sink::serve(&options, sockets.into_iter().map(Listening::adopted).collect())?;
    let before = ProcessUsage::own();
    let mut last = SinkProgress::of(&sink, &before);
    post.say(&Word::Seen(Box::new(last.clone())))?;
    while !stop.is_set() {
        std::thread::sleep(look_every(run));
        let seen = SinkProgress::of(&sink, &before);
        if seen.stats != last.stats {
            post.say(&Word::Seen(Box::new(seen.clone())))?;
            last = seen;
        }
    }
    let seen = SinkProgress::last_of(&mut sink, &before);
    post.say(&Word::Last(Box::new((seen, sink.store_times_us()))))?;
    hand_over(&mut post, sink.recorder(), run)?;
    Ok(post.say(&Word::End)?)
}

fn hand_over(post: &mut Post, recorder: &stentor_lab::recorder::Recorder, run: &RunOptions) -> io::Result<()> {
    let top = recorder.top(usize::MAX);
    let beyond = Top { recipients_beyond: top.recipients_beyond, domains_beyond: top.domains_beyond, ..Top::default() };
    post.say(&Word::Names(beyond))?;
    let part = |list: &[(String, Tallied)]| list.to_vec();
    for recipients in top.recipients.chunks(CHUNK) {
        post.say(&Word::Names(Top { recipients: part(recipients), ..Top::default() }))?;
    }
    for domains in top.domains.chunks(CHUNK) {
        post.say(&Word::Names(Top { domains: part(domains), ..Top::default() }))?;
    }
    if recorder.mode() > Mode::Counters {
        for hashes in recorder.hashes().chunks(CHUNK) {
            post.say(&Word::Hashes(hashes.to_vec()))?;
        }
        if run.dump.is_some() {
            recorder.dump_mail(&mut Lines { post, line: Vec::new() })?;
        }
    }
    Ok(())
}

/// Each line of a dump as a word.
struct Lines<'a> {
    post: &'a mut Post,
    line: Vec<u8>,
}

impl Write for Lines<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
            self.line.extend_from_slice(bytes);
            return Ok(bytes.len());
        };
        self.line.extend_from_slice(&bytes[..end]);
        let line = serde_json::from_slice(&std::mem::take(&mut self.line))?;
        self.post.say(&Word::Mail(line))?;
        Ok(end + 1)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
