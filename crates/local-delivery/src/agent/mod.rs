//! Deliveries: to a mailbox of one of two formats, to a program, or to targets in alias files.
//!
//! Each gets a complete message and one recipient, and returns one reply. A delivery to a mailbox runs with the
//! rights of the mailbox's user alone.

mod aliases;
mod dotlock;
pub mod exit_code;
mod maildir;
mod mbox;
pub mod program;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;
use stentor_mail::reply::{Enhanced, Reply};

use self::aliases::{AliasDelivery, AliasTarget};
use self::mbox::Locking;
use crate::account::PasswdEntry;
use crate::config::{Agent, AliasSettings, DeliveryAccount, DeliveryService, Program};
use crate::lock_name::is_lock_name;
use crate::recipient::DeliveryEnvelope;
use crate::spool::Spool;
use crate::template::Template;

/// Host name and delivery number, for unique file names.
#[derive(Debug, Clone, Copy)]
pub struct UniqueNames<'a> {
    pub host: &'a str,
    /// Number of the delivery in this process.
    pub number: u64,
}

const UNKNOWN: Reply = Reply::fixed(550, Enhanced::new(5, 1, 1), "No such user");
const BAD_NAME: Reply = Reply::fixed(550, Enhanced::new(5, 1, 1), "No such mailbox");
const LOCK_NAME: Reply = Reply::fixed(550, Enhanced::new(5, 1, 1), "No such mailbox: its name is that of a lock file");

/// The account whose rights a delivery to this recipient has, or the refusal if there is no such user.
pub fn account(service: &DeliveryService, envelope: &DeliveryEnvelope<'_>) -> Result<PasswdEntry, Reply> {
    match &service.runs_as {
        DeliveryAccount::Account(account) => Ok(account.clone()),
        DeliveryAccount::Recipient => {
            let user = envelope.recipient.user.to_lowercase();
            // Names that passwd(5) cannot contain do not exist.
            if user.is_empty() || user.contains([':', '/', '\n', '\0']) {
                return Err(UNKNOWN);
            }
            match PasswdEntry::find(&user) {
                Ok(Some(account)) => Ok(account),
                Ok(None) => Err(UNKNOWN),
                Err(error) => Err(later(format!("Looking up user {user}: {error}"))),
            }
        }
    }
}

/// Whether mail for this recipient would be accepted: the reply to RCPT. `is_over`: returns true when lookups should
/// stop.
pub fn admit(
    service: &DeliveryService,
    envelope: &DeliveryEnvelope<'_>,
    is_over: &dyn Fn() -> bool,
) -> Result<(), Reply> {
    let account = account(service, envelope)?;
    match &service.agent {
        Agent::Maildir { path, create } => {
            let folder = mailbox(path, &account, envelope)?;
            if *create {
                return Ok(());
            }
            match account.act(account.gid, || std::fs::metadata(&folder)) {
                Ok(_) => Ok(()),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Err(BAD_NAME),
                Err(error) => Err(refusal("Mailbox", &error)),
            }
        }
        Agent::Mbox { path, .. } => spool_file(path, &account, envelope).map(drop),
        Agent::Program(program) => program::arguments(program, envelope).map(drop),
        Agent::Aliases(aliases) => aliases::find(aliases, envelope.recipient, is_over).map(drop),
    }
}

/// Checks the files that a service reads during deliveries.
pub fn check(service: &DeliveryService) -> Result<(), String> {
    match &service.agent {
        Agent::Aliases(aliases) => aliases::check(aliases),
        Agent::Maildir { .. } | Agent::Mbox { .. } | Agent::Program(_) => Ok(()),
    }
}

/// Warnings about a service that can start: see [`aliases::missing`].
pub fn missing(service: &DeliveryService) -> (Vec<String>, usize) {
    match &service.agent {
        Agent::Aliases(aliases) => aliases::missing(aliases),
        Agent::Maildir { .. } | Agent::Mbox { .. } | Agent::Program(_) => Default::default(),
    }
}

