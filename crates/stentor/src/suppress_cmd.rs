//! `stentor suppress`: who gets no mail. All of it works through the running server.
//!
//! An import reads its file twice: first all lines are checked, then the entries are sent, so that a file with an error
//! changes nothing. Entries are sent in parts; after a failure in between, the import can be repeated as it is.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand, ValueEnum};
use stentor_config::duration_s;
use stentor_control::suppression_view::{ENTRIES_MAX, ROWS_DEFAULT, ROWS_MAX};
use stentor_control::{
    Client, ControlError, ControlReply, EndedSuppressions, NewSuppression, NewSuppressions, Request, SuppressionName,
    SuppressionOptions, SuppressionRequest, SuppressionView,
};
use stentor_registry::csv::{CsvColumns, CsvDefaults, CsvError, LINE_BYTES_MAX, entry_line, header_line, line_of};
use stentor_registry::{Scope, Subject, Suppression, SuppressionError, SuppressionReason};

use crate::asking::{QueryArgs, ServerArgs, ask, fail, query, streamed, usage};

/// Errors of a file that are printed.
const ERRORS_MAX: usize = 20;
/// Octets of the entries of one request; the limit of a request is 64 KiB.
const PART_BYTES_MAX: usize = 48 * 1024;
/// Octets that an entry takes beside its texts.
const ENTRY_BYTES: usize = 150;

#[derive(Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Send nothing to addresses or domains from now on, also no waiting mail.
    Add(AddArgs),
    /// Remove entries.
    Remove {
        /// Addresses, or @DOMAIN.
        #[arg(required = true, value_name = "ADDRESS")]
        subjects: Vec<String>,
        #[command(flatten)]
        scope: ScopeArgs,
        /// Recorded in the journal's audit record.
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        #[command(flatten)]
        server: ServerArgs,
    },
    /// Show the entries of an address and its domain, or of an @DOMAIN.
    Show {
        #[arg(value_name = "ADDRESS")]
        subject: String,
        #[command(flatten)]
        query: QueryArgs,
    },
    /// List entries in the order of their addresses.
    List {
        /// Number of entries to list.
        #[arg(long, short = 'n', default_value_t = ROWS_DEFAULT, value_name = "N",
            value_parser = clap::value_parser!(u32).range(1..=i64::from(ROWS_MAX)))]
        limit: u32,
        #[command(flatten)]
        query: QueryArgs,
    },
    /// Add entries from a CSV file, as `export` writes it; a column `subject` or `email` is enough.
    Import(ImportArgs),
    /// Write all entries as CSV to standard output.
    Export {
        #[command(flatten)]
        server: ServerArgs,
    },
}

/// The scope of entries.
#[derive(Args)]
struct ScopeArgs {
    /// Only posts to this list, instead of all mail.
    #[arg(long, value_name = "NAME")]
    list: Option<String>,
    /// Only mail of this envelope sender, an address or a domain, instead of all mail.
    #[arg(long, value_name = "ADDRESS", conflicts_with = "list")]
    sender: Option<String>,
}

impl ScopeArgs {
    fn scope(&self) -> Result<Scope, SuppressionError> {
        match (&self.list, &self.sender) {
            (Some(list), _) => Scope::list(list),
            (None, Some(sender)) => Scope::sender(sender),
            (None, None) => Ok(Scope::Everything),
        }
    }
}

#[derive(Args)]
struct AddArgs {
    /// Addresses, or @DOMAIN for all addresses of a domain.
    #[arg(required = true, value_name = "ADDRESS")]
    subjects: Vec<String>,
    #[command(flatten)]
    scope: ScopeArgs,
    #[command(flatten)]
    cause: CauseArgs,
    /// Free text, kept with the entry.
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Args)]
struct CauseArgs {
    #[arg(long, value_enum, default_value_t = Cause::Operator)]
    reason: Cause,
    /// End it after this time: 12h, 30d.
    #[arg(long = "for", value_name = "TIME", value_parser = duration_s)]
    for_s: Option<u64>,
}

#[derive(Args)]
struct ImportArgs {
    /// A CSV file whose first line names the columns.
    file: PathBuf,
    /// Only check the file.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    scope: ScopeArgs,
    #[command(flatten)]
    cause: CauseArgs,
    #[command(flatten)]
    server: ServerArgs,
}

/// Why nothing is sent.
#[derive(Clone, Copy, ValueEnum)]
enum Cause {
    Unsubscribe,
    Complaint,
    Bounce,
    Operator,
}

