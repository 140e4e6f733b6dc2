//! `stentor tls`: the server's TLS state ([`crate::tls_check`] implements `check`).
//!
//! `stentor tls show`: the certificates that the configuration names, those obtained from a CA, or the server's own:
//! names, issuer, end, and the TLSA record that would announce each; and the state of CA orders. The files are read as
//! a start would read them.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use stentor_acme::{CertificateStatus, certificate_file};
use stentor_config::keys::hex;
use stentor_control::format::plural;
use stentor_records::escape::printable;
use stentor_tls::{Identities, Identity, SELF_SIGNED_FILE};

use crate::asking::{fail, locate, wrong};
use crate::certificates::now_s;
use crate::output::{done, print};
use crate::{acme, certificates, tls_check};

const DAY_S: i64 = 86_400;
/// Maximum characters shown of names, which come from others' files.
const SHOWN_CHARS_MAX: usize = 2_000;

#[derive(Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print the server's certificates: names, issuer, expiry, TLSA record.
    Show(ShowArgs),
    /// Test TLS to a domain: hosts, STARTTLS, certificates, and whether they verify the host.
    Check(tls_check::Options),
}

#[derive(Args)]
struct ShowArgs {
    /// Print a JSON array.
    #[arg(long)]
    json: bool,
    /// The configuration [default: `$STENTOR_CONFIG`, else /etc/stentor/stentor.toml].
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    let show = match &options.command {
        Command::Show(show) => show,
        Command::Check(check) => return tls_check::run(check),
    };
    let config =
        match locate(show.config.as_deref()).and_then(|path| stentor_config::check(&path).map_err(|all| wrong(&all))) {
            Ok(config) => config,
            Err(code) => return code,
        };
    let identities = match certificates::served(&config) {
        Ok(identities) => identities,
        Err(diagnostics) => return wrong(&diagnostics),
    };
    let standing = acme::standing(&config, now_s());
    if identities.is_none() && standing.is_empty() {
        let folder = config.tls_folder();
        return fail(&format!("no certificate yet; the server creates one in {} at its first start", folder.display()));
    }
    let own = config.tls_folder().join(SELF_SIGNED_FILE);
    let all = identities.as_ref().map_or(&[][..], Identities::all);
    let mut shown: Vec<CertificateRow<'_>> = all
        .iter()
        .map(|one| {
            let file = one.files.as_ref().map_or_else(|| own.clone(), |files| files.chain.clone());
            CertificateRow { file, identity: Some(one), view: None }
        })
        .collect();
    for view in &standing {
        let file = config.acme_folder().join(certificate_file(&view.names));
        match shown.iter_mut().find(|one| one.file == file) {
            Some(one) => one.view = Some(view),
            None => shown.push(CertificateRow { file, identity: None, view: Some(view) }),
        }
    }
    done(print(&if show.json {
        format!("{:#}\n", shown.iter().map(as_json).collect::<Value>())
    } else {
        shown.iter().map(as_text).collect::<Vec<_>>().join("\n")
    }))
}

/// A certificate, or one that does not exist yet.
struct CertificateRow<'a> {
    file: PathBuf,
    identity: Option<&'a Identity>,
    /// The state at the CA that issues it.
    view: Option<&'a CertificateStatus>,
}

fn as_text(shown: &CertificateRow<'_>) -> String {
    let mut text = format!("{}\n", shown.file.display());
    let mut line = |word: &str, value: &str| {
        let _ = writeln!(text, "  {word:<8} {}", printable(value, SHOWN_CHARS_MAX));
    };
    if let Some(identity) = shown.identity {
        let certificate = &identity.certificate;
        let days = (certificate.not_after - now_s()).div_euclid(DAY_S);
        let left = match u64::try_from(days) {
            Ok(days) => format!("in {}", plural(days, "day")),
            Err(_) => "expired".to_owned(),
        };
        let issuer = if certificate.is_self_issued { "itself" } else { &certificate.issuer };
        let names = if certificate.names.is_empty() { "none".to_owned() } else { certificate.names.join(", ") };
        line("names", &names);
        line("issuer", issuer);
        line("ends", &format!("{} ({left})", certificate.ends_on()));
        line("SHA-256", &hex(&certificate.sha256));
        line("TLSA", &format!("3 1 1 {}", hex(&certificate.key_sha256)));
    } else if let Some(view) = shown.view {
        line("names", &view.names.join(", "));
        line("none", "not obtained yet");
    }
    if let Some(view) = shown.view {
        let record = &view.record;
        if let Some(tried_s) = record.tried_s {
            line("last try", &acme::minute(tried_s));
        }
        if let Some(error) = &record.error {
            line("failed", &format!("{error} ({} in a row)", record.failures));
        }
        let word = if record.failures == 0 && view.certificate.is_some() { "renewal" } else { "next try" };
        line(word, &acme::next(view, now_s()));
    }
    for warning in shown.identity.into_iter().flat_map(|identity| &identity.warnings) {
        let _ = writeln!(text, "  warning: {warning}");
    }
    text
}

fn as_json(shown: &CertificateRow<'_>) -> Value {
    let mut object = match shown.identity {
        Some(identity) => of_identity(identity),
        None => json!({ "names": shown.view.map(|view| &view.names) }),
    };
    object["file"] = json!(shown.file.display().to_string());
    if let Some(CertificateStatus { record, due_s, .. }) = shown.view {
        object["acme"] = json!({
            "directory": record.directory,
            "obtained": record.obtained_s,
            "tried": record.tried_s,
            "failures": record.failures,
            "error": record.error,
            "next": due_s,
        });
    }
    object
}

fn of_identity(identity: &Identity) -> Value {
    let certificate = &identity.certificate;
    json!({
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
