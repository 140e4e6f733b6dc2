//! `stentor user`: edits the users file, and the local settings of Dovecot users. No server needs to run; a running one
//! rereads a changed file by itself.
//!
//! A password is asked for on a terminal without showing it, or read from standard input or `--password-file`. It is
//! never an argument, since all users of the machine can see arguments. Exit codes: 0; 1 with the reason; 3 for an
//! unknown user; 78 for a configuration without users, or for the password of a Dovecot user.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgGroup, Args, Subcommand};
use stentor_admin::user_list::{SHOWN_BYTES_MAX, UserList};
use stentor_config::UsersPlace;
use stentor_config::keys::random;
use stentor_control::users_view::UserRow;
use stentor_control::{Client, ControlReply, Request};
use stentor_records::escape::printable;
use stentor_users::password::store;
use stentor_users::{
    Document, DocumentError, FileError, FileKind, Limit, Limits, SendAs, UserChanges, UsersFile, canonical_name, change,
};

use crate::asking::{fail, locate, nothing, wrong};
use crate::hints::ServerReference;
use crate::output::{done, print};
use crate::secrets::ask_password;

/// Sysexits' `EX_CONFIG`.
const CONFIGURATION: u8 = 78;

#[derive(Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Add a user; creates the users file if needed.
    Add(AddArgs),
    /// Set a user's password; sessions logged in with the old one end.
    Passwd {
        name: String,
        #[command(flatten)]
        password: PasswordArg,
        #[command(flatten)]
        file: FileArg,
    },
    /// Change a user's limits and addresses; the others stay. Takes effect at once, also in open sessions.
    Set(SetArgs),
    /// List all users: locked or not, addresses to send as, limits, and the running server's counts. Of Dovecot's
    /// users, only those seen in the last day and those with local settings.
    List {
        /// Print JSON lines.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        file: FileArg,
    },
    /// Stop a user (also one of Dovecot) from logging in; open sessions end.
    Lock(UserArgs),
    /// Let a locked user log in again.
    Unlock(UserArgs),
    /// Remove a user; open sessions end. For a user of Dovecot, remove the local settings.
    Remove(UserArgs),
}

#[derive(Args)]
struct AddArgs {
    /// The login name, usually the user's address.
    name: String,
    /// Addresses that the user may send as: ADDRESS, @DOMAIN, a pattern with *, or * for any [default: the name, if it
    /// is an
    /// address].
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    send_as: Vec<SendAs>,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    password: PasswordArg,
    #[command(flatten)]
    file: FileArg,
}

#[derive(Args)]
#[command(group(ArgGroup::new("changes").required(true).multiple(true).args(CHANGES)))]
struct SetArgs {
    name: String,
    /// Addresses that the user may send as, replacing the old ones: ADDRESS, @DOMAIN, a pattern with *, or * for any.
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    send_as: Option<Vec<SendAs>>,
    #[command(flatten)]
    limits: LimitArgs,
    #[command(flatten)]
    file: FileArg,
}

/// Options of which `set` needs at least one.
const CHANGES: [&str; 5] =
    ["send_as", "messages_per_hour", "messages_per_day", "recipients_per_hour", "recipients_per_day"];

#[derive(Args)]
struct LimitArgs {
    /// Messages that the user may submit in an hour: a number, 0 to submit nothing, `none` for no limit, `default` for
    /// the limit in [auth].
    #[arg(long, value_name = "N")]
    messages_per_hour: Option<Limit>,
    /// Messages that the user may submit in a day, likewise.
    #[arg(long, value_name = "N")]
    messages_per_day: Option<Limit>,
    /// Recipients that the user may send to in an hour, likewise.
    #[arg(long, value_name = "N")]
    recipients_per_hour: Option<Limit>,
    /// Recipients that the user may send to in a day, likewise.
    #[arg(long, value_name = "N")]
    recipients_per_day: Option<Limit>,
}

impl LimitArgs {
    /// The limits in the order of [`LIMIT_KEYS`](stentor_users::LIMIT_KEYS).
    fn all(&self) -> [Option<Limit>; 4] {
        [self.messages_per_hour, self.messages_per_day, self.recipients_per_hour, self.recipients_per_day]
    }
}

