//! Checks of `stentor check` beyond the file itself: the folders, files, addresses and name servers that it names, on
//! this machine and as this user.
//!
//! Promise: nothing is created, changed or kept open. A name server gets one query, or two for DANE; a DNS list two; a
//! milter the negotiation; a policy service and Dovecot one connection each; our own running server a status request
//! (`ports`). Findings that would make a start or a source's mail fail are errors; those that may be intended,
//! or depend on the user who runs the check, are warnings.

pub(crate) mod advice;
mod auth;
mod dane;
mod lists;
pub(crate) mod members;
pub(crate) mod missing;
mod name_server;
mod omissions;
mod paths;
mod ports;
pub(crate) mod rules;
mod services;
mod subscribers;
pub(crate) mod tables;
#[cfg(test)]
mod tests;

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use stentor_config::settings::{SECRET, Settings};
use stentor_config::{Config, ConfigKey, Diagnostic, FilePosition, Severity, TableConfig, TableSource};
use stentor_control::format::plural;
use stentor_lists::subscribers::{Occurrence, Subscriber};
use stentor_rules::{Dialect, NextHop};
use stentor_tablefiles as files;
use stentor_tables::{LoadedTable, Reference, Table, TableProblem};

use self::advice::AdvisedFinding;
use self::missing::is_not_regular_file;
use self::ports::PortFinding;
use self::subscribers::CaseFolds;
use crate::{acme, certificates};

/// Maximum bad lines shown of a subscriber file.
const BAD_LINES_SHOWN_MAX: usize = 20;

/// Findings of the checks, and the subscriber counts.
pub(crate) struct TrialReport {
    /// All findings, in the order of the checks.
    pub findings: Vec<Diagnostic>,
    /// Subscribers by list, of the lists whose files could be read.
    pub subscribers: Vec<(String, u64)>,
}

/// Makes all checks.
pub(crate) fn run(config: &Config, settings: &Settings) -> TrialReport {
    let Trial { found, subscribers, .. } = examine(config, settings);
    TrialReport { findings: found, subscribers }
}

/// Findings from the file alone: nothing else is read or queried.
pub(crate) fn run_file_only(config: &Config, settings: &Settings) -> Vec<Diagnostic> {
    let file = config.file.clone().unwrap_or_default();
    let mut trial = Trial::new(file, settings);
    for table in &config.tables {
        trial.values(config, table, None);
    }
    trial.found
}

/// The findings of [`run`], each with advice.
pub(crate) fn findings_with_advice(config: &Config, settings: &Settings) -> Vec<AdvisedFinding> {
    let trial = examine(config, settings);
    trial.found.into_iter().zip(trial.advice).map(|(finding, advice)| AdvisedFinding { finding, advice }).collect()
}

fn examine<'a>(config: &Config, settings: &'a Settings) -> Trial<'a> {
    let file = config.file.clone().unwrap_or_default();
    let mut trial = Trial::new(file, settings);
    trial.omissions(config);
    trial.advise(advice::KEY);
    trial.folders(config);
    trial.submission(&config.submission);
    trial.advise(advice::FOLDER);
    trial.certificates(config);
    trial.dkim(config);
    trial.bounce_rules(config);
    trial.secrets();
    trial.advise(advice::MODE);
    trial.logins(config);
    trial.advise(advice::LOGINS);
    for list in &config.lists {
        let count = list.subscribers.as_deref().and_then(|path| trial.check_subscribers(path));
        trial.subscribers.extend(count.map(|count| (list.list.name().to_string(), count)));
    }
    trial.advise(advice::SUBSCRIBERS);
    trial.addresses(config);
    for server in &config.dns.servers {
        trial.name_server(*server);
    }
    trial.advise(advice::NAME_SERVER);
    if let Some(why) = dane::finding(config, settings.position("delivery", "tls").is_some()) {
        trial.warn(ConfigKey::new("delivery", "tls"), &why);
    }
    trial.advise(advice::DANE);
    for (list, why) in lists::findings(config) {
        trial.warn(ConfigKey::new(&format!("dns_lists.{list}"), "zone"), &format!("DNS list {list}: {why}"));
    }
    trial.advise(advice::DNS_LIST);
    for (n, milter) in config.milters.iter().enumerate() {
        trial.milter(&format!("milters.{}", n + 1), milter);
    }
    trial.advise(advice::MILTER);
    for table in &config.tables {
        if let TableSource::Service(service) = &table.source {
            trial.policy_service(&table.name, service);
        }
    }
    trial.advise(advice::POLICY_SERVICE);
    trial.tables_and_routes(config);
    trial
}

