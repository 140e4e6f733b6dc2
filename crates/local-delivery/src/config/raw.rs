//! The keys as in the file, and their checks: defaults, ranges, users, programs.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::{Agent, AliasSettings, Background, DeliveryAccount, DeliveryService, Lock, Program};
use crate::account::{self, PasswdEntry};
use crate::guarded;
use crate::lock_name::is_lock_name;
use crate::template::Template;

/// Maximum connections: as many as Stentor opens to one site.
const CONNECTIONS_MAX: u16 = 20;
const LOCK_TIMEOUT_S: u64 = 20;
/// Less than the ten minutes for which a client waits for a reply (RFC 5321 section 4.5.3.2.6): otherwise a program
/// could deliver mail that the client then retries.
const TIMEOUT_S_MAX: u64 = 540;
const TIMEOUT_S: u64 = 300;
const OUTPUT_BYTES_MAX: usize = 4096;
const OUTPUT_BYTES_LIMIT: usize = 1 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawConfig {
    pub sockets: Option<PathBuf>,
    pub client: Option<String>,
    pub hostname: Option<String>,
    pub message_size_bytes_max: Option<u64>,
    pub programs: Option<PathBuf>,
    #[serde(default)]
    pub services: BTreeMap<String, RawService>,
}

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum RawService {
    Maildir(RawMaildir),
    Mbox(RawMbox),
    Program(RawPrograms),
    Aliases(RawPrograms),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawMaildir {
    user: Option<String>,
    group: Option<String>,
    delimiter: Option<String>,
    connections_max: Option<u16>,
    path: String,
    create: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawMbox {
    user: Option<String>,
    group: Option<String>,
    delimiter: Option<String>,
    connections_max: Option<u16>,
    path: String,
    locks: Option<Vec<Lock>>,
    lock_timeout_s: Option<u64>,
}

/// Settings of services that run programs: one command, or those of alias files.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawPrograms {
    user: Option<String>,
    group: Option<String>,
    delimiter: Option<String>,
    connections_max: Option<u16>,
    #[serde(default)]
    shell: bool,
    #[serde(default)]
    environment: BTreeMap<String, String>,
    timeout_s: Option<u64>,
    output_bytes_max: Option<usize>,
    #[serde(default)]
    defer_exit_codes: Vec<i32>,
    from_line: Option<bool>,
    background: Option<Background>,
    // Only for a command.
    command: Option<RawCommand>,
    directory: Option<PathBuf>,
    allow_root: Option<bool>,
    // Only for alias files.
    files: Option<Vec<PathBuf>>,
    locks: Option<Vec<Lock>>,
    lock_timeout_s: Option<u64>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RawCommand {
    Line(String),
    Arguments(Vec<String>),
}

impl RawService {
    /// Checks a service. `programs` is the folder of allowed programs, `client` the user of the server.
    pub fn check(self, programs: Option<&Path>, client: u32) -> Result<DeliveryService, String> {
        match self {
            RawService::Maildir(raw) => {
                let runs_as = runs_as(raw.user.as_deref(), raw.group.as_deref())?;
                let create = raw.create.unwrap_or(true);
                let path = path(&raw.path, &runs_as)?;
                service(raw.connections_max, raw.delimiter, runs_as, Agent::Maildir { path, create })
            }
            RawService::Mbox(raw) => {
                let runs_as = runs_as(raw.user.as_deref(), raw.group.as_deref())?;
                let path = path(&raw.path, &runs_as)?;
                if path.fixed().is_some_and(|fixed| is_lock_name(Path::new(&fixed))) {
                    return Err(format!(
                        "`path` {:?} is the name of a lock file; choose a name without `.lock`",
                        raw.path
                    ));
                }
                let (locks, lock_timeout) = locks(raw.locks, raw.lock_timeout_s)?;
                service(raw.connections_max, raw.delimiter, runs_as, Agent::Mbox { path, locks, lock_timeout })
            }
            RawService::Program(raw) => {
                let runs_as = runs_as(raw.user.as_deref(), raw.group.as_deref())?;
                let (connections_max, delimiter) = (raw.connections_max, raw.delimiter.clone());
                let program = raw.program(programs, &runs_as)?;
                service(connections_max, delimiter, runs_as, Agent::Program(program))
            }
            RawService::Aliases(raw) => {
                let (connections_max, delimiter) = (raw.connections_max, raw.delimiter.clone());
                let account = fixed_account(raw.user.as_deref().unwrap_or("nobody"), raw.group.as_deref())?;
                let aliases = raw.aliases(account.clone(), programs, client)?;
                service(connections_max, delimiter, DeliveryAccount::Account(account), Agent::Aliases(aliases))
            }
        }
    }
}

impl RawPrograms {
    fn aliases(self, account: PasswdEntry, programs: Option<&Path>, client: u32) -> Result<AliasSettings, String> {
        let others = [
            ("command", self.command.is_some()),
            ("directory", self.directory.is_some()),
            ("allow_root", self.allow_root.is_some()),
        ];
        none_of(&others, "program")?;
        let files = self.files.unwrap_or_else(|| vec!["/etc/aliases".into()]);
        if files.is_empty() {
            return Err("`files` is empty; name at least one alias file".to_owned());
        }
        if let Some(file) = files.iter().find(|file| !file.is_absolute()) {
            return Err(format!("`{}` is not an absolute path", file.display()));
        }
        if account.uid == 0 {
            return Err("programs would run as root; name another `user`".to_owned());
        }
        if self.shell && programs.is_some() {
            return Err("`shell` would run any program; it cannot be used with `programs`".to_owned());
        }
        let (locks, lock_timeout) = locks(self.locks, self.lock_timeout_s)?;
        let program = Program {
            arguments: Vec::new(),
            directory: None,
            environment: self.environment,
            timeout: timeout(self.timeout_s)?,
            output_bytes_max: self.output_bytes_max.unwrap_or(OUTPUT_BYTES_MAX).min(OUTPUT_BYTES_LIMIT),
            defer_exit_codes: self.defer_exit_codes,
            // As in sendmail and Postfix for such programs.
            from_line: self.from_line.unwrap_or(true),
            allow_root: false,
            // mlmmj-receive, for example, continues in the background.
            background: self.background.unwrap_or(Background::Wait),
        };
        let programs = programs.map(Path::to_owned);
        Ok(AliasSettings { files, account, client, programs, shell: self.shell, program, locks, lock_timeout })
    }

    fn program(self, programs: Option<&Path>, runs_as: &DeliveryAccount) -> Result<Program, String> {
        let others = [
            ("files", self.files.is_some()),
            ("locks", self.locks.is_some()),
            ("lock_timeout_s", self.lock_timeout_s.is_some()),
        ];
        none_of(&others, "aliases")?;
        let mut arguments = self.arguments(programs.is_some())?;
        let program = arguments[0].fixed().ok_or("the program's path cannot contain placeholders")?;
        let program = match programs {
            Some(folder) => allowed(folder, &program)?,
            None if program.starts_with('/') => program,
            None => return Err(format!("`{program}` is not an absolute path")),
        };
        arguments[0] = Template::plain(&program);
        let (program, allow_root) = (Path::new(&program), self.allow_root.unwrap_or_default());
        executable(program)?;
        if matches!(runs_as, DeliveryAccount::Account(account) if account.uid == 0) && !allow_root {
            return Err("the program would run as root; name another `user` or set `allow_root = true`".to_owned());
        }
        if allow_root {
            guarded::check(program).map_err(|error| error.to_string())?;
        }
        Ok(Program {
            arguments,
            directory: self.directory,
            environment: self.environment,
            timeout: timeout(self.timeout_s)?,
            output_bytes_max: self.output_bytes_max.unwrap_or(OUTPUT_BYTES_MAX).min(OUTPUT_BYTES_LIMIT),
            defer_exit_codes: self.defer_exit_codes,
            from_line: self.from_line.unwrap_or_default(),
            allow_root,
            background: self.background.unwrap_or(Background::Kill),
        })
    }

    /// The command as it is started.
    fn arguments(&self, is_limited: bool) -> Result<Vec<Template>, String> {
        match (&self.command, self.shell) {
            (Some(RawCommand::Arguments(arguments)), false) if !arguments.is_empty() => {
                let arguments = arguments.iter().map(|text| Template::parse(text));
                arguments.collect::<Result<_, _>>().map_err(|error| error.to_string())
            }
            (Some(RawCommand::Line(line)), true) if is_limited => {
                Err(format!("`shell` would run any program in {line:?}; it cannot be used with `programs`"))
            }
            // Any other `${` belongs to the shell.
            (Some(RawCommand::Line(line)), true) if Template::parse(line).is_ok_and(|line| line.fixed().is_none()) => {
                Err("a shell command cannot contain placeholders; use the environment variables instead".to_owned())
            }
            (Some(RawCommand::Line(line)), true) => Ok(["/bin/sh", "-c", line].map(Template::plain).to_vec()),
            (None, _) => Err("missing field `command`".to_owned()),
            (_, true) => Err("`command` must be a string when `shell = true`".to_owned()),
            (_, false) => {
                Err("`command` must be an array of the program and its arguments (or set `shell = true`)".to_owned())
            }
        }
    }
}

/// Rejects keys of other kinds.
fn none_of(keys: &[(&str, bool)], kind: &str) -> Result<(), String> {
    match keys.iter().find(|(_, is_there)| *is_there) {
        Some((key, _)) => Err(format!("`{key}` is only valid with `kind = \"{kind}\"`")),
        None => Ok(()),
    }
}

/// Checks that a file is executable for some user.
pub fn executable(program: &Path) -> Result<(), String> {
    let data = fs::metadata(program).map_err(|error| format!("{}: {error}", program.display()))?;
    if data.is_file() && data.permissions().mode() & 0o111 != 0 {
        return Ok(());
    }
    Err(format!("{}: not an executable program", program.display()))
}

fn locks(locks: Option<Vec<Lock>>, timeout_s: Option<u64>) -> Result<(Vec<Lock>, Duration), String> {
    let locks = locks.unwrap_or_else(|| vec![Lock::Fcntl, Lock::Dotlock]);
    let timeout_s = timeout_s.unwrap_or(LOCK_TIMEOUT_S);
    if locks.is_empty() || !(1..=TIMEOUT_S_MAX).contains(&timeout_s) {
        return Err(format!("`locks` needs at least one lock, `lock_timeout_s` must be 1 to {TIMEOUT_S_MAX}"));
    }
    Ok((locks, Duration::from_secs(timeout_s)))
}

fn timeout(timeout_s: Option<u64>) -> Result<Duration, String> {
    let timeout_s = timeout_s.unwrap_or(TIMEOUT_S);
    if !(1..=TIMEOUT_S_MAX).contains(&timeout_s) {
        return Err(format!("`timeout_s` is {timeout_s}; it must be 1 to {TIMEOUT_S_MAX}"));
    }
    Ok(Duration::from_secs(timeout_s))
}

/// Finds a program in the folder of allowed programs as smrsh(8) does: only the last component of the path is used.
pub fn allowed(folder: &Path, program: &str) -> Result<String, String> {
    let name = program.rsplit('/').next().unwrap_or_default();
    if name.is_empty() || name.starts_with('.') {
        return Err(format!("{program:?} does not name a program"));
    }
    let path = folder.join(name);
    match fs::metadata(&path) {
        Ok(data) if data.is_file() => Ok(path.display().to_string()),
        _ => Err(format!("`{name}` is not one of the allowed programs in {}", folder.display())),
    }
}

fn service(
    connections_max: Option<u16>,
    delimiter: Option<String>,
    runs_as: DeliveryAccount,
    agent: Agent,
) -> Result<DeliveryService, String> {
    let connections_max = connections_max.unwrap_or(CONNECTIONS_MAX);
    if !(1..=1_000).contains(&connections_max) {
        return Err("`connections_max` must be 1 to 1,000".to_owned());
    }
    let delimiter = delimiter.unwrap_or_else(|| "+".to_owned());
    let mut chars = delimiter.chars();
    let (delimiter, None) = (chars.next(), chars.next()) else {
        return Err("`delimiter` must be one character, or empty for none".to_owned());
    };
    Ok(DeliveryService { connections_max, delimiter, runs_as, agent })
}

fn runs_as(user: Option<&str>, group: Option<&str>) -> Result<DeliveryAccount, String> {
    let Some(user) = user else {
        return match group {
            Some(_) => Err("`group` needs a `user`".to_owned()),
            None => Ok(DeliveryAccount::Recipient),
        };
    };
    fixed_account(user, group).map(DeliveryAccount::Account)
}

fn fixed_account(user: &str, group: Option<&str>) -> Result<PasswdEntry, String> {
    let mut account = account("user", user)?;
    if let Some(name) = group {
        let found = account::group(name).map_err(|error| format!("group {name}: {error}"))?;
        account.gid = found.ok_or_else(|| format!("group {name} does not exist"))?;
    }
    Ok(account)
}

pub fn account(key: &str, name: &str) -> Result<PasswdEntry, String> {
    let found = PasswdEntry::find(name).map_err(|error| format!("{key} {name}: {error}"))?;
    found.ok_or_else(|| format!("{key} {name} does not exist"))
}

/// Parses the path of a mailbox: absolute, or relative to the recipient's home.
fn path(text: &str, runs_as: &DeliveryAccount) -> Result<Template, String> {
    let template = Template::parse(text).map_err(|error| error.to_string())?;
    if text.starts_with('/') && template.fixed().is_some() && matches!(runs_as, DeliveryAccount::Recipient) {
        return Err(format!("`path` {text:?} is the same for all users; include ${{user}}, or set `user`"));
    }
    if text.starts_with("~/") || text.starts_with('/') {
        return Ok(template);
    }
    Err(format!("`path` is {text:?}; it must begin with / or ~/"))
}

pub fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
    (1..=32).contains(&name.len()) && name.bytes().all(plain)
}
