//! `stentor user`: the users file from the command line. It needs no running server, which reads the file by itself when it has
//! changed.
//!
//! A password is asked for on a terminal without showing it, read from standard input where that is none, or from `--password-file`;
//! it is no argument, since arguments are seen by all users of the machine. Exit codes: 0, 1 with the reason, 3 for a user that is
//! not there, 78 for a configuration that names no users file.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;
use stentor_config::keys::random;
use stentor_control::users_view::{Share, UserRow};
use stentor_control::{Client, Reply, Request};
use stentor_stats::escape::printable;
use stentor_users::password::store;
use stentor_users::{Document, DocumentError, FileError, SendAs, User, UsersFile, change};

use crate::asking::{fail, locate, nothing};
use crate::hints::Given;
use crate::output::{done, print};
use crate::secrets::ask_password;

/// As sysexits' `EX_CONFIG`.
const CONFIGURATION: u8 = 78;
/// Columns of a name, and of what is listed beside it.
const SHOWN_BYTES_MAX: usize = 1_000;

#[derive(Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Add a user; the file is made if it is not there.
    Add(Add),
    /// Set a user's password; sessions that are logged in with the one before end.
    Passwd {
        name: String,
        #[command(flatten)]
        password: PasswordArg,
        #[command(flatten)]
        file: FileArg,
    },
    /// List all users: whether they are locked, as whom they may send, their limits, and what the running server has counted of them.
    List {
        /// Print JSON lines.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        file: FileArg,
    },
    /// Keep a user from logging in; sessions that are logged in end.
    Lock(Named),
    /// Let a locked user log in again.
    Unlock(Named),
    /// Remove a user; sessions that are logged in end.
    Remove(Named),
}

#[derive(Args)]
struct Add {
    /// What the user logs in with: mostly the user's address.
    name: String,
    /// Addresses that the user may send as: ADDRESS, @DOMAIN, a pattern with *, or * for any [default: the name, if it is an
    /// address].
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',')]
    send_as: Vec<SendAs>,
    /// Messages that the user may submit in an hour [default: any number].
    #[arg(long, value_name = "N")]
    messages_per_hour: Option<u32>,
    /// Messages that the user may submit in a day [default: any number].
    #[arg(long, value_name = "N")]
    messages_per_day: Option<u32>,
    /// Recipients that the user may send to in an hour [default: any number].
    #[arg(long, value_name = "N")]
    recipients_per_hour: Option<u32>,
    /// Recipients that the user may send to in a day [default: any number].
    #[arg(long, value_name = "N")]
    recipients_per_day: Option<u32>,
    #[command(flatten)]
    password: PasswordArg,
    #[command(flatten)]
    file: FileArg,
}

#[derive(Args)]
struct Named {
    name: String,
    #[command(flatten)]
    file: FileArg,
}

#[derive(Args)]
struct PasswordArg {
    /// Take the password from the first line of this file [default: ask for it, or read standard input].
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
    /// Where the file is; else the code to exit with, and why has been said.
    fn path(&self) -> Result<PathBuf, ExitCode> {
        if let Some(path) = &self.users {
            return Ok(path.clone());
        }
        let config = locate(self.config.as_deref())?;
        stentor_config::users_file(&config).ok_or_else(|| {
            fail(&format!(
                "{} names no users file: set `users = \"users\"` in [auth], or name one with --users FILE",
                config.display()
            ));
            ExitCode::from(CONFIGURATION)
        })
    }

    /// What users have submitted, if a server runs that says it; one that does not run keeps nobody from a list.
    fn used(&self) -> Vec<UserRow> {
        let config = match (&self.users, &self.config) {
            (Some(_), _) => None,
            (None, Some(config)) => Some(config.clone()),
            (None, None) => locate(None).ok(),
        };
        let Some(places) = config.and_then(|config| stentor_config::places(&config)) else { return Vec::new() };
        match Client::connect(&places.socket).and_then(|mut client| client.ask(&Request::Users)) {
            Ok(Reply::Users(view)) => view.rows,
            _ => Vec::new(),
        }
    }
}