#[derive(Args)]
struct UserArgs {
    name: String,
    #[command(flatten)]
    file: FileArg,
}

#[derive(Args)]
struct PasswordArg {
    /// Read the password from the first line of this file [default: ask for it, or read standard input].
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
}

#[derive(Args)]
struct FileArg {
    /// The users file [default: `users` in [auth] of the configuration].
    #[arg(long, value_name = "FILE", conflicts_with = "config")]
    users: Option<PathBuf>,
    /// The configuration [default: `$STENTOR_CONFIG`, else /etc/stentor/stentor.toml].
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl FileArg {
    /// The users file's path. If there is none, reports why and returns the exit code.
    fn place(&self) -> Result<UsersPlace, ExitCode> {
        if let Some(file) = &self.users {
            return Ok(UsersPlace { kind: FileKind::Own, file: file.clone(), limits: Limits::default() });
        }
        let config = locate(self.config.as_deref())?;
        stentor_config::users_place(&config).ok_or_else(|| {
            if let Err(diagnostics) = stentor_config::check(&config) {
                return wrong(&diagnostics);
            }
            fail(&format!(
                "{} has no users file: set `users = \"users\"` or `dovecot` in [auth], or name a users file with \
                 --users FILE",
                config.display()
            ));
            ExitCode::from(CONFIGURATION)
        })
    }

    /// The path of the file with passwords.
    fn own(&self) -> Result<PathBuf, ExitCode> {
        let place = self.place()?;
        if place.kind == FileKind::Own {
            return Ok(place.file);
        }
        fail(
            "[auth] uses Dovecot, which keeps users and passwords: add them there. Locks and limits are set here: \
             `stentor user lock NAME`, `stentor user set NAME --messages-per-hour 200`",
        );
        Err(ExitCode::from(CONFIGURATION))
    }

    /// Users' submissions, from a running server; `None` if none answers, and the list is printed without them.
    fn used(&self) -> Option<Vec<UserRow>> {
        let config = match (&self.users, &self.config) {
            (Some(_), _) => None,
            (None, Some(config)) => Some(config.clone()),
            (None, None) => locate(None).ok(),
        };
        let places = config.and_then(|config| stentor_config::places(&config))?;
        match Client::connect(&places.socket).and_then(|mut client| client.ask(&Request::Users)) {
            Ok(ControlReply::Users(view)) => Some(view.rows),
            _ => None,
        }
    }
}

pub(crate) fn run(options: &Options) -> ExitCode {
    let result = match &options.command {
        Command::Add(add) => self::add(add),
        Command::Passwd { name, password, file } => passwd(name, password, file),
        Command::List { json, file } => list(*json, file),
        Command::Set(SetArgs { name, send_as, limits, file }) => {
            apply(file, name, "changed", &UserChanges { send_as: send_as.clone(), limits: limits.all(), locked: None })
        }
        Command::Lock(UserArgs { name, file }) => {
            apply(file, name, "locked", &UserChanges { locked: Some(true), ..UserChanges::default() })
        }
        Command::Unlock(UserArgs { name, file }) => {
            apply(file, name, "unlocked", &UserChanges { locked: Some(false), ..UserChanges::default() })
        }
        Command::Remove(UserArgs { name, file }) => edit(file, name, "removed", |_, document| document.remove(name)),
    };
    result.unwrap_or_else(|code| code)
}

/// The two lines of a new password.
fn stored(password: &PasswordArg) -> Result<[(&'static str, String); 2], ExitCode> {
    let stored = ask_password(password.password_file.as_deref())
        .and_then(|password| store(&password, &random(), &random()))
        .map_err(|why| fail(&format!("no password was set: {why}")))?;
    Ok([("password", stored.hash), ("scram", stored.scram.to_string())])
}

fn add(add: &AddArgs) -> Result<ExitCode, ExitCode> {
    let path = add.file.own()?;
    if add.send_as.is_empty() && SendAs::of_name(&add.name).is_none() {
        return Err(fail(&format!(
            "{:?} is not an address: name at least one address that the user may send as, with --send-as",
            add.name
        )));
    }
    let is_new = !path.exists();
    // Fail before asking for a password.
    if let Ok(file) = UsersFile::open(FileKind::Own, &path)
        && let Some(known) = file.users().get(&add.name)
    {
        return Err(failed(&FileError::Change(DocumentError::Known(known.name.to_string())), &add.file));
    }
    let pairs = stored(&add.password)?;
    let send_as = (!add.send_as.is_empty()).then(|| add.send_as.clone());
    let changes = UserChanges { send_as, limits: add.limits.all(), locked: None };
    let made = edit(&add.file, &add.name, "added", |kind, document| {
        document.add(&add.name)?;
        pairs.iter().try_for_each(|(key, value)| document.set(&add.name, key, Some(value)))?;
        changes.apply(kind, document, &add.name)
    })?;
    if is_new {
        let path = path.display();
        eprintln!(
            "stentor: {path} was created, readable only by you: `chown stentor {path}`, unless the server runs \
            as you"
        );
    }
    Ok(made)
}

fn passwd(name: &str, password: &PasswordArg, file: &FileArg) -> Result<ExitCode, ExitCode> {
    // Fail before asking for a password.
    let path = file.own()?;
    let users = UsersFile::open(FileKind::Own, &path).map_err(|error| failed(&error, file))?;
    if users.users().get(name).is_none() {
        return Err(failed(&FileError::Change(DocumentError::Unknown(name.to_owned())), file));
    }
    let pairs = stored(password)?;
    edit(file, name, "has a new password", |_, document| {
        pairs.iter().try_for_each(|(key, value)| document.set(name, key, Some(value)))
    })
}

/// Changes a user. Whether Dovecot has the user is unknown here: a name without a recent login may be a typo.
fn apply(file: &FileArg, name: &str, what: &str, changes: &UserChanges) -> Result<ExitCode, ExitCode> {
    let place = file.place()?;
    let is_unknown = place.kind == FileKind::DovecotOverrides
        && file.used().is_some_and(|rows| !rows.iter().any(|row| canonical_name(name).as_deref() == Ok(&row.user)));
    let done = edit(file, name, what, |kind, document| changes.apply(kind, document, name))?;
    if is_unknown {
        let name = printable(name, SHOWN_BYTES_MAX);
        eprintln!("stentor: {name} has not logged in in the last day: compare the spelling with `user=` in the log");
    }
    Ok(done)
}

/// Changes the file and prints what was done.
fn edit(
    file: &FileArg,
    name: &str,
    what: &str,
    edit: impl FnOnce(FileKind, &mut Document) -> Result<(), DocumentError> + Send,
) -> Result<ExitCode, ExitCode> {
    let place = file.place()?;
    change(place.kind, &place.file, |document| edit(place.kind, document)).map_err(|error| failed(&error, file))?;
    Ok(done(print(&format!("{} {what}\n", printable(name, SHOWN_BYTES_MAX)))))
}

fn failed(error: &FileError, file: &FileArg) -> ExitCode {
    let text = ServerReference::config(file.config.as_deref()).complete(&printable_lines(&error.to_string()));
    if let FileError::Change(DocumentError::Unknown(_)) = error { nothing(&text) } else { fail(&text) }
}

fn printable_lines(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(|line| printable(line, SHOWN_BYTES_MAX)).collect();
    lines.join("\n")
}

fn list(json: bool, file: &FileArg) -> Result<ExitCode, ExitCode> {
    let place = file.place()?;
    let users = UsersFile::open(place.kind, &place.file).map_err(|error| failed(&error, file))?;
    let used = file.used();
    if used.is_none() && place.kind == FileKind::DovecotOverrides {
        eprintln!("stentor: the server does not answer; only users with local settings are listed");
    }
    let used = used.unwrap_or_default();
    let list = UserList::new(place.kind, users.users(), &place.limits, &used);
    Ok(done(print(&if json { list.json() } else { list.text() })))
}
