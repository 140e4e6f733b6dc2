//! Checks of `stentor check` beyond the file itself: the folders, files, addresses and name servers that it names, on
//! this machine and as this user.
//!
//! Promise: nothing is created, changed or kept open. A name server gets one query, or two for DANE; a DNS list two; a
//! milter the negotiation; a policy service and Dovecot one connection each; our own running server a status request
//! (`trial_ports.rs`). Findings that would make a start or a source's mail fail are errors; those that may be intended,
//! or depend on the user who runs the check, are warnings.

use std::fs::{self, Metadata};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Access, access};
use stentor_config::settings::{SECRET, Settings};
use stentor_config::{
    Config, ConfigKey, Diagnostic, FilePosition, LogTarget, PolicyService, Severity, SubmissionConfig, SyslogTo,
    TableConfig, TableSource,
};
use stentor_control::format::plural;
use stentor_lists::subscribers::{self, Occurrence, Subscriber};
use stentor_milter::Milter;
use stentor_milter::protocol::{MilterSettings, OnFailure, Place};
use stentor_policy::{DELIVER_SOCKETS, Host, RouteHost};
use stentor_rules::{Dialect, NextHop, Routes};
use stentor_tablefiles as files;
use stentor_tables::{LoadedTable, Problem, Reference, Table};

use crate::trial_advice::{self as advice, AdvisedFinding};
use crate::trial_missing::is_missing;
use crate::trial_ports::PortFinding;
use crate::trial_subscribers::CaseFolds;
use crate::{
    acme, certificates, trial_auth, trial_dane, trial_lists, trial_name_server, trial_omissions, trial_ports,
    trial_rules, trial_tables,
};

const GROUPS: &str = "/etc/group";
/// Maximum bad lines shown of a subscriber file.
const BAD_LINES_SHOWN_MAX: usize = 20;
/// Timeout for a milter's answer.
const MILTER_WAIT: Duration = Duration::from_secs(2);
/// Timeout for a connection to a policy service.
const POLICY_SERVICE_WAIT: Duration = Duration::from_secs(2);

/// All findings, in the order of the checks.
pub(crate) fn run(config: &Config, settings: &Settings) -> Vec<Diagnostic> {
    advised(config, settings).into_iter().map(|one| one.finding).collect()
}

/// Findings from the file alone: nothing else is read or queried.
pub(crate) fn run_file_only(config: &Config, settings: &Settings) -> Vec<Diagnostic> {
    let file = config.file.clone().unwrap_or_default();
    let mut trial = Trial { file, settings, found: Vec::new(), advice: Vec::new() };
    for table in &config.tables {
        trial.values(config, table, None);
    }
    trial.found
}

/// As [`run`], each with advice.
pub(crate) fn advised(config: &Config, settings: &Settings) -> Vec<AdvisedFinding> {
    let file = config.file.clone().unwrap_or_default();
    let mut trial = Trial { file, settings, found: Vec::new(), advice: Vec::new() };
    trial.omissions(config);
    trial.advise(advice::KEY);
    trial.folders(config);
    trial.submission(&config.submission);
    trial.advise(advice::FOLDER);
    trial.certificates(config);
    trial.secrets();
    trial.advise(advice::MODE);
    trial.logins(config);
    trial.advise(advice::LOGINS);
    for list in &config.lists {
        trial.subscribers(&list.subscribers);
    }
    trial.advise(advice::SUBSCRIBERS);
    trial.addresses(config);
    for server in &config.dns.servers {
        trial.name_server(*server);
    }
    trial.advise(advice::NAME_SERVER);
    if let Some(why) = trial_dane::finding(config, settings.position("delivery", "tls").is_some()) {
        trial.warn(ConfigKey::new("delivery", "tls"), &why);
    }
    trial.advise(advice::DANE);
    for (list, why) in trial_lists::findings(config) {
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
    trial.found.into_iter().zip(trial.advice).map(|(finding, advice)| AdvisedFinding { finding, advice }).collect()
}

struct Trial<'a> {
    file: PathBuf,
    settings: &'a Settings,
    found: Vec<Diagnostic>,
    /// Advice for the first findings.
    advice: Vec<&'static str>,
}

