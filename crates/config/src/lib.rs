//! Reads the configuration file and checks it as a whole, once: TOML becomes a [`Config`].
//!
//! What it does: [`check`] parses the file and keeps positions (`raw`), reads every section with its defaults and
//! ranges (`sections`, `tables`), checks consistency (`cross`), and builds the [`Policy`](stentor_policy::Policy) and
//! the lists from it. Relative paths are relative to the file's folder.
//!
//! What it promises: every [`Config`] is consistent, so no other code checks a setting again. Every default is in the
//! section's reader; tests keep `docs/operate/configuration.md` and `stentor.example.toml` complete and correct.
//!
//! How it fails: it reports all errors at once. Each is a [`Diagnostic`] with file, line, column, problem and remedy.
//! Warnings do not prevent a start; they are in [`Config::warnings`].

mod acme;
mod addresses;
mod archives;
mod bounce_rules;
mod bounces;
mod call_ahead;
mod certificates;
mod configuration;
mod content;
mod copies;
mod cross;
mod diagnose;
mod dkim;
mod dkim_keys;
mod dns_lists;
mod domain_reports;
mod endpoints;
mod http;
pub mod keys;
mod links;
pub mod list_files;
mod listeners;
mod log;
mod message_authentication;
mod milters;
mod name_servers;
mod numbers;
mod oauth;
mod policy_services;
mod postfix;
mod protection;
mod quarantine;
mod queue_only;
mod raw;
#[cfg(test)]
mod reference;
mod reload;
mod rule_sources;
mod rules;
mod same_name;
mod sections;
mod security;
mod sending;
pub mod settings;
mod smart_hosts;
mod submission;
mod tables;
#[cfg(test)]
mod tests;
mod tls;
mod units;
mod unused;
mod webhooks;
mod windows;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use stentor_users::{FileKind, LIMIT_KEYS, Limits};
use toml::de::DeTable;

pub use acme::{AcmeChallenge, AcmeConfig};
pub use archives::ArchiveTarget;
pub use bounce_rules::{RulesFileError, bounce_rules};
pub use bounces::BouncesConfig;
pub use call_ahead::{CallAheadConfig, UnverifiedAction};
pub use configuration::{
    Config, DelayWarning, EightBit, HttpConfig, InetProtocols, ListConfig, ReadAccess, ReportConfig, ReportTo,
    SubmissionConfig,
};
pub use diagnose::{Diagnostic, FilePosition, Severity};
pub use dkim::{DkimConfig, DkimKeyFile, DkimRotation, is_dns_name};
pub use dkim_keys::{DkimDomain, DkimKeys, KeyFileError};

pub use domain_reports::{DmarcReportsConfig, ReportSenderConfig};
pub use endpoints::{Kind, WebhookConfig, WebhookFormat};
use list_files::ListFile;
pub use listeners::{ListenConfig, Listener, ListenerAuth, ListenerTls, Role, Service};
pub use message_authentication::{DmarcAction, MessageAuthConfig};
pub use name_servers::{RESOLV_CONF, system_name_servers};
pub use protection::ProtectionConfig;
pub use quarantine::{DigestConfig, QuarantineConfig};
pub use queue_only::QueueOnlyConfig;
use raw::{Context, TextPart};
pub use reload::check_again;
pub use rule_sources::{InlineEntry, NamedTable, PolicyService, TableConfig, TableSource};
pub use same_name::SameNameHosts;
pub use security::{AuthConfig, AuthSource, OwnSenders};
pub use sending::{FlowConfig, SendingConfig, SourceSettings};
pub use settings::ConfigKey;
use settings::Settings;
pub use tls::{CaFile, CertificateConfig, TlsConfig, TrustedClient, UnverifiedClients};
pub use units::duration_s;
pub use unused::Unused;
pub use windows::InForce;

