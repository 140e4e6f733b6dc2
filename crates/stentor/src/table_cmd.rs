//! `stentor table`: looks up a key as the server does, and checks tables. A table is named as in main.cf, or by its
//! name in `[tables]`, which also determines its partial keys.
//!
//! `get` prints the result of `postmap -q` on standard output, and on standard error the keys tried and the line that
//! answered. Exit codes: 0 found, 1 not found (as postmap), 75 (`EX_TEMPFAIL`) for a temporary failure: the table
//! cannot be loaded, or its service does not answer.

use std::collections::HashMap;
use std::io::{self, BufRead as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;
use stentor_config::{Config, InlineEntry, TableConfig, TableSource};
use stentor_control::format::{bytes, grouped, plural};
use stentor_mail::address::Address;
use stentor_rules::{Dialect, Field, Key, Subject, keys};
use stentor_ruletables::remote::{For, Remote};
use stentor_tablefiles as files;
use stentor_tables::candidates::{Candidates, Options as Asked, Owner};
use stentor_tables::expand::expand;
use stentor_tables::socketmap::SocketmapReply;
use stentor_tables::{LoadReport, LoadedTable, Reference, ReferenceError, Scratch, Table, TableResult};

use crate::asking::{fail, load};
use crate::output::{done, is_closed, print};
use crate::trial;

const NOT_FOUND: u8 = 1;
/// Sysexits' `EX_TEMPFAIL`.
const TEMPFAIL: u8 = 75;
/// Sysexits' `EX_CONFIG`.
const CONFIGURATION: u8 = 78;
/// Postfix's timeout for a socketmap.
const TIMEOUT: Duration = Duration::from_secs(100);

#[derive(Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Look up a key, or each line of standard input.
    Get(GetArgs),
    /// Read tables and report every error in them.
    Check {
        /// Tables: TYPE:NAME, as in main.cf, or NAME of [tables.NAME].
        #[arg(required = true, value_name = "TABLE")]
        tables: Vec<TableArg>,
        #[command(flatten)]
        config: ConfigArg,
    },
}

#[derive(Args)]
struct ConfigArg {
    /// The configuration with the [tables.NAME] [default: `$STENTOR_CONFIG`, else /etc/stentor/stentor.toml].
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Args)]
struct GetArgs {
    /// TYPE:NAME, as in main.cf: `hash:/etc/postfix/access`; or NAME of [tables.NAME]. The text file is read, not the
    /// database made from it.
    #[arg(value_name = "TABLE")]
    table: TableArg,
    /// The key; - reads keys from standard input, one a line.
    key: String,
    /// Also look up the partial keys of this kind of table. A table of the configuration has its own kind.
    #[arg(long = "as", value_name = "KIND", value_parser = kind)]
    kind: Option<Dialect>,
    /// Characters that begin an address extension (`recipient_delimiter`).
    #[arg(long, value_name = "CHARS", default_value = "+")]
    delimiter: String,
    /// Treat the key's domain as local: also look up the local part.
    #[arg(long)]
    local: bool,
    /// Print JSON lines.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    config: ConfigArg,
}

/// A table as its user names it.
#[derive(Clone)]
struct TableArg {
    text: String,
    /// `None`: the name of a table in the configuration.
    reference: Option<Reference>,
}

impl FromStr for TableArg {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        let reference = if text.contains(':') { Some(Reference::parse(text)?) } else { None };
        Ok(Self { text: text.to_owned(), reference })
    }
}

/// A table's entries, with the configuration and the table's index there if it is a named one.
struct TableEntries {
    entries: Entries,
    own: Option<(Config, usize)>,
}

impl TableEntries {
    fn own(&self) -> Option<(&Config, &TableConfig)> {
        let (config, at) = self.own.as_ref()?;
        Some((config, config.tables.get(*at)?))
    }
}

enum Entries {
    At(Reference),
    /// Entries in the configuration.
    Inline(Vec<InlineEntry>),
}

