//! Which log a record goes to: its list's, else its class's, else that of its purpose.
//!
//! Destinations that are named twice are one log: its lines come in order, through one thread.

use std::io;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use stentor_stats::record::{Record, Topic};

use super::sink::Destination;
use super::{AttemptLog, Format, LogConfig};

/// One destination each.
#[derive(Clone, Debug)]
pub struct LogsConfig {
    /// What is said of no message: the server itself.
    pub server: Destination,
    pub deliveries: Destination,
    pub acceptances: Destination,
    pub refusals: Destination,
    /// What rules decided. `None`: notes of that kind go to the server's, and what an acceptance matched nowhere.
    pub policy: Option<Destination>,
    pub audit: Destination,
    /// Acceptances and deliveries of ordinary and of bulk mail.
    pub ordinary: Option<Destination>,
    pub bulk: Option<Destination>,
    /// Acceptances and deliveries of lists' posts.
    pub lists: Vec<(String, Destination)>,
    pub format: Format,
    pub hostname: String,
    pub by_line: bool,
    pub buffer_bytes_max: usize,
}

/// All logs; cheap to use where they are off.
pub struct Logs {
    server: AttemptLog,
    deliveries: AttemptLog,
    acceptances: AttemptLog,
    refusals: AttemptLog,
    policy: Option<AttemptLog>,
    audit: AttemptLog,
    ordinary: Option<AttemptLog>,
    bulk: Option<AttemptLog>,
    lists: HashMap<Box<str>, AttemptLog, FixedState>,
    /// Each once.
    all: Vec<(Destination, AttemptLog)>,
}

impl Logs {
    /// Opens every destination.
    ///
    /// # Errors
    /// A file cannot be opened (the error names it), or a thread not be started.
    pub fn start(config: &LogsConfig) -> io::Result<Logs> {
        let mut all: Vec<(Destination, AttemptLog)> = Vec::new();
        let mut open = |destination: &Destination| -> io::Result<AttemptLog> {
            if let Some((_, log)) = all.iter().find(|(known, _)| known == destination) {
                return Ok(log.clone());
            }
            let log = AttemptLog::start(&LogConfig {
                destination: destination.clone(),
                format: config.format,
                hostname: config.hostname.clone(),
                by_line: config.by_line,
                buffer_bytes_max: config.buffer_bytes_max,
            });
            let log = log.map_err(|error| match destination {
                Destination::File(path, _) => io::Error::new(error.kind(), format!("{}: {error}", path.display())),
                _ => error,
            })?;
            all.push((destination.clone(), log.clone()));
            Ok(log)
        };
        let mut lists = HashMap::default();
        for (name, destination) in &config.lists {
            lists.insert(name.as_str().into(), open(destination)?);
        }
        Ok(Logs {
            server: open(&config.server)?,
            deliveries: open(&config.deliveries)?,
            acceptances: open(&config.acceptances)?,
            refusals: open(&config.refusals)?,
            policy: config.policy.as_ref().map(&mut open).transpose()?,
            audit: open(&config.audit)?,
            ordinary: config.ordinary.as_ref().map(&mut open).transpose()?,
            bulk: config.bulk.as_ref().map(&mut open).transpose()?,
            lists,
            all,
        })
    }

    /// Logs that keep nothing.
    pub fn off() -> Logs {
        Logs {
            server: AttemptLog::off(),
            deliveries: AttemptLog::off(),
            acceptances: AttemptLog::off(),
            refusals: AttemptLog::off(),
            policy: None,
            audit: AttemptLog::off(),
            ordinary: None,
            bulk: None,
            lists: HashMap::default(),
            all: Vec::new(),
        }
    }

    /// Whether anybody wants lines; saves the caller the gathering of their fields.
    pub fn is_on(&self) -> bool {
        self.all.iter().any(|(_, log)| log.is_on())
    }

    pub fn record(&self, record: &Record<'_>) {
        match record {
            Record::Accepted(r) => {
                self.of_mail(r.list, r.is_bulk, &self.acceptances).record(record);
                if let Some(policy) = self.policy.as_ref().filter(|_| !r.policy.is_empty()) {
                    policy.policy(r);
                }
            }
            Record::Attempt(r) => self.of_mail(r.list, r.is_bulk, &self.deliveries).record(record),
            Record::Refused(_) => self.refusals.record(record),
            Record::Note(r) => {
                let log = match r.topic {
                    Topic::Server => &self.server,
                    Topic::Delivery => &self.deliveries,
                    Topic::Policy => self.policy.as_ref().unwrap_or(&self.server),
                    Topic::Audit => &self.audit,
                };
                log.record(record);
            }
            Record::Machine(_) => {}
        }
    }

    fn of_mail<'l>(&'l self, list: &str, is_bulk: bool, purpose: &'l AttemptLog) -> &'l AttemptLog {
        if !list.is_empty()
            && let Some(log) = self.lists.get(list)
        {
            return log;
        }
        let of_class = if is_bulk { &self.bulk } else { &self.ordinary };
        of_class.as_ref().unwrap_or(purpose)
    }

    /// Opens all files anew by their names (`SIGHUP`). At once, in the writer threads.
    pub fn reopen(&self) {
        self.all.iter().for_each(|(_, log)| log.reopen());
    }

    /// Blocks until all lines so far are with the operating system. Not for hot paths.
    pub fn flush(&self) {
        self.all.iter().for_each(|(_, log)| log.flush());
    }

    /// Lines lost since the start.
    pub fn dropped(&self) -> u64 {
        self.all.iter().map(|(_, log)| log.dropped()).sum()
    }
}
