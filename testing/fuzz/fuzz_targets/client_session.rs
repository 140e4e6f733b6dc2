//! Any server: every transaction gets its results, one per recipient, then the session closes; nothing counts as
//! delivered before its content was out, and no line but ours goes out.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use stentor_mail::client::{ClientConfig, ClientEvent, ClientSession, Stage, TxRcpt, TxSpec};

const CONTENT: &[u8] = b"Subject: x\r\n\r\n.\r\n";

fuzz_target!(|data: &[u8]| {
    let [flags, step, bytes @ ..] = data else { return };
    let config = ClientConfig { lmtp: flags & 1 != 0, pipelining: flags & 2 != 0, ..ClientConfig::default() };
    let mut session = ClientSession::new(Arc::new(config), 0);
    let (mut begun, mut done, mut closed, mut ended) = (0_u64, 0, false, Vec::new());
    let mut output = Vec::new();
    let mut events = |session: &mut ClientSession, ended: &[u64]| {
        while let Some(event) = session.poll_event() {
            assert!(!closed, "nothing comes after Closed");
            match event {
                ClientEvent::Ready(_) => {}
                ClientEvent::Done { tx, results } => {
                    done += 1;
                    assert_eq!(results.len(), 3);
                    assert!(results.iter().all(|result| result.reply.code >= 200));
                    let out = results.iter().any(|result| result.is_delivered() || result.stage == Stage::AfterDot);
                    assert!(!out || ended.contains(&tx));
                    // What is tried again has got nothing.
                    assert!(results.iter().all(|result| result.blames.is_empty() || !result.is_delivered()));
                    session.recycle(results);
                }
                ClientEvent::Closed { .. } => closed = true,
            }
        }
    };
    for (index, piece) in bytes.chunks(usize::from(*step) + 1).enumerate() {
        let now = index as u64;
        let _ = session.receive(piece, now);
        if session.can_pipeline(CONTENT.len() as u64) && begun < 20 {
            begun += 1;
            let spec = TxSpec {
                tx: begun,
                sender: "a@b",
                size: CONTENT.len() as u64,
                size_exact: flags & 4 != 0 || !session.can_begin(),
                eight_bit: false,
                smtputf8: false,
                ret: None,
                envid: None,
            };
            session.begin(&spec, ["c@d", "e@f", "g@h"].map(TxRcpt::new), now).expect("a transaction may begin");
        }
        if session.wants_body() {
            let tx = begun;
            session.push_body(CONTENT, now).expect("content is canonical");
            session.end_body(now).expect("content has its size");
            ended.push(tx);
        }
        assert!(session.deadline() > now);
        output.append(session.output());
        events(&mut session, &ended);
    }
    session.disconnected();
    events(&mut session, &ended);
    assert!(closed && session.is_closed());
    assert_eq!(begun, done);
    for line in String::from_utf8(output).expect("ASCII").split_terminator("\r\n") {
        let ours = [
            "EHLO ",
            "HELO ",
            "LHLO ",
            "MAIL FROM:<",
            "RCPT TO:<",
            "BDAT 17 LAST",
            "DATA",
            "RSET",
            "QUIT",
            "Subject: x",
        ];
        assert!(matches!(line, "" | "." | "..") || ours.iter().any(|start| line.starts_with(start)), "{line:?}");
    }
});
