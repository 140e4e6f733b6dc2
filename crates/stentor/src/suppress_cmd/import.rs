//! `stentor suppress import`.
//!
//! Reads its file twice: first all lines are checked, then the entries are sent, so that a file with an error changes
//! nothing. Entries are sent in parts; after a failure in between, the import can be repeated as it is.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::process::ExitCode;

use stentor_control::suppression_view::ENTRIES_MAX;
use stentor_control::{
    Client, ControlError, ControlReply, NewSuppression, NewSuppressions, Request, SuppressionRequest,
};
use stentor_registry::Suppression;
use stentor_registry::csv::{CsvColumns, CsvDefaults, CsvError, LINE_BYTES_MAX, line_of};

use super::{ImportArgs, end, now};
use crate::asking::{fail, usage};

/// Errors of a file that are printed.
const ERRORS_MAX: usize = 20;
/// Octets of the entries of one request; the limit of a request is 64 KiB.
const PART_BYTES_MAX: usize = 48 * 1024;
/// Octets that an entry takes beside its texts.
const ENTRY_BYTES: usize = 150;

pub(super) fn import(args: &ImportArgs) -> ExitCode {
    let scope = match args.scope.scope() {
        Ok(scope) => scope,
        Err(error) => return usage(&error.to_string()),
    };
    let name = args.file.file_name().unwrap_or_default().to_string_lossy();
    let source: String = format!("import {name}").chars().filter(|c| !c.is_control()).take(100).collect();
    let defaults =
        CsvDefaults { scope, reason: args.reason.reason, source, since: now(), expires: end(args.reason.for_s) };
    let mut checked = FileCheck::default();
    if let Err(error) = read(&args.file, &defaults, &mut |line| checked.see(&args.file, line)) {
        return fail(&format!("{}: {error}", args.file.display()));
    }
    if checked.errors > 0 {
        let lines = if checked.errors == 1 { "line has an error" } else { "lines have errors" };
        return fail(&format!("{}: {} {lines}; nothing was imported", args.file.display(), checked.errors));
    }
    if args.dry_run {
        println!("{} entries, no errors; nothing was imported", checked.entries);
        return ExitCode::SUCCESS;
    }
    transfer(args, &defaults)
}

/// Sends the entries of a file without errors.
fn transfer(args: &ImportArgs, defaults: &CsvDefaults) -> ExitCode {
    let socket = match args.server.socket() {
        Ok(socket) => socket,
        Err(code) => return code,
    };
    let mut client = match Client::connect(&socket) {
        Ok(client) => client,
        Err(error) => return args.server.fail(&error.to_string()),
    };
    let mut part = Part::default();
    let mut failure = None;
    let sent = read(&args.file, defaults, &mut |line| {
        if failure.is_none()
            && let Ok(Some(entry)) = line.entry
        {
            failure = part.add(&mut client, &entry).err();
        }
    });
    let failure = failure.or_else(|| part.flush(&mut client).err());
    match (sent, failure) {
        (Ok(()), None) => {
            println!("{} entries read, {} added or extended", part.sent, part.changed);
            ExitCode::SUCCESS
        }
        (Err(error), _) => fail(&format!("{}: {error}; {} entries are imported", args.file.display(), part.sent)),
        (_, Some(error)) => {
            let sent = part.sent;
            args.server
                .fail(&format!("{error}; {sent} entries are imported: repeat the import, it changes them no more"))
        }
    }
}

/// A line of a file.
struct CsvLine {
    number: u64,
    entry: Result<Option<Suppression>, CsvError>,
}

/// What the first reading of a file found.
#[derive(Default)]
struct FileCheck {
    entries: u64,
    errors: usize,
}

impl FileCheck {
    fn see(&mut self, file: &Path, line: CsvLine) {
        match line.entry {
            Ok(entry) => self.entries += u64::from(entry.is_some()),
            Err(error) => {
                self.errors += 1;
                if self.errors <= ERRORS_MAX {
                    eprintln!("stentor: {}:{}: {error}", file.display(), line.number);
                }
            }
        }
    }
}

