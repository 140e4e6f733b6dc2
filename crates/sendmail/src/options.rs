//! Parses the command line as sendmail and Postfix's sendmail(1) do.
//!
//! Promise: every call that works with either program works here, except those that [`parse`] refuses with a reason.
//! Options may be combined (`-oi`, `-ti`), and values may be attached or follow (`-fann`, `-f ann`); those of `-q`
//! and `-d` must be attached. The first argument that is not an option starts the recipients; `--` ends the options.
//!
//! These are ignored, since they concern sendmail's internals: -A -B7BIT -c -D -d -e -h -L -M -m -O -o (except -oi)
//! -p -Q -s -T -U -x -v; and -X, with a warning on standard error. Another configuration (`-C`) is only accepted from
//! root or if the program is not setgid, which the program checks.

use std::path::PathBuf;

use stentor_mail::dsn::Ret;

use crate::exit::{EX_DATAERR, EX_OK, EX_USAGE, ExitError};

/// NOTIFY of a recipient (RFC 3461 section 4.1), as bits.
pub const NEVER: u8 = 1;
pub const SUCCESS: u8 = 2;
pub const FAILURE: u8 = 4;
pub const DELAY: u8 = 8;
/// Maximum length of an ENVID (RFC 3461 section 4.4).
const ENVID_BYTES_MAX: usize = 100;

/// Task of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// Accept a message.
    #[default]
    Deliver,
    /// `-bs`: SMTP on standard input and output.
    Smtp,
    /// `-bv`
    Verify,
    /// `-bp`, `mailq`
    Queue,
    /// `-bP`
    Count,
    /// `-bi`, `-I`, `newaliases`
    Aliases,
    /// `-bh`, `-bH`, `hoststat`, `purgestat`
    Hosts,
    /// `-q`
    Flush,
    /// `-q` with an interval: the server runs the queue by itself.
    Nothing,
}

/// Selector of a partial queue run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Only {
    /// `-qRSITE`, `-qR@SITE`
    Site(String),
    /// `-qIID`
    Id(String),
    /// `-qSSENDER`, also `@domain`
    Sender(String),
    /// `-qRRECIPIENT`
    Recipient(String),
}

/// A parsed call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Call {
    pub mode: Mode,
    /// `-i`: a line with only a dot is text.
    pub keeps_dots: bool,
    /// `-t`
    pub takes_recipients: bool,
    /// `-f` or `-r`; the default is the user's own address.
    pub sender: Option<String>,
    pub full_name: Option<String>,
    pub recipients: Vec<String>,
    pub notify: Option<u8>,
    pub ret: Option<Ret>,
    pub envid: Option<String>,
    /// `-G`: the header is not changed.
    pub gateway: bool,
    pub configuration: Option<PathBuf>,
    /// Selector of `-q`.
    pub only: Option<Only>,
    /// Warnings for standard error; the call continues.
    pub warnings: Vec<String>,
}

/// Options that have a value.
const VALUED: &[u8] = b"ABCDFLMNOQRTVXbefhopr";
/// Options whose value, if any, must be attached.
const ATTACHED: &[u8] = b"dq";
const FLAGS: &[u8] = b"GIUcimnstvx";
/// Answer to long options, of which only `--help` exists.
const USAGE: &str = "usage: sendmail [-t] [-i] [-f SENDER] [-F NAME] [-N CONDITIONS] [-R full|hdrs] [-V ID] [-G] [RECIPIENT ...] < MESSAGE\n       \
                     sendmail -bs | -bp | -bP | -bv ADDRESS ... | -bi | -bh | -q | -qRSITE\n\
                     See docs/operate/sendmail.md.";