/// Maximum size of a configuration file; larger data belongs in subscriber files.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// Reads and checks a configuration file.
///
/// Errors are in the order of the file, mixed with the warnings.
pub fn check(path: &Path) -> Result<Config, Vec<Diagnostic>> {
    check_beside(path, None)
}

/// As [`check`], without opening subscribers files: for commands that only reach the server, which must not wait for a
/// file system that hangs.
pub fn check_alone(path: &Path) -> Result<Config, Vec<Diagnostic>> {
    let text = read(path)?;
    let context = Context::new(path, &text);
    context.file_wait.set(Duration::ZERO);
    let (config, settings) = check_in(context, &text)?;
    Ok(Config { settings, file: Some(path.to_owned()), ..config })
}

/// As [`check`]; settings that cannot change at runtime are taken from `in_force`.
fn check_beside(path: &Path, in_force: Option<&Config>) -> Result<Config, Vec<Diagnostic>> {
    let source = Source::read(path)?;
    let mut context = source.context(path);
    context.in_force = in_force.map(|config| (config.hostname.clone(), config.delivery.smtp_port));
    let (config, settings) = check_in(context, &source.text)?;
    let mut config = Config { settings, ..config };
    config.warnings.extend(name_servers::warning(path, &config.dns, Path::new(RESOLV_CONF)));
    config.file = Some(path.to_owned());
    Ok(config)
}

/// Data folder and control socket of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Places {
    pub data_dir: PathBuf,
    pub socket: PathBuf,
}

/// Reads the places even if the file has errors elsewhere, so that its server can still be reached. `None`: the file
/// cannot be read, their own keys are wrong, or it is not valid TOML and names neither.
pub fn places(path: &Path) -> Option<Places> {
    places_in(path, &read(path).ok()?)
}

fn places_in(path: &Path, text: &str) -> Option<Places> {
    let context = Context::new(path, text);
    let (document, syntax_errors) = DeTable::parse_recoverable(text);
    for error in &syntax_errors {
        context.mark_broken(&error.span().unwrap_or(0..0));
    }
    sections::places(&context, document.get_ref())
}

/// File in `data_dir` with local settings for Dovecot's users.
pub const DOVECOT_USERS: &str = "dovecot-users";

/// Where commands change users: a users file, or the local settings for Dovecot's users.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UsersPlace {
    pub kind: FileKind,
    pub file: PathBuf,
    /// Default limits of users, as far as they can be read.
    pub limits: Limits,
}

/// Reads the users of `[auth]` despite errors elsewhere, so that users can be changed while the configuration is
/// being edited. `None`: it names none, or cannot be read.
pub fn users_place(path: &Path) -> Option<UsersPlace> {
    let text = read(path).ok()?;
    let context = Context::new(path, &text);
    let (document, _) = DeTable::parse_recoverable(&text);
    let auth = document.get_ref().get("auth")?.get_ref().as_table()?;
    let text_of = |key| auth.get(key).and_then(|value| value.get_ref().as_str()).filter(|text: &&str| !text.is_empty());
    let limits = Limits::new(LIMIT_KEYS.map(|key| auth.get(key)?.get_ref().as_integer()?.as_str().parse().ok()));
    let (kind, file) = if let Some(users) = text_of("users") {
        (FileKind::Own, context.path(users))
    } else {
        text_of("dovecot")?;
        (FileKind::DovecotOverrides, places_in(path, &text)?.data_dir.join(DOVECOT_USERS))
    };
    Some(UsersPlace { kind, file, limits })
}

/// Reads the file's text.
fn read(path: &Path) -> Result<String, Vec<Diagnostic>> {
    let unreadable = |why: &dyn std::fmt::Display| vec![Diagnostic::of_file(path, format!("cannot be read: {why}"))];
    let size = fs::metadata(path).map_err(|error| unreadable(&error))?.len();
    if size > FILE_BYTES_MAX {
        return Err(unreadable(&format!("the file is larger than {FILE_BYTES_MAX} octets")));
    }
    let bytes = fs::read(path).map_err(|error| unreadable(&error))?;
    String::from_utf8(bytes).map_err(|error| unreadable(&error))
}

