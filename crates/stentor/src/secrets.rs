//! `stentor http-password` and `stentor http-token`: create secrets for `[http]`; reads a password without showing it.

use std::io::{BufRead, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use stentor_config::keys::{hash, hex, random_text, sha256};
use stentor_config::settings::quoted;

use crate::asking::fail;
use crate::output::{done, print};
use crate::process::keep_out_of_core_dumps;

const PASSWORD_CHARS_MIN: usize = 10;

/// Arguments of `stentor http-token`.
#[derive(Args)]
pub struct NewToken {
    /// Name of the token's holder in audit records.
    name: String,
    /// Give read-only access.
    #[arg(long)]
    read_only: bool,
}

/// Prints a new token to standard output, alone, so that a script can take it; the lines for the configuration go to
/// standard error.
pub fn token_command(new: &NewToken) -> ExitCode {
    let token = random_text();
    let prefix = if new.read_only { "read-only " } else { "" };
    let hash = hex(&sha256(token.as_bytes()));
    eprintln!("The token; it is not stored and not shown again:");
    let shown = print(&format!("{token}\n"));
    eprintln!(
        "Append to the configuration. If [http] already has `tokens`, add only the last line to them:\n\
         [http.tokens]\n{} = \"{prefix}sha256:{hash}\"",
        key(&new.name)
    );
    done(shown)
}

/// A key of TOML, in quotes if it needs them.
fn key(name: &str) -> String {
    let is_bare = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
    if is_bare { name.to_owned() } else { quoted(name) }
}

/// Reads a password and prints its hash.
pub fn password_command() -> ExitCode {
    match ask_password(None).and_then(|password| hash(&password)) {
        Ok(hash) => done(print(&format!("{hash}\n"))),
        Err(why) => fail(&why),
    }
}

/// Reads a new password: the first line of a file or of standard input; on a terminal, asks twice without showing it.
/// Never from the command line, which other users can see.
pub(crate) fn ask_password(file: Option<&Path>) -> Result<String, String> {
    keep_out_of_core_dumps();
    let password = match file {
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
            text.lines().next().unwrap_or_default().to_owned()
        }
        None if std::io::stdin().is_terminal() => ask_twice()?,
        None => read_line()?,
    };
    if password.chars().count() < PASSWORD_CHARS_MIN {
        return Err(format!("the password must have at least {PASSWORD_CHARS_MIN} characters"));
    }
    Ok(password)
}

fn ask_twice() -> Result<String, String> {
    let stdin = std::io::stdin();
    let old = rustix::termios::tcgetattr(&stdin).map_err(|error| error.to_string())?;
    let mut silent = old.clone();
    silent.local_modes.remove(rustix::termios::LocalModes::ECHO);
    let set = |modes| rustix::termios::tcsetattr(&stdin, rustix::termios::OptionalActions::Flush, modes);
    set(&silent).map_err(|error| error.to_string())?;
    let ask = |what: &str| {
        eprint!("{what}: ");
        let _ = std::io::stderr().flush();
        let line = read_line();
        eprintln!();
        line
    };
    let answers = ask("Password").and_then(|first| Ok((first, ask("Again")?)));
    set(&old).map_err(|error| error.to_string())?;
    match answers? {
        (first, second) if first == second => Ok(first),
        _ => Err("the two passwords differ".to_owned()),
    }
}

fn read_line() -> Result<String, String> {
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(|error| error.to_string())?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}
