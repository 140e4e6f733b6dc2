//! A hostile client: sends anything at any time, cuts the handshake, and guesses passwords. Names in its cleartext
//! input differ from those within TLS.

use base64ct::{Base64, Encoding as _};
use fastrand::Rng;
use stentor_mail::Ms;
use stentor_sasl::{Bindings, ClientCredentials, ClientExchange, Mechanism, MechanismChoice};

use super::coverage::{InvariantResult, PASSWORD, TOKEN, USER, WRONG};
use super::wire::{End, Layer, Segment};

/// Maximum number of actions.
const ACTIONS_MAX: usize = 40;

/// Text before and after the names in a command.
const COMMANDS: [(&str, &str); 22] = [
    ("EHLO ", "\r\n"),
    ("EHLO ", "\r\n"),
    ("EHLO ", "\r\n"),
    ("HELO ", "\r\n"),
    ("MAIL FROM:<", "@x.org>\r\n"),
    ("MAIL FROM:<", "@x.org>\r\nRCPT TO:<b@y.org>\r\n"),
    ("MAIL FROM:<", "@x.org>\r\nRCPT TO:<b@y.org>\r\nDATA\r\nSubject: x\r\n\r\nx\r\n.\r\n"),
    ("MAIL FROM:<", "@x.org>\r\nRCPT TO:<b@y.org>\r\nBDAT 4 LAST\r\nAB\r\n"),
    ("MAIL FROM:<", "@x.org> REQUIRETLS AUTH=<>\r\n"),
    ("RSET\r\nNOOP ", "\r\n"),
    ("AUTH PLAIN =\r\nNOOP ", "\r\n"),
    ("AUTH\r\nNOOP ", "\r\n"),
    ("AUTH PLAIN YQ== ", "\r\n"),
    ("AUTH CRAM-MD5\r\nNOOP ", "\r\n"),
    ("AUTH PLAIN !!!!\r\nNOOP ", "\r\n"),
    ("AUTH PLAIN\r\n*\r\nNOOP ", "\r\n"),
    ("AUTH LOGIN\r\nQUIT \r\nNOOP ", "\r\n"),
    ("AUTH PLAIN\r\nYQ==\nNOOP ", "\r\n"),
    ("AUTH LOGIN\r\n\r\nNOOP ", "\r\n"),
    ("AUTH PLAIN\r\n\u{e9}\r\nNOOP ", "\r\n"),
    ("STARTTLS now ", "\r\n"),
    ("FOO ", "\r\n"),
];
/// Octets sent right after STARTTLS.
const BEHIND: [&str; 8] = ["", "", "", "", "EHLO clear\r\nMAIL FROM:<clear@x.org>\r\n", "\r\n", "RSET\r\n", "\0\r\n"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tls {
    Clear,
    /// STARTTLS was sent.
    Asked,
    Handshake,
    Secured,
}

pub struct HostileClient {
    rng: Rng,
    tls: Tls,
    actions: usize,
    /// A real exchange in progress.
    login: Option<ClientExchange>,
    bindings: Bindings,
    /// The last, incomplete line.
    line: Vec<u8>,
    is_closed: bool,
    is_silent: bool,
    /// Logs in before STARTTLS, and sends nothing else before it.
    is_orderly: bool,
    written: Vec<Segment>,
}

impl HostileClient {
    pub fn new(seed: u64, is_implicit: bool) -> Self {
        let mut rng = Rng::with_seed(seed);
        Self {
            actions: rng.usize(1..ACTIONS_MAX),
            is_silent: rng.u32(0..6) == 0,
            is_orderly: rng.u32(0..6) == 0,
            rng,
            tls: if is_implicit { Tls::Secured } else { Tls::Clear },
            login: None,
            bindings: Bindings::default(),
            line: Vec::new(),
            is_closed: false,
            written: Vec::new(),
        }
    }

    fn say(&mut self, octets: &[u8]) {
        let layer = if self.tls == Tls::Secured { Layer::Tls } else { Layer::Clear };
        self.written.push(Segment::new(layer, octets));
    }

    /// Sends something that may be out of place.
    fn speak(&mut self) {
        match self.rng.u32(0..12) {
            0..2 => {
                let behind = BEHIND[self.rng.usize(0..BEHIND.len())];
                let text = format!("STARTTLS\r\n{behind}");
                self.say(if self.tls == Tls::Secured { text.replace("clear", "within") } else { text }.as_bytes());
                if self.tls == Tls::Clear && self.rng.u32(0..6) > 0 {
                    self.tls = Tls::Asked;
                }
            }
            2 => self.guess(),
            3 => self.pipelined_guess(),
            4 => {
                let long = "A".repeat([400, 12_000, 13_000][self.rng.usize(0..3)]);
                let line = if self.rng.bool() { "AUTH PLAIN " } else { "AUTH LOGIN\r\n" };
                self.say(format!("{line}{long}\r\n").as_bytes());
            }
            _ => {
                let (before, behind) = COMMANDS[self.rng.usize(0..COMMANDS.len())];
                let name = if self.tls == Tls::Secured { "within" } else { "clear" };
                self.say(format!("{before}{name}{behind}").as_bytes());
            }
        }
    }

    /// Begins an exchange of a mechanism, with the password or a wrong one.
    fn guess(&mut self) {
        let mechanisms = [Mechanism::Plain, Mechanism::Login, Mechanism::OauthBearer, Mechanism::Xoauth2];
        let scrams = [Mechanism::ScramSha256, Mechanism::ScramSha256Plus];
        let mechanism =
            if self.rng.u32(0..10) == 0 { scrams[self.rng.usize(0..2)] } else { mechanisms[self.rng.usize(0..4)] };
        let right = if mechanism.takes_token() { TOKEN } else { PASSWORD };
        let secret = if self.rng.bool() { right } else { WRONG };
        let account = ClientCredentials { user: USER.to_owned(), secret: secret.into(), host: String::new(), port: 25 };
        let Ok(client) =
            ClientExchange::new(&MechanismChoice::of(mechanism, &self.bindings), account, "rOprNGfwEbeRWgbNEkqO")
        else {
            return;
        };
        let initial = client.initial().filter(|_| self.rng.u32(0..3) > 0);
        let text = initial.map(|octets| format!(" {}", Base64::encode_string(&octets))).unwrap_or_default();
        self.say(format!("AUTH {mechanism}{text}\r\n").as_bytes());
        self.login = Some(client);
    }

    /// Sends a whole exchange without waiting for replies: if AUTH is refused, its lines are read as commands.
    fn pipelined_guess(&mut self) {
        let mechanism = ["LOGIN", "login", "BOGUS"][self.rng.usize(0..3)];
        let [user, password] = [USER, WRONG].map(|text| Base64::encode_string(text.as_bytes()));
        self.say(format!("AUTH {mechanism}\r\n{user}\r\n{password}\r\n").as_bytes());
    }

    /// Handles a complete reply.
    fn hear(&mut self, line: &[u8]) {
        if self.tls == Tls::Asked {
            if line.starts_with(b"220 2.0.0 Ready") {
                return self.begin_tls();
            }
            // It, or a command before it, was refused.
            if line.starts_with(b"5") && self.rng.u32(0..4) == 0 {
                self.tls = Tls::Clear;
            }
        }
        if self.tls == Tls::Clear && line.starts_with(b"235") && (self.is_orderly || self.rng.bool()) {
            self.say(b"STARTTLS\r\n");
            self.tls = Tls::Asked;
        }
        let Some(mut login) = self.login.take() else { return };
        let Some(challenge) = line.strip_prefix(b"334 ") else { return };
        let challenge = Base64::decode_vec(&String::from_utf8_lossy(challenge)).unwrap_or_default();
        let is_first = challenge.is_empty();
        let response = match (self.rng.u32(0..8), login.initial().filter(|_| is_first)) {
            (0, _) => None,
            (_, Some(initial)) => Some(initial),
            _ => login.respond(&challenge).ok(),
        };
        match response {
            Some(octets) => {
                self.login = Some(login);
                self.say(format!("{}\r\n", Base64::encode_string(&octets)).as_bytes());
            }
            None => self.say(b"*\r\n"),
        }
    }

    fn begin_tls(&mut self) {
        self.tls = Tls::Handshake;
        match self.rng.u32(0..8) {
            0 => self.written.push(Segment::new(Layer::Clear, b"EHLO clear\r\nMAIL FROM:<clear@x.org>\r\n")),
            1 => self.is_closed = true,
            2 => self.is_silent = true,
            _ => self.written.push(Segment::new(Layer::Handshake, b"hello")),
        }
    }
}

impl End for HostileClient {
    fn read(&mut self, segment: Segment, _: Ms) -> InvariantResult {
        if segment.layer == Layer::Handshake {
            match *segment.octets {
                [b'o', b'k', _, bindings] => {
                    self.tls = Tls::Secured;
                    self.login = None;
                    self.bindings = Bindings {
                        exporter: (bindings == 1).then_some([7; 32]),
                        end_point: (bindings < 2).then(|| vec![9; 32]),
                    };
                    if self.rng.u32(0..12) == 0 {
                        self.written.push(Segment::new(Layer::Clear, b"MAIL FROM:<clear@x.org>\r\n"));
                    }
                }
                _ => self.is_closed = true,
            }
            return Ok(());
        }
        for octet in segment.octets {
            self.line.push(octet);
            if octet == b'\n' {
                let line = std::mem::take(&mut self.line);
                if line.get(3) == Some(&b' ') && !self.is_closed {
                    self.hear(line.trim_ascii_end());
                }
            }
        }
        Ok(())
    }

    fn disconnected(&mut self, _: Ms) -> InvariantResult {
        self.is_closed = true;
        Ok(())
    }

    fn act(&mut self, _: Ms) -> InvariantResult<bool> {
        if self.actions == 0 || self.tls == Tls::Handshake {
            // Some disconnect, others wait for the server to close.
            let leaves = self.tls != Tls::Handshake && !self.is_silent;
            self.is_closed |= leaves;
            return Ok(leaves);
        }
        if self.tls == Tls::Asked && self.rng.u32(0..8) > 0 {
            return Ok(false);
        }
        self.actions -= 1;
        if self.is_orderly && self.tls != Tls::Secured {
            if self.actions % 2 == 1 {
                self.say(b"EHLO clear\r\n");
            } else {
                self.guess();
            }
            return Ok(true);
        }
        // Usually a greeting, to make progress.
        if self.rng.u32(0..4) == 0 {
            self.say(b"EHLO within\r\n");
        } else {
            self.speak();
        }
        Ok(true)
    }

    fn written(&mut self) -> Vec<Segment> {
        std::mem::take(&mut self.written)
    }

    fn is_closed(&self) -> bool {
        self.is_closed
    }
}
