//! Any octets as replies: no panic, and the same replies however the octets were split.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stentor_smtp::client::{ParsedReply, ReplyError, ReplyParser, TEXT_BYTES_MAX};

fn replies<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<ParsedReply>, Option<ReplyError>) {
    let (mut parser, mut replies) = (ReplyParser::new(), Vec::new());
    for piece in pieces {
        parser.push(piece);
        loop {
            match parser.next_reply() {
                Ok(Some(reply)) => replies.push(reply.to_reply()),
                Ok(None) => break,
                Err(error) => return (replies, Some(error)),
            }
        }
    }
    (replies, None)
}

fuzz_target!(|data: &[u8]| {
    let [step, bytes @ ..] = data else { return };
    let whole = replies(std::iter::once(bytes));
    assert_eq!(whole, replies(bytes.chunks(usize::from(*step) + 1)));
    for reply in whole.0 {
        assert!((200..600).contains(&reply.code) && reply.text.len() <= TEXT_BYTES_MAX);
        assert!(!reply.text.chars().any(char::is_control));
    }
});
