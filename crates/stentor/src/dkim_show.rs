//! `stentor dkim show` and `stentor dkim rotate`: the DNS records that keys need now, and new keys.
//!
//! Keys in files are read here. Those that the server makes are asked of the running server, which alone knows which
//! records they need; without it the others are printed, and the exit code is 1.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use stentor_config::{Config, DkimDomain};
use stentor_control::{
    Client, ControlReply, DkimRecordView, DkimRecords, DkimRequest, DkimRotateOptions, Request, render_dkim,
};
use stentor_dkim::{record_name, zone_text};

use crate::asking::{ServerArgs, ask, fail, locate, wrong};
use crate::output::{done, print};

#[derive(Args)]
pub(crate) struct ShowArgs {
    /// The configuration [default: `$STENTOR_CONFIG`, else /etc/stentor/stentor.toml].
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print what to do with each record, and why.
    #[arg(long, conflicts_with = "json")]
    text: bool,
    /// Print the records as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
pub(crate) struct RotateArgs {
    /// A domain of a section [[dkim]] with `rotate_days`.
    domain: String,
    /// The key in use is compromised: use the new one as soon as its record is seen, and let the old record go.
    #[arg(long)]
    now: bool,
    /// Recorded in the audit record.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
}

pub(crate) fn rotate(args: &RotateArgs) -> ExitCode {
    let options = DkimRotateOptions { domain: args.domain.clone(), now: args.now, reason: args.reason.clone() };
    ask(&args.server, &Request::Dkim(DkimRequest::Rotate(options)))
}

pub(crate) fn show(args: &ShowArgs) -> ExitCode {
    let found = locate(args.config.as_deref()).and_then(|path| stentor_config::check(&path).map_err(|all| wrong(&all)));
    let config = match found {
        Ok(config) => config,
        Err(code) => return code,
    };
    if config.dkim.is_empty() {
        return fail("no keys are configured: `stentor dkim new DOMAIN` makes them (docs/operate/dkim.md)");
    }
    let keys = match config.dkim_domains() {
        Ok(keys) => keys,
        Err(errors) => return wrong(&errors),
    };
    for warning in &keys.warnings {
        eprintln!("{warning}");
    }
    let (mut records, mut failure) = (DkimRecords::default(), None);
    records.rows = keys.domains.iter().flat_map(configured).collect();
    if config.dkim.iter().any(|domain| domain.rotation.is_some()) {
        match made_by_server(&config) {
            Ok(made) => {
                records.now = made.now;
                records.rows.extend(made.rows);
            }
            Err(why) => failure = Some(why),
        }
    }
    let shown = match (args.text, args.json) {
        (true, _) => render_dkim::records(&records),
        // Plain structs with string keys: serialising them cannot fail.
        (_, true) => serde_json::to_string(&records).unwrap_or_default() + "\n",
        _ => zone(&records),
    };
    let printed = done(print(&shown));
    match failure {
        Some(why) => fail(&format!("the records of keys that the server makes are missing above: {why}")),
        None => printed,
    }
}

/// The records of keys in files.
fn configured(domain: &DkimDomain) -> Vec<DkimRecordView> {
    let view = |signer: &stentor_dkim::Signer| DkimRecordView {
        domain: signer.domain.to_string(),
        selector: signer.selector.to_string(),
        name: record_name(&signer.selector, &signer.domain),
        text: signer.key.record(),
        action: "keep".to_owned(),
        state: "configured".to_owned(),
        ..DkimRecordView::default()
    };
    domain.signers.iter().map(view).collect()
}

pub(crate) fn made_by_server(config: &Config) -> Result<DkimRecords, String> {
    let mut client = Client::connect(&config.control.socket).map_err(|error| error.to_string())?;
    match client.ask(&Request::Dkim(DkimRequest::Records { domain: None })) {
        Ok(ControlReply::DkimRecords(records)) => Ok(*records),
        Ok(_) => Err("unexpected reply from the server".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// The records that must be in the zone, then those that may be removed, as comments.
fn zone(records: &DkimRecords) -> String {
    let (mut wanted, mut removable) = (String::new(), String::new());
    for row in &records.rows {
        if row.action == "remove" {
            // Writing to a String cannot fail.
            let _ = writeln!(removable, "; remove {}. TXT", row.name);
        } else {
            wanted.push_str(&zone_text(&row.selector, &row.domain, &row.text));
        }
    }
    wanted + &removable
}
