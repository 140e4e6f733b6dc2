//! Routes a record to the log of its list, or else of its class, or else of its purpose.
//!
//! Destinations that are named twice share one log: its lines stay in order, through one thread.

use std::io;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use stentor_records::record::{Record, Topic};

use super::{AttemptLog, BUFFER_BYTES_MAX, Options};
use crate::settings::{LogConfig, LogTarget};

/// All logs; cheap to use where they are off.
pub struct Logs {
    /// Notes about the server itself, not about a message.
    server: AttemptLog,
    deliveries: AttemptLog,
    acceptances: AttemptLog,
    refusals: AttemptLog,
    /// Decisions of rules. `None`: notes of that kind go to the server's log, and the rules that acceptances matched
    /// are not logged.
    policy: Option<AttemptLog>,
    audit: AttemptLog,
    ordinary: Option<AttemptLog>,
    bulk: Option<AttemptLog>,
    lists: HashMap<Box<str>, AttemptLog, FixedState>,
    /// Each destination once.
    all: Vec<(LogTarget, AttemptLog)>,
}

impl Logs {
    /// Opens every destination.
    ///
    /// # Errors
    /// Fails if a file cannot be opened (the error names it), or a thread cannot be started.
    pub fn start(config: &LogConfig, hostname: &str) -> io::Result<Logs> {
        let mut all: Vec<(LogTarget, AttemptLog)> = Vec::new();
        let mut open = |target: &LogTarget| -> io::Result<AttemptLog> {
            if let Some((_, log)) = all.iter().find(|(known, _)| known == target) {
                return Ok(log.clone());
            }
            let log = AttemptLog::start(&Options {
                target: target.clone(),
                rotation: config.rotation,
                rfc5424: config.rfc5424,
                format: config.format,
                hostname: hostname.to_owned(),
                by_line: config.by_line,
                buffer_bytes_max: BUFFER_BYTES_MAX,
            });
            let log = log.map_err(|error| match target {
                LogTarget::File(path) => io::Error::new(error.kind(), format!("{}: {error}", path.display())),
                _ => error,
            })?;
            all.push((target.clone(), log.clone()));
            Ok(log)
        };
        let mut lists = HashMap::default();
        for (name, target) in &config.lists {
            lists.insert(name.as_str().into(), open(target)?);
        }
        let mut of = |target: &Option<LogTarget>| open(target.as_ref().unwrap_or(&config.attempts));
        let (deliveries, acceptances) = (of(&config.deliveries)?, of(&config.acceptances)?);
        let (refusals, audit) = (of(&config.refusals)?, of(&config.audit)?);
        Ok(Logs {
            server: open(&config.attempts)?,
            deliveries,
            acceptances,
            refusals,
            policy: config.policy.as_ref().map(&mut open).transpose()?,
            audit,
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

    /// Whether lines are wanted; if not, the caller need not gather their fields.
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

    /// Reopens all files by their names (`SIGHUP`). The writer threads do this at once.
    pub fn reopen(&self) {
        self.all.iter().for_each(|(_, log)| log.reopen());
    }

    /// Blocks until all lines so far have been passed to the operating system. Not for hot paths.
    pub fn flush(&self) {
        self.all.iter().for_each(|(_, log)| log.flush());
    }

    /// Destinations that do not accept lines, each with the reason.
    pub fn troubles(&self) -> impl Iterator<Item = (String, String)> {
        self.all.iter().filter_map(|(target, log)| Some((place(target), log.trouble()?)))
    }

    /// Number of lines lost since the start.
    pub fn dropped(&self) -> u64 {
        self.all.iter().map(|(_, log)| log.dropped()).sum()
    }
}

/// A destination in words.
fn place(target: &LogTarget) -> String {
    match target {
        LogTarget::Off => "off".to_owned(),
        LogTarget::Stderr => "stderr".to_owned(),
        LogTarget::Stdout => "stdout".to_owned(),
        LogTarget::File(path) => path.display().to_string(),
        LogTarget::Syslog(_) => "syslog".to_owned(),
        LogTarget::Journald(_) => "journald".to_owned(),
    }
}