/// Finds a table by its name. If there is none, reports why and returns the exit code.
fn find(table: &TableArg, config: &ConfigArg) -> Result<TableEntries, ExitCode> {
    if let Some(reference) = &table.reference {
        return Ok(TableEntries { entries: Entries::At(reference.clone()), own: None });
    }
    let config = load(config.config.as_deref())?;
    let tables = || config.tables.iter().filter(|table| !matches!(table.source, TableSource::Service(_)));
    let is_it = |own: &TableConfig| own.name == table.text && !matches!(own.source, TableSource::Service(_));
    let Some(at) = config.tables.iter().position(is_it) else {
        let known: Vec<&str> = tables().map(|own| own.name.as_str()).collect();
        let known =
            if known.is_empty() { "there are none".to_owned() } else { format!("tables: {}", known.join(", ")) };
        let why = format!(
            "no table {:?} in [tables.NAME] ({known}); write any other table as TYPE:NAME, as in main.cf",
            table.text
        );
        fail(&why);
        return Err(ExitCode::from(CONFIGURATION));
    };
    let own = &config.tables[at];
    let entries = match &own.source {
        TableSource::Inline(entries) => Entries::Inline(entries.clone()),
        TableSource::Named(named) => Entries::At(named.reference().map_err(|error| {
            fail(&format!("[tables.{}]: {error}", own.name));
            ExitCode::from(CONFIGURATION)
        })?),
        // Services were filtered out above.
        TableSource::Service(_) => Entries::Inline(Vec::new()),
    };
    Ok(TableEntries { entries, own: Some((config, at)) })
}

/// Parses a kind as in `as`; accepts sendmail's own name for its access file too.
fn kind(text: &str) -> Result<Dialect, String> {
    let found = Dialect::ALL.into_iter().find(|(name, _)| *name == text);
    let found = found.map(|(_, dialect)| dialect).or((text == "access-db").then_some(Dialect::SendmailAccess));
    found.ok_or_else(|| {
        let names: Vec<&str> = Dialect::ALL.iter().map(|(name, _)| *name).collect();
        format!(
            "valid kinds: {}; a key of sendmail-access includes its tag, as in From:user@example.com",
            names.join(", ")
        )
    })
}

pub(crate) fn run(options: &Options) -> ExitCode {
    match &options.command {
        Command::Get(get) => run_get(get),
        Command::Check { tables, config } => check(tables, config),
    }
}

/// Where keys are looked up.
enum Source {
    /// A table in memory, with the places of keys that are in the configuration.
    Local {
        table: Table,
        scratch: Scratch,
        places: HashMap<Vec<u8>, String>,
    },
    Remote {
        remote: Remote,
        runtime: tokio::runtime::Runtime,
    },
}

/// The result for one key.
enum Outcome {
    Found { value: Vec<u8>, place: Option<(String, u32)> },
    NotFound,
    Tempfail(String),
}

impl Source {
    fn open(entries: &Entries) -> Result<Self, LoadReport> {
        let reference = match entries {
            Entries::At(reference) => reference,
            Entries::Inline(entries) => {
                let table = Table::inline(entries.iter().map(|entry| (entry.key.as_bytes(), entry.value.as_bytes())));
                let places = entries.iter().map(|entry| (entry.key.to_lowercase().into_bytes(), entry.place.clone()));
                return Ok(Self::Local { table, scratch: Scratch::default(), places: places.collect() });
            }
        };
        if let Reference::Socketmap(endpoint) = reference {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            if let Ok(runtime) = runtime {
                return Ok(Self::Remote { remote: Remote::socketmap(endpoint.clone(), TIMEOUT), runtime });
            }
        }
        // `check` reports skipped lines.
        let LoadedTable { table, .. } = files::load(reference)?;
        Ok(Self::Local { table, scratch: Scratch::default(), places: HashMap::new() })
    }

    /// Whether the server would try partial keys.
    fn takes_partial_keys(&self, dialect: Dialect) -> bool {
        match self {
            Self::Local { table, .. } => table.takes_partial_keys(),
            Self::Remote { .. } => dialect.asks_remote_parts(),
        }
    }

    fn get(&mut self, key: &[u8]) -> Outcome {
        match self {
            Self::Local { table, scratch, places } => match table.get(key, scratch) {
                TableResult::Found { value, place } => {
                    let own = || Some((places.get(&key.to_ascii_lowercase())?.clone(), 0));
                    let place = place.map(|(file, line)| (file.to_owned(), line)).or_else(own);
                    Outcome::Found { value: value.to_vec(), place }
                }
                TableResult::NotFound => Outcome::NotFound,
                TableResult::Tempfail(why) => Outcome::Tempfail(why.to_owned()),
            },
            Self::Remote { remote, runtime } => match runtime.block_on(remote.get(key, For::Us)) {
                SocketmapReply::Found(value) => Outcome::Found { value, place: None },
                SocketmapReply::NotFound => Outcome::NotFound,
                SocketmapReply::Tempfail(why) => Outcome::Tempfail(why),
            },
        }
    }
}

/// A look-up with all keys tried.
struct Lookup {
    result: Outcome,
    asked: Vec<String>,
    /// The value with `%1` and so on expanded.
    expanded: Option<Vec<u8>>,
    /// Whether the key lacks the tag that most keys of sendmail's access file have.
    lacks_tag: bool,
}

