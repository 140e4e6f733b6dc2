//! Command lines, parsed strictly: anything a correct client never sends is an error here.

/// A breach of RFC 5321 4.1 or of an extension; the text is the recorder's name for it.
pub type Breach = &'static str;

#[derive(Debug, PartialEq, Eq)]
pub enum Command<'a> {
    Helo,
    Ehlo,
    /// LMTP's (RFC 2033 4.1).
    Lhlo,
    Mail(Mail<'a>),
    Rcpt(Rcpt<'a>),
    Data,
    Bdat {
        bytes: u64,
        last: bool,
    },
    Rset,
    Noop,
    /// RFC 3207.
    StartTls,
    /// RFC 4954: the mechanism, and the initial response.
    Auth(&'a str, Option<&'a str>),
    Quit,
    Other,
}

/// MAIL and its parameters (RFC 5321 4.1.1.2, 1870, 6152, 6531, 3461).
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Mail<'a> {
    pub sender: &'a str,
    pub size: Option<u64>,
    pub body: bool,
    pub eight_bit: bool,
    pub smtputf8: bool,
    pub requiretls: bool,
    pub dsn: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Rcpt<'a> {
    pub recipient: &'a str,
    pub dsn: bool,
}

/// Parses one line without its CRLF.
pub fn parse(line: &[u8]) -> Result<Command<'_>, Breach> {
    if line.iter().any(|&b| b < b' ' || b == 0x7f) {
        return Err("control character in a command");
    }
    let line = std::str::from_utf8(line).map_err(|_| "command is not UTF-8")?;
    let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
    let bare = |command| if rest.is_empty() { Ok(command) } else { Err("argument where none belongs") };
    let is = |name: &str| verb.eq_ignore_ascii_case(name);
    if is("MAIL") {
        mail(rest).map(Command::Mail)
    } else if is("RCPT") {
        rcpt(rest).map(Command::Rcpt)
    } else if is("BDAT") {
        bdat(rest)
    } else if is("DATA") {
        bare(Command::Data)
    } else if is("RSET") {
        bare(Command::Rset)
    } else if is("QUIT") {
        bare(Command::Quit)
    } else if is("STARTTLS") {
        bare(Command::StartTls)
    } else if is("AUTH") {
        let (mechanism, initial) = rest.split_once(' ').map_or((rest, None), |(name, text)| (name, Some(text)));
        if mechanism.is_empty() { Err("AUTH without a mechanism") } else { Ok(Command::Auth(mechanism, initial)) }
    } else if is("NOOP") {
        Ok(Command::Noop)
    } else if is("EHLO") || is("HELO") || is("LHLO") {
        if rest.is_empty() || rest.contains(' ') {
            return Err("EHLO without exactly one argument");
        }
        Ok(if is("EHLO") {
            Command::Ehlo
        } else if is("HELO") {
            Command::Helo
        } else {
            Command::Lhlo
        })
    } else {
        Ok(Command::Other)
    }
}

fn bdat(rest: &str) -> Result<Command<'_>, Breach> {
    let (count, last) = match rest.split_once(' ') {
        None => (rest, false),
        Some((count, last)) if last.eq_ignore_ascii_case("LAST") => (count, true),
        Some(_) => return Err("bad BDAT argument"),
    };
    match number(count) {
        Some(bytes) => Ok(Command::Bdat { bytes, last }),
        None => Err("bad BDAT size"),
    }
}

fn number(text: &str) -> Option<u64> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

/// `FROM:<path> parameters`, without the blank that many clients put behind the colon.
fn path<'a>(rest: &'a str, keyword: &str) -> Result<(&'a str, &'a str), Breach> {
    let Some((head, tail)) = rest.split_at_checked(keyword.len()) else { return Err("bad MAIL or RCPT") };
    if !head.eq_ignore_ascii_case(keyword) {
        return Err("bad MAIL or RCPT");
    }
    let Some(tail) = tail.strip_prefix('<') else { return Err("path does not begin with <") };
    let (mut quoted, mut escaped) = (false, false);
    for (at, byte) in tail.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'>' if !quoted => {
                let (address, behind) = (&tail[..at], &tail[at + 1..]);
                return match behind.strip_prefix(' ') {
                    Some(parameters) if !parameters.is_empty() => Ok((address, parameters)),
                    None if behind.is_empty() => Ok((address, "")),
                    _ => Err("junk behind the path"),
                };
            }
            b' ' if !quoted => return Err("blank in a path"),
            _ => {}
        }
    }
    Err("path does not end with >")
}

fn check_address(address: &str) -> Result<(), Breach> {
    match address.rsplit_once('@') {
        Some((local, domain)) if !local.is_empty() && !domain.is_empty() && !address.starts_with('@') => Ok(()),
        _ => Err("address is not local@domain"),
    }
}

fn parameters(text: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    text.split(' ').filter(|_| !text.is_empty()).map(|p| match p.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (p, None),
    })
}

