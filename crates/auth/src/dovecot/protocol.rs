//! Dovecot's authentication protocol, version 1, client side: lines of words separated by TABs.
//!
//! Promise: no input causes a panic; a line has at most [`LINE_BYTES_MAX`] octets.

use base64ct::{Base64, Encoding as _};
use stentor_sasl::{Mechanism, Mechanisms};
use stentor_users::{LIMIT_KEYS, Limit, OwnLimits, SendAs};

use crate::channel::Channel;

/// Maximum octets of a line; Dovecot itself accepts and sends up to 8,192.
pub const LINE_BYTES_MAX: usize = 32 * 1024;
/// Maximum lines before DONE; Dovecot has a dozen mechanisms.
pub const HANDSHAKE_LINES_MAX: usize = 100;
/// Our protocol version: 1.1 has everything needed here.
const VERSION: (u32, u32) = (1, 1);
/// Prefix of our extra fields in a passdb. The rest is a key of the users file: a limit, or `send_as`.
pub const FIELD_PREFIX: &str = "stentor_";
const SEND_AS: &str = "send_as";
/// Maximum entries of that field.
const SEND_AS_MAX: usize = 100;

/// Why a connection cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    #[error("unsupported protocol version")]
    Version,
    #[error("a line is longer than {LINE_BYTES_MAX} octets")]
    TooLong,
    #[error("a line does not follow the protocol")]
    Malformed,
    #[error("the handshake does not end")]
    Endless,
}

/// A line from Dovecot.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    Continue {
        id: u32,
        challenge: Vec<u8>,
    },
    Ok {
        id: u32,
        user: Option<String>,
        send_as: Vec<SendAs>,
        limits: GivenLimits,
    },
    Fail {
        id: u32,
        failure: LoginFailure,
    },
    /// A line to ignore.
    Other,
}

/// The limits that Dovecot sets for a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct GivenLimits {
    pub own: OwnLimits,
    /// A key with an invalid value; the default stays in force for it.
    pub wrong: Option<&'static str>,
}

impl GivenLimits {
    fn take(&mut self, key: &str, value: &str) {
        let Some(place) = LIMIT_KEYS.iter().position(|known| *known == key) else { return };
        // An empty column or attribute.
        if value.is_empty() {
            return;
        }
        match value.parse::<Limit>() {
            Ok(limit) => self.own.0[place] = limit,
            Err(_) => self.wrong = Some(LIMIT_KEYS[place]),
        }
    }
}

/// Why a login failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoginFailure {
    Wrong,
    Locked,
    /// A temporary failure.
    Temporary,
}

/// The client's first lines. `number` must differ from that of every other connection.
pub fn greeting(number: u32) -> String {
    format!("VERSION\t{}\t{}\nCPID\t{number}\n", VERSION.0, VERSION.1)
}

/// The server's first lines, up to DONE.
#[derive(Debug, Default)]
pub struct Handshake {
    mechanisms: Mechanisms,
    has_version: bool,
    lines: usize,
}

impl Handshake {
    /// Parses a line; returns the mechanisms after the last.
    pub fn line(&mut self, line: &[u8]) -> Result<Option<Mechanisms>, ProtocolError> {
        self.lines += 1;
        if self.lines > HANDSHAKE_LINES_MAX {
            return Err(ProtocolError::Endless);
        }
        let text = std::str::from_utf8(line).map_err(|_| ProtocolError::Malformed)?;
        let mut words = text.split('\t');
        match words.next().unwrap_or_default() {
            "VERSION" => {
                self.has_version = words.next().and_then(|major| major.parse().ok()) == Some(VERSION.0);
                if self.has_version { Ok(None) } else { Err(ProtocolError::Version) }
            }
            "MECH" => {
                // A mechanism for Dovecot's internal use.
                let name = words.next().unwrap_or_default();
                let is_private = words.any(|word| word == "private");
                match name.parse() {
                    // Its binding would refer to TLS at Dovecot, which is not there.
                    Ok(Mechanism::ScramSha256Plus | Mechanism::CramMd5) | Err(_) => {}
                    Ok(_) if is_private => {}
                    Ok(mechanism) => self.mechanisms = self.mechanisms.with(mechanism),
                }
                Ok(None)
            }
            "DONE" if self.has_version => Ok(Some(self.mechanisms)),
            "DONE" => Err(ProtocolError::Version),
            _ => Ok(None),
        }
    }
}

