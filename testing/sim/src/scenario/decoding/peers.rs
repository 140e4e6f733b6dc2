//! What peers send that we ask ourselves: replies of milters and of name servers, read as the server reads them.

use rustix::time::{ClockId, clock_gettime};
use stentor_milter::protocol::{Editor, Event, Header, HeaderReader, LineEnds, Macros, MilterSession};
use stentor_resolve::offline::mx_records;

/// Octets of a reply that are read at once.
const READ_BYTES: usize = 8 * 1024;
/// Longest reply of a name server: over TCP (RFC 1035 section 4.2.2).
const DNS_BYTES_MAX: usize = 65_535;
/// What a milter wants to be told: the end of the message alone (`SMFIP_NO*`).
const PROTOCOL: u32 = 0x37f;
/// All changes (`SMFIF_*`), but for the list of macros.
const ACTIONS: u32 = 0xff;
/// Fields of the message that a milter changes.
const FIELDS: usize = 1_000;

/// Who sends a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    Milter,
    NameServer,
}

impl Peer {
    /// Nanoseconds of the processor for an octet of a reply: the least of so many runs.
    pub fn cost(self, reply: &[u8], runs: usize) -> f64 {
        let least = match self {
            Peer::Milter => {
                let message = message();
                (0..runs).map(|_| changed(&message, reply)).min()
            }
            Peer::NameServer => (0..runs).map(|_| looked_up(reply)).min(),
        };
        least.unwrap_or_default() as f64 / reply.len().max(1) as f64
    }

    /// A reply of so many octets: `head`, and `unit` over and over. `units`: packets or records in one unit.
    pub fn reply(self, head: &[u8], unit: &[u8], units: usize, bytes: usize) -> Vec<u8> {
        match self {
            Peer::Milter => {
                let mut out = Vec::with_capacity(bytes + unit.len());
                while out.len() < bytes && !unit.is_empty() {
                    out.extend_from_slice(unit);
                }
                out.extend_from_slice(b"\0\0\0\x01c");
                out
            }
            Peer::NameServer => {
                let times = bytes.min(DNS_BYTES_MAX).saturating_sub(head.len() + 12) / unit.len().max(1);
                let count = (times * units).min(0xffff) as u16;
                // A response with recursion, one question.
                let mut out = [0, 7, 0x81, 0x80, 0, 1].to_vec();
                out.extend(count.to_be_bytes());
                out.extend([0, 0, 0, 0]);
                out.extend_from_slice(head);
                for _ in 0..times {
                    out.extend_from_slice(unit);
                }
                out
            }
        }
    }
}

/// The header of a message that a milter has seen.
fn message() -> Header {
    let mut reader = HeaderReader::new(1);
    let fields: Vec<String> = (0..FIELDS).map(|n| format!("X-Field-{n}: a value of some words\r\n")).collect();
    let _ = reader.push(format!("Received: ours\r\nSubject: x\r\n{}\r\n", fields.concat()).as_bytes());
    reader.finish().0
}

/// Nanoseconds for a milter's changes at the end of a message.
fn changed(message: &Header, reply: &[u8]) -> u64 {
    let mut session = MilterSession::open();
    let mut negotiation = vec![0, 0, 0, 13, b'O'];
    for number in [6, ACTIONS, PROTOCOL] {
        negotiation.extend(u32::to_be_bytes(number));
    }
    session.receive(&negotiation);
    while session.is_owed() && matches!(session.poll(), Ok(Some(_))) {}
    session.end(&Macros::default());
    let mut editor = Editor::new(message.clone(), session.keeps_space());
    let (mut body, mut ends) = (Vec::new(), LineEnds::default());
    let begun = thread_ns();
    let mut reads = reply.chunks(READ_BYTES);
    while session.is_owed() {
        match session.poll() {
            Ok(Some(Event::Change(change))) => {
                if let stentor_milter::protocol::Change::Body(octets) = &change {
                    ends.push(octets, &mut body);
                }
                if editor.apply(&change).is_err() {
                    break;
                }
            }
            Ok(Some(_)) => {}
            Ok(None) => match reads.next() {
                Some(octets) => session.receive(octets),
                None => break,
            },
            Err(_) => break,
        }
    }
    std::hint::black_box((editor.finish().octets(), body));
    thread_ns() - begun
}

fn looked_up(reply: &[u8]) -> u64 {
    let name = name_of(reply);
    let begun = thread_ns();
    std::hint::black_box(mx_records(reply, &name));
    thread_ns() - begun
}

/// The question's name, in dots.
fn name_of(reply: &[u8]) -> String {
    let (mut name, mut at) = (String::new(), 12);
    while let Some(&octets @ 1..64) = reply.get(at) {
        let label = reply.get(at + 1..at + 1 + usize::from(octets)).unwrap_or_default();
        name.push_str(&String::from_utf8_lossy(label));
        name.push('.');
        at += 1 + usize::from(octets);
    }
    name
}

/// Processor time of this thread.
fn thread_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
