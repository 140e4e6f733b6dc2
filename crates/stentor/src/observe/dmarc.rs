//! `stentor dmarc`: sums of the DMARC reports that others sent about our domains, from files or from those kept.
//!
//! Failure: an unreadable file is reported and skipped, and the exit code is 1.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use stentor_core::received_reports::{FOLDER, each_kept};
use stentor_domain_reports::dmarc::{
    AggregateReport, DmarcSummary, DmarcSums, DomainSums, MessageSums, ReportFilter, SourceSums, read_reports,
};
use stentor_logfiles::zone;
use stentor_mail::address::normalise_domain;
use stentor_records::escape::printable;

use super::input::now;
use super::times;
use crate::asking::{CommandError, places};
use crate::output::{is_closed, print};
use crate::paint::Colour;

/// Octets of a file.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Octets shown of a name that others chose.
const NAME_BYTES_SHOWN: usize = 100;

#[derive(Args)]
pub struct Options {
    /// Reports: XML, gzip, zip, or whole messages; `-` is standard input [default: received reports].
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Ignore reports on days that ended before: 2026-11-22, "2026-11-22 10:00", yesterday, 90m.
    #[arg(long, value_name = "TIME", value_parser = times::written)]
    since: Option<String>,
    /// Only reports about this domain and those below it.
    #[arg(long, value_name = "DOMAIN", value_parser = domain)]
    domain: Option<String>,
    /// Rows of each table.
    #[arg(short = 'n', long, alias = "rows", value_name = "N", default_value_t = 20,
        value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    /// Print JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    colour: Colour,
    /// The configuration of the server that received reports [default: `$STENTOR_CONFIG`, else
    /// /etc/stentor/stentor.toml].
    #[arg(long, short, value_name = "FILE", conflicts_with = "files")]
    config: Option<PathBuf>,
}

pub fn run(options: &Options) -> ExitCode {
    match carry_out(options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => failure.report(),
    }
}

/// Returns whether everything could be read.
fn carry_out(options: &Options) -> Result<bool, CommandError> {
    let since = options.since.as_deref().map(|text| times::parse(text, now(), &zone::local())).transpose()?;
    let filter = ReportFilter { since_s: since.unwrap_or(0) / 1_000, domain: options.domain.clone() };
    let (mut sums, mut skipped) = (DmarcSums::default(), SkippedReports::default());
    let mut add = |report: &AggregateReport| {
        if filter.includes(report) {
            sums.add(report);
        } else if filter.is_about(report) {
            skipped.earlier += 1;
        } else {
            skipped.others += 1;
        }
    };
    let mut files_unreadable = 0_u64;
    if options.files.is_empty() {
        let data_dir = places(options.config.as_deref()).map_err(CommandError::Reported)?.data_dir;
        let folder = data_dir.join(FOLDER);
        let unreadable = each_kept(&data_dir, &mut add).map_err(|error| format!("{}: {error}", folder.display()))?;
        if unreadable > 0 {
            eprintln!("stentor: {}: {unreadable} files cannot be read as reports and were skipped", folder.display());
            files_unreadable = unreadable as u64;
        }
    }
    for path in &options.files {
        match read_file(path) {
            Ok(reports) => reports.iter().for_each(&mut add),
            Err(why) => {
                eprintln!("stentor: {}: {why}", path.display());
                files_unreadable += 1;
            }
        }
    }
    let summary = DmarcSummary::new(&sums, options.limit as usize, files_unreadable);
    let text = if options.json {
        format!("{:#}\n", serde_json::to_value(&summary).map_err(|error| error.to_string())?)
    } else {
        options.colour.paint(sums_text(&summary, skipped, options))
    };
    match print(&text) {
        Err(error) if is_closed(&error) => Ok(true),
        Err(error) => Err(error.to_string().into()),
        Ok(()) => Ok(files_unreadable == 0),
    }
}