/// Delivers to one recipient. `is_over`: returns true when lookups should stop.
pub fn deliver(
    service: &DeliveryService,
    envelope: &DeliveryEnvelope<'_>,
    spool: &mut Spool,
    names: UniqueNames<'_>,
    is_over: &dyn Fn() -> bool,
) -> Reply {
    let account = match account(service, envelope) {
        Ok(account) => account,
        Err(reply) => return reply,
    };
    let done = match &service.agent {
        Agent::Maildir { path, create } => mailbox(path, &account, envelope)
            .and_then(|folder| to_maildir(&folder, *create, &account, envelope, spool, names))
            .map(|()| "Delivered to Maildir".to_owned()),
        Agent::Mbox { path, locks, lock_timeout } => spool_file(path, &account, envelope)
            .and_then(|file| {
                let locking = Locking { locks, timeout: *lock_timeout };
                to_mbox(&file, true, locking, &account, envelope, spool)
            })
            .map(|()| "Delivered to mbox".to_owned()),
        Agent::Program(program) => to_program(program, &account, envelope, spool),
        Agent::Aliases(aliases) => aliases::find(aliases, envelope.recipient, is_over)
            .and_then(|found| to_alias(aliases, found, envelope, spool, names)),
    };
    match done {
        Ok(text) => Reply::new(250, Enhanced::new(2, 0, 0), text),
        Err(reply) => reply,
    }
}

/// Delivers to the program or file of the alias that the recipient names.
fn to_alias(
    aliases: &AliasSettings,
    AliasTarget { account, is_named_by_root, what }: AliasTarget,
    envelope: &DeliveryEnvelope<'_>,
    spool: &mut Spool,
    names: UniqueNames<'_>,
) -> Result<String, Reply> {
    let path = match &what {
        AliasDelivery::Program(program) => return to_program(program, &account, envelope, spool),
        AliasDelivery::Maildir(folder) => to_maildir(folder, true, &account, envelope, spool, names).map(|()| folder),
        AliasDelivery::Mbox(file) => {
            let locking = Locking { locks: &aliases.locks, timeout: aliases.lock_timeout };
            to_mbox(file, is_named_by_root, locking, &account, envelope, spool).map(|()| file)
        }
    };
    path.map(|path| format!("Delivered to {}", path.display()))
}

fn to_maildir(
    folder: &Path,
    create: bool,
    account: &PasswdEntry,
    envelope: &DeliveryEnvelope<'_>,
    spool: &mut Spool,
    names: UniqueNames<'_>,
) -> Result<(), Reply> {
    let unique = maildir::UniqueName { host: names.host, number: names.number };
    let work = || maildir::deliver(folder, create, &fields(envelope), spool, &unique);
    account.act(account.gid, work).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound if !create => BAD_NAME,
        _ => refusal("Mailbox", &error),
    })
}

fn to_mbox(
    file: &Path,
    is_named_by_root: bool,
    locking: Locking<'_>,
    account: &PasswdEntry,
    envelope: &DeliveryEnvelope<'_>,
    spool: &mut Spool,
) -> Result<(), Reply> {
    let mut content = mbox::MboxMessage { from_line: &from_line(envelope), fields: &fields(envelope), spool };
    let work = || mbox::deliver(file, account.uid, locking, &mut content);
    account.act(mbox::group(file, is_named_by_root, account), work).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => Reply::fixed(451, Enhanced::new(4, 2, 0), "Mailbox is locked"),
        _ => refusal("Mailbox", &error),
    })
}

fn to_program(
    program: &Program,
    account: &PasswdEntry,
    envelope: &DeliveryEnvelope<'_>,
    spool: &mut Spool,
) -> Result<String, Reply> {
    let start = if program.from_line { from_line(envelope) } else { String::new() } + &fields(envelope);
    program::deliver(program, account, envelope, start.as_bytes(), spool)
}

