//! The session from the viewpoint of client and caller. This caller accepts everything except recipients whose name
//! says no.

mod bad_input;
mod bdat;
mod deadlines;
mod dialogue;
mod hostile;
mod lmtp;
mod security;
mod segments;

use std::sync::Arc;

use stentor_mail::Ms;
use stentor_mail::reply::{Enhanced, Reply};

use super::{EndOfData, Offers, ServerConfig, ServerSession, Step};

const PREFIX: &[u8] = b"Received: by us\r\n";
const NOW: Ms = 1_000_000;

/// A session with its caller, and everything that has happened.
struct Run {
    session: ServerSession,
    /// All steps except `NeedInput` and `Flush`.
    steps: Vec<Step>,
    output: Vec<u8>,
    closed: bool,
    now: Ms,
    /// State of AUTH LOGIN: the name so far.
    name: Option<Vec<u8>>,
}

fn config() -> ServerConfig {
    ServerConfig {
        hostname: "mx.example.org".to_owned(),
        size_max: 10_000,
        piece_bytes_max: 64,
        ..ServerConfig::default()
    }
}

impl Run {
    fn new() -> Self {
        Self::with(config(), false)
    }

    fn with(config: ServerConfig, trusted: bool) -> Self {
        let session = ServerSession::new(Arc::new(config), trusted, NOW);
        let mut run = Self { session, steps: Vec::new(), output: Vec::new(), closed: false, now: NOW, name: None };
        run.pump();
        assert!(run.replies().starts_with("220 mx.example.org ESMTP"));
        run
    }

    /// Creates a session with an open transaction and one recipient, and clears the earlier steps.
    fn with_recipient() -> Self {
        let mut run = Self::new();
        run.send(b"EHLO c\r\nMAIL FROM:<a@x.org>\r\nRCPT TO:<b@y.org>\r\n");
        run.steps.clear();
        run
    }

    fn send(&mut self, bytes: &[u8]) -> &mut Self {
        self.session.receive(bytes);
        self.pump();
        self
    }

    fn send_in(&mut self, bytes: &[u8], part_bytes: usize) -> &mut Self {
        for part in bytes.chunks(part_bytes) {
            self.send(part);
        }
        self
    }

    fn pump(&mut self) {
        loop {
            let step = self.session.step(self.now);
            self.output.append(self.session.output());
            self.session.sent();
            match &step {
                Step::NeedInput => return,
                Step::Flush => continue,
                Step::Close => {
                    self.closed = true;
                    if self.steps.last() != Some(&Step::Close) {
                        self.steps.push(step);
                    }
                    return;
                }
                Step::Mail(_) => self.session.answer(Reply::fixed(250, Enhanced::new(2, 1, 0), "Ok")),
                Step::Rcpt(rcpt) => {
                    let reply = match rcpt.address.local() {
                        "no" => Reply::fixed(550, Enhanced::new(5, 1, 1), "No such user"),
                        "later" => Reply::fixed(450, Enhanced::new(4, 2, 1), "Later"),
                        "closing" => Reply::fixed(421, Enhanced::new(4, 3, 2), "Closing"),
                        _ => Reply::fixed(250, Enhanced::new(2, 1, 5), "Ok"),
                    };
                    self.session.answer(reply);
                }
                Step::Client(said) => self.session.become_client(said, false, self.now),
                Step::StartTls => {
                    let auth = "PLAIN LOGIN".to_owned();
                    let offers = Offers { starttls: true, auth, requiretls: true, ..Offers::default() };
                    self.session.secured(Arc::new(offers), false, self.now);
                }
                Step::Auth { mechanism, initial } => match (&**mechanism, initial) {
                    ("PLAIN", Some(response)) => self.log_in(response.octets() == b"\0ann\0secret"),
                    ("LOGIN", Some(response)) => self.named(response.octets()),
                    ("LOGIN", None) => self.session.challenge(b"Username:"),
                    _ => self.session.challenge(b""),
                },
                Step::AuthResponse(response) => match self.name.take() {
                    Some(name) => self.log_in(name == b"ann" && response.octets() == b"secret"),
                    None if response.octets().contains(&0) => {
                        self.log_in(response.octets() == b"\0ann\0secret");
                    }
                    None if response.octets() == b"ann" => self.named(b"ann"),
                    None => self.log_in(false),
                },
                Step::AuthCancelled => self.name = None,
                Step::Unknown { reply, .. } => self.session.answer(reply.clone()),
                Step::Data => self.session.begin_data(PREFIX.to_vec()),
                Step::EndOfData(_) => self.session.answer(Reply::fixed(250, Enhanced::new(2, 0, 0), "Queued")),
                Step::Piece(_) | Step::Reset | Step::Refused { .. } => {}
            }
            self.steps.push(step);
        }
    }

    fn named(&mut self, name: &[u8]) {
        self.name = Some(name.to_vec());
        self.session.challenge(b"Password:");
    }

    fn log_in(&mut self, is_right: bool) {
        if is_right {
            self.session.answer(Reply::fixed(235, Enhanced::new(2, 7, 0), "Ok"));
            self.session.authenticated();
        } else {
            self.session.answer(Reply::fixed(535, Enhanced::new(5, 7, 8), "Wrong"));
        }
    }

    fn replies(&self) -> String {
        String::from_utf8(self.output.clone()).expect("replies are ASCII")
    }

    /// Takes the replies since the last call.
    fn take(&mut self) -> String {
        let replies = self.replies();
        self.output.clear();
        replies
    }

    /// Takes the codes of the replies since the last call.
    fn codes(&mut self) -> Vec<u16> {
        self.take().lines().filter(|line| line.as_bytes()[3] == b' ').map(|line| line[..3].parse().unwrap()).collect()
    }

    /// Returns the bodies of all complete messages, without the prefix.
    fn bodies(&self) -> Vec<Vec<u8>> {
        let mut bodies = Vec::new();
        let mut body = Vec::new();
        for step in &self.steps {
            match step {
                Step::Piece(piece) => body.extend_from_slice(piece),
                Step::Reset | Step::Refused { .. } => body.clear(),
                Step::EndOfData(EndOfData { last, size, .. }) => {
                    body.extend_from_slice(last);
                    let body = std::mem::take(&mut body).split_off(PREFIX.len());
                    assert_eq!(body.len() as u64, *size);
                    bodies.push(body);
                }
                _ => {}
            }
        }
        bodies
    }

    fn resets(&self) -> usize {
        self.steps.iter().filter(|step| matches!(step, Step::Reset | Step::Refused { .. })).count()
    }
}
