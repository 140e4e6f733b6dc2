//! A hostile server: usually sends the proper reply, otherwise anything: refusals of each kind, nonsense, the client's
//! own words, nothing at all.

use std::ops::Range;

use base64ct::{Base64, Encoding as _};
use fastrand::Rng;
use stentor_mail::Ms;
use stentor_sasl::{Bindings, Mechanism, ScramKeys, ServerExchange, ServerStep};

use super::coverage::InvariantResult;
use super::wire::{End, Layer, Segment};

/// Replies sent in place of the proper one.
const NONSENSE: [&str; 30] = [
    "535 5.7.8 Wrong\r\n",
    "454 4.7.0 Later\r\n",
    "421 4.3.2 Closing\r\n",
    "432 4.7.12 Change it\r\n",
    "534 5.7.9 Too weak\r\n",
    "538 5.7.11 TLS first\r\n",
    "530 5.7.0 TLS first\r\n",
    "504 5.5.4 Not known\r\n",
    "500 5.5.6 Too long\r\n",
    "501 5.5.2 Bad base64\r\n",
    "503 5.5.1 Twice\r\n",
    "550 5.7.1 No\r\n",
    "250 2.0.0 Ok\r\n",
    "235 2.7.0 Welcome\r\n",
    "220 2.0.0 Ready\r\n",
    "354 Go ahead\r\n",
    "334 !!!\r\n",
    "334 AAAA\r\n",
    "334\r\n",
    "334-AAAA\r\n334 AAAA\r\n",
    "334 cj1hLHM9QUFBQSxpPTE=\r\n",
    "250-mx.example\r\n250-STARTTLS\r\n250 AUTH PLAIN LOGIN CRAM-MD5 XOAUTH2 OAUTHBEARER GSSAPI\r\n",
    "250-mx.example\r\n250-AUTH=LOGIN\r\n250-AUTH\r\n250 SIZE 1\r\n",
    "999 What\r\n",
    "2\r\n",
    "hello\r\n",
    "\u{16}\u{3}\u{1}\r\n",
    "250-Ok\r\n",
    "220 2.0.0 Ready\r\n250 injected\r\n",
    "454 4.7.0 Later\r\n250 injected\r\n",
];

/// Refusals of STARTTLS or AUTH among these, and requests for a response.
const REFUSALS: Range<usize> = 0..12;
const CHALLENGES: Range<usize> = 16..21;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tls {
    Clear,
    Handshake,
    Secured,
}

/// The client's next input.
enum Expects {
    Command,
    /// Responses of a mechanism, with the number so far.
    Response(Mechanism, u32),
    Dots,
    Chunk(usize),
}

pub struct HostileServer<'a> {
    rng: Rng,
    keys: &'a ScramKeys,
    tls: Tls,
    /// One in so many replies is improper; 0: none.
    nonsense_one_in: u32,
    /// Improper replies are more frequent in STARTTLS and AUTH.
    is_worse_there: bool,
    is_there: bool,
    starttls: bool,
    mechanisms: Vec<&'static str>,
    /// Sends 334 for ever.
    asks_on: bool,
    bindings: Bindings,
    scram: Option<ServerExchange>,
    expects: Expects,
    input: Vec<u8>,
    is_closed: bool,
    is_silent: bool,
    written: Vec<Segment>,
}

impl<'a> HostileServer<'a> {
    pub fn new(seed: u64, is_implicit: bool, keys: &'a ScramKeys) -> Self {
        let mut rng = Rng::with_seed(seed);
        let all = Mechanism::ALL.map(Mechanism::name);
        let mechanisms = match rng.u32(0..5) {
            0 => Vec::new(),
            1 => vec![all[rng.usize(0..all.len())], "GSSAPI"],
            _ => all.into_iter().filter(|_| rng.bool()).collect(),
        };
        let mut server = Self {
            nonsense_one_in: [0, 4, 8, 16][rng.usize(0..4)],
            is_worse_there: rng.bool(),
            is_there: false,
            starttls: rng.u32(0..4) > 0,
            asks_on: rng.u32(0..12) == 0,
            rng,
            keys,
            tls: if is_implicit { Tls::Secured } else { Tls::Clear },
            mechanisms,
            bindings: Bindings::default(),
            scram: None,
            expects: Expects::Command,
            input: Vec::new(),
            is_closed: false,
            is_silent: false,
            written: Vec::new(),
        };
        server.reply("220 mx.example\r\n", "");
        server
    }

    fn say(&mut self, text: &str) {
        let layer = if self.tls == Tls::Secured { Layer::Tls } else { Layer::Clear };
        self.written.push(Segment::new(layer, text.as_bytes()));
    }

