//! The format of the users file. A user is a name in brackets, followed by one key per line:
//!
//! ```text
//! # Comments and empty lines may be anywhere.
//! [ann@example.org]
//! password = $argon2id$v=19$m=19456,t=2,p=1$...
//! scram = SCRAM-SHA-256$100000:...$...:...
//! send_as = ann@example.org, *-bounces@lists.example.org, @news.example.org
//! messages_per_hour_max = 200
//! locked = yes
//! ```
//!
//! Local settings for users of Dovecot ([`FileKind::DovecotOverrides`]) have the same keys except for passwords, which
//! Dovecot has; they override Dovecot's fields.
//!
//! The whole file is read, so that all errors are reported at once; a file with any error is not used.

use std::fmt;

use stentor_sasl::KeysError;

use crate::limits::{LIMIT_KEYS, OwnLimits};
use crate::password::check_hash;
use crate::send_as::SendAs;
use crate::user::{User, Users, canonical_name};

/// Maximum octets of a file; far more than [`USERS_MAX`] users need.
pub const FILE_BYTES_MAX: usize = 64 << 20;
pub const USERS_MAX: usize = 100_000;
/// Maximum addresses and patterns of one user; each message checks all of them.
pub const SEND_AS_MAX: usize = 500;
/// Maximum errors reported; further ones are probably of the same kind.
const FAULTS_MAX: usize = 20;

/// The keys, in the order in which they are written.
pub const KEYS: [&str; 8] =
    ["password", "scram", "send_as", LIMIT_KEYS[0], LIMIT_KEYS[1], LIMIT_KEYS[2], LIMIT_KEYS[3], "locked"];
const PASSWORD_KEYS: [&str; 2] = ["password", "scram"];

/// The source of the users in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FileKind {
    /// Our own users, with their passwords.
    #[default]
    Own,
    /// Dovecot users with local settings.
    DovecotOverrides,
}

/// One error: where, what, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsersFileError {
    /// The line number, from 1.
    pub line: u32,
    pub why: String,
    pub help: String,
}

impl fmt::Display for UsersFileError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}; {}", self.line, self.why, self.help)
    }
}

/// The kind of one line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line<'a> {
    /// Empty, or a comment.
    Nothing,
    /// The name as written.
    Name(&'a str),
    Pair(&'a str, &'a str),
    Other,
}

pub(crate) fn line(text: &str) -> Line<'_> {
    let text = text.trim();
    if text.is_empty() || text.starts_with('#') {
        return Line::Nothing;
    }
    if let Some(rest) = text.strip_prefix('[') {
        return rest.strip_suffix(']').map_or(Line::Other, |name| Line::Name(name.trim()));
    }
    text.split_once('=').map_or(Line::Other, |(key, value)| Line::Pair(key.trim(), value.trim()))
}

#[derive(Default)]
struct Reading {
    kind: FileKind,
    users: Users,
    faults: Vec<UsersFileError>,
    /// The user whose keys are being read, and which keys were present.
    open: Option<(User, [bool; KEYS.len()])>,
}

/// Reads a file's text.
pub fn parse(kind: FileKind, text: &str) -> Result<Users, Vec<UsersFileError>> {
    let mut reading = Reading { kind, ..Reading::default() };
    if text.len() > FILE_BYTES_MAX {
        let why = format!("the file is larger than {} MiB", FILE_BYTES_MAX >> 20);
        return Err(vec![UsersFileError {
            line: 1,
            why,
            help: "let Dovecot check the passwords of so many users".to_owned(),
        }]);
    }
    for (place, text) in text.lines().enumerate() {
        reading.line(place as u32 + 1, text);
        if reading.faults.len() >= FAULTS_MAX {
            break;
        }
    }
    reading.close();
    if reading.faults.is_empty() { Ok(reading.users) } else { Err(reading.faults) }
}

/// Parses octets; those that are not UTF-8 are an error of their line.
pub fn parse_octets(kind: FileKind, octets: &[u8]) -> Result<Users, Vec<UsersFileError>> {
    match std::str::from_utf8(octets) {
        Ok(text) => parse(kind, text),
        Err(error) => {
            let line = octets[..error.valid_up_to()].split(|octet| *octet == b'\n').count() as u32;
            let help = "store the file in UTF-8".to_owned();
            Err(vec![UsersFileError { line, why: "not valid UTF-8".to_owned(), help }])
        }
    }
}

impl Reading {
    fn fault(&mut self, line: u32, why: impl Into<String>, help: impl Into<String>) {
        self.faults.push(UsersFileError { line, why: why.into(), help: help.into() });
    }

    fn line(&mut self, number: u32, text: &str) {
        match line(text) {
            Line::Nothing => {}
            Line::Name(name) => {
                self.close();
                self.begin(number, name);
            }
            Line::Pair(key, value) => self.pair(number, key, value),
            Line::Other => {
                self.fault(number, "neither [NAME] nor KEY = VALUE", "if it is a comment, put # before it");
            }
        }
    }