/// The fields added by a final delivery (RFC 5321 section 4.4); [`crate::worker`] detects loops by the second.
fn fields(envelope: &DeliveryEnvelope<'_>) -> String {
    let delivered = format!("Delivered-To: {}\n", envelope.recipient.address);
    format!("Return-Path: <{}>\n{}", envelope.sender, if envelope.is_marked { "" } else { &delivered })
}

/// The first line of a message in an mbox.
fn from_line(envelope: &DeliveryEnvelope<'_>) -> String {
    let sender = if envelope.sender.is_empty() { "MAILER-DAEMON" } else { envelope.sender };
    format!("From {} {}\n", sender.replace([' ', '\t'], "-"), jiff::Zoned::now().strftime("%a %b %e %H:%M:%S %Y"))
}

fn mailbox(path: &Template, account: &PasswdEntry, envelope: &DeliveryEnvelope<'_>) -> Result<PathBuf, Reply> {
    let path = path.path(envelope).map_err(|_| BAD_NAME)?;
    Ok(match path.strip_prefix("~/") {
        Some(rest) => account.home.join(rest),
        None => path.into(),
    })
}

/// The file of an mbox. Names that may be locks of other mailboxes are refused, because mail in such a file would
/// lock the other mailbox.
fn spool_file(path: &Template, account: &PasswdEntry, envelope: &DeliveryEnvelope<'_>) -> Result<PathBuf, Reply> {
    let file = mailbox(path, account, envelope)?;
    if is_lock_name(&file) { Err(LOCK_NAME) } else { Ok(file) }
}

/// Opens a folder in order to sync it, without blocking, whatever a user has put in its place.
fn open_folder(path: &Path) -> io::Result<File> {
    let flags = (OFlags::DIRECTORY | OFlags::NONBLOCK).bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(flags).open(path)
}

fn later(text: String) -> Reply {
    Reply::new(451, Enhanced::new(4, 3, 0), text)
}

/// The reply to a failure of a file system.
fn refusal(what: &str, error: &io::Error) -> Reply {
    let is_full = |code: i32| [Errno::NOSPC, Errno::DQUOT, Errno::FBIG].contains(&Errno::from_raw_os_error(code));
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    if error.raw_os_error().is_some_and(is_full) {
        Reply::new(452, Enhanced::new(4, 2, 2), format!("{what} is full: {text}"))
    } else {
        Reply::new(451, Enhanced::new(4, 2, 0), format!("{what}: {text}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipient::LocalRecipient;

    #[test]
    fn a_failure_of_a_mailbox_is_temporary() {
        let reply = |errno: Errno| refusal("Mailbox", &io::Error::from(errno)).to_string();
        assert_eq!(reply(Errno::NOSPC), "452 4.2.2 Mailbox is full: No space left on device");
        assert_eq!(reply(Errno::DQUOT), "452 4.2.2 Mailbox is full: Disk quota exceeded");
        assert_eq!(reply(Errno::ACCESS), "451 4.2.0 Mailbox: Permission denied");
    }

    #[test]
    fn the_envelope_is_kept_with_the_mail() {
        let recipient = LocalRecipient::new(&"Bob+x@example.org".parse().unwrap(), None, Some('+'));
        let envelope = DeliveryEnvelope { sender: "", recipient: &recipient, is_marked: false };
        assert_eq!(fields(&envelope), "Return-Path: <>\nDelivered-To: Bob+x@example.org\n");
        assert!(from_line(&envelope).starts_with("From MAILER-DAEMON "));
        let marked = DeliveryEnvelope { is_marked: true, ..envelope };
        assert_eq!(fields(&marked), "Return-Path: <>\n");
        let envelope = DeliveryEnvelope { sender: "\"a b\"@x.org", recipient: &recipient, is_marked: false };
        assert!(from_line(&envelope).starts_with("From \"a-b\"@x.org "), "{}", from_line(&envelope));
    }
}