/// Parses a call by its name (the last part of `argv[0]`) and its arguments.
///
/// # Errors
/// The reason why it is refused.
pub fn parse(name: &str, arguments: &[Vec<u8>]) -> Result<Call, ExitError> {
    let mut call = Call::default();
    let (name, arguments) = match arguments.split_first() {
        Some((first, rest)) if first.starts_with(b"--as=") => (text(&first[5..])?, rest),
        _ => (name.to_owned(), arguments),
    };
    call.mode = match &*name {
        "mailq" => Mode::Queue,
        "newaliases" => Mode::Aliases,
        "hoststat" | "purgestat" => Mode::Hosts,
        _ => Mode::Deliver,
    };
    let mut at = 0;
    while let Some(argument) = arguments.get(at) {
        let Some(letters) = argument.strip_prefix(b"-").filter(|letters| !letters.is_empty()) else { break };
        at += 1;
        if letters == b"-" {
            break;
        }
        if letters.starts_with(b"-") {
            let code = if letters == b"-help" { EX_OK } else { EX_USAGE };
            return Err(ExitError::new(code, USAGE));
        }
        let mut rest = letters;
        while let Some((&letter, more)) = rest.split_first() {
            if FLAGS.contains(&letter) {
                call.flag(letter)?;
                rest = more;
                continue;
            }
            let is_attached = ATTACHED.contains(&letter);
            if !is_attached && !VALUED.contains(&letter) {
                return Err(ExitError::usage(format!("unknown option -{}", letter.escape_ascii())));
            }
            let value = if !more.is_empty() || is_attached {
                more
            } else {
                at += 1;
                let behind = arguments.get(at - 1).map(Vec::as_slice);
                behind.ok_or_else(|| ExitError::usage(format!("option -{} needs a value", char::from(letter))))?
            };
            call.value(letter, value)?;
            break;
        }
    }
    for recipient in &arguments[at..] {
        call.recipients.push(text(recipient)?);
    }
    call.agree()?;
    Ok(call)
}

/// Encodes a value as xtext for SMTP (RFC 3461 section 4).
fn xtext(value: &[u8]) -> String {
    let plain = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'+' | b'=');
    value.iter().map(|byte| if plain(byte) { char::from(*byte).to_string() } else { format!("+{byte:02X}") }).collect()
}

fn text(value: &[u8]) -> Result<String, ExitError> {
    let wrong = || ExitError::new(EX_DATAERR, format!("{}: not UTF-8", value.escape_ascii()));
    std::str::from_utf8(value).map(str::to_owned).map_err(|_| wrong())
}

impl Call {
    fn flag(&mut self, letter: u8) -> Result<(), ExitError> {
        match letter {
            b'i' => self.keeps_dots = true,
            b't' => self.takes_recipients = true,
            b'G' => self.gateway = true,
            b'I' => self.mode = Mode::Aliases,
            b'n' => return Err(ExitError::usage("-n is not supported: the server expands aliases")),
            _ => {}
        }
        Ok(())
    }

    fn value(&mut self, letter: u8, value: &[u8]) -> Result<(), ExitError> {
        match letter {
            b'f' | b'r' => self.sender = Some(text(value)?),
            b'F' => self.full_name = Some(String::from_utf8_lossy(value).into_owned()),
            b'C' => self.configuration = Some(PathBuf::from(text(value)?)),
            b'o' if value == b"i" => self.keeps_dots = true,
            b'b' => self.mode = mode(value)?,
            b'q' => self.queue(&text(value)?)?,
            b'N' => self.notify = self.notify(&text(value)?),
            b'R' => {
                self.ret = match value.to_ascii_lowercase().as_slice() {
                    b"full" => Some(Ret::Full),
                    b"hdrs" => Some(Ret::Headers),
                    _ => return Err(ExitError::usage("-R needs full or hdrs")),
                };
            }
            b'V' if value.len() > ENVID_BYTES_MAX || !value.iter().all(u8::is_ascii_graphic) => {
                let warning = format!("-V ignored: use at most {ENVID_BYTES_MAX} visible characters as envelope id");
                self.warnings.push(warning);
            }
            b'V' => self.envid = Some(xtext(value)),
            b'B' if !matches!(value.to_ascii_uppercase().as_slice(), b"8BITMIME" | b"7BIT") => {
                return Err(ExitError::usage("-B needs 8BITMIME or 7BIT"));
            }
            b'X' => {
                let instead = "use `stentor watch --client 127.0.0.1` to follow sessions; lists do VERP";
                self.warnings.push(format!("-X ignored: {instead}"));
            }
            _ => {}
        }
        Ok(())
    }

    fn notify(&mut self, value: &str) -> Option<u8> {
        let bit = |word: &str| match word.trim().to_ascii_lowercase().as_str() {
            "never" => Some(NEVER),
            "success" => Some(SUCCESS),
            "failure" => Some(FAILURE),
            "delay" => Some(DELAY),
            _ => None,
        };
        let bits = value.split(',').map(bit).try_fold(0, |bits, bit| Some(bits | bit?));
        let bits = bits.filter(|bits| bits & NEVER == 0 || *bits == NEVER);
        if bits.is_none() {
            self.warnings.push(format!("-N {value:?} ignored: use never, or some of success, failure, delay"));
        }
        bits
    }

