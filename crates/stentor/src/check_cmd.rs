//! `stentor check`: reports errors in a configuration and in everything it refers to on this machine.
//!
//! Exit codes: 0 if the configuration is usable (there may be warnings), 78 if it has errors. `--json` always prints
//! one object.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Value, json};
use stentor_config::settings::Settings;
use stentor_config::{Config, Diagnostic, Severity, TableConfig, TableSource};
use stentor_control::format::{grouped, plural};

use crate::asking::{locate, wrong};
use crate::output::{done, print};
use crate::trial;

/// Sysexits' `EX_CONFIG`.
const CONFIGURATION: u8 = 78;
/// Maximum local domains named in the summary: each list may add one.
const LOCAL_DOMAINS_MAX: usize = 20;
/// Maximum lists in the summary whose subscribers are counted.
const LISTS_MAX: usize = 20;

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
    let mut subscribers = Vec::new();
    if file_only {
        findings.extend(trial::run_file_only(&config, &settings));
    } else {
        trial::missing::raise_subscribers(&config, &settings, &mut findings);
        let report = trial::run(&config, &settings);
        findings.extend(report.findings);
        subscribers = report.subscribers;
    }
    if findings.iter().any(|finding| finding.severity == Severity::Error) {
        return CheckReport { findings, summary: None };
    }
    let summary = format!("{}{}\n", summary(&config), subscribers_of(&subscribers));
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
        "{}: ok; {}, {}, {}, {}, {}, {}; local domains: {}; virtual domains: {}; relays for: {}",
        config.file.as_deref().unwrap_or(Path::new("")).display(),
        plural(config.lists.len() as u64, "list"),
        if config.aliases.len() == 1 { "1 alias".to_owned() } else { format!("{} aliases", config.aliases.len()) },
        plural(config.rules.by_recipient.len() as u64, "route"),
        plural(config.rules.rules.len() as u64, "rule"),
        tables,
        relay_domains,
        list(local_domains(config)),
        list(config.domains.virtuals.clone()),
        list(config.client_networks.iter().map(ToString::to_string).collect()),
    )
}

/// The number of subscribers of each list; empty if no list's file was read.
fn subscribers_of(lists: &[(String, u64)]) -> String {
    if lists.is_empty() {
        return String::new();
    }
    let mut shown: Vec<String> =
        lists.iter().take(LISTS_MAX).map(|(name, count)| format!("{name} {}", grouped(*count))).collect();
    if let Some(more) = lists.len().checked_sub(LISTS_MAX).filter(|more| *more > 0) {
        shown.push(format!("and {}", plural(more as u64, "more list")));
    }
    format!("; subscribers: {}", shown.join(", "))
}

/// All domains whose unknown addresses are refused, also those of the host name, lists and SRS; virtual domains have
/// their own place in the summary.
fn local_domains(config: &Config) -> Vec<String> {
    let local = config.policy.local_domains().map(str::to_owned);
    let mut local: Vec<String> = local.filter(|domain| !config.domains.virtuals.contains(domain)).collect();
    local.sort_unstable();
    let more = local.len().saturating_sub(LOCAL_DOMAINS_MAX);
    if more > 0 {
        local.truncate(LOCAL_DOMAINS_MAX);
        local.push(format!("and {} more", grouped(more as u64)));
    }
    local
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary_of(text: &str) -> String {
        let config = stentor_config::check_text(Path::new("stentor.toml"), text);
        summary(&config.unwrap_or_else(|found| panic!("{found:?}")))
    }

    #[test]
    fn subscribers_are_counted_by_list() {
        let lists = |count: u64| (0..count).map(|n| (format!("l{n}"), n * 1_000)).collect::<Vec<_>>();
        assert_eq!(subscribers_of(&lists(0)), "");
        assert_eq!(subscribers_of(&lists(3)), "; subscribers: l0 0, l1 1,000, l2 2,000");
        assert!(subscribers_of(&lists(22)).ends_with(", l19 19,000, and 2 more lists"));
    }

    #[test]
    fn domains_are_local_by_the_host_name_and_by_lists() {
        let list = "[lists.news]\naddress = \"news@lists.example.org\"\nsubscribers = \"/dev/null\"\n";
        let local = |text: &str| {
            let summary = summary_of(text);
            let (_, rest) = summary.split_once("; local domains: ").unwrap();
            rest.split_once("; relays for").unwrap().0.to_owned()
        };
        let name = "hostname = \"mx.example.org\"\n";
        assert_eq!(local(&format!("{name}{list}")), "lists.example.org, mx.example.org; virtual domains: none");
        let domains = "[domains]\nlocal = [\"Example.org\"]\nvirtual = [\"shop.example\"]\n\
            [tables.users]\nas = \"virtual\"\ninline = { \"a@shop.example\" = \"b@x.example\" }\n\
            [addresses]\nvirtual = \"users\"\n";
        assert_eq!(local(&format!("{name}{domains}")), "example.org, mx.example.org; virtual domains: shop.example");
        // Mail to a host name with a route of its own is relayed.
        let routes = "[routes]\n\"mx.example.org\" = \"192.0.2.1\"\n";
        assert_eq!(local(&format!("{name}{routes}")), "none; virtual domains: none");
        let many: Vec<String> = (0..=LOCAL_DOMAINS_MAX).map(|number| format!("\"d{number:02}.example\"")).collect();
        let many = local(&format!("{name}[domains]\nlocal = [{}]\n", many.join(", ")));
        assert!(many.ends_with("d19.example, and 2 more; virtual domains: none"), "{many}");
    }
}
