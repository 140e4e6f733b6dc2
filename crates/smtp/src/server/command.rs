//! Parses one command line (RFC 5321 section 4.1.1).
//!
//! Promise: pure, linear, stateless; a line that is not exactly a known command is answered by a [`Refusal`] and has no
//! effect. Arguments with control characters are refused before they are parsed.

use std::borrow::Cow;

use stentor_mail::address::{Address, AddressError, ReversePath, normalise_domain};
use stentor_mail::dsn::Ret;
use stentor_mail::reply::{Enhanced, Reply};

use super::ehlo::is_helo_name;
use super::params::{Body, MailParams, Notify, OptionalParams, RcptParams, VerpDelimiters, decimal};
use super::{Refusal, replies};

/// An accepted MAIL command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MailFrom {
    pub path: ReversePath,
    /// Declared size in octets; at most the limit.
    pub size: Option<u64>,
    pub body: Body,
    pub smtputf8: bool,
    pub ret: Option<Ret>,
    /// ENVID as received, in xtext, so that it can be sent on unchanged; [`super::xtext_decode`] decodes it.
    pub envid: Option<String>,
    /// REQUIRETLS (RFC 8689): the message may only be sent on over proven TLS.
    pub requiretls: bool,
    /// XVERP: each copy gets a return path that names its recipient. The sender is not null.
    pub verp: Option<VerpDelimiters>,
}

/// An accepted RCPT command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RcptTo {
    /// The address; `postmaster` without a domain means our own host name (RFC 5321 section 4.1.1.3).
    pub address: Address,
    pub notify: Option<Notify>,
    /// ORCPT as received (`rfc822;` and xtext), so that it can be sent on unchanged.
    pub orcpt: Option<String>,
}

