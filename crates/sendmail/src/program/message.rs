//! Turns a message on standard input into a submission.
//!
//! The header is kept in memory (at most `HEADER_BYTES_MAX`), searched for recipients and completed; the body is
//! written to the folder as it is read. Nothing is created in the folder before arguments, header and recipients are
//! valid.

use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use stentor_mail::address::Address;
use stentor_mail::dsn::format_date;
use stentor_mail::headers::HEADER_BYTES_MAX;
use stentor_sendmail::addresses::{self, qualified};
use stentor_sendmail::exit::{EX_DATAERR, EX_NOPERM, EX_NOUSER, EX_UNAVAILABLE, ExitError};
use stentor_sendmail::format::{Recipient, SubmissionEnvelope};
use stentor_sendmail::header::{FieldDefaults, HeaderSection, LineKind};
use stentor_sendmail::lines::{BodyLines, Lines, Part};
use stentor_sendmail::options::{Call, Mode};
use stentor_sendmail::settings::Settings;

use super::folder::{Draft, Folder};
use super::privileges::Privileges;
use super::user::CallingUser;

/// Accepts a message.
pub fn deliver(call: &Call, folder: &Folder, privileges: &Privileges, caller: &CallingUser) -> Result<(), ExitError> {
    let settings = &folder.settings;
    let sender = call.sender.as_deref().map(|text| sender(text, settings)).transpose()?;
    permitted(sender.as_deref(), settings, caller)?;
    let mut lines = Lines::new(io::stdin().lock(), !call.keeps_dots);
    let mut composer = Composer::default();
    let mut line = Vec::new();
    while !composer.has_header() {
        let part = lines.next(&mut line).map_err(|error| unreadable(&error))?;
        composer.push(&line, part)?;
    }
    let named = call.recipients.iter().flat_map(|list| addresses::parse(list.as_bytes())).map(|found| found.text);
    let in_header = if call.takes_recipients { composer.header.recipients() } else { Vec::new() };
    let recipients = recipients(named.chain(in_header), settings)?;
    let recipient = |address| Recipient { address, notify: call.notify, orcpt: None };
    let envelope = SubmissionEnvelope {
        at: now_ms(),
        login: caller.user.login.clone(),
        sender,
        recipients: recipients.into_iter().map(recipient).collect(),
        ret: call.ret,
        envid: call.envid.clone(),
    };
    let mut draft = folder.draft(privileges)?;
    composer.begin(&mut draft, call, &envelope, caller, settings)?;
    while composer.is_open() {
        let part = lines.next(&mut line).map_err(|error| unreadable(&error))?;
        composer.push(&line, part)?;
        composer.write(&mut draft)?;
    }
    draft.finish(&envelope)
}

fn unreadable(error: &io::Error) -> ExitError {
    ExitError::new(EX_DATAERR, format!("could not read the message: {error}"))
}

pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// The sender given by `-f`, with a domain; empty for the null path.
fn sender(text: &str, settings: &Settings) -> Result<String, ExitError> {
    let found = addresses::parse(text.as_bytes());
    let first = found.into_iter().next().map(|found| found.text).unwrap_or_default();
    let sender = qualified(&first, &settings.origin);
    match Address::parse(sender.as_bytes(), true) {
        _ if sender.is_empty() => Ok(sender),
        Ok(address) => Ok(address.as_str().to_owned()),
        Err(why) => Err(ExitError::new(EX_DATAERR, format!("sender {}: {why}", shown(text)))),
    }
}

/// Checks whether the user may use this sender if the server is strict; the server decides again by its own
/// configuration.
pub fn permitted(sender: Option<&str>, settings: &Settings, caller: &CallingUser) -> Result<(), ExitError> {
    let Some(sender) = sender.filter(|_| settings.rights.strict) else { return Ok(()) };
    if settings.rights.allow(&caller.user, sender, &[&settings.origin, &settings.hostname]) {
        return Ok(());
    }
    let text =
        format!("{} may not send as {} ([submission] senders, trusted_users)", caller.user.shown(), shown(sender));
    Err(ExitError::new(EX_NOPERM, text))
}

