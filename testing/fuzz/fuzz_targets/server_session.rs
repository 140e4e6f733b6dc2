//! Any octets from a client: no panic, replies are well-formed lines, pieces are within their limit, and a message is
//! canonical: no bare CR or LF and no NUL beside a dot gets past the session. Nothing that came in clear survives STARTTLS, and
//! no mail is taken before the login that it asks for.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use stentor_mail::reply::Reply;
use stentor_mail::server::{Offers, Secret, ServerConfig, ServerSession, Step};

const PIECE_BYTES_MAX: usize = 64;

fuzz_target!(|data: &[u8]| {
    let Some((&cut, input)) = data.split_first() else { return };
    let config = ServerConfig { size_max: 2_000, piece_bytes_max: PIECE_BYTES_MAX, ..ServerConfig::default() };
    let mut session = ServerSession::new(Arc::new(config), cut & 1 == 1, 0);
    session.allow_xclient();
    session.tell_unknown();
    session.offer(Arc::new(offers(cut, "PLAIN")));
    session.receive(b"EHLO fuzz\r\n");
    let mut body = Vec::new();
    for part in input.chunks(usize::from(cut >> 1) + 1) {
        session.receive(part);
        if !drive(&mut session, (cut, &mut body)) {
            return;
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

/// Plays who decides: the longer the response, the more is asked for.
fn respond(session: &mut ServerSession, response: Option<&Secret>) {
    match response.map(|response| response.octets().len() % 4) {
        None => session.challenge(b""),
        Some(0) => session.challenge(b"more"),
        Some(1) => {
            session.answer(Reply::fixed(235, (2, 7, 0), "Ok"));
            session.authenticated();
        }
        Some(2) => session.answer(Reply::fixed(454, (4, 7, 0), "Later")),
        Some(_) => session.answer(Reply::fixed(535, (5, 7, 8), "Wrong")),
    }
}

/// Plays the caller until input is needed; false once the session is over.
fn drive(session: &mut ServerSession, (cut, body): (u8, &mut Vec<u8>)) -> bool {
    loop {
        let step = session.step(0);
        let over = step == Step::Close;
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
                assert!(session.is_authenticated() || cut & 64 == 0);
                assert!(session.is_secured() || cut & 48 != 48);
                session.answer(Reply::fixed(250, (2, 0, 0), "Ok"));
            }
            Step::StartTls => {
                assert!(!session.is_secured() && !session.in_transaction());
                session.output().clear();
                session.secured(Arc::new(offers(cut, "PLAIN LOGIN")), false, 0);
                assert!(session.helo().is_empty() && !session.is_authenticated());
            }
            Step::Auth { initial, .. } => {
                assert!(!session.is_authenticated() && !session.in_transaction());
                respond(session, initial.as_ref());
            }
            Step::AuthResponse(response) => respond(session, Some(&response)),
            Step::AuthCancelled => {}
            Step::Client(said) => session.become_client(&said, false, 0),
            Step::Unknown { reply, .. } => session.answer(reply),
            Step::Data => {
                body.clear();
                session.begin_data(Vec::new());
            }
            Step::Piece(piece) => {
                assert_eq!(piece.len(), PIECE_BYTES_MAX);
                body.extend_from_slice(&piece);
            }
            Step::EndOfData(end) => {
                body.extend_from_slice(&end.last);
                assert_eq!(end.size, body.len() as u64);
                assert_canonical(body);
                session.answer(Reply::fixed(250, (2, 0, 0), "Ok"));
            }
            Step::Reset | Step::Refused { .. } => body.clear(),
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
