//! `stentor suppress`: who gets no mail. All of it works through the running server.
//!
//! An import reads its file twice: first all lines are checked, then the entries are sent, so that a file with an error
//! changes nothing. Entries are sent in parts; after a failure in between, the import can be repeated as it is.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand, ValueEnum};
use stentor_admin::suppression_forms::{self, addition};
use stentor_config::duration_s;
use stentor_control::format::plural;
use stentor_control::suppression_view::{ENTRIES_MAX, ROWS_DEFAULT, ROWS_MAX};
use stentor_control::{
    Client, ControlError, ControlReply, NewSuppression, NewSuppressions, Request, SuppressionName, SuppressionOptions,
    SuppressionRemoval, SuppressionRequest,
};
use stentor_registry::csv::{CsvDefaults, entry_line, header_line};
use stentor_registry::csv_reader::{CsvLine, CsvReader};
use stentor_registry::{Scope, Suppression, SuppressionError, SuppressionReason};

use crate::asking::{QueryArgs, ServerArgs, ask, fail, query, streamed, usage};

/// Errors of a file that are printed.
const ERRORS_MAX: usize = 20;
/// Octets of the entries of one request; the limit of a request is 64 KiB.
const PART_BYTES_MAX: usize = 48 * 1024;
/// Octets of a file read at once.
const READ_BYTES: usize = 256 * 1024;
/// Lists of a file that `--dry-run` looks for.
const LISTS_MAX: usize = 1_000;
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
        filter: FilterArgs,
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

/// The entries to list.
#[derive(Args)]
struct FilterArgs {
    /// Only entries for posts to this list.
    #[arg(long, value_name = "NAME")]
    list: Option<String>,
    /// Only entries for mail of this envelope sender, an address or a domain.
    #[arg(long, value_name = "ADDRESS", conflicts_with = "list")]
    sender: Option<String>,
    /// Only entries for all mail.
    #[arg(long, alias = "everything", conflicts_with_all = ["list", "sender"])]
    all_mail: bool,
    /// Only entries with this reason.
    #[arg(long, value_enum)]
    reason: Option<Cause>,
}

impl FilterArgs {
    fn options(self, rows_max: u32) -> Result<SuppressionOptions, SuppressionError> {
        let is_scoped = self.all_mail || self.list.is_some() || self.sender.is_some();
        let scope = ScopeArgs { list: self.list, sender: self.sender }.scope()?.text();
        let reason = self.reason.map(|cause| cause.reason().name().to_owned());
        Ok(SuppressionOptions { scope: is_scoped.then_some(scope), reason, rows_max, ..SuppressionOptions::default() })
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
    /// Add entries even if the list is not configured.
    #[arg(long, requires = "list")]
    force: bool,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Args)]
struct CauseArgs {
    #[arg(long, value_enum, default_value_t = Cause::Operator)]
    reason: Cause,
    /// End it after this time: 12h, 30d.
    #[arg(long = "for", value_name = "TIME", value_parser = entry_s)]
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

/// The time after which an entry ends.
fn entry_s(text: &str) -> Result<u64, String> {
    match duration_s(text)? {
        0 => Err("an entry that ends at once has no effect; write, for instance, 30d".to_owned()),
        s => Ok(s),
    }
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
            send(&server, SuppressionRequest::Remove(SuppressionRemoval { entries, reason }))
        }
        Command::Show { subject, query: args } => {
            let options =
                SuppressionOptions { subject: Some(subject), rows_max: ROWS_MAX, ..SuppressionOptions::default() };
            query(&args, &Request::Suppression(SuppressionRequest::List(options)))
        }
        Command::List { limit, filter, query: args } => match filter.options(limit) {
            Ok(options) => query(&args, &Request::Suppression(SuppressionRequest::List(options))),
            Err(error) => usage(&error.to_string()),
        },
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

fn add(AddArgs { subjects, scope, cause, note, force, server }: AddArgs) -> ExitCode {
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
    send(&server, SuppressionRequest::Add(NewSuppressions { entries, source: None, known_lists_only: !force }))
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
    let mut checked = FileCheck { now: defaults.since, ..FileCheck::default() };
    if let Err(error) = read(&args.file, &defaults, &mut |line| checked.see(&args.file, line)) {
        return fail(&format!("{}: {error}", args.file.display()));
    }
    if checked.errors > 0 {
        let lines = if checked.errors == 1 { "line has an error" } else { "lines have errors" };
        return fail(&format!("{}: {} {lines}; nothing was imported", args.file.display(), checked.errors));
    }
    let expired = if checked.expired == 0 { String::new() } else { format!(", {} already expired", checked.expired) };
    if args.dry_run {
        println!("{} without errors{expired}; nothing was imported", plural(checked.entries, "entry"));
        remark_on_lists(&args.server, checked.scopes);
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
            && !entry.has_expired(defaults.since)
        {
            failure = part.add(&mut client, &entry).err();
        }
    });
    let failure = failure.or_else(|| part.flush(&mut client).err());
    match (sent, failure) {
        (Ok(()), None) => {
            let there = part.sent - part.changed;
            println!(
                "{} read: {} added or extended, {there} already there{expired}",
                plural(checked.entries, "entry"),
                part.changed
            );
            for remark in part.remarks {
                eprintln!("stentor: {remark}");
            }
            ExitCode::SUCCESS
        }
        (Err(error), _) => fail(&format!("{}: {error}; {} entries are imported", args.file.display(), part.sent)),
        (_, Some(error)) => {
            let sent = part.sent;
            args.server.fail(&format!(
                "{error}; {sent} entries are imported: repeat the import; stored entries stay unchanged"
            ))
        }
    }
}

