//! Checks that all readers of a message find the same header: the session, rules on content, milters, readers of
//! stored messages, and the rewriting of addresses.

use proptest::prelude::*;
use stentor_addresses::header_octets;
use stentor_mail::headers::HeaderScan;
use stentor_mail::stored_form::{MBOX_FIELD, StoredForm};
use stentor_milter::protocol::HeaderReader;
use stentor_mime::charset::Charset;
use stentor_mime::walk::{Defect, Part, Visitor, Walker};

const OURS: &[u8] = b"Received: by us\r\n\tfor you\r\n";

/// Fields and body.
type MessageParts = (Vec<(Vec<u8>, Vec<u8>)>, Vec<u8>);

#[derive(Default)]
struct MessageCollector {
    read: MessageParts,
    is_broken: bool,
}

impl Visitor for MessageCollector {
    fn field(&mut self, _: &[u32], name: &[u8], value: &[u8], _: Charset) {
        self.read.0.push((name.to_vec(), value.iter().copied().filter(|octet| *octet != b'\r').collect()));
    }

    fn text(&mut self, _: &Part, text: &str) {
        self.read.1.extend_from_slice(text.as_bytes());
    }

    fn defect(&mut self, _: &[u32], defect: Defect) {
        self.is_broken |= defect == Defect::Header;
    }
}

fn by_rules(message: &[u8], size: usize) -> MessageCollector {
    let (mut walker, mut collector) = (Walker::new(), MessageCollector::default());
    message.chunks(size).for_each(|piece| walker.push(piece, &mut collector));
    walker.finish(&mut collector);
    collector
}

fn stored(message: &[u8], size: usize) -> Vec<u8> {
    let content = [OURS, message].concat();
    let mut form = StoredForm::new(OURS.len());
    let mut stored: Vec<u8> = content.chunks(size).flat_map(|piece| form.push(piece.to_vec(), false)).collect();
    stored.extend(form.push(Vec::new(), true));
    stored
}

/// Header and body as milters see them.
fn by_milters(stored: &[u8], size: usize) -> MessageParts {
    let mut reader = HeaderReader::new(1);
    for piece in stored.chunks(size) {
        if reader.push(piece).expect("small") {
            break;
        }
    }
    let (header, body) = reader.finish();
    let fields = header.shown(true).map(|(name, value)| (name.to_vec(), value));
    (fields.filter(|(name, _)| name != MBOX_FIELD.as_bytes()).collect(), stored[body..].to_vec())
}

fn agree(message: &[u8], size: usize) {
    let mut scan = HeaderScan::new();
    message.chunks(size).for_each(|piece| scan.push(piece));
    let facts = scan.finish();
    let rules = by_rules(message, size);
    let stored = stored(message, size);
    let milters = by_milters(&stored, size);
    assert_eq!(rules.read, milters);
    assert_eq!(facts.fields as usize, milters.0.len());
    let has = |name: &str| milters.0.iter().any(|(known, _)| known.eq_ignore_ascii_case(name.as_bytes()));
    assert_eq!((facts.has_auth_results, facts.received_count > 0), (has("Authentication-Results"), has("Received")));
    let from = usize::try_from(facts.header_bytes).expect("small");
    let body = message[from..].strip_prefix(b"\r\n").unwrap_or(&message[from..]);
    assert_eq!(body, milters.1);
    let behind = stored.len() - milters.1.len() - header_octets(&stored);
    assert!(behind == 2 || behind == 0 && milters.1.is_empty(), "{behind}");
    // `malformed = "header"` matches a header that ends without an empty line.
    let is_mbox_alone = facts.is_irregular && !rules.is_broken;
    assert!(rules.is_broken <= facts.is_irregular);
    assert!(!is_mbox_alone || message.starts_with(b"From ") || message.starts_with(b">From "));
}

#[test]
fn what_hides_a_field_hides_it_from_all() {
    let long = format!("From {}\r\n", "x".repeat(1_000));
    for lead in [" x\r\n", "\tx\r\n", " \r\n", "From x\r\n y\r\n", &long, "X\x0c: y\r\n", "X\x0b: y\r\n", "text\r\n"] {
        let message = format!("{lead}Authentication-Results: us; dmarc=pass\r\nReceived: x\r\n\r\ntext\r\n");
        for size in [1, 7, 1_000, 9_999] {
            agree(message.as_bytes(), size);
            let rules = by_rules(message.as_bytes(), size);
            assert!(rules.is_broken && rules.read.0.is_empty(), "{lead}");
        }
    }
    agree(b"Authentication-Results\x0c: us; dmarc=pass\r\n\r\n", 99);
}

proptest! {
    #[test]
    fn all_agree(
        lines in proptest::collection::vec(
            "(Received|Authentication-Results|From |>From |From|X\x0c|X\x0b|B \t| |\t|a{990})?:?[ab:\x0c ]{0,12}(\r\n|\r\n|\r\n |\r\n\r\n)",
            0..7,
        ),
        last in "[A:]{0,3}",
        size in 1usize..60,
    ) {
        agree((lines.concat() + &last).as_bytes(), size);
    }
}