/// A parsed line. MAIL and RCPT are parsed in a second step, which needs the session's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command<'a> {
    Helo(&'a str),
    Ehlo(&'a str),
    Lhlo(&'a str),
    /// The text after `FROM:`.
    Mail(&'a [u8]),
    /// The text after `TO:`.
    Rcpt(&'a [u8]),
    Data,
    Bdat {
        size: u64,
        last: bool,
    },
    Rset,
    Noop,
    Quit,
    Vrfy,
    Help,
    /// The attributes.
    Xclient(&'a [u8]),
    StartTls,
    /// The mechanism, and possibly a password.
    Auth(&'a [u8]),
}

impl<'a> Command<'a> {
    /// Whether the command is accepted before required TLS (RFC 3207 section 4). DATA and BDAT find no transaction, and
    /// are then answered so.
    pub(super) fn may_be_in_clear(self) -> bool {
        matches!(
            self,
            Self::Ehlo(_) | Self::Lhlo(_) | Self::Noop | Self::Quit | Self::StartTls | Self::Data | Self::Bdat { .. }
        )
    }

    /// Parses a line without its CRLF.
    pub(super) fn parse(line: &'a [u8]) -> Result<Self, Refusal> {
        let verb_end = line.iter().position(|&byte| byte == b' ').unwrap_or(line.len());
        let (verb, rest) = line.split_at(verb_end);
        let argument = rest.trim_ascii();
        let mut upper = [0; 8];
        let Some(upper) = upper.get_mut(..verb.len()) else { return Err(replies::UNKNOWN.into()) };
        upper.copy_from_slice(verb);
        upper.make_ascii_uppercase();
        let result = match &*upper {
            b"MAIL" => after_keyword(argument, b"FROM:").map(Self::Mail).ok_or(replies::MAIL_SYNTAX),
            b"RCPT" => after_keyword(argument, b"TO:").map(Self::Rcpt).ok_or(replies::RCPT_SYNTAX),
            b"EHLO" => helo_name(argument).map(Self::Ehlo),
            b"HELO" => helo_name(argument).map(Self::Helo),
            b"LHLO" => helo_name(argument).map(Self::Lhlo),
            b"BDAT" => return bdat(argument),
            b"DATA" => without_argument(argument, Self::Data),
            b"RSET" => without_argument(argument, Self::Rset),
            b"QUIT" => without_argument(argument, Self::Quit),
            b"NOOP" => Ok(Self::Noop),
            b"HELP" => Ok(Self::Help),
            b"VRFY" if argument.is_empty() => Err(replies::ARGUMENT),
            b"VRFY" => Ok(Self::Vrfy),
            b"XCLIENT" => Ok(Self::Xclient(argument)),
            b"STARTTLS" => without_argument(argument, Self::StartTls),
            b"AUTH" => Ok(Self::Auth(argument)),
            b"EXPN" | b"PROXY" | b"XFORWARD" | b"ETRN" | b"TURN" | b"ATRN" | b"SEND" | b"SOML" | b"SAML" | b"BURL" => {
                Err(replies::NOT_OFFERED)
            }
            // A browser that was redirected here (cross-protocol attack): its body would be read as commands.
            b"GET" | b"POST" | b"PUT" | b"CONNECT" | b"OPTIONS" | b"HEAD" => {
                return Err(Refusal::Close(replies::NOT_HTTP));
            }
            _ => Err(replies::UNKNOWN),
        };
        match result {
            Ok(_) if line.iter().any(|&byte| byte < b' ' || byte == 0x7f) => Err(replies::CONTROL.into()),
            result => result.map_err(Refusal::from),
        }
    }
}

impl MailFrom {
    /// Parses the text after `FROM:`, with the parameters that every session offers.
    ///
    /// # Errors
    /// The reply that refuses it.
    pub fn parse(argument: &[u8], size_max: u64) -> Result<Self, Reply> {
        Self::parse_with(argument, size_max, OptionalParams::default())
    }

    /// Parses the text after `FROM:`, with parameters that only some sessions offer.
    pub(super) fn parse_with(argument: &[u8], size_max: u64, also: OptionalParams) -> Result<Self, Reply> {
        let (path, rest) = split_path(argument).ok_or(replies::MAIL_SYNTAX)?;
        let params = MailParams::parse(rest, size_max, also)?;
        let path = if path.is_empty() {
            if params.verp.is_some() {
                return Err(replies::XVERP_SENDER);
            }
            ReversePath::Null
        } else {
            let address = Address::parse(path, params.smtputf8);
            ReversePath::Address(address.map_err(|error| refuse_address(error, Enhanced::new(5, 1, 7)))?)
        };
        Ok(Self {
            path,
            size: params.size,
            body: params.body.unwrap_or_default(),
            smtputf8: params.smtputf8,
            ret: params.ret,
            envid: params.envid,
            requiretls: params.requiretls,
            verp: params.verp,
        })
    }
}

impl RcptTo {
    /// Parses the text after `TO:`; `smtputf8` is the transaction's.
    ///
    /// # Errors
    /// The reply that refuses it.
    pub fn parse(argument: &[u8], smtputf8: bool, hostname: &str) -> Result<Self, Reply> {
        let (path, rest) = split_path(argument).ok_or(replies::RCPT_SYNTAX)?;
        let params = RcptParams::parse(rest, smtputf8)?;
        let address = if path.eq_ignore_ascii_case(b"postmaster") {
            Address::parse(format!("postmaster@{hostname}").as_bytes(), true)
        } else {
            Address::parse(path, smtputf8)
        };
        let address = address.map_err(|error| refuse_address(error, Enhanced::new(5, 1, 3)))?;
        Ok(Self { address, notify: params.notify, orcpt: params.orcpt })
    }
}

/// How to tidy an argument of MAIL or RCPT before it is parsed.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ArgumentForms<'o> {
    /// The domain for addresses without one.
    pub origin: Option<&'o str>,
    /// `postmaster` without a domain is left: it is our own (RFC 5321 section 4.1.1.3).
    pub keeps_postmaster: bool,
    /// For a trusted client, also accept forms that programs write in spite of RFC 5321: a path without its brackets or
    /// with spaces within them, and a dot after the domain. A source route is ignored (RFC 5321 section 4.1.1.3 and
    /// appendix C); for other clients it is refused, since they could only use it to relay.
    pub is_trusted: bool,
}

/// Tidies the text after `FROM:` or `TO:` for the parsers; text that cannot be tidied stays for them to refuse.
pub(super) fn tidied<'a>(argument: &'a [u8], how: ArgumentForms<'_>) -> Cow<'a, [u8]> {
    let bare = || bare_path(argument).filter(|_| how.is_trusted && !argument.starts_with(b"<"));
    let Some((given, rest)) = split_path(argument).or_else(bare) else { return Cow::Borrowed(argument) };
    let mut path = given;
    if how.is_trusted {
        path = without_route(path.trim_ascii());
        path = path.strip_suffix(b".").filter(|_| has_final_dot(path)).unwrap_or(path);
    }
    let is_postmaster = how.keeps_postmaster && path.eq_ignore_ascii_case(b"postmaster");
    let origin = how.origin.filter(|_| !is_postmaster && Address::parse(path, true) == Err(AddressError::NoDomain));
    if origin.is_none() && path.len() == given.len() && argument.starts_with(b"<") {
        return Cow::Borrowed(argument);
    }
    let (at, origin) = origin.map_or(("", ""), |origin| ("@", origin));
    Cow::Owned([b"<", path, at.as_bytes(), origin.as_bytes(), b">", rest].concat())
}

/// Splits `path parameters` without brackets, at the first space outside quotes.
fn bare_path(argument: &[u8]) -> Option<(&[u8], &[u8])> {
    let (mut quoted, mut escaped) = (false, false);
    let mut end = argument.len();
    for (index, &byte) in argument.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'<' | b'>' if !quoted => return None,
            b' ' if !quoted => {
                end = index;
                break;
            }
            _ => {}
        }
    }
    (end > 0 && !quoted).then(|| argument.split_at(end))
}

/// Returns the mailbox after a source route, `@a.example,@b.example:mailbox`, if the route is well-formed.
fn without_route(path: &[u8]) -> &[u8] {
    if !path.starts_with(b"@") {
        return path;
    }
    let mut in_literal = false;
    let end = path.iter().position(|&byte| {
        in_literal = byte == b'[' || in_literal && byte != b']';
        byte == b':' && !in_literal
    });
    let Some(end) = end else { return path };
    let is_domain = |hop: &[u8]| {
        let name = hop.strip_prefix(b"@").and_then(|name| std::str::from_utf8(name).ok());
        name.is_some_and(|name| normalise_domain(name).is_ok())
    };
    // A domain or literal contains no comma.
    let mailbox = path[end + 1..].trim_ascii();
    let is_route = path[..end].split(|&byte| byte == b',').all(is_domain) && !mailbox.starts_with(b"@");
    if is_route { mailbox } else { path }
}

/// Whether a path is an address with a dot after its domain, as in DNS names.
fn has_final_dot(path: &[u8]) -> bool {
    let Some(without) = path.strip_suffix(b".") else { return false };
    Address::parse(path, true).is_err() && Address::parse(without, true).is_ok()
}

/// Runs a line through all command parsers; returns whether it is a command. For fuzzing.
pub fn fuzz_command(line: &[u8], smtputf8: bool) -> bool {
    let how = ArgumentForms { origin: Some("x.example"), keeps_postmaster: smtputf8, is_trusted: true };
    if let Ok(Command::Mail(argument) | Command::Rcpt(argument)) = Command::parse(line) {
        let once = tidied(argument, how);
        let _ = MailFrom::parse(&once, 1 << 20);
        let _ = RcptTo::parse(&once, smtputf8, "mx.example.org");
    }
    match Command::parse(line) {
        Ok(Command::Mail(argument)) => {
            let also = OptionalParams { auth: smtputf8, requiretls: smtputf8, xverp: smtputf8 };
            MailFrom::parse_with(argument, 1 << 20, also).is_ok()
        }
        Ok(Command::Rcpt(argument)) => RcptTo::parse(argument, smtputf8, "mx.example.org").is_ok(),
        parsed => parsed.is_ok(),
    }
}

/// Returns the reply to a bad address; `enhanced` is the code for a syntax error in it.
fn refuse_address(error: AddressError, enhanced: Enhanced) -> Reply {
    match error {
        AddressError::SourceRoute => replies::ROUTE,
        AddressError::NonAscii | AddressError::NotUtf8 => replies::NOT_ASCII,
        AddressError::Empty => Reply::fixed(501, enhanced, "Empty address"),
        AddressError::Control => Reply::fixed(501, enhanced, "Control character in address"),
        AddressError::NoDomain => Reply::fixed(501, enhanced, "Address has no domain"),
        AddressError::Local => Reply::fixed(501, enhanced, "Bad local part in address"),
        AddressError::Domain => Reply::fixed(501, enhanced, "Bad domain in address"),
        AddressError::TooLong => Reply::fixed(501, enhanced, "Address too long"),
    }
}

fn helo_name(argument: &[u8]) -> Result<&str, Reply> {
    if !is_helo_name(argument) {
        return Err(replies::HELO_NAME);
    }
    std::str::from_utf8(argument).map_err(|_| replies::HELO_NAME)
}

fn without_argument<'a>(argument: &[u8], command: Command<'a>) -> Result<Command<'a>, Reply> {
    if argument.is_empty() { Ok(command) } else { Err(replies::NO_ARGUMENT) }
}

/// Parses BDAT. Without a valid size, its data cannot be distinguished from commands: such a BDAT ends the session.
fn bdat<'a>(argument: &[u8]) -> Result<Command<'a>, Refusal> {
    let bad = || Refusal::Close(replies::BDAT_SYNTAX);
    let text = std::str::from_utf8(argument).map_err(|_| bad())?;
    let (size, last) = match text.split_once(' ') {
        Some((size, word)) if word.trim_start().eq_ignore_ascii_case("LAST") => (size, true),
        Some(_) => return Err(bad()),
        None => (text, false),
    };
    Ok(Command::Bdat { size: decimal(size).ok_or_else(bad)?, last })
}

/// Returns the text after `FROM:` or `TO:`. Spaces around the colon are allowed: many clients send them.
fn after_keyword<'a>(argument: &'a [u8], keyword: &[u8]) -> Option<&'a [u8]> {
    let head = argument.get(..keyword.len())?;
    if head.eq_ignore_ascii_case(keyword) {
        return Some(argument[keyword.len()..].trim_ascii_start());
    }
    let word = &keyword[..keyword.len() - 1];
    let rest =
        head.get(..word.len()).filter(|head| head.eq_ignore_ascii_case(word)).map(|_| &argument[word.len()..])?;
    Some(rest.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start())
}

