//! The way of a stranger's message through the server, without sockets and disk: the session's framing and header
//! facts, the stored form, the addresses in the header, the search for content rules of each kind.

use std::sync::Arc;

use rustix::time::{ClockId, clock_gettime};
use stentor_addresses::HeaderStream;
use stentor_mail::heading::Heading;
use stentor_mail::reply::{Enhanced, Reply};
use stentor_mail::stored_form::StoredForm;
use stentor_rules::{ContentConditions, ContentScanner, Matcher, Pattern, Test};
use stentor_smtp::server::{ServerConfig, ServerSession, Step};

/// Octets that a session reads at once, and that are searched in one turn.
const READ_BYTES: usize = 8 * 1024;

/// A server with rules, and one session after the other.
pub struct Chain {
    config: Arc<ServerConfig>,
    matcher: Arc<Matcher>,
}

/// What a message met: so that nothing is left out as unused.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    pub stored: u64,
    pub tests: usize,
}

impl Chain {
    pub fn new() -> Chain {
        let mut all = conditions();
        let matcher = Arc::new(Matcher::new(all.iter_mut()).expect("patterns of our own"));
        Chain { config: Arc::new(ServerConfig::default()), matcher }
    }

    /// Nanoseconds of the processor for an octet: the least of so many runs.
    pub fn cost(&mut self, message: &[u8], runs: usize) -> f64 {
        let wire = stuffed(message);
        let least = (0..runs).map(|_| self.timed(&wire)).min().unwrap_or_default();
        least as f64 / message.len().max(1) as f64
    }

    fn timed(&self, wire: &[u8]) -> u64 {
        let begun = thread_ns();
        std::hint::black_box(self.take(wire));
        thread_ns() - begun
    }

    /// Takes a message as it comes over the wire.
    fn take(&self, wire: &[u8]) -> Outcome {
        let mut session = ServerSession::new(self.config.clone(), false, 0);
        session.receive(b"EHLO a.example\r\nMAIL FROM:<a@b.example>\r\nRCPT TO:<c@d.example>\r\nDATA\r\n");
        let mut content = Content::new(self.matcher.clone());
        let mut reads = wire.chunks(READ_BYTES);
        loop {
            match session.step(0) {
                Step::NeedInput => match reads.next() {
                    Some(octets) => session.receive(octets),
                    None => return content.outcome,
                },
                Step::Flush => session.sent(),
                Step::Mail(_) | Step::Rcpt(_) => session.answer(Reply::fixed(250, Enhanced::new(2, 0, 0), "Ok")),
                Step::Data => session.begin_data(Vec::new()),
                Step::Piece(piece) => content.take(piece, false),
                Step::EndOfData(end) => {
                    content.take(end.last, true);
                    session.answer(Reply::fixed(250, Enhanced::new(2, 0, 0), "Ok"));
                }
                Step::Close => return content.outcome,
                _ => {}
            }
        }
    }
}

/// The content of one message.
struct Content {
    scan: Option<ContentScanner>,
    form: StoredForm,
    header: HeaderStream,
    is_first: bool,
    outcome: Outcome,
}

impl Content {
    fn new(matcher: Arc<Matcher>) -> Content {
        let scan = Some(ContentScanner::new(matcher, 0, false));
        let (form, header) = (StoredForm::new(0), HeaderStream::default());
        Content { scan, form, header, is_first: true, outcome: Outcome::default() }
    }

    fn take(&mut self, piece: Vec<u8>, is_last: bool) {
        if let Some(scan) = &mut self.scan {
            piece.chunks(READ_BYTES).for_each(|octets| scan.push(octets));
        }
        if std::mem::take(&mut self.is_first) {
            std::hint::black_box(Heading::of(&piece));
        }
        let stored = self.form.push(piece, is_last);
        let split = self.header.split(stored, is_last);
        self.outcome.stored += (split.before.len() + split.fields.len() + split.behind.len()) as u64;
        if let Some(scan) = self.scan.take_if(|_| is_last) {
            self.outcome.tests = usize::from(scan.has_too_many_parts());
            std::hint::black_box(scan.finish());
        }
    }
}

/// Rules of every kind, as filters have them.
fn conditions() -> Vec<ContentConditions> {
    let contained = |text: &str| Pattern::contained(text).expect("a pattern of our own");
    let name = |text: &str| Pattern::name(text).expect("a name");
    let field = |text: &str, is_raw| Test::header(text, is_raw).expect("a field");
    let files = Test::Attachment { names: vec![name("*.exe"), name("*.js")], types: Vec::new(), over: None };
    let all = [
        ("body", vec![Test::Body(contained("/you\\s+won/")), Test::Body(contained("viagra"))]),
        (
            "body",
            vec![
                Test::Body(contained("/cash\\w{3,20}prize/")),
                Test::Body(contained("/https?:\\/\\/[a-z0-9.-]+\\.bad\\//")),
            ],
        ),
        ("body", vec![Test::Body(contained("предложение"))]),
        ("header", vec![field("*: /[a-z]+ pills/", false), field("X-Mailer: bulk", true)]),
        ("subject", vec![Test::subject("offer").expect("a pattern")]),
        ("script", vec![Test::script("Han 20%").expect("a script")]),
        ("charset", vec![Test::Charset(name("gb2312")), Test::Charset(name("koi8*"))]),
        (
            "malformed",
            vec![Test::malformed("nested").expect("a defect"), Test::malformed("boundary").expect("a defect")],
        ),
        ("attachment", vec![files]),
    ];
    let one = |(key, tests)| {
        let mut conditions = ContentConditions::default();
        conditions.add(key, tests);
        conditions
    };
    all.into_iter().map(one).collect()
}

/// As DATA has it, with its end (RFC 5321 section 4.5.2); the line ends are those of the message.
fn stuffed(message: &[u8]) -> Vec<u8> {
    let mut wire = Vec::with_capacity(message.len() + 1024);
    for line in message.split_inclusive(|octet| *octet == b'\n') {
        if line.starts_with(b".") {
            wire.push(b'.');
        }
        wire.extend_from_slice(line);
    }
    if !wire.ends_with(b"\r\n") {
        wire.extend_from_slice(b"\r\n");
    }
    wire.extend_from_slice(b".\r\n");
    wire
}

/// Processor time of this thread.
pub fn thread_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::super::grammar::{DECODERS, Sample};
    use super::*;

    /// What is measured is taken: a message that is refused at its begin would cost nothing.
    #[test]
    fn seeds_go_all_the_way() {
        let chain = Chain::new();
        for sample in DECODERS.iter().flat_map(|decoder| (0..decoder.seeds.len()).map(|n| Sample::seed(decoder, n))) {
            let message = sample.message(70_000);
            let outcome = chain.take(&stuffed(&message));
            let is_header = sample.is_header();
            assert!(outcome.stored >= message.len() as u64 || is_header, "{}", message[..200].escape_ascii());
        }
    }
}