fn look_up(
    source: &mut Source,
    get: &GetArgs,
    kind: Option<Dialect>,
    candidates: &mut Candidates,
    key: &[u8],
) -> Lookup {
    let text = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
    let plain = |result, asked| Lookup { result, asked, expanded: None, lacks_tag: false };
    let Some(dialect) = kind else { return plain(source.get(key), vec![text(key)]) };
    let quoted = quoted(key);
    let key = quoted.as_ref().map_or(key, |address| address.as_str().as_bytes());
    let takes_partial = source.takes_partial_keys(dialect);
    let Some(owner) = dialect.owner() else {
        let mut asked = Vec::new();
        for key in own_keys(&text(key), takes_partial) {
            let result = source.get(key.as_bytes());
            asked.push(key);
            if !matches!(result, Outcome::NotFound) {
                return plain(result, asked);
            }
        }
        return plain(Outcome::NotFound, asked);
    };
    let options = Asked { delimiters: get.delimiter.as_bytes(), is_local: get.local, parents: None };
    candidates.set(owner, key, &options);
    let mut asked = Vec::new();
    for candidate in candidates.iter().filter(|candidate| takes_partial || !candidate.is_partial) {
        asked.push(text(candidate.key));
        let result = source.get(candidate.key);
        if let Outcome::Found { value, .. } = &result {
            let mut expanded = Vec::new();
            expand(value, candidate.key, &candidate.arguments, &mut expanded);
            let is_of_sendmail = matches!(owner, Owner::Mailertable | Owner::Virtusertable | Owner::Genericstable);
            let expanded = (is_of_sendmail && expanded != *value).then_some(expanded);
            return Lookup { result, asked, expanded, lacks_tag: false };
        }
        if let Outcome::Tempfail(_) = result {
            return plain(result, asked);
        }
    }
    let has_tag = ["connect:", "from:", "to:"].iter().any(|tag| key.to_ascii_lowercase().starts_with(tag.as_bytes()));
    Lookup { lacks_tag: owner == Owner::AccessDb && !has_tag, ..plain(Outcome::NotFound, asked) }
}

/// The address that a session sees for a key whose local part lacks its quotes, such as `a..b@example.org`.
fn quoted(key: &[u8]) -> Option<Address> {
    Address::parse(key, true).ok().filter(|address| address.as_str().starts_with('"'))
}

/// The keys tried in a table of the native kind: for a client's address, an envelope address, or a name.
fn own_keys(key: &str, takes_partial: bool) -> impl Iterator<Item = String> {
    let (address, name) = (Key::new(key), key.to_lowercase());
    let subject = match key.parse() {
        Ok(client) => Subject::Client(client),
        Err(_) if key.contains('@') || key == "<>" => Subject::Address(&address),
        Err(_) => Subject::Name(&name),
    };
    keys(Dialect::Own, Field::Recipient, subject, takes_partial).into_iter().map(|key| key.text)
}

fn run_get(get: &GetArgs) -> ExitCode {
    let found = match find(&get.table, &get.config) {
        Ok(found) => found,
        Err(code) => return code,
    };
    let kind = get.kind.or(found.own().map(|(_, own)| own.dialect));
    let mut source = match Source::open(&found.entries) {
        Ok(source) => source,
        Err(report) => {
            show(&report);
            return ExitCode::from(TEMPFAIL);
        }
    };
    let mut candidates = Candidates::default();
    if get.key != "-" {
        let lookup = look_up(&mut source, get, kind, &mut candidates, get.key.as_bytes());
        let code = ExitCode::from(lookup.result.code());
        let written = if get.json { print(&lookup.json(&get.key)) } else { lookup.print(get) };
        return if written.is_ok() { code } else { done(written) };
    }
    match each_line(&mut source, get, kind, &mut candidates) {
        Ok(code) => ExitCode::from(code),
        Err(error) if is_closed(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stentor: {error}");
            ExitCode::from(TEMPFAIL)
        }
    }
}

/// Looks up each line of standard input. Returns the worst exit code: a temporary failure, then nothing found at all.
fn each_line(source: &mut Source, get: &GetArgs, kind: Option<Dialect>, candidates: &mut Candidates) -> io::Result<u8> {
    let mut output = io::BufWriter::new(io::stdout().lock());
    let mut code = NOT_FOUND;
    for line in io::stdin().lock().split(b'\n') {
        let key = line?;
        let lookup = look_up(source, get, kind, candidates, &key);
        if get.json {
            output.write_all(lookup.json(&String::from_utf8_lossy(&key)).as_bytes())?;
        } else {
            match &lookup.result {
                Outcome::Found { value, .. } => {
                    output.write_all(&[&key, &b"\t"[..], lookup.expanded.as_ref().unwrap_or(value), b"\n"].concat())?;
                }
                Outcome::Tempfail(why) => eprintln!("stentor: {}: {why}", String::from_utf8_lossy(&key)),
                Outcome::NotFound => {}
            }
        }
        code = match (code, lookup.result.code()) {
            (TEMPFAIL, _) | (_, TEMPFAIL) => TEMPFAIL,
            (0, _) | (_, 0) => 0,
            _ => NOT_FOUND,
        };
    }
    output.flush()?;
    Ok(code)
}