    fn queue(&mut self, value: &str) -> Result<(), ExitError> {
        match value.chars().next() {
            None | Some('f') => self.mode = Mode::Flush,
            Some(first) if first.is_ascii_digit() || first == 'p' => self.mode = Mode::Nothing,
            Some(which @ ('R' | 'I' | 'S')) if value.len() > 1 => {
                self.mode = Mode::Flush;
                let text = value[1..].to_owned();
                self.only = Some(match which {
                    'I' => Only::Id(text),
                    'S' => Only::Sender(text),
                    _ if text.trim_start_matches('@').contains('@') => Only::Recipient(text),
                    _ => Only::Site(text.trim_start_matches('@').to_owned()),
                });
            }
            _ => {
                let what = "`stentor requeue` selects by id, sender, recipient, site, list and age";
                return Err(ExitError::usage(format!("-q{value} is not supported: {what}")));
            }
        }
        Ok(())
    }

    /// Checks for options that cannot be combined.
    fn agree(&self) -> Result<(), ExitError> {
        let is_mail = matches!(self.mode, Mode::Deliver | Mode::Verify);
        if self.takes_recipients && self.mode != Mode::Deliver {
            return Err(ExitError::usage("-t is only valid when sending a message"));
        }
        if !is_mail && self.mode != Mode::Hosts && !self.recipients.is_empty() {
            return Err(ExitError::usage(format!("unexpected recipient: {}", self.recipients[0])));
        }
        if is_mail && self.recipients.is_empty() && !self.takes_recipients {
            return Err(ExitError::usage("no recipients: name them on the command line, or use -t"));
        }
        Ok(())
    }
}