impl Cause {
    fn reason(self) -> SuppressionReason {
        match self {
            Cause::Unsubscribe => SuppressionReason::Unsubscribe,
            Cause::Complaint => SuppressionReason::Complaint,
            Cause::Bounce => SuppressionReason::Bounce,
            Cause::Operator => SuppressionReason::Operator,
        }
    }
}

pub(crate) fn run(options: Options) -> ExitCode {
    match options.command {
        Command::Add(args) => add(args),
        Command::Remove { subjects, scope, reason, server } => {
            let scope = match scope.scope() {
                Ok(scope) => scope.text(),
                Err(error) => return usage(&error.to_string()),
            };
            let entries = subjects.into_iter().map(|subject| SuppressionName::of(subject, scope.clone())).collect();
            send(&server, SuppressionRequest::Remove(EndedSuppressions { entries, reason }))
        }
        Command::Show { subject, query: args } => {
            let options =
                SuppressionOptions { subject: Some(subject), rows_max: ROWS_MAX, ..SuppressionOptions::default() };
            query(&args, &Request::Suppression(SuppressionRequest::List(options)))
        }
        Command::List { limit, query: args } => {
            let options = SuppressionOptions { rows_max: limit, ..SuppressionOptions::default() };
            query(&args, &Request::Suppression(SuppressionRequest::List(options)))
        }
        Command::Import(args) => import(&args),
        Command::Export { server } => {
            let result = export(&server);
            result.unwrap_or_else(|code| code)
        }
    }
}

fn send(server: &ServerArgs, request: SuppressionRequest) -> ExitCode {
    ask(server, &Request::Suppression(request))
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

fn end(for_s: Option<u64>) -> Option<u64> {
    for_s.map(|s| now().saturating_add(s.saturating_mul(1_000)))
}

fn add(AddArgs { subjects, scope, cause, note, server }: AddArgs) -> ExitCode {
    let scope = match scope.scope() {
        Ok(scope) => scope.text(),
        Err(error) => return usage(&error.to_string()),
    };
    let expires = end(cause.for_s);
    let entry = |subject| NewSuppression {
        subject,
        scope: Some(scope.clone()),
        reason: Some(cause.reason.reason().name().to_owned()),
        note: note.clone(),
        expires,
        ..NewSuppression::default()
    };
    let entries = subjects.into_iter().map(entry).collect();
    send(&server, SuppressionRequest::Add(NewSuppressions { entries, source: None }))
}

fn import(args: &ImportArgs) -> ExitCode {
    let scope = match args.scope.scope() {
        Ok(scope) => scope,
        Err(error) => return usage(&error.to_string()),
    };
    let name = args.file.file_name().unwrap_or_default().to_string_lossy();
    let source: String = format!("import {name}").chars().filter(|c| !c.is_control()).take(100).collect();
    let defaults =
        CsvDefaults { scope, reason: args.cause.reason.reason(), source, since: now(), expires: end(args.cause.for_s) };
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
    let sent = read(&args.file, &defaults, &mut |line| {
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

fn export(server: &ServerArgs) -> Result<ExitCode, ExitCode> {
    let socket = server.socket()?;
    let mut client = Client::connect(&socket).map_err(|error| server.fail(&error.to_string()))?;
    let mut output = BufWriter::new(io::stdout().lock());
    let written = write_all(&mut client, &mut output).and_then(|()| output.flush().map_err(ControlError::Output));
    Ok(streamed(server, written))
}

fn write_all(client: &mut Client, output: &mut impl Write) -> Result<(), ControlError> {
    output.write_all(header_line().as_bytes()).map_err(ControlError::Output)?;
    let mut options = SuppressionOptions { rows_max: ROWS_MAX, ..SuppressionOptions::default() };
    loop {
        let request = Request::Suppression(SuppressionRequest::List(options.clone()));
        let ControlReply::Suppressions(list) = client.ask(&request)? else {
            return Err(ControlError::Protocol("unexpected reply".to_owned()));
        };
        for row in &list.rows {
            let entry = entry_of(row).map_err(|error| ControlError::Protocol(error.to_string()))?;
            output.write_all(entry_line(&entry).as_bytes()).map_err(ControlError::Output)?;
        }
        options.after = list.next;
        if options.after.is_none() {
            return Ok(());
        }
    }
}

fn entry_of(row: &SuppressionView) -> Result<Suppression, SuppressionError> {
    let reason = SuppressionReason::parse(&row.reason)?;
    let (subject, scope) = (Subject::parse(&row.subject)?, Scope::parse(&row.scope)?);
    let entry = Suppression::new(subject, scope, reason, &row.source, row.since);
    Ok(Suppression { note: row.note.as_str().into(), expires: row.expires, ..entry })
}

#[cfg(test)]
mod tests {
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
