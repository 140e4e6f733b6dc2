//! The script of a hostile host, as rules in text: `rcpt (<bob@): say 450 4.2.1 not now; close`.
//!
//! ```text
//! rule     = stage [ "(" text ")" ] ":" step *( ";" step )
//! stage = greeting | ehlo | tls-ehlo | helo | starttls | auth | mail | rcpt | data | bdat | body | dot | rset | quit
//! step = ok the command is carried out and answered as usual
//!          | mute           it is carried out, and the answer swallowed
//!          | spill          (bdat, first) the chunk's octets are taken for commands
//!          | say TEXT       a line; \r \n \t \0 \\ \xHH are octets
//!          | raw TEXT       the same without a line end
//!          | drip           from here on a second passes before each octet that is sent
//!          | pause MS
//!          | flood line     10 MB without a line end, as fast as the client reads
//!          | flood lines    lines of a reply that never ends, the same
//!          | close          FIN, once what was said is out; the client's end is waited for
//!          | half-close     FIN, and nothing more is ever sent or closed
//!          | reset          RST
//!          | hang           nothing is said or done any more
//! ```
//!
//! `ehlo` is any EHLO or LHLO, `tls-ehlo` one within TLS. The text in brackets must be part of the command's line (of
//! the recipient at `dot`, where LMTP replies for each). The first matching rule applies. Without `ok` or `mute` the
//! command itself has no effect: no transaction begins, no recipient is accepted, no copy kept. `bdat` matches when a
//! chunk is complete, `body` once `body_bytes` of the message have arrived.

use serde::Deserialize;

/// Where in the session a rule is met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    Greeting,
    Ehlo,
    /// EHLO or LHLO within TLS.
    TlsEhlo,
    Helo,
    StartTls,
    Auth,
    Mail,
    Rcpt,
    Data,
    Bdat,
    Body,
    Dot,
    Rset,
    Quit,
}

const STAGES: [(&str, Stage); 14] = [
    ("greeting", Stage::Greeting),
    ("ehlo", Stage::Ehlo),
    ("tls-ehlo", Stage::TlsEhlo),
    ("helo", Stage::Helo),
    ("starttls", Stage::StartTls),
    ("auth", Stage::Auth),
    ("mail", Stage::Mail),
    ("rcpt", Stage::Rcpt),
    ("data", Stage::Data),
    ("bdat", Stage::Bdat),
    ("body", Stage::Body),
    ("dot", Stage::Dot),
    ("rset", Stage::Rset),
    ("quit", Stage::Quit),
];

/// See the module's text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    Ok,
    Mute,
    Spill,
    /// `say` and `raw`.
    Say(Vec<u8>),
    Drip,
    PauseMs(u32),
    FloodLine,
    FloodLines,
    Close,
    HalfClose,
    Reset,
    Hang,
}

/// See the module's text.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Rule {
    pub stage: Stage,
    contains: String,
    pub steps: Vec<Step>,
}

impl Rule {
    /// Whether it is to be played at this stage; `line` is the command or, at the end of data, the recipient.
    pub fn fits(&self, stage: Stage, line: &[u8]) -> bool {
        let is_at = self.stage == stage || stage == Stage::TlsEhlo && self.stage == Stage::Ehlo;
        is_at && (self.contains.is_empty() || line.windows(self.contains.len()).any(|w| w == self.contains.as_bytes()))
    }
}

impl TryFrom<String> for Rule {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (head, steps) = text.split_once(':').ok_or_else(|| format!("{text:?} has no stage"))?;
        // An address in brackets may hold a colon.
        let (head, steps) = match (head.split_once('('), text.split_once("):")) {
            (Some(_), Some(parts)) => parts,
            _ => (head, steps),
        };
        let (name, contains) = head.split_once('(').unwrap_or((head, ""));
        let name = name.trim();
        let stage = STAGES.iter().find(|(known, _)| *known == name);
        let (_, stage) = stage.ok_or_else(|| format!("{name:?} in {text:?} is no stage"))?;
        let steps: Vec<Step> = steps.split(';').map(|step| parse_step(step.trim())).collect::<Result<_, _>>()?;
        if steps.iter().skip(1).any(|step| *step == Step::Spill) || steps[0] == Step::Spill && *stage != Stage::Bdat {
            return Err(format!("spill is the first step at bdat, not in {text:?}"));
        }
        Ok(Rule { stage: *stage, contains: contains.trim_end_matches(')').to_owned(), steps })
    }
}

fn parse_step(text: &str) -> Result<Step, String> {
    let (verb, rest) = text.split_once(' ').unwrap_or((text, ""));
    Ok(match (verb, rest) {
        ("ok", "") => Step::Ok,
        ("mute", "") => Step::Mute,
        ("spill", "") => Step::Spill,
        ("say", _) => {
            let mut octets = octets(rest)?;
            octets.extend_from_slice(b"\r\n");
            Step::Say(octets)
        }
        ("raw", _) => Step::Say(octets(rest)?),
        ("drip", "") => Step::Drip,
        ("pause", _) => Step::PauseMs(rest.parse().map_err(|_| format!("{rest:?} are no milliseconds"))?),
        ("flood", "line") => Step::FloodLine,
        ("flood", "lines") => Step::FloodLines,
        ("close", "") => Step::Close,
        ("half-close", "") => Step::HalfClose,
        ("reset", "") => Step::Reset,
        ("hang", "") => Step::Hang,
        _ => return Err(format!("{text:?} is no step")),
    })
}

fn octets(text: &str) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        rest = behind;
        if first != b'\\' {
            out.push(first);
            continue;
        }
        let (octet, used) = match rest {
            [b'r', ..] => (b'\r', 1),
            [b'n', ..] => (b'\n', 1),
            [b't', ..] => (b'\t', 1),
            [b'0', ..] => (0, 1),
            [b'\\', ..] => (b'\\', 1),
            [b'x', high, low, ..] => match (char::from(*high).to_digit(16), char::from(*low).to_digit(16)) {
                (Some(high), Some(low)) => ((high * 16 + low) as u8, 3),
                _ => return Err(format!("bad \\x in {text:?}")),
            },
            _ => return Err(format!("bad \\ in {text:?}")),
        };
        out.push(octet);
        rest = &rest[used..];
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> Rule {
        Rule::try_from(text.to_owned()).expect("a rule")
    }

    #[test]
    fn rules_are_read() {
        let read = rule(r"rcpt (<bob@): say 450-a\r\n450 b: c\x00; pause 20; half-close");
        assert_eq!(read.steps[0], Step::Say(b"450-a\r\n450 b: c\0\r\n".to_vec()));
        assert_eq!(read.steps[1..], [Step::PauseMs(20), Step::HalfClose]);
        assert!(read.fits(Stage::Rcpt, b"RCPT TO:<bob@x.example>"));
        assert!(!read.fits(Stage::Rcpt, b"RCPT TO:<ann@x.example>") && !read.fits(Stage::Mail, b"<bob@"));
        assert!(rule("ehlo: hang").fits(Stage::TlsEhlo, b"") && !rule("tls-ehlo: hang").fits(Stage::Ehlo, b""));
        assert!(rule("greeting:ok").fits(Stage::Greeting, b""));
        assert!(rule("mail (a:b): hang").fits(Stage::Mail, b"xa:by"));
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        for bad in [
            "",
            "mail",
            "mail:",
            "male: ok",
            "mail: okay",
            "mail: say \\q",
            "mail: spill",
            "bdat: ok; spill",
            "dot: pause x",
        ] {
            assert!(Rule::try_from(bad.to_owned()).is_err(), "{bad:?}");
        }
    }
}