fn mail(rest: &str) -> Result<Mail<'_>, Breach> {
    let (sender, text) = path(rest, "FROM:")?;
    if !sender.is_empty() {
        check_address(sender)?;
    }
    let mut mail = Mail { sender, ..Mail::default() };
    for (name, value) in parameters(text) {
        let is = |keyword: &str| name.eq_ignore_ascii_case(keyword);
        match value {
            Some(value) if is("SIZE") && mail.size.is_none() => {
                mail.size = Some(number(value).ok_or("bad SIZE parameter")?);
            }
            Some(value) if is("BODY") && !mail.body => {
                mail.body = true;
                mail.eight_bit = value.eq_ignore_ascii_case("8BITMIME");
                if !mail.eight_bit && !value.eq_ignore_ascii_case("7BIT") {
                    return Err("bad BODY parameter");
                }
            }
            Some(value) if is("RET") => {
                mail.dsn = true;
                if !["FULL", "HDRS"].iter().any(|v| value.eq_ignore_ascii_case(v)) {
                    return Err("bad RET parameter");
                }
            }
            Some(value) if is("ENVID") => {
                mail.dsn = true;
                check_xtext(value)?;
            }
            None if is("SMTPUTF8") => mail.smtputf8 = true,
            None if is("REQUIRETLS") => mail.requiretls = true,
            _ => return Err("unknown MAIL parameter"),
        }
    }
    if !sender.is_ascii() && !mail.smtputf8 {
        return Err("non-ASCII sender without SMTPUTF8");
    }
    Ok(mail)
}

fn rcpt(rest: &str) -> Result<Rcpt<'_>, Breach> {
    let (recipient, text) = path(rest, "TO:")?;
    if !recipient.eq_ignore_ascii_case("postmaster") {
        check_address(recipient)?;
    }
    let mut rcpt = Rcpt { recipient, dsn: false };
    for (name, value) in parameters(text) {
        match value {
            Some(value) if name.eq_ignore_ascii_case("NOTIFY") => {
                rcpt.dsn = true;
                let known = |word: &str| ["SUCCESS", "FAILURE", "DELAY"].iter().any(|k| word.eq_ignore_ascii_case(k));
                if !value.eq_ignore_ascii_case("NEVER") && !value.split(',').all(known) {
                    return Err("bad NOTIFY parameter");
                }
            }
            Some(value) if name.eq_ignore_ascii_case("ORCPT") => {
                rcpt.dsn = true;
                let Some((kind, text)) = value.split_once(';') else { return Err("bad ORCPT parameter") };
                if kind.eq_ignore_ascii_case("utf-8") {
                    // RFC 6533 3: utf-8-addr-xtext or unitext, whose braces xtext has not.
                    continue;
                }
                check_xtext(text)?;
            }
            _ => return Err("unknown RCPT parameter"),
        }
    }
    Ok(rcpt)
}

/// RFC 3461 4: printable ASCII without `=` and blank, `+` followed by two upper-case hex digits.
fn check_xtext(text: &str) -> Result<(), Breach> {
    let bytes = text.as_bytes();
    let hex = |at: usize| bytes.get(at).is_some_and(|b| matches!(b, b'0'..=b'9' | b'A'..=b'F'));
    for (at, &byte) in bytes.iter().enumerate() {
        if !byte.is_ascii_graphic() || byte == b'=' || byte == b'+' && !(hex(at + 1) && hex(at + 2)) {
            return Err("bad xtext");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn well_formed() {
        let mail = "MAIL FROM:<a@b> SIZE=10 BODY=8BITMIME SMTPUTF8 RET=HDRS ENVID=a+2Bb";
        let Ok(Command::Mail(mail)) = parse(mail.as_bytes()) else { panic!("refused") };
        assert_eq!(
            (mail.sender, mail.size, mail.eight_bit, mail.smtputf8, mail.dsn),
            ("a@b", Some(10), true, true, true)
        );
        assert!(matches!(parse(b"mail from:<>"), Ok(Command::Mail(Mail { sender: "", .. }))));
        assert!(matches!(parse(br#"RCPT TO:<"a> b"@c>"#), Ok(Command::Rcpt(Rcpt { recipient: r#""a> b"@c"#, .. }))));
        let orcpt = parse(b"RCPT TO:<a@c> NOTIFY=SUCCESS,DELAY ORCPT=rfc822;a@c");
        assert_eq!(orcpt, Ok(Command::Rcpt(Rcpt { recipient: "a@c", dsn: true })));
        assert_eq!(parse(b"BDAT 12 LAST"), Ok(Command::Bdat { bytes: 12, last: true }));
        assert_eq!(parse(b"VRFY x"), Ok(Command::Other));
    }

    #[test]
    fn breaches() {
        for line in [
            "MAIL FROM: <a@b>",
            "MAIL FROM:a@b",
            "MAIL FROM:<a@b>  SIZE=1",
            "MAIL FROM:<a@b> ",
            "MAIL FROM:<a@b> SIZE=-1",
            "MAIL FROM:<a@b> FOO=1",
            "MAIL FROM:<ä@b>",
            "MAIL FROM:<a b@c>",
            "MAIL FROM:<a@b",
            "MAIL FROM:<ab>",
            "RCPT TO:<>",
            "RCPT TO:<@x,@y:a@b>",
            "RCPT TO:<a@b> NOTIFY=NEVER,SUCCESS",
            "RCPT TO:<a@b> ORCPT=rfc822;a+b",
            "BDAT x",
            "BDAT 1 2",
            "DATA now",
            "EHLO",
            "EHLO a b",
            "NOOP\ta",
            "RCPT TO:<a\rb@c>",
        ] {
            assert!(parse(line.as_bytes()).is_err(), "{line:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_line_is_survived(line in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..80)) {
            let _ = parse(&line);
        }

        #[test]
        fn any_tail_is_survived(tail in "[ -~]{0,60}") {
            for head in ["MAIL FROM:<", "RCPT TO:<", "MAIL FROM:<a@b> ", "RCPT TO:<a@b> ORCPT=", "BDAT "] {
                let _ = parse(format!("{head}{tail}").as_bytes());
            }
        }
    }
}