pub(crate) fn run(options: &Options) -> ExitCode {
    let result = match &options.command {
        Command::Add(add) => self::add(add),
        Command::Passwd { name, password, file } => passwd(name, password, file),
        Command::List { json, file } => list(*json, file),
        Command::Lock(Named { name, file }) => {
            edit(file, name, "locked", |document| document.set(name, "locked", Some("yes")))
        }
        Command::Unlock(Named { name, file }) => {
            edit(file, name, "unlocked", |document| document.set(name, "locked", None))
        }
        Command::Remove(Named { name, file }) => edit(file, name, "removed", |document| document.remove(name)),
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

fn add(add: &Add) -> Result<ExitCode, ExitCode> {
    let path = add.file.path()?;
    if add.send_as.is_empty() && SendAs::of_name(&add.name).is_none() {
        return Err(fail(&format!(
            "{:?} is no address: name at least one that the user may send as with --send-as",
            add.name
        )));
    }
    let is_new = !path.exists();
    // Before a password is asked for.
    if let Ok(file) = UsersFile::open(&path)
        && let Some(known) = file.users().get(&add.name)
    {
        return Err(failed(&FileError::Change(DocumentError::Known(known.name.to_string())), &add.file));
    }
    let mut pairs = stored(&add.password)?.to_vec();
    if !add.send_as.is_empty() {
        let all: Vec<String> = add.send_as.iter().map(ToString::to_string).collect();
        pairs.push(("send_as", all.join(", ")));
    }
    for (key, value) in [
        ("messages_per_hour_max", add.messages_per_hour),
        ("messages_per_day_max", add.messages_per_day),
        ("recipients_per_hour_max", add.recipients_per_hour),
        ("recipients_per_day_max", add.recipients_per_day),
    ] {
        pairs.extend(value.map(|value| (key, value.to_string())));
    }
    let made = edit(&add.file, &add.name, "added", |document| {
        document.add(&add.name)?;
        pairs.iter().try_for_each(|(key, value)| document.set(&add.name, key, Some(value)))
    })?;
    if is_new {
        eprintln!("stentor: {} is new and yours alone: give it to the user that the server runs as", path.display());
    }
    Ok(made)
}

fn passwd(name: &str, password: &PasswordArg, file: &FileArg) -> Result<ExitCode, ExitCode> {
    // Before a password is asked for.
    let path = file.path()?;
    let users = UsersFile::open(&path).map_err(|error| failed(&error, file))?;
    if users.users().get(name).is_none() {
        return Err(failed(&FileError::Change(DocumentError::Unknown(name.to_owned())), file));
    }
    let pairs = stored(password)?;
    edit(file, name, "has a new password", |document| {
        pairs.iter().try_for_each(|(key, value)| document.set(name, key, Some(value)))
    })
}

/// Changes the file and says what was done.
fn edit(
    file: &FileArg,
    name: &str,
    what: &str,
    edit: impl FnOnce(&mut Document) -> Result<(), DocumentError>,
) -> Result<ExitCode, ExitCode> {
    change(&file.path()?, edit).map_err(|error| failed(&error, file))?;
    Ok(done(print(&format!("{} {what}\n", printable(name, SHOWN_BYTES_MAX)))))
}

fn failed(error: &FileError, file: &FileArg) -> ExitCode {
    let text = Given::config(file.config.as_deref()).complete(&printable_lines(&error.to_string()));
    if let FileError::Change(DocumentError::Unknown(_)) = error { nothing(&text) } else { fail(&text) }
}

fn printable_lines(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(|line| printable(line, SHOWN_BYTES_MAX)).collect();
    lines.join("\n")
}

fn list(json: bool, file: &FileArg) -> Result<ExitCode, ExitCode> {
    let users = UsersFile::open(&file.path()?).map_err(|error| failed(&error, file))?;
    let rows: Vec<&User> = users.users().iter().map(|user| &**user).collect();
    let used = file.used();
    let used: HashMap<&str, &UserRow> = used.iter().map(|row| (row.user.as_str(), row)).collect();
    let of = |user: &User| used.get(&*user.name).copied();
    if json {
        let lines: Vec<String> = rows.iter().map(|user| format!("{}\n", as_json(user, of(user)))).collect();
        return Ok(done(print(&lines.concat())));
    }
    let names: Vec<String> = rows.iter().map(|user| printable(&user.name, SHOWN_BYTES_MAX)).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).max("USER".len());
    let mut text = format!("{:width$}  STATE   PASSWORD  MAY SEND AS; LIMITS\n", "USER");
    for (user, name) in rows.iter().zip(&names) {
        let state = if user.is_locked { "locked" } else { "active" };
        let forms = match (&user.hash, &user.scram) {
            (Some(_), Some(_)) => "both",
            (Some(_), None) => "no SCRAM",
            _ => "SCRAM",
        };
        let mut rights = send_as(user).join(", ");
        for (key, value) in limits(user, of(user)) {
            let _ = write!(rights, "; {key} {value}");
        }
        let rights = printable(&rights, SHOWN_BYTES_MAX);
        let _ = writeln!(text, "{name:width$}  {state:<6}  {forms:<8}  {rights}");
    }
    Ok(done(print(&text)))
}

fn send_as(user: &User) -> Vec<String> {
    user.send_as.iter().map(ToString::to_string).collect()
}

/// Those that are set, with what the running server has counted of them.
fn limits(user: &User, used: Option<&UserRow>) -> Vec<(&'static str, String)> {
    let limits = &user.limits;
    let all = [
        limits.messages_per_hour_max,
        limits.messages_per_day_max,
        limits.recipients_per_hour_max,
        limits.recipients_per_day_max,
    ];
    let shares = used.cloned().unwrap_or_default().shares();
    let both = all.into_iter().zip(shares).filter_map(|(max, (what, share))| {
        let max = max?;
        let words = used.map_or_else(|| max.to_string(), |_| Share { max: Some(max), ..share }.words());
        Some((what, words))
    });
    both.collect()
}

fn as_json(user: &User, used: Option<&UserRow>) -> serde_json::Value {
    let used = used.map(|used| {
        json!({
            "messages_hour": used.messages_hour.used,
            "messages_day": used.messages_day.used,
            "recipients_hour": used.recipients_hour.used,
            "recipients_day": used.recipients_day.used,
        })
    });
    json!({
        "used": used,
        "user": *user.name,
        "locked": user.is_locked,
        "password": user.hash.is_some(),
        "scram": user.scram.is_some(),
        "send_as": send_as(user),
        "messages_per_hour_max": user.limits.messages_per_hour_max,
        "messages_per_day_max": user.limits.messages_per_day_max,
        "recipients_per_hour_max": user.limits.recipients_per_hour_max,
        "recipients_per_day_max": user.limits.recipients_per_day_max,
    })
}
