//! Each `stentor ...` and `stentor-kit ...` command in the pages and in the examples of `--help` is one that the
//! command line takes: an option that is renamed or goes takes its examples along.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{CommandFactory, Parser};
use stentor_kit::Cli;

const PROGRAMS: [&str; 2] = ["stentor", "stentor-kit"];

fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folders = ["", "docs", "docs/operate", "docs/design", "docs/design/decisions", "docs/kit", "bench"];
    let folders = folders.map(|folder| root.join(folder));
    let files = folders.iter().flat_map(|folder| fs::read_dir(folder).expect("the folder is there").flatten());
    files.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|ending| ending == "md")).collect()
}

/// As a shell would part it: quotes; `$(...)` is a number; ends at a comment, a pipe or a redirection.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    let mut rest = line.chars().peekable();
    while let Some(c) = rest.next() {
        let last = words.last_mut().expect("there is always one");
        match c {
            '$' if quote != Some('\'') && rest.peek() == Some(&'(') => {
                let _ = rest.find(|c| *c == ')');
                last.push('1');
            }
            '"' | '\'' if quote.is_none() => quote = Some(c),
            _ if quote == Some(c) => quote = None,
            '#' if quote.is_none() && last.is_empty() => break,
            '|' | '>' | '<' | ';' | '&' if quote.is_none() => {
                if c == '>' && last.bytes().all(|byte| byte.is_ascii_digit()) {
                    last.clear(); // the descriptor of `2>`
                }
                break;
            }
            ' ' if quote.is_none() => {
                if !last.is_empty() {
                    words.push(String::new());
                }
            }
            _ => last.push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The command of a line of an example, if it is one of ours.
fn command(line: &str) -> Option<Vec<String>> {
    let line = line.trim().trim_start_matches("$ ");
    let is_ours = |part: &&str| PROGRAMS.contains(&part.split_ascii_whitespace().next().unwrap_or_default());
    let line = line.rsplit(" | ").find(is_ours).unwrap_or(line);
    let words = words(line);
    // Behind chrt, nice or sudo too.
    let at = words.iter().take(4).position(|word| PROGRAMS.contains(&word.as_str()))?;
    let is_wrapped = at == 0 || ["chrt", "nice", "sudo"].contains(&words[0].as_str());
    is_wrapped.then(|| words[at..].to_vec())
}

/// What is wrong with it, if anything is. Ellipses and brackets are of a synopsis.
fn wrong(words: &[String]) -> Option<String> {
    if words.iter().any(|word| word.contains("...") || word.starts_with('[')) {
        return None;
    }
    let parsed = if words[0] == "stentor" {
        stentor::cli::Cli::try_parse_from(words).map(drop)
    } else {
        Cli::try_parse_from(words).map(drop)
    };
    let error = parsed.err()?;
    let is_answer =
        matches!(error.kind(), clap::error::ErrorKind::DisplayHelp | clap::error::ErrorKind::DisplayVersion);
    (!is_answer).then(|| format!("{}\n{error}", words.join(" ")))
}

#[test]
fn commands_in_the_pages_are_commands() {
    let (mut seen, mut all_wrong) = (0, Vec::new());
    for page in pages() {
        let text = fs::read_to_string(&page).expect("it can be read").replace("\\\n", " ");
        let mut is_fenced = false;
        for line in text.lines() {
            is_fenced ^= line.starts_with("```");
            if !is_fenced && !line.starts_with("    ") {
                continue;
            }
            let Some(words) = command(line) else { continue };
            seen += 1;
            all_wrong.extend(wrong(&words).map(|why| format!("{}: {why}", page.display())));
        }
    }
    assert!(all_wrong.is_empty(), "{}", all_wrong.join("\n"));
    assert!(seen > 60, "examples are found: {seen}");
}

/// The measuring kit, where options are many.
#[test]
fn each_measuring_command_has_help_with_examples_and_they_are_commands() {
    let mut cli = Cli::command();
    let kit = [
        (Some("lab"), &["source", "sink", "hold", "limit", "compare"][..]),
        (Some("probe"), &["fs", "log", "kv", "raw", "ipc", "suite"][..]),
        (None, &["iotrace"][..]),
    ];
    for (family, names) in kit {
        for name in names {
            let family = match family {
                Some(family) => cli.find_subcommand_mut(family).expect("the family"),
                None => &mut cli,
            };
            let command = family.find_subcommand_mut(name).expect("the command");
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            let examples: Vec<Vec<String>> = help.lines().filter_map(self::command).collect();
            assert!(examples.len() > 1, "{name}: {help}");
            for example in examples {
                assert_eq!(wrong(&example), None);
                assert!(example.contains(&(*name).to_owned()), "{example:?}");
            }
            // Where each value is explained, that is enough.
            let silent = |argument: &&clap::Arg| argument.is_hide_set() || !argument.get_possible_values().is_empty();
            for argument in command.get_arguments().filter(|argument| !silent(argument)) {
                assert!(argument.get_help().is_some(), "{name}: {} says nothing", argument.get_id());
            }
            for option in ["out", "plot", "json"] {
                assert!(
                    command.get_arguments().any(|argument| argument.get_id() == option),
                    "{name} has no --{option}"
                );
            }
        }
    }
}

#[test]
fn lines_are_parted_as_a_shell_does() {
    let parted = |line: &str| command(line).map(|words| words.join("|"));
    assert_eq!(
        parted("    $ chrt --rr 1 stentor-kit probe log 'a b' # why").as_deref(),
        Some("stentor-kit|probe|log|a b")
    );
    assert_eq!(
        parted("trace-cmd report | stentor-kit iotrace --read -").as_deref(),
        Some("stentor-kit|iotrace|--read|-")
    );
    assert_eq!(
        parted("stentor-kit iotrace --pid \"$(pgrep -ox stentor)\" > x").as_deref(),
        Some("stentor-kit|iotrace|--pid|1")
    );
    assert_eq!(parted("the stentor of old"), None);
}
