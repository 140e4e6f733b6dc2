//! Checks that printed commands can be pasted: our own command line parses each of them.

use std::fs;
use std::path::{Path, PathBuf};

use clap::{CommandFactory, Parser};
use stentor::cli::Cli;
use stentor_admin::advice::{self, AdviceFacts};
use stentor_control::format::resume_command;
use stentor_control::{CauseRow, RecipientView, SiteRow};
use stentor_queue::cause::Cause;

/// Value for placeholders: a queue id, which is also a valid name.
const FILLED: &str = "037P70R00000";

/// Splits a command into words as a shell does.
fn words(command: &str) -> Vec<String> {
    let (mut words, mut word, mut is_quoted, mut is_word) = (Vec::new(), String::new(), false, false);
    let mut chars = command.chars();
    while let Some(c) = chars.next() {
        match c {
            '\'' => (is_quoted, is_word) = (!is_quoted, true),
            '\\' if !is_quoted => word.extend(chars.next()),
            ' ' if !is_quoted => {
                if is_word {
                    words.push(std::mem::take(&mut word));
                }
                is_word = false;
            }
            c => {
                word.push(c);
                is_word = true;
            }
        }
    }
    if is_word {
        words.push(word);
    }
    assert!(!is_quoted, "{command}");
    words
}

/// Commands between backticks.
fn commands(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("`stentor ") {
        let behind = &rest[at + 1..];
        let (mut is_quoted, mut is_escaped) = (false, false);
        let end = behind.find(|c| {
            let is_plain = !is_escaped;
            is_escaped = c == '\\' && !is_quoted && is_plain;
            is_quoted ^= c == '\'' && is_plain;
            c == '`' && !is_quoted || c == '\n'
        });
        let Some(end) = end else { break };
        if behind[end..].starts_with('`') {
            found.push(behind[..end].to_owned());
        }
        rest = &behind[end + 1..];
    }
    found
}

fn assert_understood(command: &str, source: &str) {
    if let Err(error) = Cli::try_parse_from(words(command)) {
        panic!("{source}: {command}\n{error}");
    }
}

#[test]
fn advice_can_be_pasted() {
    const DAY_MS: u64 = 86_400_000;
    let mut count = 0;
    for cause in Cause::ALL {
        let odd = RecipientView {
            address: "o'x`y@one.example".to_owned(),
            site: "route:10.0.0.5:25".to_owned(),
            cause: cause.name().to_owned(),
            ..RecipientView::default()
        };
        let row = CauseRow { cause: cause.name().to_owned(), recipients: 1, ..CauseRow::default() };
        let site = SiteRow { site: "mx 'a'".to_owned(), causes: vec![row], ..SiteRow::default() };
        let known =
            AdviceFacts { oldest: Some((FILLED, 0)), suspended: Some("list:the news"), ..AdviceFacts::default() };
        for text in [
            advice::recipient(&odd, &AdviceFacts { subscribed: Some("the news"), ..known }, DAY_MS),
            advice::recipient(&odd, &AdviceFacts { asked: Some("the news"), ..known }, DAY_MS),
            advice::recipient(&odd, &known, DAY_MS),
            advice::recipient(&odd, &AdviceFacts::default(), DAY_MS),
            advice::site(&site, false, &known, DAY_MS),
            advice::site(&site, true, &known, DAY_MS),
        ] {
            for command in commands(&text) {
                assert_understood(&command.replace(" ID", &format!(" {FILLED}")), &text);
                count += 1;
            }
        }
    }
    assert!(count > 50, "{count}");
    for what in ["list:a b", "sender:one.example", "site:mx1.one.example", "subscriber:news:o'x@one.example"] {
        assert_understood(&resume_command(what).expect("a command"), what);
    }
}

fn sources(folder: &Path, all: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        if entry.is_dir() {
            sources(&entry, all);
        } else if entry.extension().is_some_and(|end| end == "rs") {
            all.push(entry);
        }
    }
}

/// Fills in a command from the source: placeholders and value names get a value.
fn filled(command: &str) -> String {
    let mut out = String::new();
    let mut depth = 0;
    for c in command.chars() {
        match c {
            '{' => {
                depth += 1;
                if depth == 1 {
                    out.push_str(FILLED);
                }
            }
            '}' => depth -= 1,
            c if depth == 0 => out.push(c),
            _ => {}
        }
    }
    let is_name = |word: &&str| word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase());
    let words = out.split_whitespace().filter(|word| *word != "\\");
    let mut filled: Vec<&str> = Vec::new();
    for word in words {
        let word = match filled.last() {
            Some(&"--by") => "site",
            Some(&"--sort") => "name",
            Some(&"--offset") => "50",
            _ if is_name(&word) => FILLED,
            _ => word,
        };
        filled.push(word);
    }
    filled.join(" ")
}

#[test]
fn every_command_in_a_text_of_ours_is_understood() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut files = Vec::new();
    for folder in fs::read_dir(crates).expect("the crates").map(|entry| entry.expect("an entry").path().join("src")) {
        if folder.is_dir() {
            sources(&folder, &mut files);
        }
    }
    let mut count = 0;
    for file in files {
        let text = fs::read_to_string(&file).expect("text");
        // Comments name commands too, and tests contain wrong ones: skip both.
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let code: Vec<&str> = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        // A command with a quotation mark is part of the code that finds commands.
        let found = commands(&code.join("\n").replace("\\\n", " "));
        for command in found.into_iter().filter(|command| !command.contains('"')) {
            assert_understood(&filled(&command), &file.display().to_string());
            count += 1;
        }
    }
    assert!(count > 40, "{count}");
}

#[test]
fn commands_that_look_take_the_same_options_in_the_same_order() {
    const SHARED: [&str; 10] = ["by", "list", "site", "sort", "limit", "watch", "config", "socket", "json", "color"];
    for name in ["queue", "site", "hosts", "latedudes", "report"] {
        let command = Cli::command();
        let command = command.find_subcommand(name).expect("a command");
        let options: Vec<&str> = command.get_arguments().filter_map(|argument| argument.get_long()).collect();
        let shared: Vec<&str> = options.into_iter().filter(|option| SHARED.contains(option)).collect();
        assert_eq!(shared, SHARED, "{name}");
    }
    for line in [
        "queue --by list --list news --site mx --sort next-try -n 3 --json --watch",
        "queue --by age --watch 5",
        "queue --stuck 7 --site mx",
        "queue --sites-max 4",
        "site mx --list news --watch 3",
        "hosts down --sort latency --rows 3",
        "stuck --by site --sort age",
        "mailq",
        "report --list news --last 5 --sort waiting",
        "mailstat --by domain --color never --watch",
        "mailstat --by site",
        "trace one.example --color always",
    ] {
        assert_understood(&format!("stentor {line}"), line);
    }
    // A name after --watch would be its value.
    let wrong = Cli::try_parse_from(["stentor", "site", "--watch", "mx"]).map(|_| ()).unwrap_err().to_string();
    assert!(wrong.contains("put names before --watch"), "{wrong}");
}
