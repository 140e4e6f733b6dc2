//! `stentor table`: look up a key as the server does, and check a table.
//!
//! `get` prints what `postmap -q` prints on standard output, and on standard error which keys were asked and which line
//! answered. Exit codes: 0 found, 1 not found (as postmap), 75 (`EX_TEMPFAIL`) if nobody knows now: the table cannot be loaded,
//! or whoever has it does not answer.

use std::io::{self, BufRead as _, Write as _};
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::json;
use stentor_control::format::{bytes, grouped};
use stentor_engine::tables::remote::Remote;
use stentor_tablefiles as files;
use stentor_tables::candidates::{Candidates, Options as Asked, Owner};
use stentor_tables::expand::expand;
use stentor_tables::socketmap::Reply;
use stentor_tables::{Answer, Loaded, Reference, ReferenceError, Report, Scratch, Table};

use crate::output::{done, is_closed, print};

const NOT_FOUND: u8 = 1;
/// As sysexits' `EX_TEMPFAIL`.
const TEMPFAIL: u8 = 75;
/// As sysexits' `EX_CONFIG`.
const CONFIGURATION: u8 = 78;
/// As Postfix gives a socketmap.
const TIMEOUT: Duration = Duration::from_secs(100);

#[derive(Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Look up a key, or each line of standard input.
    Get(Get),
    /// Read tables and report every error in them.
    Check {
        /// The tables: TYPE:NAME, as in main.cf.
        #[arg(required = true, value_name = "TABLE")]
        tables: Vec<Named>,
    },
}

#[derive(Args)]
struct Get {
    /// TYPE:NAME, as in main.cf: `hash:/etc/postfix/access`. Text is read, not the database made from it.
    #[arg(value_name = "TABLE")]
    table: Named,
    /// The key; - for each line of standard input.
    key: String,
    /// Ask for the partial keys that this kind of table is asked for.
    #[arg(long = "as", value_name = "KIND", value_parser = owner)]
    owner: Option<Owner>,
    /// Characters that begin an address extension (`recipient_delimiter`).
    #[arg(long, value_name = "CHARS", default_value = "+", requires = "owner")]
    delimiter: String,
    /// The domain of the key is local: ask for the local part too.
    #[arg(long, requires = "owner")]
    local: bool,
    /// Print JSON lines.
    #[arg(long)]
    json: bool,
}

/// A table in its user's words.
#[derive(Clone)]
struct Named {
    text: String,
    reference: Reference,
}

impl FromStr for Named {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        Ok(Self { text: text.to_owned(), reference: Reference::parse(text)? })
    }
}

/// Whose partial keys are asked.
fn owner(text: &str) -> Result<Owner, String> {
    let found = Owner::ALL.into_iter().find(|(_, name)| *name == text);
    found.map(|(owner, _)| owner).ok_or_else(|| {
        let names: Vec<&str> = Owner::ALL.iter().map(|(_, name)| *name).collect();
        format!("known are {}; the key of access-db has its tag, as in From:user@example.com", names.join(", "))
    })
}

pub(crate) fn run(options: &Options) -> ExitCode {
    match &options.command {
        Command::Get(get) => run_get(get),
        Command::Check { tables } => check(tables),
    }
}

/// Where keys are looked up.
enum Source {
    Local { table: Table, scratch: Scratch },
    Remote { remote: Remote, runtime: tokio::runtime::Runtime },
}

/// What one key gave.
enum Outcome {
    Found { value: Vec<u8>, place: Option<(String, u32)> },
    NotFound,
    Tempfail(String),
}

impl Source {
    fn open(reference: &Reference) -> Result<Self, Report> {
        if let Reference::Socketmap(endpoint) = reference {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            if let Ok(runtime) = runtime {
                return Ok(Self::Remote { remote: Remote::new(endpoint.clone(), TIMEOUT), runtime });
            }
        }
        // Lines that are skipped are the business of `check`.
        let Loaded { table, .. } = files::load(reference)?;
        Ok(Self::Local { table, scratch: Scratch::default() })
    }

    /// As the server asks ([`stentor_rules::Dialect::asks_remote_parts`]).
    fn takes_partial_keys(&self, owner: Owner) -> bool {
        match self {
            Self::Local { table, .. } => table.takes_partial_keys(),
            Self::Remote { .. } => {
                matches!(owner, Owner::AccessDb | Owner::Mailertable | Owner::Virtusertable | Owner::Genericstable)
            }
        }
    }