fn mode(value: &[u8]) -> Result<Mode, ExitError> {
    Ok(match value.first() {
        Some(b'm') => Mode::Deliver,
        Some(b's') => Mode::Smtp,
        Some(b'v') => Mode::Verify,
        Some(b'p') => Mode::Queue,
        Some(b'P') => Mode::Count,
        Some(b'i') => Mode::Aliases,
        Some(b'h' | b'H') => Mode::Hosts,
        Some(b'd' | b'D') => {
            return Err(ExitError::usage("-bd is not supported: start the server with `stentor serve` or its unit"));
        }
        Some(b't') => {
            return Err(ExitError::usage(
                "-bt is not supported: for `3,0 user@host` use `stentor explain --from SENDER --to user@host`; for \
                 `/map TABLE KEY` use `stentor table get TABLE KEY`",
            ));
        }
        _ => return Err(ExitError::usage(format!("-b{} is not supported", value.escape_ascii()))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn called(name: &str, arguments: &[&str]) -> Result<Call, ExitError> {
        let arguments: Vec<Vec<u8>> = arguments.iter().map(|argument| argument.as_bytes().to_vec()).collect();
        parse(name, &arguments)
    }

    fn sendmail(arguments: &str) -> Call {
        let arguments: Vec<&str> = arguments.split_whitespace().collect();
        called("sendmail", &arguments).unwrap_or_else(|failure| panic!("{arguments:?}: {failure}"))
    }

    #[test]
    fn calls_of_programs_are_understood() {
        let mail = |recipients: &[&str]| Call {
            recipients: recipients.iter().map(|to| (*to).to_owned()).collect(),
            ..Call::default()
        };
        // cron of Debian, of cronie, bsd-mailx, s-nail, PHP, git send-email, Python, mlmmj, Sympa, logwatch, Nagios,
        // majordomo.
        for (line, expected) in [
            (
                "-i -FCronDaemon -B8BITMIME -oem root",
                Call { keeps_dots: true, full_name: Some("CronDaemon".into()), ..mail(&["root"]) },
            ),
            (
                "-FCronDaemon -i -odi -oem -oi -t -f root",
                Call {
                    keeps_dots: true,
                    takes_recipients: true,
                    full_name: Some("CronDaemon".into()),
                    sender: Some("root".into()),
                    ..mail(&[])
                },
            ),
            ("-i ann@x bob@x", Call { keeps_dots: true, ..mail(&["ann@x", "bob@x"]) }),
            ("-i -r ann@x -- -odd@x", Call { keeps_dots: true, sender: Some("ann@x".into()), ..mail(&["-odd@x"]) }),
            ("-t -i", Call { keeps_dots: true, takes_recipients: true, ..mail(&[]) }),
            (
                "-ti -fwww@x",
                Call { keeps_dots: true, takes_recipients: true, sender: Some("www@x".into()), ..mail(&[]) },
            ),
            ("-f ann@x -i bob@x", Call { keeps_dots: true, sender: Some("ann@x".into()), ..mail(&["bob@x"]) }),
            (
                "-oi -oem -odb -f list@x ann@x",
                Call { keeps_dots: true, sender: Some("list@x".into()), ..mail(&["ann@x"]) },
            ),
            ("-bm -U -v -em -h3 -pSMTP -Ac -Ltag -m -d0.1 -ODeliveryMode=b a", mail(&["a"])),
            (
                "-N success,delay -R hdrs -V id1 a",
                Call {
                    notify: Some(SUCCESS | DELAY),
                    ret: Some(Ret::Headers),
                    envid: Some("id1".into()),
                    ..mail(&["a"])
                },
            ),
            ("-bs", Call { mode: Mode::Smtp, ..mail(&[]) }),
            ("-qRsite.example", Call { mode: Mode::Flush, only: Some(Only::Site("site.example".into())), ..mail(&[]) }),
            (
                "-qR@site.example",
                Call { mode: Mode::Flush, only: Some(Only::Site("site.example".into())), ..mail(&[]) },
            ),
            ("-qRann@x", Call { mode: Mode::Flush, only: Some(Only::Recipient("ann@x".into())), ..mail(&[]) }),
            ("-qI0ABC", Call { mode: Mode::Flush, only: Some(Only::Id("0ABC".into())), ..mail(&[]) }),
            ("-qS@x", Call { mode: Mode::Flush, only: Some(Only::Sender("@x".into())), ..mail(&[]) }),
            ("-q15m", Call { mode: Mode::Nothing, ..mail(&[]) }),
            ("-q", Call { mode: Mode::Flush, ..mail(&[]) }),
            ("u@x -f foo@x", mail(&["u@x", "-f", "foo@x"])),
        ] {
            assert_eq!(sendmail(line), expected, "{line}");
        }
        assert_eq!(sendmail("-V a+b=c a").envid.as_deref(), Some("a+2Bb+3Dc"));
        let null = called("sendmail", &["-f", "", "a"]).unwrap();
        assert_eq!(null.sender.as_deref(), Some(""));
        assert_eq!(called("sendmail", &["-F", "A B", "a"]).unwrap().full_name.as_deref(), Some("A B"));
    }

    #[test]
    fn the_name_says_what_is_asked() {
        let mode = |name: &str, arguments: &[&str]| called(name, arguments).unwrap().mode;
        assert_eq!(mode("mailq", &[]), Mode::Queue);
        assert_eq!(mode("newaliases", &[]), Mode::Aliases);
        assert_eq!(mode("hoststat", &[]), Mode::Hosts);
        assert_eq!(mode("newaliases", &["-bp"]), Mode::Queue);
        assert_eq!(mode("stentor-sendmail", &["--as=mailq"]), Mode::Queue);
        assert_eq!(mode("sendmail", &["-bP"]), Mode::Count);
    }

    #[test]
    fn what_is_refused_says_why() {
        for (arguments, words) in [
            (&[][..], "no recipients"),
            (&["-Z", "a"], "unknown option -Z"),
            (&["-f"], "option -f needs a value"),
            (&["-bd"], "stentor serve"),
            (&["-bd", "-q30m"], "stentor serve"),
            (&["-bt"], "stentor explain"),
            (&["-n", "a"], "-n is not supported"),
            (&["-B", "9BIT", "a"], "8BITMIME or 7BIT"),
            (&["-R", "all", "a"], "full or hdrs"),
            (&["-bp", "a"], "unexpected recipient: a"),
            (&["-bs", "-t"], "-t is only"),
            (&["-qI"], "-qI is not supported"),
            (&["-q!Rx"], "-q!Rx is not supported"),
        ] {
            let failure = called("sendmail", arguments).unwrap_err();
            assert!(failure.code == EX_USAGE && failure.text.contains(words), "{arguments:?}: {failure}");
        }
        assert_eq!(parse("sendmail", &[b"\xff@x".to_vec()]).unwrap_err().code, EX_DATAERR);
        for (long, code) in [("--help", EX_OK), ("--version", EX_USAGE)] {
            let failure = called("mailq", &[long]).unwrap_err();
            assert!(failure.code == code && failure.text.starts_with("usage: sendmail ["), "{long}: {failure}");
            assert!(failure.text.ends_with("See docs/operate/sendmail.md."), "{failure}");
        }
    }

    #[test]
    fn doubtful_values_are_ignored_with_a_warning() {
        for line in ["-N foo a", "-N never,delay a"] {
            let call = sendmail(line);
            assert!(call.notify.is_none() && call.warnings.len() == 1, "{call:?}");
        }
        assert_eq!(sendmail("-X /tmp/log a").warnings.len(), 1);
        assert_eq!(sendmail(&format!("-V {} a", "x".repeat(101))).warnings.len(), 1);
    }
}