/// Names the lists of a file that are not configured, as its import would; the server knows them.
fn remark_on_lists(server: &ServerArgs, scopes: BTreeSet<String>) {
    if scopes.is_empty() {
        return;
    }
    let Some(mut client) = server.socket().ok().and_then(|socket| Client::connect(&socket).ok()) else {
        eprintln!("stentor: the server does not answer, so its lists could not be compared");
        return;
    };
    for scope in scopes {
        let options = SuppressionOptions { scope: Some(scope), rows_max: 1, ..SuppressionOptions::default() };
        let request = Request::Suppression(SuppressionRequest::List(options));
        if let Ok(ControlReply::Suppressions(list)) = client.ask(&request) {
            list.remarks.iter().for_each(|remark| eprintln!("stentor: {remark}"));
        }
    }
}

/// What the first reading of a file found.
#[derive(Default)]
struct FileCheck {
    now: u64,
    entries: u64,
    expired: u64,
    errors: usize,
    /// Those of lists.
    scopes: BTreeSet<String>,
}

impl FileCheck {
    fn see(&mut self, file: &Path, line: CsvLine) {
        match line.entry {
            Ok(entry) => {
                let Some(entry) = entry else { return };
                self.entries += 1;
                if entry.has_expired(self.now) {
                    self.expired += 1;
                } else if matches!(entry.key.scope, Scope::List(_)) && self.scopes.len() < LISTS_MAX {
                    self.scopes.insert(entry.key.scope.text());
                }
            }
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
    let mut file = File::open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file; save the input to a file first, since an import reads it twice",
        ));
    }
    let (mut reader, mut piece) = (CsvReader::new(defaults.clone()), vec![0; READ_BYTES]);
    loop {
        match file.read(&mut piece) {
            Ok(0) => break,
            Ok(read) => reader.push(&piece[..read], line),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    reader.finish(line);
    Ok(())
}

/// Entries on their way to the server.
#[derive(Default)]
struct Part {
    entries: Vec<NewSuppression>,
    bytes: usize,
    sent: u64,
    changed: u64,
    /// The server's remarks, such as lists that are not configured.
    remarks: BTreeSet<String>,
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
        self.entries.push(addition(entry));
        Ok(())
    }

    fn flush(&mut self, client: &mut Client) -> Result<(), ControlError> {
        if self.entries.is_empty() {
            return Ok(());
        }
        let entries = std::mem::take(&mut self.entries);
        let count = entries.len() as u64;
        let source = entries.first().and_then(|entry| entry.source.clone());
        let request = SuppressionRequest::Add(NewSuppressions { entries, source, known_lists_only: false });
        if let ControlReply::Done { count: Some(changed), remarks, .. } = client.ask(&Request::Suppression(request))? {
            self.changed += changed;
            self.remarks.extend(remarks.into_iter().take(ERRORS_MAX.saturating_sub(self.remarks.len())));
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
            let entry = suppression_forms::entry(row).map_err(|error| ControlError::Protocol(error.to_string()))?;
            output.write_all(entry_line(&entry).as_bytes()).map_err(ControlError::Output)?;
        }
        options.after = list.next;
        if options.after.is_none() {
            return Ok(());
        }
    }
}