    /// Sends the proper reply, or something else; returns whether it was proper.
    fn says(&mut self, belongs: &str, said: &str) -> bool {
        let one_in = if self.is_there && self.is_worse_there { 3 } else { self.nonsense_one_in };
        let is_honest = one_in == 0 || self.rng.u32(0..one_in) > 0;
        if is_honest {
            self.say(belongs);
            return true;
        }
        match self.rng.u32(0..10) {
            0 => self.is_closed = true,
            1 => self.is_silent = true,
            // The client's own octets, where they may be logged.
            2..4 => {
                let code = ["535 ", "250 ", "421 ", "504 ", "334 ", "451-", "", "99 "][self.rng.usize(0..8)];
                self.say(&format!("{code}you said {said}, {}\r\n", decoded(said)));
            }
            _ => {
                let kinds = match self.rng.u32(0..3) {
                    0 if self.is_there => REFUSALS,
                    1 if self.is_there => CHALLENGES,
                    _ => 0..NONSENSE.len(),
                };
                let text = NONSENSE[self.rng.usize(kinds)];
                self.say(text);
            }
        }
        false
    }

    fn reply(&mut self, belongs: &str, said: &str) {
        let _ = self.says(belongs, said);
    }

    fn line(&mut self, line: &str) {
        self.is_there =
            matches!(self.expects, Expects::Response(..)) || line == "STARTTLS" || line.starts_with("AUTH ");
        if let Expects::Response(mechanism, count) = self.expects {
            self.expects = Expects::Command;
            return self.response(mechanism, count, line);
        }
        let words: Vec<_> = line.split(' ').collect();
        match words[0] {
            "EHLO" => {
                let offers = self.ehlo();
                // As a server that does not know it.
                let text = if self.rng.u32(0..10) == 0 { "502 5.5.1 What\r\n" } else { &offers };
                self.reply(text, line);
            }
            "STARTTLS" => {
                if self.says("220 2.0.0 Ready\r\n", line) {
                    self.tls = Tls::Handshake;
                }
            }
            "AUTH" => self.auth(&words, line),
            "DATA" => {
                if self.says("354 Go ahead\r\n", line) {
                    self.expects = Expects::Dots;
                }
            }
            "BDAT" => self.expects = Expects::Chunk(words.get(1).and_then(|n| n.parse().ok()).unwrap_or(0)),
            "QUIT" => {
                self.reply("221 2.0.0 Bye\r\n", line);
                self.is_closed = true;
            }
            _ => self.reply("250 2.0.0 Ok\r\n", line),
        }
    }

    fn ehlo(&self) -> String {
        let mut text = String::from("250-mx.example\r\n250-PIPELINING\r\n");
        if self.starttls {
            text += "250-STARTTLS\r\n";
        }
        if !self.mechanisms.is_empty() {
            text += "250-AUTH ";
            text += &self.mechanisms.join(" ");
            text += "\r\n";
        }
        text + "250 CHUNKING\r\n"
    }

    fn auth(&mut self, words: &[&str], line: &str) {
        let Some(mechanism) = words.get(1).and_then(|name| name.parse::<Mechanism>().ok()) else {
            return self.reply("504 5.5.4 Not known\r\n", line);
        };
        let is_scram = matches!(mechanism, Mechanism::ScramSha256 | Mechanism::ScramSha256Plus);
        self.scram =
            is_scram.then(|| ServerExchange::new(mechanism, self.bindings.clone(), true, "%hvYDpWUa2RaTCAfuxFIlj"));
        if let Some(initial) = words.get(2) {
            self.response(mechanism, 0, initial);
        } else {
            let challenge = if mechanism == Mechanism::CramMd5 { "334 PDEuMkB4Pg==\r\n" } else { "334 \r\n" };
            self.challenge(mechanism, 0, challenge, line);
        }
    }

    fn challenge(&mut self, mechanism: Mechanism, count: u32, text: &str, said: &str) {
        self.reply(text, said);
        // Whatever it sent, the client may continue.
        self.expects = Expects::Response(mechanism, count);
    }

    fn response(&mut self, mechanism: Mechanism, count: u32, response: &str) {
        if response == "*" {
            return self.reply("501 5.7.0 Cancelled\r\n", response);
        }
        if self.asks_on {
            return self.challenge(mechanism, count + 1, "334 YWdhaW4=\r\n", response);
        }
        let octets = Base64::decode_vec(response).unwrap_or_default();
        match mechanism {
            Mechanism::Login if count < 1 => self.challenge(mechanism, 1, "334 UGFzc3dvcmQ6\r\n", response),
            Mechanism::OauthBearer | Mechanism::Xoauth2 if count == 0 && self.rng.u32(0..3) == 0 => {
                // {"status":"401"}, and the end once the client has sent an empty response.
                self.challenge(mechanism, 7, "334 eyJzdGF0dXMiOiI0MDEifQ==\r\n", response);
            }
            Mechanism::OauthBearer | Mechanism::Xoauth2 if count == 7 => {
                // Some report an error and then accept the login.
                let text = if self.rng.u32(0..4) == 0 { "235 2.7.0 Well\r\n" } else { "535 5.7.8 Wrong\r\n" };
                self.reply(text, response);
            }
            Mechanism::ScramSha256 | Mechanism::ScramSha256Plus => self.scram(mechanism, count, &octets, response),
            _ => {
                let is_refused = self.rng.u32(0..8) == 0;
                let text = if is_refused { NONSENSE[self.rng.usize(REFUSALS)] } else { "235 2.7.0 Welcome\r\n" };
                self.reply(text, response);
            }
        }
    }