struct Trial<'a> {
    file: PathBuf,
    settings: &'a Settings,
    found: Vec<Diagnostic>,
    /// Advice for the first findings.
    advice: Vec<&'static str>,
    /// As in [`TrialReport`].
    subscribers: Vec<(String, u64)>,
}

impl<'a> Trial<'a> {
    fn new(file: PathBuf, settings: &'a Settings) -> Self {
        Trial { file, settings, found: Vec::new(), advice: Vec::new(), subscribers: Vec::new() }
    }
}

impl Trial<'_> {
    /// Adds advice to all findings since the last call.
    fn advise(&mut self, advice: &'static str) {
        self.advice.resize(self.found.len(), advice);
    }

    /// Reports valid settings that are rarely intended.
    fn omissions(&mut self, config: &Config) {
        for found in omissions::findings(config, self.settings) {
            match found.place.as_deref().and_then(|place| place.rsplit_once(':')?.1.parse().ok()) {
                Some(line) => self.found.push(Diagnostic {
                    file: self.file.clone(),
                    line,
                    column: 1,
                    severity: Severity::Warning,
                    message: found.what,
                }),
                None => self.warn(ConfigKey::new(&found.section, &found.key), &found.what),
            }
        }
    }

    /// Checks tables and their values, and the sockets of next hops.
    fn tables_and_routes(&mut self, config: &Config) {
        let rules = &config.rules;
        let (mut has_programs, mut tables) = (false, Vec::new());
        for table in &config.tables {
            let read = self.table(table);
            has_programs |= read.as_ref().is_some_and(Table::has_programs) && table.dialect == Dialect::Aliases;
            self.values(config, table, read.as_ref());
            tables.extend(read);
        }
        self.advise(advice::TABLE);
        for unused in config.unused(&tables) {
            self.warn(ConfigKey::new(&unused.section, &unused.key), &unused.what);
        }
        for found in auth::unnamed(config, self.settings, &tables) {
            self.report(found.severity, ConfigKey::new(&found.section, found.key), &found.what);
        }
        self.advise(advice::KEY);
        if has_programs && let Some(NextHop::Hosts(hosts)) = rules.addresses.programs.as_deref() {
            self.sockets(ConfigKey::new("addresses", "programs"), hosts);
        }
        self.advise(advice::SOCKET);
        for (route, why) in rules::unknown_recipients(config) {
            self.warn(ConfigKey::new("routes", &route), &why);
        }
        self.advise(advice::KEY);
        self.routes("routes", &rules.by_recipient);
        self.routes("sender_routes", &rules.by_sender);
        self.archives(&config.lists);
        let mut hops: Vec<_> = rules.hops.iter().collect();
        hops.sort_unstable_by_key(|(name, _)| *name);
        for (name, hosts) in hops {
            self.sockets(ConfigKey::new("hops", name), hosts);
        }
        self.advise(advice::SOCKET);
    }

    /// Reports a finding about a key, at its place if the file has it.
    fn report(&mut self, severity: Severity, key: ConfigKey<'_>, what: &str) {
        let ConfigKey { section, key } = key;
        let FilePosition { line, column } = self.settings.position(section, key).unwrap_or_default();
        let name = if section.is_empty() { format!("`{key}`") } else { format!("`{key}` in [{section}]") };
        let message = if line > 0 { what.to_owned() } else { format!("{name}: {what}") };
        self.found.push(Diagnostic { file: self.file.clone(), line, column, severity, message });
    }

    fn error(&mut self, key: ConfigKey<'_>, what: &str) {
        self.report(Severity::Error, key, what);
    }

    fn warn(&mut self, key: ConfigKey<'_>, what: &str) {
        self.report(Severity::Warning, key, what);
    }

    /// Checks a table in files and reports doubtful lines. A table behind a socket is not queried.
    fn table(&mut self, config: &TableConfig) -> Option<Table> {
        let TableSource::Named(named) = &config.source else { return None };
        let section = format!("tables.{}", config.name);
        let (table, report) = match named.reference() {
            Ok(Reference::Socketmap(_)) => return None,
            Ok(reference) => files::load(&reference)
                .map_or_else(|report| (None, report), |LoadedTable { table, report }| (Some(table), report)),
            Err(error) => {
                self.error(ConfigKey::new(&section, "source"), &error.to_string());
                return None;
            }
        };
        let named_at = config.named_at();
        for found in report.diagnostics.iter().take(BAD_LINES_SHOWN_MAX) {
            let file = Path::new(&found.file);
            if let TableProblem::Unreadable(why) = &found.problem {
                // The server's user may be able to read a regular file that exists.
                let severity = if is_not_regular_file(file) { Severity::Error } else { Severity::Warning };
                let what = format!("table {}: {} cannot be read: {why}", config.name, file.display());
                self.report(severity, ConfigKey::new(&section, "source"), &what);
                continue;
            }
            let lacks_file =
                matches!(&found.problem, TableProblem::Include { path, .. } if is_not_regular_file(Path::new(path)));
            let severity = if lacks_file || report.has_errors() { Severity::Error } else { Severity::Warning };
            let (line, column) = (found.line as usize, found.column.max(1) as usize);
            let (file, message) = (file.to_owned(), format!("{}{named_at}", found.problem));
            self.found.push(Diagnostic { file, line, column, severity, message });
        }
        let more = report.diagnostics.len().saturating_sub(BAD_LINES_SHOWN_MAX) as u64 + report.left_out;
        if more > 0 {
            self.warn(
                ConfigKey::new(&section, "source"),
                &format!("and {} in the table", plural(more, "more doubtful line")),
            );
        }
        table
    }

    /// Reports entries that defer mail or that no mail matches.
    fn values(&mut self, config: &Config, own: &TableConfig, read: Option<&Table>) {
        let Some(entries) = tables::Entries::of(own, read) else { return };
        let (doubts, more) = tables::doubtful(config, own, &entries);
        self.found.extend(doubts);
        if more > 0 {
            let section = format!("tables.{}", own.name);
            self.warn(
                ConfigKey::new(&section, "source"),
                &format!("and {} in the table", plural(more, "more doubtful entry")),
            );
        }
    }

    /// Reports files with secrets that all users can read.
    fn secrets(&mut self) {
        let Ok(data) = fs::metadata(&self.file) else { return };
        let is_secret = |value: &Option<String>| value.as_deref() == Some(SECRET);
        let Some(secret) = self.settings.iter().find(|setting| is_secret(&setting.value)) else { return };
        if data.mode() & 0o007 != 0 {
            let what = format!(
                "this file contains secrets, and every user has access to it (mode {:03o}): run `chmod o= {}`",
                data.mode() & 0o777,
                self.file.display()
            );
            let (section, key) = (secret.section.clone(), secret.key.clone());
            self.warn(ConfigKey::new(&section, &key), &what);
        }
    }

    /// Checks the users file, and the secrets for smart hosts and webhooks.
    fn logins(&mut self, config: &Config) {
        let (users, lines) = auth::users(config);
        self.found.extend(lines);
        let users = users.into_iter().chain(auth::unasked(config)).chain(auth::dovecot(config));
        let secrets = auth::secrets(config, self.settings).into_iter().chain(auth::webhooks(config));
        for found in users.chain(secrets) {
            self.report(found.severity, ConfigKey::new(&found.section, found.key), &found.what);
        }
    }

    /// Checks certificates, and the CAs of clients and hosts: errors and expiry.
    fn certificates(&mut self, config: &Config) {
        match certificates::found(config) {
            Ok(Some(identities)) => self.found.extend(config.certificate_warnings(&identities)),
            Ok(None) => {}
            Err(errors) => self.found.extend(errors),
        }
        self.advise(advice::CERTIFICATE);
        self.found.extend(config.tls_server().err().map(|error| *error));
        self.found.extend(config.host_roots().err().map(|error| *error));
        self.advise(advice::KEY);
        for (key, is_error, what) in acme::findings(config) {
            self.report(if is_error { Severity::Error } else { Severity::Warning }, ConfigKey::new("acme", key), &what);
            self.advise(if is_error { advice::KEY } else { advice::ACME });
        }
    }

    fn bounce_rules(&mut self, config: &Config) {
        self.found.extend(config.bounce_rules().err().map(|error| *error));
        self.advise(advice::KEY);
    }

    fn dkim(&mut self, config: &Config) {
        match config.dkim_domains() {
            Ok(keys) => {
                self.found.extend(keys.warnings);
                self.advise(advice::DKIM_KEY);
            }
            Err(errors) => {
                self.found.extend(errors);
                self.advise(advice::DKIM);
            }
        }
    }

    /// Checks a subscriber file; a bad line costs one subscriber, not the list. Returns the number of subscribers.
    fn check_subscribers(&mut self, path: &Path) -> Option<u64> {
        let finding = |line: u64, column: u64, message: String| Diagnostic {
            file: path.to_owned(),
            line: line as usize,
            column: column as usize,
            severity: Severity::Warning,
            message,
        };
        let mut cases = CaseFolds::default();
        let mut visit = |subscriber: Subscriber<'_>| {
            cases.see(&subscriber);
            Occurrence::First
        };
        // The configuration's findings include files that cannot be opened.
        let (mut file, _) = stentor_lists::subscribers::open(path).ok()?;
        let report = match stentor_lists::subscribers::read(&mut file, &mut visit) {
            Ok(report) => report,
            Err(error) => {
                self.found.push(finding(0, 0, format!("cannot be read: {error}")));
                return None;
            }
        };
        let count = cases.count();
        for bad in report.bad_lines.iter().take(BAD_LINES_SHOWN_MAX) {
            self.found.push(finding(bad.line, bad.column, format!("{}: {}", bad.problem, bad.text)));
        }
        if let Some(more) = report.bad.checked_sub(BAD_LINES_SHOWN_MAX as u64).filter(|more| *more > 0) {
            self.found.push(finding(0, 0, format!("and {}", plural(more, "more bad line"))));
        }
        for (line, message) in cases.shown() {
            self.found.push(finding(line, 0, message));
        }
        if report.accepted == 0 {
            self.found.push(finding(0, 0, "no subscribers".to_owned()));
        }
        Some(count)
    }

    /// Checks that addresses to send from and to listen on belong to this machine.
    fn addresses(&mut self, config: &Config) {
        for source in &config.sending.sources {
            let section = format!("sources.{}", source.name);
            for address in [source.v4.map(IpAddr::V4), source.v6.map(IpAddr::V6)].into_iter().flatten() {
                if let Some(what) = ports::not_own(address) {
                    self.error(ConfigKey::new(&section, "address"), &what);
                }
            }
        }
        self.advise(advice::SOURCE);
        for PortFinding { severity, key, what } in ports::findings(config) {
            self.report(severity, key, &what);
        }
        self.advise(advice::PORT);
    }
}