    fn begin(&mut self, line: u32, name: &str) {
        let name = match canonical_name(name) {
            Ok(known) if known.contains(['[', ']']) => {
                self.fault(
                    line,
                    format!("{name:?} is not a valid user name: it contains brackets"),
                    "choose another name",
                );
                format!("\0{line}")
            }
            Ok(known) => known,
            Err(error) => {
                self.fault(line, format!("{name:?} is not a valid user name: {error}"), "choose another name");
                // Continue with its keys.
                format!("\0{line}")
            }
        };
        let user = User {
            name: name.into(),
            hash: None,
            scram: None,
            send_as: Vec::new(),
            limits: OwnLimits::default(),
            is_locked: false,
            line,
        };
        self.open = Some((user, [false; KEYS.len()]));
    }

    fn pair(&mut self, line: u32, key: &str, value: &str) {
        let Some((user, seen)) = &mut self.open else {
            return self.fault(line, format!("{key:?} belongs to no user"), "put the user's [NAME] above it");
        };
        let Some(place) = KEYS.iter().position(|known| *known == key) else {
            return self.fault(line, format!("unknown key {key:?}"), format!("valid keys: {}", KEYS.join(", ")));
        };
        if std::mem::replace(&mut seen[place], true) {
            return self.fault(line, format!("{key} appears twice"), "delete one of the two lines");
        }
        let is_foreign = self.kind == FileKind::DovecotOverrides && PASSWORD_KEYS.contains(&key);
        let set = if is_foreign { Err(foreign_password()) } else { set(user, key, value) };
        if let Err((why, help)) = set {
            self.fault(line, format!("{key}: {why}"), help);
        }
    }

    /// Finishes the current user.
    fn close(&mut self) {
        let Some((mut user, seen)) = self.open.take() else { return };
        let (line, name) = (user.line, user.name.clone());
        if name.starts_with('\0') {
            return;
        }
        if self.kind == FileKind::Own {
            self.complete(&mut user, seen);
        }
        if self.users.len() >= USERS_MAX {
            self.fault(
                line,
                format!("more than {USERS_MAX} users"),
                "let Dovecot check the passwords of so many \
                users",
            );
        } else if let Err(known) = self.users.add(user) {
            let help = format!("delete it here or in line {}", known.line);
            self.fault(line, format!("{name} appears twice"), help);
        }
    }

    /// Checks what each of our users must have.
    fn complete(&mut self, user: &mut User, seen: [bool; KEYS.len()]) {
        let (line, name) = (user.line, user.name.clone());
        if !seen[0] && !seen[1] {
            let help = format!("set one: stentor user passwd {name}");
            self.fault(line, format!("{name} has no password"), help);
        }
        if !seen[2] {
            // A user whose name is an address may send as it.
            match SendAs::of_name(&name) {
                Some(own) => user.send_as = vec![own],
                None => self.fault(
                    line,
                    format!("{name} has no address to send as"),
                    "add `send_as = ADDRESS, @DOMAIN`; users whose name is an address do not need it",
                ),
            }
        }
    }
}

type Wrong = (String, String);

fn foreign_password() -> Wrong {
    ("not allowed here, because Dovecot keeps the passwords of its users".to_owned(), "delete the line".to_owned())
}

fn set(user: &mut User, key: &str, value: &str) -> Result<(), Wrong> {
    let again = || format!("set it again: stentor user passwd {}", user.name);
    match key {
        "password" => {
            check_hash(value).map_err(|error| (format!("not a valid argon2id hash: {error}"), again()))?;
            user.hash = Some(value.into());
        }
        "scram" => user.scram = Some(value.parse().map_err(|error: KeysError| (error.to_string(), again()))?),
        "send_as" => {
            for one in value.split([',', ' ', '\t']).filter(|one| !one.is_empty()) {
                let help = || "write ADDRESS, @DOMAIN, a pattern with *, or * for any, separated by commas".to_owned();
                user.send_as.push(one.parse().map_err(|error: crate::SendAsError| (error.to_string(), help()))?);
                if user.send_as.len() > SEND_AS_MAX {
                    let why = format!("more than {SEND_AS_MAX} addresses");
                    return Err((why, "use @DOMAIN or a pattern with *".to_owned()));
                }
            }
        }
        "locked" => {
            user.is_locked = match value {
                "yes" | "true" => true,
                "no" | "false" => false,
                _ => return Err((format!("{value:?} is neither yes nor no"), "write yes or no".to_owned())),
            }
        }
        _ => {
            let help = "delete the line to use the limit for all users";
            if let Some(place) = LIMIT_KEYS.iter().position(|known| *known == key) {
                user.limits.0[place] =
                    value.parse().map_err(|error: crate::LimitError| (error.to_string(), help.to_owned()))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