/// Reverses Dovecot's escaping of characters that separate words.
fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character != '\x01' {
            out.push(character);
            continue;
        }
        match characters.next() {
            Some('0') => out.push('\0'),
            Some('1') => out.push('\x01'),
            Some('t') => out.push('\t'),
            Some('r') => out.push('\r'),
            Some('n') => out.push('\n'),
            Some(other) => out.push(other),
            None => {}
        }
    }
    out
}

impl Line {
    pub fn parse(line: &[u8]) -> Result<Line, ProtocolError> {
        let text = std::str::from_utf8(line).map_err(|_| ProtocolError::Malformed)?;
        let mut words = text.split('\t');
        let command = words.next().unwrap_or_default();
        if !matches!(command, "OK" | "CONT" | "FAIL") {
            return Ok(Line::Other);
        }
        let id = words.next().and_then(|id| id.parse().ok()).ok_or(ProtocolError::Malformed)?;
        match command {
            "CONT" => {
                let text = words.next().unwrap_or_default();
                let challenge = Base64::decode_vec(text).map_err(|_| ProtocolError::Malformed)?;
                Ok(Line::Continue { id, challenge })
            }
            "OK" => Ok(ok(id, words)),
            _ => Ok(Line::Fail { id, failure: failure(words) }),
        }
    }
}

/// Parses an OK, which does not always mean a login. `nologin`: the password is right, but the user may not log in.
/// `proxy`: another server must check the login; with `nopassword`, which such passdbs set, any password is accepted
/// here.
fn ok<'a>(id: u32, words: impl Iterator<Item = &'a str>) -> Line {
    let (mut user, mut send_as, mut failure) = (None, Vec::new(), None);
    let mut limits = GivenLimits::default();
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        let value = unescape(value);
        match key {
            "proxy" => failure = Some(LoginFailure::Temporary),
            "nologin" | "user_disabled" => failure = failure.or(Some(LoginFailure::Locked)),
            "user" => user = Some(value),
            _ => match key.strip_prefix(FIELD_PREFIX) {
                Some(SEND_AS) => {
                    let all = value.split([',', ' ']).filter_map(|one| one.parse().ok());
                    send_as.extend(all.take(SEND_AS_MAX));
                }
                Some(key) => limits.take(key, &value),
                None => {}
            },
        }
    }
    if let Some(failure) = failure {
        return Line::Fail { id, failure };
    }
    // A user whose name is an address may send as it.
    if let Some(own) = user.as_deref().and_then(SendAs::of_name) {
        send_as.push(own);
    }
    Line::Ok { id, user, send_as, limits }
}

fn failure<'a>(words: impl Iterator<Item = &'a str>) -> LoginFailure {
    let mut failure = LoginFailure::Wrong;
    for word in words {
        match word {
            "temp" | "code=temp_fail" => return LoginFailure::Temporary,
            "user_disabled" | "code=user_disabled" | "pass_expired" | "code=pass_expired" => {
                failure = LoginFailure::Locked;
            }
            _ => {}
        }
    }
    failure
}

/// Formats the beginning of a request. Dovecot requires the response to come last.
pub fn auth(id: u32, mechanism: Mechanism, channel: &Channel, response: Option<&[u8]>) -> String {
    // In the usual form, not ::ffff:192.0.2.1.
    let (local, client) = (channel.local.ip().to_canonical(), channel.client.ip().to_canonical());
    let mut line = format!(
        "AUTH\t{id}\t{mechanism}\tservice=smtp\tnologin\tlip={local}\trip={client}\tlport={}\trport={}",
        channel.local.port(),
        channel.client.port()
    );
    if channel.is_secured {
        line.push_str("\tsecured");
    }
    if let Some(response) = response {
        line.push_str("\tresp=");
        line.push_str(&Base64::encode_string(response));
    }
    line.push('\n');
    line
}

pub fn go_on(id: u32, response: &[u8]) -> String {
    format!("CONT\t{id}\t{}\n", Base64::encode_string(response))
}

