//! `stentor suppress`: who gets no mail. All of it works through the running server.

mod export;
mod import;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use stentor_config::duration_s;
use stentor_control::suppression_view::{ROWS_DEFAULT, ROWS_MAX};
use stentor_control::{
    NewSuppression, NewSuppressions, Request, SuppressionName, SuppressionOptions, SuppressionRemoval,
    SuppressionRequest,
};
use stentor_registry::{Scope, SuppressionError, SuppressionReason};

use self::export::export;
use self::import::import;
use crate::asking::{QueryArgs, ServerArgs, ask, query, usage};

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
    reason: ReasonArgs,
    /// Free text, kept with the entry.
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Args)]
struct ReasonArgs {
    #[arg(long, default_value_t = SuppressionReason::Operator, value_parser = reason())]
    reason: SuppressionReason,
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
    reason: ReasonArgs,
    #[command(flatten)]
    server: ServerArgs,
}

/// Reads the name of a reason.
fn reason() -> impl TypedValueParser<Value = SuppressionReason> {
    let names = SuppressionReason::ALL.map(SuppressionReason::name);
    PossibleValuesParser::new(names).try_map(|name| SuppressionReason::parse(&name))
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

fn add(AddArgs { subjects, scope, reason, note, server }: AddArgs) -> ExitCode {
    let scope = match scope.scope() {
        Ok(scope) => scope.text(),
        Err(error) => return usage(&error.to_string()),
    };
    let expires = end(reason.for_s);
    let entry = |subject| NewSuppression {
        subject,
        scope: Some(scope.clone()),
        reason: Some(reason.reason.name().to_owned()),
        note: note.clone(),
        expires,
        ..NewSuppression::default()
    };
    let entries = subjects.into_iter().map(entry).collect();
    send(&server, SuppressionRequest::Add(NewSuppressions { entries, source: None }))
}