    fn scram(&mut self, mechanism: Mechanism, count: u32, octets: &[u8], said: &str) {
        let Some(mut server) = self.scram.take() else { return self.reply("535 5.7.8 Wrong\r\n", said) };
        let step = match server.step(Some(octets)) {
            Ok(ServerStep::Keys { user }) => {
                // A server that does not know the password sends anything.
                let knows = self.rng.bool();
                let keys = if knows { self.keys.clone() } else { ScramKeys::made_up(&[5; 32], &user, 4_096) };
                server.keys(keys).map(ServerStep::Challenge)
            }
            other => other,
        };
        match step {
            Ok(ServerStep::Challenge(challenge)) => {
                self.scram = Some(server);
                let text = format!("334 {}\r\n", Base64::encode_string(&challenge));
                self.challenge(mechanism, count + 1, &text, said);
            }
            Ok(_) => self.reply("235 2.7.0 Welcome\r\n", said),
            // Accepted without a proof, on either side.
            Err(_) => {
                let text = if self.rng.bool() { "235 2.7.0 Welcome\r\n" } else { "535 5.7.8 Wrong\r\n" };
                self.reply(text, said);
            }
        }
    }

    /// Takes complete input.
    fn take(&mut self) -> bool {
        match self.expects {
            Expects::Chunk(left) => {
                let here = left.min(self.input.len());
                self.input.drain(..here);
                self.expects = Expects::Chunk(left - here);
                if here < left {
                    return false;
                }
                self.expects = Expects::Command;
                self.reply("250 2.0.0 Queued\r\n", "");
            }
            Expects::Dots => {
                let Some(end) = self.input.windows(5).position(|octets| octets == b"\r\n.\r\n") else { return false };
                self.input.drain(..end + 5);
                self.expects = Expects::Command;
                self.reply("250 2.0.0 Queued\r\n", "");
            }
            Expects::Command | Expects::Response(..) => {
                let Some(end) = self.input.iter().position(|octet| *octet == b'\n') else { return false };
                let line: Vec<u8> = self.input.drain(..=end).collect();
                self.line(String::from_utf8_lossy(&line).trim_end());
            }
        }
        true
    }

    /// Handles the client's handshake message.
    fn handshake(&mut self) {
        match self.rng.u32(0..10) {
            0 => self.written.push(Segment::new(Layer::Handshake, b"alert")),
            1 => self.is_closed = true,
            2 => self.is_silent = true,
            3 => self.written.push(Segment::new(Layer::Clear, b"250-injected\r\n250 AUTH PLAIN\r\n")),
            kind => {
                let bindings = self.rng.u8(0..3);
                self.bindings = Bindings {
                    exporter: (bindings == 1).then_some([7; 32]),
                    end_point: (bindings < 2).then(|| vec![9; 32]),
                };
                self.written.push(Segment::new(Layer::Handshake, &[b'o', b'k', u8::from(self.rng.bool()), bindings]));
                self.tls = Tls::Secured;
                if kind == 4 {
                    // Refuses the client after the handshake, as TLS 1.3 permits.
                    self.written.push(Segment::new(Layer::Clear, b"alert"));
                }
            }
        }
    }
}

/// Returns base64 octets as text.
fn decoded(said: &str) -> String {
    let last = said.split(' ').next_back().unwrap_or_default();
    let octets = Base64::decode_vec(last).unwrap_or_default();
    String::from_utf8_lossy(&octets).replace(['\0', '\x01'], " ")
}

impl End for HostileServer<'_> {
    fn read(&mut self, segment: Segment, _: Ms) -> InvariantResult {
        match (self.tls, segment.layer) {
            (Tls::Handshake, Layer::Handshake) => self.handshake(),
            (Tls::Clear, Layer::Clear) | (Tls::Secured, Layer::Tls) => self.input.extend(segment.octets),
            // A client that takes a refusal for a go-ahead, or sends octets of the wrong layer.
            _ => self.is_closed = true,
        }
        while !self.is_closed && !self.is_silent && self.take() {}
        Ok(())
    }

    fn disconnected(&mut self, _: Ms) -> InvariantResult {
        self.is_closed = true;
        Ok(())
    }

    fn act(&mut self, _: Ms) -> InvariantResult<bool> {
        Ok(false)
    }

    fn written(&mut self) -> Vec<Segment> {
        std::mem::take(&mut self.written)
    }

    fn is_closed(&self) -> bool {
        self.is_closed
    }
}