pub fn cancel(id: u32) -> String {
    format!("CANCEL\t{id}\n")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_handshake_names_the_mechanisms() {
        let mut handshake = Handshake::default();
        for line in [
            "VERSION\t1\t2",
            "MECH\tPLAIN\tplaintext",
            "MECH\tLOGIN\tplaintext",
            "MECH\tSCRAM-SHA-256\tmutual-auth",
            "MECH\tGSSAPI",
            "MECH\tSCRAM-SHA-256-PLUS\tmutual-auth",
            "MECH\tXOAUTH2\tprivate",
            "SPID\t77",
            "CUID\t1",
            "COOKIE\t00ff",
            "NEW\tx",
        ] {
            assert_eq!(handshake.line(line.as_bytes()), Ok(None), "{line}");
        }
        let wanted = Mechanisms::parse("PLAIN LOGIN SCRAM-SHA-256");
        assert_eq!(handshake.line(b"DONE"), Ok(Some(wanted)));
        assert_eq!(Handshake::default().line(b"VERSION\t2\t0"), Err(ProtocolError::Version));
        assert_eq!(Handshake::default().line(b"DONE"), Err(ProtocolError::Version));
        let mut endless = Handshake::default();
        let last = (0..=HANDSHAKE_LINES_MAX).map(|_| endless.line(b"MECH\tPLAIN")).last();
        assert_eq!(last, Some(Err(ProtocolError::Endless)));
    }

    #[test]
    fn answers_are_read() {
        let line = |text: &str| Line::parse(text.as_bytes());
        assert_eq!(line("CONT\t7\tVXNlcm5hbWU6"), Ok(Line::Continue { id: 7, challenge: b"Username:".to_vec() }));
        assert_eq!(line("CONT\t7\t"), Ok(Line::Continue { id: 7, challenge: Vec::new() }));
        assert_eq!(line("CONT\t7"), Ok(Line::Continue { id: 7, challenge: Vec::new() }));
        let own = |text: &str| text.parse::<SendAs>().unwrap();
        assert_eq!(
            line("OK\t7\tuser=ann@x.example\tstentor_send_as=@lists.example,bob@x.example\tnodelay"),
            Ok(Line::Ok {
                id: 7,
                user: Some("ann@x.example".to_owned()),
                send_as: vec![own("@lists.example"), own("bob@x.example"), own("ann@x.example")],
                limits: GivenLimits::default(),
            })
        );
        let Ok(Line::Ok { send_as, .. }) = line("OK\t7\tuser=*") else { panic!("a login") };
        assert!(send_as.is_empty(), "no name is a pattern");
        let fail = |text: &str| match line(text) {
            Ok(Line::Fail { id: 7, failure }) => failure,
            other => panic!("{other:?}"),
        };
        for (text, wanted) in [
            ("OK\t7\tuser=ann\tnologin", LoginFailure::Locked),
            ("OK\t7\tuser=ann\tnologin\treason=moved", LoginFailure::Locked),
            ("OK\t7\tuser=ann\tuser_disabled=y", LoginFailure::Locked),
            ("OK\t7\tuser=ann\tproxy\thost=192.0.2.7\tpass=x", LoginFailure::Temporary),
            ("OK\t7\tnologin\tuser=ann\tproxy=y", LoginFailure::Temporary),
        ] {
            assert_eq!(fail(text), wanted, "{text}");
        }
        assert_eq!(fail("FAIL\t7\tuser=ann"), LoginFailure::Wrong);
        assert_eq!(fail("FAIL\t7\tuser=ann\ttemp\treason=x"), LoginFailure::Temporary);
        assert_eq!(fail("FAIL\t7\tuser=ann\tcode=temp_fail"), LoginFailure::Temporary);
        assert_eq!(fail("FAIL\t7\tuser=ann\tuser_disabled"), LoginFailure::Locked);
        assert_eq!(line("OK\tx"), Err(ProtocolError::Malformed));
        assert_eq!(line("CONT\t7\t!"), Err(ProtocolError::Malformed));
        assert_eq!(line("MECH\tPLAIN"), Ok(Line::Other));
        assert_eq!(unescape("a\x01tb\x01n\x011\x010\x01"), "a\tb\n\x01\0");
    }

    #[test]
    fn limits_are_fields_and_what_is_none_is_named() {
        let limits = |text: &str| match Line::parse(format!("OK\t7\tuser=ann\t{text}").as_bytes()) {
            Ok(Line::Ok { limits, .. }) => limits,
            other => panic!("{other:?}"),
        };
        let given = limits("stentor_messages_per_hour_max=200\tstentor_recipients_per_day_max=none\tnodelay");
        let wanted = OwnLimits([Limit::AtMost(200), Limit::Default, Limit::Default, Limit::None]);
        assert_eq!(given, GivenLimits { own: wanted, wrong: None });
        assert_eq!(limits("stentor_messages_per_hour_max=\tstentor_messages_per_day_max"), GivenLimits::default());
        assert_eq!(limits("messages_per_hour_max=1\tstentor_x=1\tstentor_messages_per_hour=1"), GivenLimits::default());
        for bad in ["-1", "many", "4294967296", "1\x01t2", "0x10", " 1"] {
            let given = limits(&format!("stentor_messages_per_day_max=5\tstentor_messages_per_hour_max={bad}"));
            let own = OwnLimits([Limit::Default, Limit::AtMost(5), Limit::Default, Limit::Default]);
            assert_eq!(given, GivenLimits { own, wrong: Some("messages_per_hour_max") }, "{bad}");
        }
    }

    #[test]
    fn a_request_has_the_response_at_its_end() {
        let mut channel = Channel {
            client: "[::ffff:192.0.2.1]:4711".parse().unwrap(),
            local: "[2001:db8::1]:587".parse().unwrap(),
            is_secured: true,
            bindings: stentor_sasl::Bindings::default(),
        };
        let line = auth(3, Mechanism::Plain, &channel, Some(b"\0a\0b"));
        let wanted = "AUTH\t3\tPLAIN\tservice=smtp\tnologin\tlip=2001:db8::1\trip=192.0.2.1\tlport=587\trport=4711\tsecured\tresp=AGEAYg==\n";
        assert_eq!(line, wanted);
        channel.is_secured = false;
        assert!(auth(3, Mechanism::Login, &channel, None).ends_with("rport=4711\n"));
        assert_eq!(go_on(3, b""), "CONT\t3\t\n");
    }

    proptest! {
        #[test]
        fn any_line_is_read_or_an_error(line in proptest::collection::vec(any::<u8>(), 0..80), text in "(OK|CONT|FAIL|MECH|VERSION|DONE)\t[0-9]{0,10}\t?[a-z=\t\\x01]{0,40}") {
            let _ = (Line::parse(&line), Handshake::default().line(&line));
            let _ = (Line::parse(text.as_bytes()), Handshake::default().line(text.as_bytes()));
        }

        /// A limit follows its field, as in the users file, or the default; no input creates another limit.
        #[test]
        fn a_limit_is_as_it_is_written(
            place in 0usize..4,
            value in "([0-9]{1,11}|none|default|[ -~]{0,12}|.{0,8})",
            noise in "(nodelay|stentor_x=[0-9]{1,3}|pass=[a-z]{0,4})?",
        ) {
            let text = format!("OK\t1\tuser=ann\t{noise}\tstentor_{}={value}", LIMIT_KEYS[place]);
            let parsed = Line::parse(text.as_bytes());
            prop_assume!(!value.contains(['\t', '\x01']));
            let Ok(Line::Ok { limits, .. }) = parsed else { panic!("{parsed:?}") };
            let mut wanted = GivenLimits::default();
            match value.parse::<Limit>() {
                Ok(limit) => wanted.own.0[place] = limit,
                Err(_) if value.is_empty() => {}
                Err(_) => wanted.wrong = Some(LIMIT_KEYS[place]),
            }
            prop_assert_eq!(limits, wanted);
        }

        /// No response can start another line or word.
        #[test]
        fn a_request_is_one_line(response in proptest::collection::vec(any::<u8>(), 0..80)) {
            let line = go_on(1, &response);
            prop_assert_eq!(line.matches('\n').count(), 1);
            prop_assert_eq!(line.matches('\t').count(), 2);
        }
    }
}
