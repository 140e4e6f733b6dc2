//! `stentor check`: reports errors in a configuration and in everything it refers to on this machine.
//!
//! Exit codes: 0 if the configuration is usable (there may be warnings), 78 if it has errors. `--json` always prints
//! one object.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Value, json};
use stentor_config::settings::Settings;
use stentor_config::{Config, Diagnostic, Severity, TableConfig, TableSource};
use stentor_control::format::plural;

use crate::asking::{locate, wrong};
use crate::output::{done, print};
use crate::trial;

/// Sysexits' `EX_CONFIG`.
const CONFIGURATION: u8 = 78;

pub(crate) struct Options {
    pub file: Option<PathBuf>,
    /// Checks only the file, not what it names on this machine.
    pub file_only: bool,
    pub json: bool,
}

/// The findings, and the summary of a usable configuration.
struct CheckReport {
    findings: Vec<Diagnostic>,
    summary: Option<String>,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    let path = match locate(options.file.as_deref()) {
        Ok(path) => path,
        Err(code) => return code,
    };
    let found = examine(&path, options.file_only);
    if options.json {
        let printed = print(&format!("{}\n", as_json(&path, &found)));
        let code = if found.summary.is_some() { ExitCode::SUCCESS } else { ExitCode::from(CONFIGURATION) };
        return if printed.is_ok() { code } else { done(printed) };
    }
    let Some(summary) = &found.summary else { return wrong(&found.findings) };
    for warning in &found.findings {
        eprintln!("{warning}");
    }
    done(print(summary))
}

fn examine(path: &Path, file_only: bool) -> CheckReport {
    let (mut config, settings) = match stentor_config::check_noting(path) {
        Ok(checked) => checked,
        Err(findings) => return CheckReport { findings, summary: None },
    };
    let mut findings = std::mem::take(&mut config.warnings);
    if file_only {
        findings.extend(trial::run_file_only(&config, &settings));
    } else {
        trial::missing::raise_subscribers(&config, &settings, &mut findings);
        findings.extend(trial::run(&config, &settings));
    }
    if findings.iter().any(|finding| finding.severity == Severity::Error) {
        return CheckReport { findings, summary: None };
    }
    let summary = summary(&config);
    if !file_only {
        findings.extend(led_to_nobody(config, &settings));
    }
    CheckReport { findings, summary: Some(summary) }
}

fn as_json(path: &Path, found: &CheckReport) -> Value {
    let finding = |finding: &Diagnostic| {
        let severity = if finding.severity == Severity::Error { "error" } else { "warning" };
        json!({
            "severity": severity, "file": finding.file, "line": finding.line, "column": finding.column,
            "message": finding.message,
        })
    };
    json!({
        "file": path, "ok": found.summary.is_some(), "summary": found.summary.as_deref().map(str::trim_end),
        "findings": found.findings.iter().map(finding).collect::<Vec<_>>(),
    })
}

/// Rules, lists and local programs that send mail to a local address nobody has. `positions` locates the keys.
fn led_to_nobody(config: Config, positions: &Settings) -> Vec<Diagnostic> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    // Starting the server would report this too.
    let Ok(runtime) = runtime else { return Vec::new() };
    runtime.block_on(async {
        let settings = stentor_core::Settings::new(config, None);
        let mut found = trial::rules::leading_to_nobody(&settings).await;
        found.extend(trial::members::unknown(&settings, positions).await);
        let folder_at = positions.position("submission", "folder").unwrap_or_default();
        found.extend(trial::rules::root_without_home(&settings, folder_at).await);
        found
    })
}

/// Summarises a valid configuration in one line.
fn summary(config: &Config) -> String {
    // Policy services are looked up like tables but are not tables.
    let is_service = |table: &&TableConfig| matches!(table.source, TableSource::Service(_));
    let services = config.tables.iter().filter(is_service).count() as u64;
    let tables = plural(config.tables.len() as u64 - services, "table");
    let tables = if services == 0 { tables } else { format!("{tables}, {}", plural(services, "policy service")) };
    let relayed = &config.rules.relay_domains;
    let relay_domains = plural(relayed.len() as u64, "relay domain");
    let relay_domains = match relayed.tables.len() as u64 {
        0 => relay_domains,
        tables => format!("{relay_domains} and those in {}", plural(tables, "table")),
    };
    let list = |texts: Vec<String>| if texts.is_empty() { "none".to_owned() } else { texts.join(", ") };
    format!(
        "{}: ok; {}, {}, {}, {}, {}, {}; local domains: {}; virtual domains: {}; relays for: {}\n",
        config.file.as_deref().unwrap_or(Path::new("")).display(),
        plural(config.lists.len() as u64, "list"),
        if config.aliases.len() == 1 { "1 alias".to_owned() } else { format!("{} aliases", config.aliases.len()) },
        plural(config.rules.by_recipient.len() as u64, "route"),
        plural(config.rules.rules.len() as u64, "rule"),
        tables,
        relay_domains,
        list(config.domains.local.clone()),
        list(config.domains.virtuals.clone()),
        list(config.client_networks.iter().map(ToString::to_string).collect()),
    )
}
