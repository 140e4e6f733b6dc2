//! Completes commands in printed text (`` `stentor ...` ``) so that they can be pasted: adds the `--config` or
//! `--socket` that the user gave.
//!
//! A command gets only options that it accepts and does not already have. Text outside backticks and backticks in
//! others' text ([`stentor_control::foreign`]) stay unchanged.

use std::path::{Path, PathBuf};

use stentor_control::foreign::restored;
use stentor_control::format::quoted;

/// The start of a command in a text.
const START: &str = "`stentor ";
/// Commands that accept neither option (of `dkim`, the one that is printed: `dkim new`).
const TAKE_NEITHER: [&str; 7] = ["http-password", "http-token", "dkim", "mime", "completions", "man", "help"];
/// Commands that read the configuration and contact no server.
const TAKE_NO_SOCKET: [&str; 14] = [
    "serve",
    "check",
    "config",
    "explain",
    "policy",
    "table",
    "tls",
    "user",
    "doctor",
    "mailstat",
    "batchstat",
    "bounces",
    "dmarc",
    "journal",
];

/// The options with which the user named the server.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerReference {
    pub config: Option<PathBuf>,
    pub socket: Option<PathBuf>,
}

impl ServerReference {
    /// Named by its configuration, or not at all.
    pub fn config(path: Option<&Path>) -> ServerReference {
        ServerReference { config: path.map(Path::to_owned), socket: None }
    }

    /// Completes the commands in the text; text from others stays unchanged.
    pub fn complete(&self, text: &str) -> String {
        restored(&self.completed(text))
    }

    fn completed(&self, text: &str) -> String {
        let (name, value) = match (&self.socket, &self.config) {
            (Some(socket), _) => ("socket", socket),
            (None, Some(config)) => ("config", config),
            (None, None) => return text.to_owned(),
        };
        let option = format!(" --{name} {}", quoted(&value.display().to_string()));
        let (mut out, mut rest) = (String::with_capacity(text.len() + option.len()), text);
        while let Some(at) = rest.find(START) {
            let end = end_of_command(&rest[at + 1..]).map(|len| at + 1 + len);
            let Some(end) = end else { break };
            let command = &rest[at + 1..end];
            out.push_str(&rest[..end]);
            if takes(command, name) {
                out.push_str(&option);
            }
            rest = &rest[end..];
        }
        out.push_str(rest);
        out
    }
}

/// Octets up to the closing backtick; a backtick inside shell quotes does not close.
fn end_of_command(text: &str) -> Option<usize> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    text.bytes().position(|byte| {
        let is_plain = !is_escaped;
        is_escaped = byte == b'\\' && !is_quoted && is_plain;
        is_quoted ^= byte == b'\'' && is_plain;
        byte == b'`' && !is_quoted
    })
}

/// Whether a command accepts an option and does not yet have a similar one.
fn takes(command: &str, option: &str) -> bool {
    let name = command.split(' ').nth(1).unwrap_or_default();
    // The journal's directory is named instead: `stentor journal verify DIR`.
    let has_directory = name == "journal" && command.split(' ').count() > 3;
    let has_one = has_directory || command.contains(" --config") || command.contains(" --socket");
    !has_one && !TAKE_NEITHER.contains(&name) && (option == "config" || !TAKE_NO_SOCKET.contains(&name))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::cli::Cli;

    #[test]
    fn the_commands_take_what_is_added() {
        for command in Cli::command().get_subcommands() {
            // `post pause`: the options are those of the inner command.
            let inner = command.get_subcommands().next().filter(|_| command.get_name() != "queue").unwrap_or(command);
            let has = |option| inner.get_arguments().any(|argument| argument.get_long() == Some(option));
            let line = format!("stentor {}", command.get_name());
            assert_eq!((has("config"), has("socket")), (takes(&line, "config"), takes(&line, "socket")), "{line}");
        }
    }

    #[test]
    fn commands_get_what_the_user_gave() {
        let given = ServerReference::config(Some(Path::new("my conf.toml")));
        let complete = |text: &str| given.complete(text);
        assert_eq!(
            complete("wait, or `stentor suspend --site mx`; `stentor flush mx` once it is back"),
            "wait, or `stentor suspend --site mx --config 'my conf.toml'`; `stentor flush mx --config 'my conf.toml'` once \
             it is back"
        );
        // Only real commands that accept the option and do not have it are completed.
        assert_eq!(complete("`stentor queue show X`"), "`stentor queue show X --config 'my conf.toml'`");
        for same in [
            "`stentor queue --config a`",
            "`stentor journal salvage DIR --to NEW`",
            "`stentor http-password`",
            "`hold`",
            "`stentor queue",
            "stentor queue",
        ] {
            assert_eq!(complete(same), same);
        }
        // An address may hold a backtick.
        for odd in
            [r#"`stentor bounce --recipient '"a`b"@x.example'`"#, r"`stentor bounce --recipient 'a'\''`b@x.example'`"]
        {
            assert!(complete(odd).ends_with("x.example' --config 'my conf.toml'`"), "{}", complete(odd));
        }
    }

    #[test]
    fn what_a_host_says_is_no_hint() {
        let given = ServerReference::config(Some(Path::new("c")));
        for reply in ["450 `stentor remove --all` first", "450 see `stentor ", "`", "``stentor stop`"] {
            let text = format!("{}; `stentor queue`", stentor_control::foreign::cut(reply, 80));
            assert_eq!(given.complete(&text), format!("{reply}; `stentor queue --config c`"));
            assert_eq!(ServerReference::default().complete(&text), format!("{reply}; `stentor queue`"));
        }
    }

    #[test]
    fn a_socket_goes_to_commands_that_ask_a_server() {
        let given = ServerReference { socket: Some("s".into()), config: None };
        assert_eq!(given.complete("`stentor queue`, `stentor check`"), "`stentor queue --socket s`, `stentor check`");
        assert_eq!(ServerReference::default().complete("`stentor queue`"), "`stentor queue`");
    }
}