    fn get(&mut self, key: &[u8]) -> Outcome {
        match self {
            Self::Local { table, scratch } => match table.get(key, scratch) {
                Answer::Found { value, place } => {
                    Outcome::Found { value: value.to_vec(), place: place.map(|(file, line)| (file.to_owned(), line)) }
                }
                Answer::NotFound => Outcome::NotFound,
                Answer::Tempfail(why) => Outcome::Tempfail(why.to_owned()),
            },
            Self::Remote { remote, runtime } => match runtime.block_on(remote.get(key)) {
                Reply::Found(value) => Outcome::Found { value, place: None },
                Reply::NotFound => Outcome::NotFound,
                Reply::Tempfail(why) => Outcome::Tempfail(why),
            },
        }
    }
}

/// A look-up with all keys that were asked.
struct Lookup {
    result: Outcome,
    asked: Vec<String>,
    /// The value with `%1` and so on filled in.
    expanded: Option<Vec<u8>>,
}

fn look_up(source: &mut Source, get: &Get, candidates: &mut Candidates, key: &[u8]) -> Lookup {
    let text = |key: &[u8]| String::from_utf8_lossy(key).into_owned();
    let Some(owner) = get.owner else {
        return Lookup { result: source.get(key), asked: vec![text(key)], expanded: None };
    };
    let options = Asked { delimiters: get.delimiter.as_bytes(), is_local: get.local, parents: None };
    candidates.set(owner, key, &options);
    let takes_partial = source.takes_partial_keys(owner);
    let mut asked = Vec::new();
    for candidate in candidates.iter().filter(|candidate| takes_partial || !candidate.is_partial) {
        asked.push(text(candidate.key));
        let result = source.get(candidate.key);
        if let Outcome::Found { value, .. } = &result {
            let mut expanded = Vec::new();
            expand(value, candidate.key, &candidate.arguments, &mut expanded);
            let is_of_sendmail = matches!(owner, Owner::Mailertable | Owner::Virtusertable | Owner::Genericstable);
            let expanded = (is_of_sendmail && expanded != *value).then_some(expanded);
            return Lookup { result, asked, expanded };
        }
        if let Outcome::Tempfail(_) = result {
            return Lookup { result, asked, expanded: None };
        }
    }
    Lookup { result: Outcome::NotFound, asked, expanded: None }
}

fn run_get(get: &Get) -> ExitCode {
    let mut source = match Source::open(&get.table.reference) {
        Ok(source) => source,
        Err(report) => {
            show(&report);
            return ExitCode::from(TEMPFAIL);
        }
    };
    let mut candidates = Candidates::default();
    if get.key != "-" {
        let lookup = look_up(&mut source, get, &mut candidates, get.key.as_bytes());
        let code = ExitCode::from(lookup.result.code());
        let written = if get.json { print(&lookup.json(&get.key)) } else { lookup.print(get) };
        return if written.is_ok() { code } else { done(written) };
    }
    match each_line(&mut source, get, &mut candidates) {
        Ok(code) => ExitCode::from(code),
        Err(error) if is_closed(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("stentor: {error}");
            ExitCode::from(TEMPFAIL)
        }
    }
}

/// Each line of standard input is a key. The code is that of the worst: a temporary failure, then nothing found at all.
fn each_line(source: &mut Source, get: &Get, candidates: &mut Candidates) -> io::Result<u8> {
    let mut output = io::BufWriter::new(io::stdout().lock());
    let mut code = NOT_FOUND;
    for line in io::stdin().lock().split(b'\n') {
        let key = line?;
        let lookup = look_up(source, get, candidates, &key);
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
    /// The value for programs, how it was found for people.
    fn print(&self, get: &Get) -> io::Result<()> {
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
            Outcome::NotFound => eprintln!("not found: {}", self.asked.join(", ")),
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

fn check(tables: &[Named]) -> ExitCode {
    let mut is_wrong = false;
    for Named { text, reference } in tables {
        if let Reference::Socketmap(_) = reference {
            eprintln!("{text}: asked at each look-up, nothing to check");
            continue;
        }
        match files::load(reference) {
            Ok(Loaded { table, report }) => {
                show(&report);
                let entries = table.entries().map(|entries| format!("{} entries, ", grouped(entries as u64)));
                let line = format!("{text}: ok; {}{}\n", entries.unwrap_or_default(), bytes(table.bytes() as u64));
                if let Err(error) = print(&line) {
                    return done(Err(error));
                }
            }
            Err(report) => {
                show(&report);
                is_wrong = true;
            }
        }
    }
    if is_wrong { ExitCode::from(CONFIGURATION) } else { ExitCode::SUCCESS }
}

fn show(report: &Report) {
    for diagnostic in &report.diagnostics {
        eprintln!("{diagnostic}");
    }
    if report.left_out > 0 {
        eprintln!("and {} more", grouped(report.left_out));
    }
}