fn read_file(path: &Path) -> Result<Vec<AggregateReport>, String> {
    let octets =
        if path == Path::new("-") { read_all(io::stdin().lock()) } else { File::open(path).and_then(read_all) };
    let octets = octets.map_err(|error| error.to_string())?;
    if octets.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("larger than {} MiB", FILE_BYTES_MAX / 1024 / 1024));
    }
    read_reports(&octets).map_err(|error| error.to_string())
}

fn read_all(input: impl Read) -> io::Result<Vec<u8>> {
    let mut octets = Vec::new();
    input.take(FILE_BYTES_MAX + 1).read_to_end(&mut octets)?;
    Ok(octets)
}

/// Reports that the options exclude.
#[derive(Clone, Copy, Default)]
struct SkippedReports {
    earlier: u64,
    /// About other domains.
    others: u64,
}

/// A domain as reports have it.
fn domain(text: &str) -> Result<String, String> {
    normalise_domain(text.trim_end_matches('.')).map_err(|error| format!("not a domain: {error}"))
}

/// Writing into a string cannot fail.
fn sums_text(summary: &DmarcSummary, skipped: SkippedReports, options: &Options) -> String {
    if summary.domains.is_empty() {
        let SkippedReports { earlier, others } = skipped;
        let about = options.domain.as_ref().map_or_else(String::new, |domain| format!(" about {domain}"));
        return if earlier > 0 {
            format!("no reports{about} since then; {earlier} before\n")
        } else if others > 0 {
            format!("no reports{about}; {others} about other domains\n")
        } else if !options.files.is_empty() {
            format!("no reports{about}\n")
        } else {
            "no reports; to receive them, set `address` in [dmarc_reports] and publish it as rua= \
             (docs/operate/dmarc-reports.md)\n"
                .to_owned()
        };
    }
    let mut out =
        String::from("reports  messages    passed      dkim       spf  quarantined  rejected  policy      domain\n");
    for DomainSums { domain, reports, sums, policy, .. } in &summary.domains {
        let MessageSums { messages, passed, dkim_passed, spf_passed, quarantined, rejected } = sums;
        let (domain, policy) = (shown(domain), shown(policy));
        let _ = writeln!(
            out,
            "{reports:>7}  {messages:>8}  {passed:>8}  {dkim_passed:>8}  {spf_passed:>8}  {quarantined:>11}  \
             {rejected:>8}  {policy:<10}  {domain}"
        );
    }
    if !summary.failed_sources.is_empty() {
        out.push_str(
            "\nSources whose mail fails\nmessages    failed  quarantined  rejected  source           domain\n",
        );
        for source in &summary.failed_sources {
            let MessageSums { messages, quarantined, rejected, .. } = source.sums;
            let (failed, address) = (source.sums.failed(), source.source.to_string());
            let _ = writeln!(
                out,
                "{messages:>8}  {failed:>8}  {quarantined:>11}  {rejected:>8}  {address:<15}  {}{}",
                shown(&source.domain),
                hint(source)
            );
        }
    }
    for (number, what) in [
        (summary.reports_repeated, "reports ignored: another file has the same organization and report id"),
        (summary.reports_left_out, "reports about further domains not shown"),
        (summary.messages_of_other_sources, "messages of further sources not shown"),
    ] {
        if number > 0 {
            let _ = writeln!(out, "\n{number} {what}");
        }
    }
    out
}

/// Who the source may be.
fn hint(source: &SourceSums) -> String {
    let mut hints = Vec::new();
    for (what, domain) in [("sender", &source.envelope_from), ("signed by", &source.dkim_domain)] {
        if !domain.is_empty() && *domain != source.domain {
            hints.push(format!("{what} {}", shown(domain)));
        }
    }
    if hints.is_empty() { String::new() } else { format!(" ({})", hints.join(", ")) }
}

fn shown(text: &str) -> String {
    printable(text, NAME_BYTES_SHOWN)
}