/// Splits `<path> parameters`; a `>` within quotes does not end the path.
fn split_path(argument: &[u8]) -> Option<(&[u8], &[u8])> {
    let inner = argument.strip_prefix(b"<")?;
    let (mut quoted, mut escaped) = (false, false);
    for (index, &byte) in inner.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b'>' if !quoted => {
                let rest = &inner[index + 1..];
                return (rest.is_empty() || rest[0] == b' ').then_some((&inner[..index], rest));
            }
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mail(text: &str) -> Result<MailFrom, Reply> {
        MailFrom::parse(text.as_bytes(), 1_000)
    }

    fn rcpt(text: &str) -> Result<String, Reply> {
        RcptTo::parse(text.as_bytes(), false, "mx.example.org").map(|rcpt| rcpt.address.to_string())
    }

    fn code(result: Result<impl std::fmt::Debug, Reply>) -> String {
        result.expect_err("must be refused").to_string()[..9].to_owned()
    }

    #[test]
    fn verbs_in_any_case() {
        assert_eq!(Command::parse(b"ehlo a.org "), Ok(Command::Ehlo("a.org")));
        assert_eq!(Command::parse(b"HELO [127.0.0.1]"), Ok(Command::Helo("[127.0.0.1]")));
        assert_eq!(Command::parse(b"mail from:<a@b>"), Ok(Command::Mail(b"<a@b>")));
        assert_eq!(Command::parse(b"RCPT TO : <a@b> X"), Ok(Command::Rcpt(b"<a@b> X")));
        assert_eq!(Command::parse(b"bdat 0 last"), Ok(Command::Bdat { size: 0, last: true }));
        assert_eq!(Command::parse(b"BDAT 18446744073709551615"), Ok(Command::Bdat { size: u64::MAX, last: false }));
        assert_eq!(Command::parse(b"NOOP x y"), Ok(Command::Noop));
        assert_eq!(Command::parse(b"DATA"), Ok(Command::Data));
        assert_eq!(Command::parse(b"xclient ADDR=::1"), Ok(Command::Xclient(b"ADDR=::1")));
    }

    #[test]
    fn what_is_refused() {
        for (line, reply) in [
            (&b""[..], replies::UNKNOWN),
            (b"FOO", replies::UNKNOWN),
            (b"MAILFROM:<a@b>", replies::UNKNOWN),
            (b" QUIT", replies::UNKNOWN),
            (b"DATA x", replies::NO_ARGUMENT),
            (b"QUIT now", replies::NO_ARGUMENT),
            (b"STARTTLS now", replies::NO_ARGUMENT),
            (b"AUTH PLAIN\0AAA=", replies::CONTROL),
            (b"PROXY TCP4 1.2.3.4 1.2.3.4 1 1", replies::NOT_OFFERED),
            (b"EXPN list", replies::NOT_OFFERED),
            (b"VRFY", replies::ARGUMENT),
            (b"EHLO", replies::HELO_NAME),
            (b"EHLO a.org (x); y", replies::HELO_NAME),
            (b"MAIL TO:<a@b>", replies::MAIL_SYNTAX),
            (b"MAIL", replies::MAIL_SYNTAX),
            (b"RCPT FROM:<a@b>", replies::RCPT_SYNTAX),
            (b"MAIL FROM:<a\0@b>", replies::CONTROL),
            (b"NOOP \r", replies::CONTROL),
        ] {
            assert_eq!(Command::parse(line), Err(Refusal::Continue(reply)), "{line:?}");
        }
        for line in [
            &b"BDAT"[..],
            b"BDAT -1",
            b"BDAT 18446744073709551616",
            b"BDAT 5 LASTLY",
            b"BDAT x",
            b"BDAT 1 LAST LAST",
            b"BDAT 0x10",
        ] {
            assert_eq!(Command::parse(line), Err(Refusal::Close(replies::BDAT_SYNTAX)), "{line:?}");
        }
        assert_eq!(Command::parse(b"POST / HTTP/1.1"), Err(Refusal::Close(replies::NOT_HTTP)));
    }

    #[test]
    fn an_address_without_a_domain_gets_that_of_local_users() {
        let how = ArgumentForms { origin: Some("x.example"), ..ArgumentForms::default() };
        for (argument, completed) in [
            ("<root> SIZE=5", "<root@x.example> SIZE=5"),
            ("<\"a@b\">", "<\"a@b\"@x.example>"),
            ("<Postmaster>", "<Postmaster@x.example>"),
            ("<>", "<>"),
            ("<a@b>", "<a@b>"),
            ("<a b>", "<a b>"),
            ("root", "root"),
            ("<@a.test:root>", "<@a.test:root>"),
        ] {
            let given = argument.as_bytes();
            assert_eq!(&*tidied(given, how), completed.as_bytes(), "{argument}");
            assert_eq!(&*tidied(given, ArgumentForms::default()), given);
        }
    }

    /// As for a trusted client.
    const LENIENT: ArgumentForms<'_> =
        ArgumentForms { origin: Some("x.example"), keeps_postmaster: true, is_trusted: true };

    #[track_caller]
    fn assert_tidied(cases: &[(&str, &str)]) {
        for (argument, wanted) in cases {
            let got = tidied(argument.as_bytes(), LENIENT);
            assert_eq!(String::from_utf8_lossy(&got), *wanted, "{argument}");
            assert_eq!(tidied(&got, LENIENT), got, "{argument}: done once");
        }
    }

    #[test]
    fn trusted_clients_may_leave_brackets_and_domain_out() {
        assert_tidied(&[
            ("a@b.test", "<a@b.test>"),
            ("a@b.test SIZE=5 BODY=8BITMIME", "<a@b.test> SIZE=5 BODY=8BITMIME"),
            ("A.B+c@B.Test", "<A.B+c@B.Test>"),
            (r#""a b"@b.test SIZE=5"#, r#"<"a b"@b.test> SIZE=5"#),
            (r#""a<\" >b"@b.test"#, r#"<"a<\" >b"@b.test>"#),
            ("j\u{f6}rg@b\u{fc}cher.test SMTPUTF8", "<j\u{f6}rg@b\u{fc}cher.test> SMTPUTF8"),
            ("a@[IPv6:2001:db8::1]", "<a@[IPv6:2001:db8::1]>"),
            ("< a@b.test >", "<a@b.test>"),
            ("< >", "<>"),
            ("<>", "<>"),
            ("<root> SIZE=5", "<root@x.example> SIZE=5"),
            ("root", "<root@x.example>"),
            (r#"<"a b">"#, r#"<"a b"@x.example>"#),
            ("<Root+cron>", "<Root+cron@x.example>"),
            ("<j\u{f6}rg>", "<j\u{f6}rg@x.example>"),
            ("<PostMaster>", "<PostMaster>"),
            ("postmaster", "<postmaster>"),
        ]);
    }

    #[test]
    fn trusted_clients_may_write_a_final_dot_or_a_route() {
        assert_tidied(&[
            ("<a@b.test.> SIZE=5", "<a@b.test> SIZE=5"),
            ("<A@B.TEST.>", "<A@B.TEST>"),
            ("a@b.test.", "<a@b.test>"),
            (r#"<"a."@b.test.>"#, r#"<"a."@b.test>"#),
            ("<a.@b.test>", "<a.@b.test>"),
            ("<j\u{f6}rg@b\u{fc}cher.test.>", "<j\u{f6}rg@b\u{fc}cher.test>"),
            ("<a@[127.0.0.1].>", "<a@[127.0.0.1]>"),
            ("<@a.test:c@d.test>", "<c@d.test>"),
            ("<@a.test,@B.Test:c@d.test> NOTIFY=NEVER", "<c@d.test> NOTIFY=NEVER"),
            ("<@[IPv6:2001:db8::1],@[127.0.0.1]:c@d.test>", "<c@d.test>"),
            (r#"<@a.test:"x:y z"@d.test>"#, r#"<"x:y z"@d.test>"#),
            ("<@b\u{fc}cher.test:j\u{f6}rg@d.test>", "<j\u{f6}rg@d.test>"),
            ("<@a.test:root>", "<root@x.example>"),
            ("<@a.test:c@d.test.>", "<c@d.test>"),
            ("@a.test:c@d.test", "<c@d.test>"),
        ]);
        let (route, long) = (vec!["@a.test"; 20].join(","), "a".repeat(64));
        assert_tidied(&[(&format!("<{route}:{long}@d.test>"), &format!("<{long}@d.test>"))]);
    }

    #[test]
    fn what_cannot_be_helped_is_refused() {
        for argument in [
            "<@a.test>",
            "<@a..test:c@d.test>",
            "<@a.test,b.test:c@d.test>",
            "<a@b.test",
            "a@b.test>",
            "<a@b.test..>",
            "Ann <a@b.test>",
            "\"Ann <a@b.test>",
            "<a b@c.test>",
            "",
        ] {
            let got = tidied(argument.as_bytes(), LENIENT);
            assert!(MailFrom::parse(&got, 1_000).is_err(), "{argument}: {}", String::from_utf8_lossy(&got));
        }
    }

    #[test]
    fn paths() {
        assert_eq!(mail("<>").unwrap().path, ReversePath::Null);
        assert_eq!(mail("<a@B.org> SIZE=5").unwrap().path.as_str(), "a@b.org");
        assert_eq!(rcpt("<\"a>b\"@x.org>").unwrap(), "\"a>b\"@x.org");
        assert_eq!(rcpt("<PostMaster>").unwrap(), "postmaster@mx.example.org");
        assert_eq!(code(rcpt("<>")), "501 5.1.3");
        assert_eq!(code(rcpt("<joe>")), "501 5.1.3");
        assert_eq!(code(mail("<joe>")), "501 5.1.7");
        assert_eq!(code(rcpt("<@a,@b:c@d>")), "550 5.7.1");
        assert_eq!(code(mail("<@a:c@d>")), "550 5.7.1");
        assert_eq!(code(rcpt("<j\u{f6}@x.org>")), "553 5.6.7");
        for bad in ["a@b", "<a@b", "<a@b>X", "< a@b", "", "<\"a@b>"] {
            assert_eq!(mail(bad), Err(replies::MAIL_SYNTAX), "{bad}");
        }
    }

    #[test]
    fn utf8_needs_the_parameter() {
        assert_eq!(code(mail("<j\u{f6}@x.org>")), "553 5.6.7");
        assert!(mail("<j\u{f6}@x.org> SMTPUTF8").unwrap().smtputf8);
        assert_eq!(code(MailFrom::parse(b"<j\xff@x.org> SMTPUTF8", 9)), "553 5.6.7");
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..120), utf8: bool) {
            fuzz_command(&bytes, utf8);
        }

        /// Tidying twice changes nothing more, and correct input keeps its meaning.
        #[test]
        fn tidying_ends_and_changes_nothing_that_is_right(
            argument in "<?(@[a-z.\\[\\]:]{1,6}[,:])?[a-z\"@. \\\\\u{e9}]{0,10}[.>]{0,2}( [A-Z]{2,4}=[a-z<>]{0,3})?",
            is_trusted: bool,
        ) {
            let how = ArgumentForms { is_trusted, ..LENIENT };
            let once = tidied(argument.as_bytes(), how);
            prop_assert_eq!(&tidied(&once, how), &once);
            if let Ok(given) = MailFrom::parse(argument.as_bytes(), 1_000) {
                prop_assert_eq!(MailFrom::parse(&once, 1_000), Ok(given));
            }
            if !is_trusted && !argument.starts_with('<') {
                prop_assert_eq!(&*once, argument.as_bytes());
            }
        }

        #[test]
        fn near_commands_never_panic_nor_keep_controls(
            line in "(MAIL FROM:|RCPT TO:|BDAT |EHLO )<?[a-z@\"\\\\<>\u{e9}\r\0 ]{0,16}>?( [A-Z]{3,6}=[!-~]{0,8}){0,2}"
        ) {
            if let Ok(Command::Rcpt(argument)) = Command::parse(line.as_bytes())
                && let Ok(rcpt) = RcptTo::parse(argument, true, "x.org")
            {
                prop_assert!(!rcpt.address.as_str().chars().any(char::is_control));
            }
        }
    }
}
