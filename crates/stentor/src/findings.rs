//! Findings of `stentor doctor` and `stentor doctor mail` on standard output.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use stentor_control::doctor::{Finding, Severity};
use stentor_control::foreign::restored;
use stentor_records::escape::printable;

use crate::hints::ServerReference;
use crate::output::{done, print};
use crate::paint::Colour;

#[derive(Args)]
pub(crate) struct ReportOptions {
    /// The server's configuration [default: `$STENTOR_CONFIG`, else /etc/stentor/stentor.toml].
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print one JSON object: `ok` and `findings`.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    colour: Colour,
}

/// Whether something must be done.
pub(crate) fn has_problem(findings: &[Finding]) -> bool {
    findings.iter().any(|finding| finding.severity == Severity::Problem)
}

/// Prints findings; returns `code`, unless they cannot be printed.
pub(crate) fn show(options: &ReportOptions, mut findings: Vec<Finding>, code: ExitCode) -> ExitCode {
    let given = ServerReference::config(options.config.as_deref());
    if options.json {
        for finding in &mut findings {
            finding.what = restored(&finding.what);
        }
        let printed = print(&format!("{}\n", json!({"ok": !has_problem(&findings), "findings": findings})));
        return if printed.is_ok() { code } else { done(printed) };
    }
    let mut out = io::stdout().lock();
    for finding in &findings {
        if writeln!(out, "{}", options.colour.paint(given.complete(&printed(&finding.text())))).is_err() {
            break;
        }
    }
    code
}

/// Escapes a text whose names may come from the network.
fn printed(text: &str) -> String {
    text.lines().map(|line| printable(line, 1_000)).collect::<Vec<_>>().join("\n")
}
