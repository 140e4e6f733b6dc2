//! `stentor config show`: prints the value of every key and where it comes from. It reads the file as a start would;
//! the running server may still use old values of keys that need a restart.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use stentor_config::Config;
use stentor_config::settings::{Origin, Setting, Settings, key};
use stentor_control::{Client, ControlReply, Request};

use crate::asking::{locate, named_by, wrong};
use crate::output::{done, print};

/// Column of comments, unless the setting is longer.
const COMMENT_COLUMN: usize = 44;

#[derive(Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print every key with its value and origin: line of the file, system or default. Secrets are blanked.
    Show(ShowArgs),
}

#[derive(Args)]
struct ShowArgs {
    /// Print only keys whose value is not the default.
    #[arg(long)]
    changed: bool,
    /// Print a JSON array.
    #[arg(long)]
    json: bool,
    /// The configuration [default: `$STENTOR_CONFIG`, else /etc/stentor/stentor.toml].
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    let Command::Show(show) = &options.command;
    let path = match locate(show.config.as_deref()) {
        Ok(path) => path,
        Err(code) => return code,
    };
    let (config, settings) = match stentor_config::check_noting(&path) {
        Ok(checked) => checked,
        Err(diagnostics) => return wrong(&diagnostics),
    };
    let shown = |setting: &&Setting| !show.changed || setting.is_changed();
    done(print(&if show.json {
        json(&path, &settings, shown)
    } else {
        let pending = restart_pending(&config);
        let head = format!("# {}, named by {}\n", path.display(), named_by(show.config.as_deref()));
        head + &pending + &text(&settings, shown)
    }))
}

/// Comments for the keys whose new values the running server will use only after a restart; empty if no server runs.
fn restart_pending(config: &Config) -> String {
    let asked = Client::connect(&config.control.socket).and_then(|mut client| client.ask(&Request::Status));
    let Ok(ControlReply::Status(status)) = asked else { return String::new() };
    let line = |key: &String| format!("# {key}: the running server uses the old value until it is restarted\n");
    status.restart_pending.iter().map(line).collect()
}

/// Formats the settings as a configuration with comments.
fn text(settings: &Settings, shown: impl Fn(&&Setting) -> bool) -> String {
    // Writing to a String cannot fail.
    let mut out = String::new();
    let mut section = "";
    for setting in settings.iter().filter(shown) {
        if setting.section != section {
            section = &setting.section;
            let _ = write!(out, "\n[{}]\n", heading(section));
        }
        let name = key(&setting.key);
        let line = match &setting.value {
            Some(value) => format!("{name} = {value}"),
            None => format!("# {name}: not set"),
        };
        let origin = match setting.origin {
            Origin::File { line, .. } => format!("line {line}"),
            Origin::ListFile => "stentor list".to_owned(),
            Origin::System(what) => format!("default: {what}"),
            Origin::Default if setting.value.is_none() => {
                let _ = writeln!(out, "{line}");
                continue;
            }
            Origin::Default => "default".to_owned(),
        };
        let _ = writeln!(out, "{line:<COMMENT_COLUMN$}  # {origin}");
    }
    out
}

/// Quotes the operator's part of a section's name: `sites.mx.example` becomes `sites."mx.example"`.
fn heading(section: &str) -> String {
    match section.split_once('.') {
        Some((table, name)) => format!("{table}.{}", key(name)),
        None => section.to_owned(),
    }
}

fn json(path: &Path, settings: &Settings, shown: impl Fn(&&Setting) -> bool) -> String {
    let row = |setting: &Setting| {
        let (origin, line, column) = match setting.origin {
            Origin::File { line, column } => ("file", line.into(), column.into()),
            Origin::Default => ("default", Value::Null, Value::Null),
            Origin::ListFile => ("list", Value::Null, Value::Null),
            Origin::System(_) => ("system", Value::Null, Value::Null),
        };
        let file = if origin == "file" { path.display().to_string().into() } else { Value::Null };
        json!({
            "section": setting.section, "key": setting.key, "value": setting.value, "default": setting.default,
            "changed": setting.is_changed(), "origin": origin, "file": file, "line": line, "column": column,
        })
    };
    let rows: Vec<Value> = settings.iter().filter(shown).map(row).collect();
    format!("{:#}\n", Value::Array(rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "hostname = \"mx.example.org\"\n[retry]\nhost_min_s = 60\nlifetime_s = \"3d\"\n\
                        [sites.\"mx.example\"]\nconnections_max = 3\n";

    fn settings() -> Settings {
        stentor_config::check_text_noting(Path::new("/e/s.toml"), TEXT).unwrap().1
    }

    #[test]
    fn what_is_shown_is_a_configuration_of_the_same_values() {
        let path = Path::new("/e/s.toml");
        let shown = text(&settings(), |_| true);
        assert!(shown.starts_with("hostname = \"mx.example.org\""), "{shown}");
        for line in ["lifetime_s = 259200                           # line 4", "# bulk_lifetime_s: not set"] {
            assert!(shown.lines().any(|shown| shown == line), "{line}\n{shown}");
        }
        let (_, again) =
            stentor_config::check_text_noting(path, &shown).unwrap_or_else(|found| panic!("{found:?}\n{shown}"));
        let values =
            |settings: &Settings| settings.iter().map(|s| (s.key.clone(), s.value.clone())).collect::<Vec<_>>();
        assert_eq!(values(&again), values(&settings()));
    }

    #[test]
    fn changed_are_those_that_differ_from_the_default() {
        let shown = text(&settings(), |setting| setting.is_changed());
        let keys: Vec<&str> =
            shown.lines().filter_map(|line| line.split(" = ").next().filter(|_| line.contains(" = "))).collect();
        assert_eq!(keys, ["hostname", "connections_max", "lifetime_s"]);
        assert!(shown.contains("\n[sites.\"mx.example\"]\n"), "{shown}");
    }

    #[test]
    fn json_has_origins() {
        let rows: Value = serde_json::from_str(&json(Path::new("s.toml"), &settings(), |_| true)).unwrap();
        let row = rows.as_array().unwrap().iter().find(|row| row["key"] == "lifetime_s").unwrap();
        assert_eq!((&row["origin"], &row["line"], &row["changed"]), (&json!("file"), &json!(4), &json!(true)));
        assert_eq!((&row["value"], &row["default"]), (&json!("259200"), &json!("432000")));
    }
}
