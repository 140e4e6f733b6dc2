//! Any octets from a client: no panic, replies are well-formed lines, pieces are within their limit, and a message is
//! canonical: no bare CR or LF and no NUL beside a dot gets past the session. Nothing that came in clear survives
//! STARTTLS, no mail is taken before the login that it asks for, and an exchange of AUTH has one end and is not read as
//! commands.
//!
//! The octet 255 ends a part; the one behind it says what else happens there.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use stentor_mail::reply::{Enhanced, Reply};
use stentor_smtp::server::{Offers, SecretBytes, ServerConfig, ServerSession, Step};

const PIECE_BYTES_MAX: usize = 64;
const AUTH_FAILURES_MAX: u8 = 5;

/// The caller.
struct Caller {
    cut: u8,
    now: u64,
    /// What happens in this part.
    happens: u8,
    body: Vec<u8>,
    in_exchange: bool,
    failures: u8,
}

fuzz_target!(|data: &[u8]| {
    let Some((&cut, input)) = data.split_first() else { return };
    let config = ServerConfig {
        size_max: 2_000,
        piece_bytes_max: PIECE_BYTES_MAX,
        auth_failures_max: AUTH_FAILURES_MAX,
        xverp: true,
        ..ServerConfig::default()
    };
    let mut session = ServerSession::new(Arc::new(config), cut & 1 == 1, 0);
    session.allow_xclient();
    session.tell_unknown();
    session.offer(Arc::new(offers(cut, "PLAIN")));
    session.receive(b"EHLO fuzz\r\n");
    let mut caller = Caller { cut, now: 0, happens: 0, body: Vec::new(), in_exchange: false, failures: 0 };
    for (index, part) in input.split(|octet| *octet == 255).enumerate() {
        let part = match part.split_first() {
            Some((&happens, rest)) if index > 0 => {
                caller.happens = happens;
                rest
            }
            _ => part,
        };
        match caller.happens % 6 {
            1 => session.receive(b""),
            2 => session.timed_out(),
            3 => session.hurry(),
            4 => caller.now = session.deadline().min(caller.now + 100_000),
            _ => {}
        }
        if !caller.drive(&mut session) {
            return;
        }
        for octets in part.chunks(usize::from(cut >> 1) + 1) {
            session.receive(octets);
            if !caller.drive(&mut session) {
                return;
            }
        }
    }
});

fn offers(cut: u8, auth: &str) -> Offers {
    Offers {
        starttls: cut & 2 == 0,
        auth: if cut & 4 == 0 { auth.to_owned() } else { String::new() },
        auth_after_tls: cut & 8 == 0,
        require_tls: cut & 48 == 48,
        require_auth: cut & 64 == 64,
        requiretls: true,
    }
}

impl Caller {
    /// Plays who decides: the longer the response, the more is asked for.
    fn respond(&mut self, session: &mut ServerSession, response: Option<&SecretBytes>) {
        self.in_exchange = false;
        match response.map(|response| response.octets().len() % 5) {
            None => self.challenge(session, b""),
            Some(0) => self.challenge(session, b"more"),
            Some(1) => {
                session.answer(Reply::fixed(235, Enhanced::new(2, 7, 0), "Ok"));
                session.authenticated();
            }
            Some(2) => self.refuse(session, Reply::fixed(454, Enhanced::new(4, 7, 0), "Later")),
            Some(3) => self.refuse(session, Reply::fixed(421, Enhanced::new(4, 7, 0), "Closing")),
            Some(_) => self.refuse(session, Reply::fixed(535, Enhanced::new(5, 7, 8), "Wrong")),
        }
    }

    fn challenge(&mut self, session: &mut ServerSession, challenge: &[u8]) {
        self.in_exchange = true;
        session.challenge(challenge);
    }

    fn refuse(&mut self, session: &mut ServerSession, reply: Reply) {
        self.failures += 1;
        session.answer(reply);
    }

    /// The handshake is made; false if it fails.
    fn secure(&mut self, session: &mut ServerSession) -> bool {
        assert!(!session.is_secured() && !session.in_transaction());
        session.output().clear();
        if self.happens & 64 != 0 {
            return false;
        }
        // What comes before it is not read.
        session.receive(b"EHLO clear\r\nMAIL FROM:<clear@x.org>\r\n");
        session.secured(Arc::new(offers(self.cut, "PLAIN LOGIN")), false, self.now);
        assert!(session.helo().is_empty() && !session.is_esmtp() && !session.is_authenticated());
        assert_eq!(session.step(self.now), Step::NeedInput);
        assert!(session.output().is_empty());
        true
    }

    /// Plays the caller until input is needed; false once the session is over.
    fn drive(&mut self, session: &mut ServerSession) -> bool {
        loop {
            let step = session.step(self.now);
            let over = step == Step::Close;
            let is_asked = !matches!(step, Step::NeedInput | Step::Flush | Step::Close);
            let is_of_auth = matches!(step, Step::AuthResponse(_) | Step::AuthCancelled);
            assert!(!is_asked || is_of_auth == self.in_exchange, "{step:?}");
            match step {
                Step::NeedInput | Step::Flush | Step::Close => {
                    let output = std::mem::take(session.output());
                    assert!(output.is_empty() || output.ends_with(b"\r\n"));
                    assert!(output.split(|&byte| byte == b'\n').all(|line| line.len() <= 511));
                    if step != Step::Flush {
                        return !over;
                    }
                }
                Step::Mail(_) | Step::Rcpt(_) => {
                    assert!(session.is_authenticated() || self.cut & 64 == 0);
                    assert!(session.is_secured() || self.cut & 48 != 48);
                    session.answer(Reply::fixed(250, Enhanced::new(2, 0, 0), "Ok"));
                }
                Step::StartTls if !self.secure(session) => return false,
                Step::StartTls => {}
                Step::Auth { initial, .. } => {
                    assert!(!session.is_authenticated() && !session.in_transaction());
                    assert!(self.failures < AUTH_FAILURES_MAX);
                    self.respond(session, initial.as_ref());
                }
                Step::AuthResponse(response) => self.respond(session, Some(&response)),
                Step::AuthCancelled => {
                    self.in_exchange = false;
                    self.failures += 1;
                }
                Step::Client(said) => {
                    session.become_client(&said, false, self.now);
                    self.failures = 0;
                }
                Step::Unknown { reply, .. } => session.answer(reply),
                Step::Data => {
                    self.body.clear();
                    session.begin_data(Vec::new());
                }
                Step::Piece(piece) => {
                    assert_eq!(piece.len(), PIECE_BYTES_MAX);
                    self.body.extend_from_slice(&piece);
                }
                Step::EndOfData(end) => {
                    self.body.extend_from_slice(&end.last);
                    assert_eq!(end.size, self.body.len() as u64);
                    assert_canonical(&self.body);
                    session.answer(Reply::fixed(250, Enhanced::new(2, 0, 0), "Ok"));
                }
                Step::Reset | Step::Refused { .. } => self.body.clear(),
            }
        }
    }
}

fn assert_canonical(body: &[u8]) {
    for (index, &byte) in body.iter().enumerate() {
        match byte {
            b'\n' => assert!(index > 0 && body[index - 1] == b'\r'),
            b'\r' => assert_eq!(body.get(index + 1), Some(&b'\n')),
            _ => {}
        }
    }
    for line in body.split(|byte| *byte == b'\n') {
        let nuls = line.iter().take_while(|byte| **byte == 0).count();
        assert!(nuls == 0 || line.get(nuls) != Some(&b'.'));
        assert!(!line.starts_with(b".\0"));
    }
}