/// Reads the lines of a file; the first one names the columns.
fn read(path: &Path, defaults: &CsvDefaults, line: &mut dyn FnMut(CsvLine)) -> io::Result<()> {
    let file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a file: it is read twice"));
    }
    let (mut input, mut bytes, mut number) = (BufReader::new(file), Vec::new(), 0);
    let mut columns: Option<CsvColumns> = None;
    while next_line(&mut input, &mut bytes)? {
        number += 1;
        let text = line_of(&bytes);
        match &columns {
            Some(columns) => {
                line(CsvLine { number, entry: text.and_then(|text| columns.entry(text, defaults)) });
            }
            None => match text.and_then(CsvColumns::parse) {
                Ok(found) => columns = Some(found),
                Err(error) => {
                    line(CsvLine { number, entry: Err(error) });
                    return Ok(());
                }
            },
        }
    }
    Ok(())
}

/// Reads the next line, of a longer one only as much as shows that it is too long. Returns whether there is one.
fn next_line(input: &mut impl BufRead, bytes: &mut Vec<u8>) -> io::Result<bool> {
    bytes.clear();
    input.by_ref().take(LINE_BYTES_MAX as u64 + 1).read_until(b'\n', bytes)?;
    if bytes.len() > LINE_BYTES_MAX && bytes.last() != Some(&b'\n') {
        input.skip_until(b'\n')?;
    }
    Ok(!bytes.is_empty())
}

/// Entries on their way to the server.
#[derive(Default)]
struct Part {
    entries: Vec<NewSuppression>,
    bytes: usize,
    sent: u64,
    changed: u64,
}

impl Part {
    fn add(&mut self, client: &mut Client, entry: &Suppression) -> Result<(), ControlError> {
        let (subject, scope) = (entry.key.subject.text(), entry.key.scope.text());
        // A quote or a backslash takes two octets.
        let bytes = ENTRY_BYTES + 2 * (subject.len() + scope.len() + entry.source.len() + entry.note.len());
        if self.bytes + bytes > PART_BYTES_MAX || self.entries.len() == ENTRIES_MAX {
            self.flush(client)?;
        }
        self.bytes += bytes;
        self.entries.push(NewSuppression {
            subject,
            scope: Some(scope),
            reason: Some(entry.reason.name().to_owned()),
            source: Some(entry.source.to_string()),
            note: (!entry.note.is_empty()).then(|| entry.note.to_string()),
            since: Some(entry.since),
            expires: entry.expires,
        });
        Ok(())
    }

    fn flush(&mut self, client: &mut Client) -> Result<(), ControlError> {
        if self.entries.is_empty() {
            return Ok(());
        }
        let entries = std::mem::take(&mut self.entries);
        let count = entries.len() as u64;
        let source = entries.first().and_then(|entry| entry.source.clone());
        let request = SuppressionRequest::Add(NewSuppressions { entries, source });
        if let ControlReply::Done { count: Some(changed), .. } = client.ask(&Request::Suppression(request))? {
            self.changed += changed;
        }
        (self.bytes, self.sent) = (0, self.sent + count);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use stentor_registry::{Scope, SuppressionReason};

    use super::*;

    fn lines(text: &[u8]) -> Vec<(u64, String)> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.csv");
        std::fs::write(&path, text).unwrap();
        let (scope, reason) = (Scope::Everything, SuppressionReason::Operator);
        let defaults = CsvDefaults { scope, reason, source: "import".to_owned(), since: 1, expires: None };
        let mut all = Vec::new();
        read(&path, &defaults, &mut |line| {
            let words = match line.entry {
                Ok(entry) => entry.map_or_else(|| "empty".to_owned(), |entry| entry.key.subject.text()),
                Err(error) => error.to_string(),
            };
            all.push((line.number, words));
        })
        .unwrap();
        all
    }

    #[test]
    fn lines_of_a_file_have_numbers_and_limits() {
        let long = "x".repeat(3 * LINE_BYTES_MAX);
        let text = format!("email\r\na@x.example\r\n\r\n{long}\nb@x.example\nnobody");
        let too_long = format!("the line is longer than {LINE_BYTES_MAX} octets");
        let expected = [
            (2, "a@x.example"),
            (3, "empty"),
            (4, too_long.as_str()),
            (5, "b@x.example"),
            (6, "\"nobody\": address has no domain"),
        ];
        assert_eq!(lines(text.as_bytes()), expected.map(|(number, words)| (number, words.to_owned())));
        assert_eq!(lines(b""), []);
        assert_eq!(lines(b"name\na@b").len(), 1, "without the columns nothing else is read");
    }
}
