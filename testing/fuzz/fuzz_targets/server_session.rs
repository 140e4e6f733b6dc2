//! Any octets from a client: no panic, replies are well-formed lines, pieces are within their limit, and a message is
//! canonical: no bare CR or LF and no NUL beside a dot gets past the session.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use stentor_mail::reply::Reply;
use stentor_mail::server::{ServerConfig, ServerSession, Step};

const PIECE_BYTES_MAX: usize = 64;

fuzz_target!(|data: &[u8]| {
    let Some((&cut, input)) = data.split_first() else { return };
    let config = ServerConfig { size_max: 2_000, piece_bytes_max: PIECE_BYTES_MAX, ..ServerConfig::default() };
    let mut session = ServerSession::new(Arc::new(config), cut & 1 == 1, 0);
    session.allow_xclient();
    session.tell_unknown();
    session.receive(b"EHLO fuzz\r\n");
    let mut body = Vec::new();
    for part in input.chunks(usize::from(cut >> 1) + 1) {
        session.receive(part);
        if !drive(&mut session, &mut body) {
            return;
        }
    }
});

/// Plays the caller until input is needed; false once the session is over.
fn drive(session: &mut ServerSession, body: &mut Vec<u8>) -> bool {
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
            Step::Mail(_) | Step::Rcpt(_) => session.answer(Reply::fixed(250, (2, 0, 0), "Ok")),
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
