//! `stentor doctor mail [DOMAIN]`: what large receivers check of our mail ([`stentor_admin::identity`]).
//!
//! Exit codes: 0 no fault (there may be advice), 1 a fault, 2 wrong arguments, 78 the configuration has errors.

use std::fs::File;
use std::io::Read as _;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use stentor_config::Config;
use stentor_control::doctor::Finding;
use stentor_core::Settings;
use stentor_core::clock::Clock;
use stentor_core::sts::LookupServices;
use stentor_examination::{MailExamination, examine};
use stentor_mail::address::normalise_domain;
use stentor_mime::with_crlf;
use stentor_resolve::{Resolver, ResolverConfig};

use crate::asking::{fail, load, usage, wrong};
use crate::dkim_show::made_by_server;
use crate::findings::{ReportOptions, has_problem, show};

/// Maximum octets of a message; larger ones are refused everywhere.
const MESSAGE_BYTES_MAX: u64 = 100_000_000;

#[derive(Args)]
#[command(after_long_help = "Exit codes: 0 no fault (there may be advice), 1 a fault, 2 wrong arguments, 78 the \
        configuration has errors. docs/operate/identity.md explains each check.")]
pub struct Options {
    /// Domains in From; of an address its domain [default: those of lists and of [[dkim]]].
    #[arg(value_name = "DOMAIN")]
    domains: Vec<String>,
    /// A public address that mail leaves from [default: those of [sources], else the system's].
    #[arg(long = "address", value_name = "ADDRESS")]
    addresses: Vec<IpAddr>,
    /// Look up the addresses at this DNS block list.
    #[arg(long = "blocklist", value_name = "ZONE")]
    block_lists: Vec<String>,
    /// Check this message, as it would be handed in, instead of a made one.
    #[arg(long, value_name = "FILE")]
    message: Option<PathBuf>,
    #[command(flatten)]
    report: ReportOptions,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    let mut domains = Vec::new();
    for named in &options.domains {
        match normalise_domain(named.rsplit_once('@').map_or(&**named, |(_, domain)| domain)) {
            Ok(domain) => {
                if named.contains('@') {
                    eprintln!("{named}: examining the domain {domain}");
                }
                domains.push(domain);
            }
            Err(error) => return usage(&format!("{named:?} is not a valid domain: {error}")),
        }
    }
    if let Some(zone) = options.block_lists.iter().find(|zone| !stentor_config::is_dns_name(zone)) {
        return usage(&format!("{zone:?} is not a valid zone of a block list"));
    }
    let message = match options.message.as_deref().map(read).transpose() {
        Ok(message) => message,
        Err(why) => return fail(&why),
    };
    let config = match load(options.report.config.as_deref()) {
        Ok(config) => config,
        Err(code) => return code,
    };
    let clock = Clock::start();
    let without_keys = match domains_without_keys(&config) {
        Ok(without) => without,
        Err(why) => {
            eprintln!(
                "warning: assuming that rotated keys (`rotate_days`) are in use, since the server could not be asked: {why}"
            );
            Vec::new()
        }
    };
    let wanted = MailExamination {
        domains,
        without_keys,
        addresses: options.addresses.clone(),
        block_lists: options.block_lists.clone(),
        message,
        now_ms: clock.now(),
    };
    match examined(config, &clock, &wanted) {
        Ok(mut findings) => {
            findings.sort_by_key(|finding| finding.severity);
            let code = if has_problem(&findings) { ExitCode::FAILURE } else { ExitCode::SUCCESS };
            show(&options.report, findings, code)
        }
        Err(code) => code,
    }
}

/// Domains whose keys the running server makes, if none of them is in use yet.
fn domains_without_keys(config: &Config) -> Result<Vec<String>, String> {
    let rotating = || config.dkim.iter().filter(|domain| domain.rotation.is_some() && domain.keys.is_empty());
    if rotating().next().is_none() {
        return Ok(Vec::new());
    }
    let rows = made_by_server(config)?.rows;
    let is_used = |domain: &str| rows.iter().any(|row| row.domain == domain && row.state == "in_use");
    Ok(rotating().map(|domain| domain.domain.clone()).filter(|domain| !is_used(domain)).collect())
}

fn examined(config: Config, clock: &Clock, wanted: &MailExamination) -> Result<Vec<Finding>, ExitCode> {
    let mut settings = Settings::new(config, None);
    settings.read_roots().map_err(|diagnostic| wrong(&[*diagnostic]))?;
    for warning in settings.read_dkim_keys().map_err(|errors| wrong(&errors))? {
        eprintln!("{warning}");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| fail(&error.to_string()))?.block_on(async {
        // Receivers may use either family, whichever we send by.
        let resolver = ResolverConfig { ipv4: true, ipv6: true, ..settings.resolver(&[]) };
        let resolver = Resolver::new(resolver).map_err(|error| fail(&error.to_string()))?;
        Ok(examine(LookupServices { resolver: &resolver, settings: &settings, clock }, wanted).await)
    })
}

/// Reads a message, with the line ends of SMTP.
fn read(path: &Path) -> Result<Vec<u8>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    let mut octets = Vec::new();
    File::open(path).map_err(failed)?.take(MESSAGE_BYTES_MAX + 1).read_to_end(&mut octets).map_err(failed)?;
    if octets.len() as u64 > MESSAGE_BYTES_MAX {
        return Err(format!("{}: larger than {MESSAGE_BYTES_MAX} octets", path.display()));
    }
    Ok(with_crlf(&octets))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_get_the_line_ends_of_smtp() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("message");
        std::fs::write(&path, "A: b\nC: d\r\n\nx").unwrap();
        assert_eq!(read(&path).unwrap(), b"A: b\r\nC: d\r\n\r\nx");
        assert!(read(&folder.path().join("none")).unwrap_err().contains("/none: "));
    }
}