impl Outcome {
    fn code(&self) -> u8 {
        match self {
            Self::Found { .. } => 0,
            Self::NotFound => NOT_FOUND,
            Self::Tempfail(_) => TEMPFAIL,
        }
    }
}

impl Lookup {
    /// Prints the value for programs, and how it was found for people.
    fn print(&self, get: &GetArgs) -> io::Result<()> {
        let before = &self.asked[..self.asked.len().saturating_sub(1)];
        match &self.result {
            Outcome::Found { value, place } => {
                let mut line = self.expanded.as_ref().unwrap_or(value).clone();
                line.push(b'\n');
                crate::output::write(&line)?;
                let key = self.asked.last().map_or(get.key.as_str(), String::as_str);
                let at = place.as_ref().map(|(file, line)| format!(" in {}", located(file, *line))).unwrap_or_default();
                let missed =
                    if before.is_empty() { String::new() } else { format!("; not found: {}", before.join(", ")) };
                eprintln!("found {key}{at}{missed}");
            }
            Outcome::NotFound => {
                let hint = if self.lacks_tag { " (prefix the key with Connect:, From: or To:)" } else { "" };
                eprintln!("not found: {}{hint}", self.asked.join(", "));
            }
            Outcome::Tempfail(why) => eprintln!("stentor: {why}"),
        }
        Ok(())
    }

    fn json(&self, subject: &str) -> String {
        let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut row = json!({ "key": subject, "asked": self.asked });
        match &self.result {
            Outcome::Found { value, place } => {
                row["result"] = "found".into();
                row["value"] = lossy(value).into();
                row["expanded"] = lossy(self.expanded.as_ref().unwrap_or(value)).into();
                row["file"] = place.as_ref().map(|(file, _)| file.clone()).into();
                row["line"] = place.as_ref().map(|&(_, line)| line).filter(|&line| line > 0).into();
            }
            Outcome::NotFound => row["result"] = "not found".into(),
            Outcome::Tempfail(why) => {
                row["result"] = "temporary failure".into();
                row["why"] = why.clone().into();
            }
        }
        format!("{row}\n")
    }
}

fn located(file: &str, line: u32) -> String {
    if line > 0 { format!("{file}:{line}") } else { file.to_owned() }
}

fn check(tables: &[TableArg], config: &ConfigArg) -> ExitCode {
    let mut is_wrong = false;
    for named in tables {
        let text = &named.text;
        let found = match find(named, config) {
            Ok(found) => found,
            Err(code) => return code,
        };
        let line = match &found.entries {
            Entries::Inline(entries) => {
                show_doubts(&found, None);
                format!("{text}: ok; {}, in the configuration\n", plural(entries.len() as u64, "entry"))
            }
            Entries::At(Reference::Socketmap(_)) => {
                eprintln!("{text}: queried at each lookup, nothing to check");
                continue;
            }
            Entries::At(reference) => match files::load(reference) {
                Ok(LoadedTable { table, report }) => {
                    show(&report);
                    show_doubts(&found, Some(&table));
                    let entries = table.entries().map(|entries| format!("{}, ", plural(entries as u64, "entry")));
                    format!("{text}: ok; {}{}\n", entries.unwrap_or_default(), bytes(table.bytes() as u64))
                }
                Err(report) => {
                    show(&report);
                    is_wrong = true;
                    continue;
                }
            },
        };
        if let Err(error) = print(&line) {
            return done(Err(error));
        }
    }
    if is_wrong { ExitCode::from(CONFIGURATION) } else { ExitCode::SUCCESS }
}

/// Prints what `stentor check` says about the entries of a configured table.
fn show_doubts(found: &TableEntries, read: Option<&Table>) {
    let Some((config, own)) = found.own() else { return };
    let Some(entries) = trial::tables::Entries::of(own, read) else { return };
    let (doubts, more) = trial::tables::doubtful(config, own, &entries);
    for doubt in doubts {
        eprintln!("{doubt}");
    }
    if more > 0 {
        eprintln!("and {} more", grouped(more));
    }
}

fn show(report: &LoadReport) {
    for diagnostic in &report.diagnostics {
        eprintln!("{diagnostic}");
    }
    if report.left_out > 0 {
        eprintln!("and {} more", grouped(report.left_out));
    }
}