/// The recipients without duplicates. The server returns mail for malformed ones; a message without valid recipients
/// is refused here.
fn recipients(all: impl Iterator<Item = String>, settings: &Settings) -> Result<Vec<String>, ExitError> {
    let mut seen = std::collections::HashSet::new();
    let recipients: Vec<String> = all.filter(|to| !to.is_empty() && seen.insert(to.clone())).collect();
    let max = settings.recipients_max as usize;
    if recipients.len() > max {
        let text = format!("{} recipients; the maximum is {max} ([submission] recipients_max)", recipients.len());
        return Err(ExitError::new(EX_UNAVAILABLE, text));
    }
    let why = |to: &String| Address::parse(qualified(to, &settings.origin).as_bytes(), true).err();
    match recipients.iter().map(|to| (to, why(to))).find(|(_, why)| why.is_none()) {
        Some(_) => Ok(recipients),
        None => Err(match recipients.first() {
            None => ExitError::usage("no recipients on the command line or in the header"),
            Some(to) => {
                let why = why(to).map(|why| why.to_string()).unwrap_or_default();
                ExitError::new(EX_NOUSER, format!("no recipient has a valid address: {}: {why}", shown(to)))
            }
        }),
    }
}

/// Escapes text for a terminal: control characters are replaced, quotes are kept.
pub fn shown(text: &str) -> String {
    let mut out = String::new();
    for letter in text.chars().take(200) {
        match letter {
            '"' | '\'' | '\\' => out.push(letter),
            _ => out.extend(letter.escape_debug()),
        }
    }
    out
}

/// Converts lines to a header and a body.
#[derive(Default)]
pub struct Composer {
    header: HeaderSection,
    state: State,
    body: BodyLines,
    /// Start of a header line that arrives in parts.
    begun: Vec<u8>,
    /// Output of the body that is not written yet.
    out: Vec<u8>,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Header,
    Body,
    End,
}

impl Composer {
    /// Adds a line or a part of one.
    pub fn push(&mut self, line: &[u8], part: Part) -> Result<(), ExitError> {
        if self.state == State::Header {
            if part == Part::End {
                self.state = State::End;
                return Ok(());
            }
            self.begun.extend_from_slice(line);
            if part == Part::Begun && (self.begun.len() as u64) <= HEADER_BYTES_MAX {
                return Ok(());
            }
            let line = std::mem::take(&mut self.begun);
            match self.header.take(&line)? {
                LineKind::Field => {}
                LineKind::End => self.state = State::Body,
                LineKind::Body => {
                    self.state = State::Body;
                    self.body.push(&line, part, &mut self.out);
                }
            }
            return Ok(());
        }
        if part == Part::End {
            self.state = State::End;
        } else {
            self.body.push(line, part, &mut self.out);
        }
        Ok(())
    }

    pub fn has_header(&self) -> bool {
        self.state != State::Header
    }

    fn is_open(&self) -> bool {
        self.state != State::End
    }

    /// Writes the completed header, and the body so far.
    pub fn begin(
        &mut self,
        draft: &mut Draft<'_>,
        call: &Call,
        envelope: &SubmissionEnvelope,
        caller: &CallingUser,
        settings: &Settings,
    ) -> Result<(), ExitError> {
        let own = caller.user.address(&settings.origin);
        let id = format!("{:x}.{:x}", envelope.at, std::process::id());
        // An SMTP client writes its own header, and its sender may be anyone.
        let own_name = if call.mode == Mode::Smtp { "" } else { &caller.full_name };
        if !call.gateway {
            let defaults = FieldDefaults {
                sender: envelope.sender.as_deref().unwrap_or(&own),
                full_name: call.full_name.as_deref().unwrap_or(own_name),
                date: &format_date(envelope.at),
                id: &id,
                hostname: &settings.hostname,
            };
            self.header.complete(&settings.origin, &defaults);
        }
        let mut header = Vec::new();
        self.header.write(&mut header);
        draft.write(&header)?;
        self.write(draft)
    }

    pub fn write(&mut self, draft: &mut Draft<'_>) -> Result<(), ExitError> {
        let done = draft.write(&self.out);
        self.out.clear();
        done
    }
}
