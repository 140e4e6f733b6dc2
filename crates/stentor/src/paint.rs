//! Colours for people, added to finished text, so that columns do not move and a pipe gets the same words.
//!
//! Coloured: table headings, states that need attention, temporary (yellow) and permanent (red) replies, commands that
//! can be pasted. `--color` decides; by default colours are on for a terminal, unless `NO_COLOR` is set (no-color.org)
//! or the terminal is dumb.

use std::io::IsTerminal;

use clap::{Args, ValueEnum};

const BOLD: &str = "1";
const RED: &str = "31";
const YELLOW: &str = "33";
const GREEN: &str = "32";

/// Words for states and their colours; matched as whole words, case-sensitively.
const STATES: [(&str, &str); 9] = [
    ("PROBLEM:", RED),
    ("error:", RED),
    ("FAILS:", RED),
    ("SUSPENDED", YELLOW),
    ("BOUNCED", YELLOW),
    ("HELD", YELLOW),
    ("RESTART", YELLOW),
    ("warning:", YELLOW),
    ("ok:", GREEN),
];

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
enum ColourMode {
    // On a terminal.
    #[default]
    Auto,
    Always,
    Never,
}

/// `--color` of a command that prints for people.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct Colour {
    /// Use colours; auto: on a terminal, unless `NO_COLOR` is set.
    #[arg(long, value_enum, default_value_t = ColourMode::Auto, value_name = "WHEN")]
    color: ColourMode,
}

impl Colour {
    /// Adds colours to the text if standard output should have them.
    pub fn paint(self, text: String) -> String {
        if self.is_on(std::io::stdout().is_terminal(), &|name| std::env::var(name).ok()) { paint(&text) } else { text }
    }

    fn is_on(self, is_terminal: bool, variable: &dyn Fn(&str) -> Option<String>) -> bool {
        match self.color {
            ColourMode::Always => true,
            ColourMode::Never => false,
            ColourMode::Auto => is_terminal && is_wanted(variable),
        }
    }
}

/// Whether the environment permits colours on a terminal.
pub(crate) fn is_wanted(variable: &dyn Fn(&str) -> Option<String>) -> bool {
    variable("NO_COLOR").is_none_or(|value| value.is_empty()) && variable("TERM").as_deref() != Some("dumb")
}

fn paint(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 8);
    for line in text.split_inclusive('\n') {
        let (line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
        if is_heading(line) {
            mark(&mut out, BOLD, line);
        } else {
            paint_line(&mut out, line);
        }
        out.push_str(end);
    }
    out
}

fn mark(out: &mut String, colour: &str, text: &str) {
    out.extend(["\x1b[", colour, "m", text, "\x1b[0m"]);
}

/// Whether the line is a heading: several lower-case words in columns, nothing else.
fn is_heading(line: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_lowercase() || " -/%".contains(c);
    line.contains("  ") && line.chars().all(is_plain) && line.split_whitespace().count() >= 4
}

fn paint_line(out: &mut String, line: &str) {
    let mut rest = line;
    while !rest.is_empty() {
        let space = rest.len() - rest.trim_start_matches(' ').len();
        out.push_str(&rest[..space]);
        rest = &rest[space..];
        let command =
            rest.strip_prefix("`stentor ").and_then(|behind| behind.find('`')).map(|end| "`stentor ".len() + end + 1);
        let len = command.or_else(|| reply_code(rest)).unwrap_or_else(|| rest.find(' ').unwrap_or(rest.len()));
        let (word, behind) = rest.split_at(len);
        let state = STATES.iter().find(|(state, _)| word.trim_end_matches(',') == *state).map(|(_, colour)| *colour);
        let colour = match (command, reply_code(rest)) {
            (Some(_), _) => Some(BOLD),
            (None, Some(_)) => Some(if word.starts_with('5') { RED } else { YELLOW }),
            (None, None) => state,
        };
        match colour {
            Some(colour) => mark(out, colour, word),
            None => out.push_str(word),
        }
        rest = behind;
    }
}

/// The length of a reply code with its enhanced code: `452 4.2.2`. A code alone might be a count.
fn reply_code(text: &str) -> Option<usize> {
    let (code, rest) = text.split_at_checked(3)?;
    let next = rest.strip_prefix(' ')?.split([' ', ';', ')', ',', ':']).next()?;
    let is_number = |text: &&str| !text.is_empty() && text.len() <= 3 && text.bytes().all(|b| b.is_ascii_digit());
    if !is_number(&code) || !code.starts_with(['4', '5']) || next.is_empty() {
        return None;
    }
    let parts: Vec<&str> = next.split('.').collect();
    (parts.len() == 3 && parts.iter().all(is_number)).then_some(3 + 1 + next.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_needs_somebody_is_marked() {
        let painted = |text: &str| paint(text).replace("\x1b[0m", "]").replace("\x1b[", "[");
        assert_eq!(painted("  452 messages\n"), "  452 messages\n", "a count");
        assert_eq!(painted("  452 at mx, 9 waiting"), "  452 at mx, 9 waiting", "a count");
        assert_eq!(painted("9m  452 mailbox full"), "9m  452 mailbox full", "may be a count");
        assert_eq!(painted("a  452 4.2.2 full; 550 5.1.1\n"), "a  [33m452 4.2.2] full; [31m550 5.1.1]\n");
        assert_eq!(painted("mx: 2 waiting, SUSPENDED"), "mx: 2 waiting, [33mSUSPENDED]");
        assert_eq!(painted("PROBLEM: x\nok: y\n"), "[31mPROBLEM:] x\n[32mok:] y\n");
        assert_eq!(painted("wait, or `stentor flush mx`; then"), "wait, or [1m`stentor flush mx`]; then");
        assert_eq!(painted(" waiting    msgs next try  site\n"), "[1m waiting    msgs next try  site]\n");
        assert_eq!(painted("é 4"), "é 4");
    }

    #[test]
    fn without_the_colours_the_text_is_the_same() {
        let text = "PROBLEM: a `stentor x`\n  messages  oldest  next try  site\n 3  450 4.7.1 no, HELD\n";
        let mut plain = String::new();
        for part in paint(text).split("\x1b[") {
            plain += part
                .split_once('m')
                .filter(|(colour, _)| colour.bytes().all(|b| b.is_ascii_digit()))
                .map_or(part, |(_, rest)| rest);
        }
        assert_eq!(plain, text);
    }

    #[test]
    fn a_terminal_has_colours_unless_somebody_minds() {
        let set =
            |name: &'static str, value: &'static str| move |asked: &str| (asked == name).then(|| value.to_owned());
        let auto = Colour::default();
        assert!(auto.is_on(true, &|_| None) && !auto.is_on(false, &|_| None));
        assert!(!auto.is_on(true, &set("NO_COLOR", "1")) && auto.is_on(true, &set("NO_COLOR", "")));
        assert!(!auto.is_on(true, &set("TERM", "dumb")));
        assert!(Colour { color: ColourMode::Always }.is_on(false, &set("NO_COLOR", "1")));
        assert!(!Colour { color: ColourMode::Never }.is_on(true, &|_| None));
    }
}
