//! Any octets from a milter: no panic; what it asks for leaves a header of whole fields.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stentor_milter::protocol::{ClientIdentity, Editor, Event, Header, HeaderReader, LineEnds, Macros, MilterSession, MilterReply};

const MESSAGE: &[u8] = b"Received: ours\r\nFrom: a@x.test\r\nSubject: x\r\n y\r\n\r\nbody\r\n";

fn taken(message: &[u8]) -> Option<(Header, usize)> {
    let mut reader = HeaderReader::new(1);
    reader.push(message).ok()?;
    Some(reader.finish())
}

fuzz_target!(|data: &[u8]| {
    let Some((&cut, input)) = data.split_first() else { return };
    let none = Macros::default();
    let mut session = MilterSession::open();
    let mut parts = input.chunks(usize::from(cut) + 1);
    let Some((header, _)) = taken(MESSAGE) else { return };
    let mut editor: Option<Editor> = None;
    let mut header = Some(header);
    let mut body = Vec::new();
    let mut ends = LineEnds::default();
    for stage in 0.. {
        while session.is_owed() {
            match session.poll() {
                Ok(Some(Event::Change(change))) => {
                    if let stentor_milter::protocol::Change::Body(octets) = &change {
                        ends.push(octets, &mut body);
                    }
                    if let Some(header) = header.take() {
                        editor = Some(Editor::new(header, session.keeps_space()));
                    }
                    if editor.as_mut().is_some_and(|editor| editor.apply(&change).is_err()) {
                        return;
                    }
                }
                Ok(Some(Event::Reply(MilterReply::Refuse(reply)))) => assert!((400..600).contains(&reply.code)),
                Ok(Some(_)) => {}
                Ok(None) => match parts.next() {
                    Some(part) => session.receive(part),
                    None => return,
                },
                Err(_) => return,
            }
        }
        let client = ClientIdentity { name: "client", address: [192, 0, 2, 1].into(), port: 25 };
        match stage {
            0 => session.connect(client, &none),
            1 => session.helo("client", &none),
            2 => session.mail(&["<>"], &none),
            3 => session.rcpt(&["<a@x.test>"], &none),
            4 => session.header(b"Subject", b"x"),
            5 => session.end_of_header(&none),
            6 => session.body(b"body\r\n"),
            7 => session.end(&none),
            _ => break,
        }
    }
    let Some(header) = header.or_else(|| editor.map(Editor::finish)) else { return };
    let octets = [header.octets(), b"\r\nbody".to_vec()].concat();
    let Some((_, at)) = taken(&octets) else { return };
    assert_eq!(&octets[at..], b"body");
    for (index, &byte) in body.iter().enumerate() {
        match byte {
            b'\n' => assert!(index > 0 && body[index - 1] == b'\r'),
            b'\r' => assert!(body.get(index + 1).is_none_or(|next| *next == b'\n')),
            _ => {}
        }
    }
});