/// The text of a configuration: its file, then the files of lists made by commands.
struct Source {
    text: String,
    lists: Vec<TextPart>,
}

impl Source {
    fn read(path: &Path) -> Result<Source, Vec<Diagnostic>> {
        Source::read_with(path, None)
    }

    /// Reads it as if a list's file were already as in `change`.
    fn read_with(path: &Path, change: Option<&ListFileChange>) -> Result<Source, Vec<Diagnostic>> {
        let mut text = read(path)?;
        let mut lists = Vec::new();
        let mut files =
            places_in(path, &text).map_or(Ok(Vec::new()), |places| list_files::read_all(&places.data_dir))?;
        if let Some(change) = change {
            files.retain(|file| file.path != change.path);
            files.extend(change.text.clone().map(|text| ListFile { path: change.path.clone(), text }));
        }
        for file in files {
            if !text.ends_with('\n') {
                text.push('\n');
            }
            lists.push(TextPart { file: file.path, begin: text.len() });
            text.push_str(&file.text);
        }
        Ok(Source { text, lists })
    }

    fn context<'a>(&'a self, path: &'a Path) -> Context<'a> {
        Context::new(path, &self.text).with_parts(self.lists.clone())
    }
}

/// A change of a list's file.
pub struct ListFileChange {
    pub path: PathBuf,
    /// `None`: it is deleted.
    pub text: Option<String>,
}

/// Checks the configuration as if a list's file were changed.
///
/// # Errors
/// As [`check`].
pub fn check_list_file(path: &Path, change: &ListFileChange) -> Result<(), Vec<Diagnostic>> {
    let source = Source::read_with(path, Some(change))?;
    check_in(source.context(path), &source.text).map(drop)
}

/// Checks a text as if it were in the file `path`, which need not exist.
pub fn check_text(path: &Path, text: &str) -> Result<Config, Vec<Diagnostic>> {
    check_in(Context::new(path, text), text).map(|(config, settings)| Config { settings, ..config })
}

/// As [`check`], also returning every key's value and origin.
///
/// # Errors
/// As [`check`].
pub fn check_noting(path: &Path) -> Result<(Config, Settings), Vec<Diagnostic>> {
    let source = Source::read(path)?;
    let mut context = source.context(path);
    context.note_all();
    let (mut config, settings) = check_in(context, &source.text)?;
    config.warnings.extend(name_servers::warning(path, &config.dns, Path::new(RESOLV_CONF)));
    config.file = Some(path.to_owned());
    Ok((config, settings))
}

/// As [`check_text`], also returning every key's value and origin.
///
/// # Errors
/// As [`check_text`].
pub fn check_text_noting(path: &Path, text: &str) -> Result<(Config, Settings), Vec<Diagnostic>> {
    let mut context = Context::new(path, text);
    context.note_all();
    check_in(context, text)
}

fn check_in(context: Context<'_>, text: &str) -> Result<(Config, Settings), Vec<Diagnostic>> {
    let (document, syntax_errors) = DeTable::parse_recoverable(text);
    for error in &syntax_errors {
        context.syntax_error(error.span().unwrap_or(0..0), error.message());
    }
    let config = sections::read(&context, document.get_ref());
    let settings = context.settings();
    let mut diagnostics = context.finish();
    match config {
        Some(mut config) if !diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error) => {
            config.warnings = std::mem::take(&mut diagnostics);
            Ok((config, settings))
        }
        _ => Err(diagnostics),
    }
}

/// The configuration of an empty file: loopback only, data in `./stentor-data`.
pub fn without_file() -> Result<Config, Vec<Diagnostic>> {
    check_text(Path::new("stentor.toml"), "")
}