impl Trial<'_> {
    /// Adds advice to all findings since the last call.
    fn advise(&mut self, advice: &'static str) {
        self.advice.resize(self.found.len(), advice);
    }

    /// Reports valid settings that are rarely intended.
    fn omissions(&mut self, config: &Config) {
        for found in trial_omissions::findings(config, self.settings) {
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
        for found in trial_auth::unnamed(config, self.settings, &tables) {
            self.report(found.severity, ConfigKey::new(&found.section, found.key), &found.what);
        }
        self.advise(advice::KEY);
        if has_programs && let Some(NextHop::Hosts(hosts)) = rules.addresses.programs.as_deref() {
            self.sockets(ConfigKey::new("addresses", "programs"), hosts);
        }
        self.advise(advice::SOCKET);
        for (route, why) in trial_rules::unknown_recipients(config) {
            self.warn(ConfigKey::new("routes", &route), &why);
        }
        self.advise(advice::KEY);
        self.routes("routes", &rules.by_recipient);
        self.routes("sender_routes", &rules.by_sender);
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

    fn routes(&mut self, section: &str, routes: &Routes) {
        let mut entries: Vec<_> = routes.entries().collect();
        entries.sort_unstable_by_key(|entry| &entry.pattern);
        for entry in entries {
            if let NextHop::Hosts(hosts) = &entry.hop {
                self.sockets(ConfigKey::new(section, &entry.pattern), hosts);
            }
        }
    }

    /// Checks the Unix sockets among hosts: each gets a connection, and no command.
    fn sockets(&mut self, key: ConfigKey<'_>, hosts: &[RouteHost]) {
        for host in hosts {
            let Host::Unix(path) = &host.host else { continue };
            if let Err(error) = UnixStream::connect(&**path) {
                let whose =
                    if path.starts_with(DELIVER_SOCKETS) { "is stentor-deliver running?" } else { "mail for it waits" };
                self.warn(key, &format!("{path} does not accept connections: {error}; {whose}"));
            }
        }
    }

    /// Checks a milter: connects, negotiates, disconnects.
    fn milter(&mut self, section: &str, milter: &MilterSettings) {
        let wait = MILTER_WAIT.as_millis() as u64;
        let quick = MilterSettings {
            connect_timeout_ms: milter.connect_timeout_ms.min(wait),
            command_timeout_ms: milter.command_timeout_ms.min(wait),
            ..milter.clone()
        };
        let tried = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime.block_on(Milter::try_out(&quick)),
            Err(error) => Err((error.to_string(), milter.on_unreachable)),
        };
        if let Err((why, action)) = tried {
            let then = match action {
                OnFailure::Accept => "mail is accepted without it",
                OnFailure::Tempfail => "mail is deferred",
                OnFailure::Reject => "mail is refused",
            };
            let why = format!("milter {} ({}): {why}; until it works, {then}", milter.name, milter.place);
            self.warn(ConfigKey::new(section, "address"), &why);
        }
    }

    /// Connects to a policy service without a query, which a greylist or counter would treat as mail.
    fn policy_service(&mut self, name: &str, service: &PolicyService) {
        let wait = Duration::from_millis(service.timeout_ms).min(POLICY_SERVICE_WAIT);
        let (place, tried) = match &service.place {
            Place::Unix(path) => (path.display().to_string(), UnixStream::connect(path).map(drop)),
            Place::Inet { host, port } => {
                let connect = |addresses: std::vec::IntoIter<SocketAddr>| {
                    let mut last = io::Error::new(io::ErrorKind::NotFound, "it has no address");
                    for address in addresses {
                        match TcpStream::connect_timeout(&address, wait) {
                            Ok(_) => return Ok(()),
                            Err(error) => last = error,
                        }
                    }
                    Err(last)
                };
                (format!("{host}:{port}"), (host.as_str(), *port).to_socket_addrs().and_then(connect))
            }
        };
        if let Err(error) = tried {
            let what = match &service.default_action {
                None => "mail whose rules use it is deferred".to_owned(),
                Some(action) => format!("`default_action` {action:?} applies"),
            };
            let why = format!("policy service {name} ({place}) does not accept connections: {error}; {what}");
            self.warn(ConfigKey::new(&format!("policy_services.{name}"), "address"), &why);
        }
    }

    fn folders(&mut self, config: &Config) {
        self.creatable(ConfigKey::new("", "data_dir"), &config.data_dir);
        let socket = folder_of(&config.control.socket);
        if socket != config.data_dir {
            self.existing(ConfigKey::new("control", "socket"), socket);
        }
        let log = &config.log;
        let mut places: Vec<(&str, &str, &LogTarget)> = vec![("log", "attempts", &log.attempts)];
        for (key, target) in [
            ("deliveries", &log.deliveries),
            ("acceptances", &log.acceptances),
            ("refusals", &log.refusals),
            ("policy", &log.policy),
            ("audit", &log.audit),
            ("ordinary", &log.ordinary),
            ("bulk", &log.bulk),
        ] {
            places.extend(target.as_ref().map(|target| ("log", key, target)));
        }
        places.extend(log.lists.iter().map(|(list, target)| ("log.lists", list.as_str(), target)));
        for (section, key, target) in places {
            match target {
                LogTarget::File(path) => self.existing(ConfigKey::new(section, key), folder_of(path)),
                LogTarget::Syslog(SyslogTo::Unix(path)) | LogTarget::Journald(path) if !path.exists() => {
                    self.warn(
                        ConfigKey::new(section, key),
                        &format!("{} does not exist, so these log lines are lost", path.display()),
                    );
                }
                _ => {}
            }
        }
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
            if let Problem::Unreadable(why) = &found.problem {
                // The server's user may be able to read a file that exists.
                let severity = if is_missing(file) { Severity::Error } else { Severity::Warning };
                let what = format!("table {}: {} cannot be read: {why}", config.name, file.display());
                self.report(severity, ConfigKey::new(&section, "source"), &what);
                continue;
            }
            let lacks_file = matches!(&found.problem, Problem::Include { path, .. } if is_missing(Path::new(path)));
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
        let Some(entries) = trial_tables::Entries::of(own, read) else { return };
        let (doubts, more) = trial_tables::doubtful(config, own, &entries);
        self.found.extend(doubts);
        if more > 0 {
            let section = format!("tables.{}", own.name);
            self.warn(
                ConfigKey::new(&section, "source"),
                &format!("and {} in the table", plural(more, "more doubtful entry")),
            );
        }
    }

    /// Checks a folder that the server creates if it is missing.
    fn creatable(&mut self, key: ConfigKey<'_>, path: &Path) {
        match fs::metadata(path) {
            Ok(data) => self.folder(key, path, &data),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                let mut above = folder_of(path);
                while !above.exists() && above.parent().is_some() && above != Path::new(".") {
                    above = folder_of(above);
                }
                match fs::metadata(above) {
                    Ok(data) if !data.is_dir() => {
                        let what = format!("cannot create {}: {} is not a directory", path.display(), above.display());
                        self.error(key, &what);
                    }
                    _ if access(above, Access::WRITE_OK).is_err() => {
                        let what =
                            format!("this user cannot create {}: {} is not writable", path.display(), above.display());
                        self.warn(key, &what);
                    }
                    _ => {}
                }
            }
            Err(error) => self.warn(key, &format!("{}: {error}", path.display())),
        }
    }

    /// Checks a folder that must exist.
    fn existing(&mut self, key: ConfigKey<'_>, path: &Path) {
        match fs::metadata(path) {
            Ok(data) => self.folder(key, path, &data),
            Err(_) if is_missing(path) => {
                self.error(key, &format!("the directory {} does not exist", path.display()));
            }
            Err(error) => self.warn(key, &format!("{}: {error}", path.display())),
        }
    }

    fn folder(&mut self, key: ConfigKey<'_>, path: &Path, data: &Metadata) {
        let shown = path.display();
        if !data.is_dir() {
            self.error(key, &format!("{shown} is not a directory"));
        } else if access(path, Access::WRITE_OK | Access::EXEC_OK).is_err() {
            self.warn(
                key,
                &format!("{shown} is not writable by this user; the server's user must be able to write it"),
            );
        } else if data.mode() & 0o002 != 0 && data.mode() & 0o1000 == 0 {
            self.warn(
                key,
                &format!("every user can write to {shown} (mode {:03o}): run `chmod o-w {shown}`", data.mode() & 0o777),
            );
        }
    }

    /// Checks the submission folder: only the server's user and the setgid program may enter.
    fn submission(&mut self, config: &SubmissionConfig) {
        let Some(path) = &config.folder else { return };
        let (key, group) = (ConfigKey::new("submission", "folder"), &config.group);
        let groups = fs::read_to_string(GROUPS).unwrap_or_default();
        let entry = groups.lines().find(|line| line.split(':').next() == Some(group)).unwrap_or_default();
        let mut fields = entry.split(':').skip(2);
        let gid = fields.next().and_then(|gid| gid.parse::<u32>().ok());
        if gid.is_none() {
            let what = format!("there is no group {group}: run `groupadd --system {group}`");
            self.error(ConfigKey::new("submission", "group"), &what);
        }
        if let Some(members) = fields.next().filter(|members| !members.is_empty()) {
            let what = format!("members of group {group} can put any file into the submission folder: {members}");
            self.warn(ConfigKey::new("submission", "group"), &what);
        }
        let Ok(data) = fs::metadata(path) else {
            self.creatable(key, path);
            return;
        };
        self.folder(key, path, &data);
        let shown = path.display();
        if gid.is_some_and(|gid| gid != data.gid()) {
            self.error(key, &format!("{shown} does not belong to group {group}: run `chgrp {group} {shown}`"));
        }
        if data.mode() & 0o777 != 0o730 {
            self.error(key, &format!("{shown} has mode {:03o}: run `chmod 1730 {shown}`", data.mode() & 0o777));
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

    /// Checks the users file, and the secrets for smart hosts.
    fn logins(&mut self, config: &Config) {
        let (users, lines) = trial_auth::users(config);
        self.found.extend(lines);
        let users = users.into_iter().chain(trial_auth::unasked(config)).chain(trial_auth::dovecot(config));
        for found in users.chain(trial_auth::secrets(config, self.settings)) {
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

    /// Checks a subscriber file; a bad line costs one subscriber, not the list.
    fn subscribers(&mut self, path: &Path) {
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
        let Ok((mut file, _)) = subscribers::open(path) else { return };
        let report = match subscribers::read(&mut file, &mut visit) {
            Ok(report) => report,
            Err(error) => return self.found.push(finding(0, 0, format!("cannot be read: {error}"))),
        };
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
    }

    /// Checks that addresses to send from and to listen on belong to this machine.
    fn addresses(&mut self, config: &Config) {
        for source in &config.sending.sources {
            let section = format!("sources.{}", source.name);
            for address in [source.v4.map(IpAddr::V4), source.v6.map(IpAddr::V6)].into_iter().flatten() {
                if let Some(what) = trial_ports::not_own(address) {
                    self.error(ConfigKey::new(&section, "address"), &what);
                }
            }
        }
        self.advise(advice::SOURCE);
        for PortFinding { severity, key, what } in trial_ports::findings(config) {
            self.report(severity, key, &what);
        }
        self.advise(advice::PORT);
    }

    fn name_server(&mut self, server: SocketAddr) {
        if let Err(error) = trial_name_server::query(server) {
            let why = match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                    format!("no answer within {} s", trial_name_server::WAIT.as_secs())
                }
                _ => error.to_string(),
            };
            let what = format!("name server {server} does not answer ({why}); without a name server all mail waits");
            self.warn(ConfigKey::new("dns", "servers"), &what);
        }
    }
}

/// The folder of a file; `.` for a bare name.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        Some(_) => Path::new("."),
        None => path,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// The findings for a configuration in its own folder, without the folder's name.
    fn findings(folder: &Path, text: &str) -> Vec<String> {
        let file = folder.join("stentor.toml");
        // No test asks the system's name servers.
        fs::write(&file, format!("{text}\n[dns]\nservers = [\"127.0.0.1:9\"]\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        let (config, settings) = stentor_config::check_noting(&file).unwrap_or_else(|found| panic!("{found:?}"));
        let found = run(&config, &settings);
        // Omissions have their own tests, and the hostname is this machine's.
        let is_omission =
            |found: &&Diagnostic| found.message.contains("has no `") || found.message.contains("hostname \"");
        let shown = found.iter().filter(|found| !is_omission(found));
        let shown = shown.map(|found| found.to_string().replace(&format!("{}/", folder.display()), ""));
        shown.filter(|found| !found.contains("name server")).collect()
    }

    #[test]
    fn what_is_named_is_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a-file"), "").unwrap();
        fs::write(
            folder.path().join("news.subscribers"),
            "# people\nann@one.example\n  Bob <bob@two\u{e4}@x>\nno address\nCarl <carl@one.example\n",
        )
        .unwrap();
        let text = "data_dir = \"a-file/data\"\n[control]\nsocket = \"run/control.sock\"\n[log]\nattempts = \"logs/mail.log\"\n\
                    audit = \"syslog:nowhere/log\"\n[sources.out]\naddress = \"192.0.2.77\"\n[listen]\nsmtp = \"198.51.100.9:25\"\n\
                    [lists.news]\naddress = \"news@lists.example\"\nsubscribers = \"news.subscribers\"\n[webhooks.a]\n\
                    url = \"http://127.0.0.1/\"\nsecret = \"0123456789abcdef\"\n[http]\nlisten = []\n";
        let found = findings(folder.path(), text);
        let expected = [
            "stentor.toml:1:12: cannot create a-file/data: a-file is not a directory",
            "stentor.toml:3:10: the directory run does not exist",
            "stentor.toml:5:12: the directory logs does not exist",
            "stentor.toml:6:9: warning: nowhere/log does not exist, so these log lines are lost",
            "stentor.toml:16:10: warning: this file contains secrets, and every user has access to it (mode 644): run \
             `chmod o= stentor.toml`",
            "news.subscribers:3:8: warning: ",
            "news.subscribers:4:4: warning: unexpected text after the address",
            "news.subscribers:5:6: warning: `<` without `>`",
            "stentor.toml:8:11: this machine does not have the address 192.0.2.77",
            "stentor.toml:10:8: this machine does not have the address 198.51.100.9",
        ];
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(expected), "{found}\n{expected}");
        }
    }

    #[test]
    fn a_sound_configuration_has_no_findings() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("news.subscribers"), "ann@one.example\n").unwrap();
        let text = "data_dir = \"new/data\"\n[lists.news]\naddress = \"news@lists.example\"\nsubscribers = \"news.subscribers\"\n\
                    [sources.out]\naddress = \"127.0.0.5\"\n[log]\nattempts = \"mail.log\"\n\
                    [listen]\nsmtp = \"127.0.0.1:0\"\n[http]\nlisten = []\n";
        assert_eq!(findings(folder.path(), text), Vec::<String>::new());
        assert!(!folder.path().join("new").exists(), "nothing is made");
        // Anyone could put mail there.
        fs::create_dir_all(folder.path().join("new/data")).unwrap();
        fs::set_permissions(folder.path().join("new/data"), fs::Permissions::from_mode(0o777)).unwrap();
        let found = findings(folder.path(), text);
        let expected =
            "stentor.toml:1:12: warning: every user can write to new/data (mode 777): run `chmod o-w new/data`";
        assert_eq!(found, [expected]);
    }

    #[test]
    fn the_submission_folder_keeps_users_apart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("submission");
        fs::create_dir(&path).unwrap();
        let text = |group: &str| {
            format!(
                "[submission]\nfolder = \"submission\"\ngroup = \"{group}\"\n[listen]\nsmtp = \"127.0.0.1:0\"\n[http]\nlisten = []\n"
            )
        };
        let groups = fs::read_to_string(GROUPS).unwrap();
        let gid = fs::metadata(&path).unwrap().gid().to_string();
        let own = groups.lines().find(|line| line.split(':').nth(2) == Some(&gid)).unwrap();
        let own = own.split(':').next().unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o1730)).unwrap();
        assert_eq!(findings(folder.path(), &text(own)), Vec::<String>::new());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let found = findings(folder.path(), &text(own));
        assert_eq!(found, ["stentor.toml:2:10: submission has mode 755: run `chmod 1730 submission`"]);
        let found = findings(folder.path(), &text("no-such-group"));
        let expected = "stentor.toml:3:9: there is no group no-such-group: run `groupadd --system no-such-group`";
        assert_eq!(found[0], expected);
        let other = groups.lines().find(|line| line.split(':').nth(2) != Some(&gid) && line.ends_with(':')).unwrap();
        let other = other.split(':').next().unwrap();
        let found = findings(folder.path(), &text(other));
        assert_eq!(
            found[0],
            format!("stentor.toml:2:10: submission does not belong to group {other}: run `chgrp {other} submission`")
        );
        fs::remove_dir(&path).unwrap();
        assert_eq!(findings(folder.path(), &text(own)), Vec::<String>::new(), "the server makes it");
    }

    #[test]
    fn a_port_that_is_taken_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = other.local_addr().unwrap();
        let text = format!("[listen]\nsmtp = \"{address}\"\n[http]\nlisten = []\n");
        let expected = format!("stentor.toml:2:8: warning: another program listens on {address}");
        assert_eq!(findings(folder.path(), &text), [expected]);
        drop(other);
        assert_eq!(findings(folder.path(), &text), Vec::<String>::new());
    }

    #[test]
    fn a_milter_that_is_down_is_named_with_what_becomes_of_mail() {
        let folder = tempfile::tempdir().unwrap();
        for (action, then) in [
            ("", "mail is deferred"),
            ("unreachable_action = \"accept\"", "mail is accepted without it"),
            ("unreachable_action = \"reject\"", "mail is refused"),
        ] {
            let text = format!(
                "[listen]\nsmtp = \"127.0.0.1:0\"\n[http]\nlisten = []\n[[milters]]\nname = \"judge\"\n\
                 address = \"unix:/nowhere/judge\"\n{action}\n"
            );
            let found = findings(folder.path(), &text);
            assert!(found[0].contains("milter judge (unix:/nowhere/judge): no connection: "), "{found:?}");
            assert!(found.len() == 1 && found[0].ends_with(&format!("; until it works, {then}")), "{found:?}");
        }
    }

    #[test]
    fn entries_of_an_access_file_that_do_nothing_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let text = "Connect:10.1 RELAY\nGreetPause:127.0.0.1 5000\nConect:1.2.3.4 REJECT\nFrom:ok@x.example RELAY\n\
                    Connect:192.0.2.300 REJECT\nTo:x.example ERROR:5.7.1:250 text\nConnect:evil.example REJECT\n\
                    Connect:worse.example REJECT\n";
        fs::write(folder.path().join("access"), text).unwrap();
        let rules = |fields: &[&str]| {
            let rules = fields.iter().map(|field| format!("[[rules]]\n{field} = \"table:access\"\n"));
            let rules = rules.collect::<Vec<_>>().concat();
            let path = folder.path().display();
            format!(
                "[listen]\nsmtp = \"127.0.0.1:0\"\n[http]\nlisten = []\n[tables.access]\nsource = \"makemap:{path}/access\"\n\
                 as = \"sendmail-access\"\n{rules}"
            )
        };
        let found = findings(folder.path(), &rules(&["client", "sender", "recipient"]));
        let expected = [
            (2, "has no effect as written: `greetpause:` is not looked up here: use `[listen] greet_delay_s`"),
            (3, "has no effect as written: `conect:` is not a tag of an access file"),
            (4, "has no effect as written: RELAY is treated as OK"),
            (5, "is never looked up: it is neither an address"),
            (6, "has no effect as written: a refusal needs a code 4NN or 5NN, not 250"),
            (7, "is never looked up: no rule has `client_name = \"table:access\"`"),
        ];
        assert_eq!(found.len(), expected.len(), "{found:#?}");
        for (found, (line, expected)) in found.iter().zip(expected) {
            assert!(found.starts_with(&format!("access:{line}:1: warning: ")) && found.contains(expected), "{found}");
        }
        let found = findings(folder.path(), &rules(&["client", "client_name", "sender", "recipient"]));
        assert_eq!(found.len(), 5, "{found:#?}");
    }

    #[test]
    fn what_postfix_does_otherwise_is_named() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("access"), "bad.example REJECT\ngood.example OK\n").unwrap();
        let head = "[listen]\nsmtp = \"127.0.0.1:0\"\n[http]\nlisten = []\n";
        let text = |access: &str, rules: &str| {
            let path = folder.path().display();
            format!("{head}[tables.access]\nsource = \"hash:{path}/access\"\nas = \"{access}\"\n{rules}")
        };
        let (by_table, other) =
            ("[[rules]]\nsender = \"table:access\"\n", "[[rules]]\nsubject = \"x\"\ndo = \"reject\"\n");
        let found = findings(folder.path(), &text("access", &format!("{by_table}{other}")));
        assert!(found.len() == 1 && found[0].starts_with("access:2:1: warning: OK for \"good.example\""), "{found:#?}");
        for sound in
            [text("access", &format!("{other}{by_table}")), text("sendmail-access", &format!("{by_table}{other}"))]
        {
            let found = findings(
                folder.path(),
                &sound.replace("hash:", if sound.contains("sendmail") { "makemap:" } else { "hash:" }),
            );
            assert_eq!(found, Vec::<String>::new());
        }
        let socket = folder.path().join("lmtp.sock");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let text = |more: &str| {
            format!(
                "{head}[domains]\nrelay = [\"a.example\"]\n[routes]\n\"a.example\" = \"lmtp:unix:{}\"\n{more}",
                socket.display()
            )
        };
        let found = findings(folder.path(), &text(""));
        assert!(found.len() == 1 && found[0].contains("`[call_ahead] domains = [\"a.example\"]`"), "{found:#?}");
        let found = findings(folder.path(), &text("[call_ahead]\ndomains = \"all\"\n"));
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn values_are_looked_at_where_they_are_read() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("valid"), "ann@x.example ann/\nbob@x.example bob/\n").unwrap();
        // A path is relative to the configuration's folder.
        let head = "[listen]\nsmtp = \"127.0.0.1:0\"\n[http]\nlisten = []\n[tables.valid]\nsource = \"hash:valid\"\n\
             [tables.t.inline]\n\"a@x.example\" = \"FROB x\"\n\"b@x.example\" = \"hop:gate\"\n\"c@x.example\" = \"192.0.2.1:26\"\n\
             [hops]\ngate = \"192.0.2.9\"\n";
        let found = |rules: &str| findings(folder.path(), &format!("{head}{rules}"));
        let keys = "[[rules]]\nrecipient = \"x.example\"\nnot = { recipient = \"table:valid\" }\ndo = \"reject\"\n\
                    [[rules]]\nsender = \"table:t\"\ndo = \"hold\"\n";
        assert_eq!(found(keys), Vec::<String>::new(), "the keys alone count");
        let actions = found("[[rules]]\nsender = \"table:t\"\n[[rules]]\nrecipient = \"table:valid\"\n");
        let is_deferred = |found: &String, place: &str| found.starts_with(place) && found.contains("is deferred: ");
        let places = ["valid:1:", "valid:2:", "stentor.toml:8:", "stentor.toml:9:", "stentor.toml:10:"];
        assert_eq!(actions.len(), places.len(), "{actions:#?}");
        assert!(places.iter().all(|place| actions.iter().any(|found| is_deferred(found, place))), "{actions:#?}");
        // `FROB` and `x` may be hosts.
        let routes = format!("{keys}[routing]\ntables = \"t\"\n");
        assert_eq!(found(&routes), Vec::<String>::new());
    }
}
