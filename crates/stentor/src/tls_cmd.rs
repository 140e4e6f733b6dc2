//! `stentor tls show`: the certificates that the configuration names, or the one that the server has made: names, issuer, end, and
//! the TLSA record that would announce each. The files are read as a start would read them.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use stentor_config::{Config, Diagnostic};
use stentor_control::format::plural;
use stentor_stats::escape::printable;
use stentor_tls::{Identities, Identity, SELF_SIGNED_FILE};

use crate::asking::{fail, locate, wrong};
use crate::certificates::now_s;
use crate::output::{done, print};

const DAY_S: i64 = 86_400;
/// Names come out of files that others have made.
const SHOWN_CHARS_MAX: usize = 2_000;

#[derive(Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print the server's certificates: names, issuer, end, TLSA record.
    Show(Show),
}

#[derive(Args)]
struct Show {
    /// Print a JSON array.
    #[arg(long)]
    json: bool,
    /// The configuration [default: `$STENTOR_CONFIG`, else /etc/stentor/stentor.toml].
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    let Command::Show(show) = &options.command;
    let config =
        match locate(show.config.as_deref()).and_then(|path| stentor_config::check(&path).map_err(|all| wrong(&all))) {
            Ok(config) => config,
            Err(code) => return code,
        };
    let identities = match loaded(&config) {
        Ok(Some(identities)) => identities,
        Ok(None) => {
            let folder = config.tls_folder();
            return fail(&format!(
                "no certificate yet: the server makes one in {} at its first start",
                folder.display()
            ));
        }
        Err(diagnostics) => return wrong(&diagnostics),
    };
    let own = config.tls_folder().join(SELF_SIGNED_FILE);
    let file = |one: &Identity| one.files.as_ref().map_or_else(|| own.clone(), |files| files.chain.clone());
    let all = || identities.all().iter().map(|one| (file(one), &**one));
    done(print(&if show.json {
        let array: Value = all().map(|(file, one)| as_json(&file.display().to_string(), one)).collect();
        format!("{array:#}\n")
    } else {
        all().map(|(file, one)| as_text(&file.display().to_string(), one)).collect::<Vec<_>>().join("\n")
    }))
}

/// What the configuration names, or what the server has made.
fn loaded(config: &Config) -> Result<Option<Identities>, Vec<Diagnostic>> {
    if let Some(identities) = config.load_certificates(now_s())? {
        return Ok(Some(identities));
    }
    let path = config.tls_folder().join(SELF_SIGNED_FILE);
    let error = |why: String| vec![config.tls_diagnostic(format!("{}: {why}", path.display()))];
    Identities::self_signed_before(&config.tls_folder()).map_err(error)
}

fn hex(octets: &[u8]) -> String {
    octets.iter().fold(String::new(), |mut text, octet| {
        // Writing into a string does not fail.
        let _ = write!(text, "{octet:02x}");
        text
    })
}

fn as_text(file: &str, identity: &Identity) -> String {
    let certificate = &identity.certificate;
    let days = (certificate.not_after - now_s()).div_euclid(DAY_S);
    let left = match u64::try_from(days) {
        Ok(days) => format!("in {}", plural(days, "day")),
        Err(_) => "it has ended".to_owned(),
    };
    let issuer = if certificate.is_self_issued { "itself" } else { &certificate.issuer };
    let names = if certificate.names.is_empty() { "none".to_owned() } else { certificate.names.join(", ") };
    let mut text = format!("{file}\n");
    for (word, value) in [
        ("names", names),
        ("issuer", issuer.to_owned()),
        ("ends", format!("{} ({left})", certificate.ends_on())),
        ("SHA-256", hex(&certificate.sha256)),
        ("TLSA", format!("3 1 1 {}", hex(&certificate.key_sha256))),
    ] {
        let _ = writeln!(text, "  {word:<8} {}", printable(&value, SHOWN_CHARS_MAX));
    }
    for warning in &identity.warnings {
        let _ = writeln!(text, "  warning: {warning}");
    }
    text
}

fn as_json(file: &str, identity: &Identity) -> Value {
    let certificate = &identity.certificate;
    json!({
        "file": file,
        "names": certificate.names.iter().map(|name| &**name).collect::<Vec<_>>(),
        "subject": &*certificate.subject,
        "issuer": &*certificate.issuer,
        "self_signed": certificate.is_self_issued,
        "not_before": certificate.not_before,
        "not_after": certificate.not_after,
        "sha256": hex(&certificate.sha256),
        "key_sha256": hex(&certificate.key_sha256),
        "tlsa": format!("3 1 1 {}", hex(&certificate.key_sha256)),
        "warnings": identity.warnings.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}
