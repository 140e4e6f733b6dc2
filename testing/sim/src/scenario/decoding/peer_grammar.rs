//! Replies of peers that cost much: packets of a milter, records of a name server, over and over.

use super::peers::Peer;

/// What one peer may send.
pub struct PeerDecoder {
    pub name: &'static str,
    pub peer: Peer,
    /// What stands before the units: of a name server the question.
    heads: Vec<Vec<u8>>,
    tokens: Vec<Vec<u8>>,
}

/// One reply: `unit` is repeated.
#[derive(Debug, Clone)]
pub struct PeerSample {
    head: Vec<u8>,
    unit: Vec<Vec<u8>>,
}

const UNIT_TOKENS_MAX: usize = 6;

pub fn decoders() -> [PeerDecoder; 2] {
    [
        PeerDecoder { name: "milter.replies", peer: Peer::Milter, heads: vec![Vec::new()], tokens: packets() },
        PeerDecoder {
            name: "dns.answers",
            peer: Peer::NameServer,
            heads: [question(&["d", "x"]), question(&["a"; 127]), question(&["a"; 60])].into(),
            tokens: records(),
        },
    ]
}

impl PeerDecoder {
    /// Each token by itself below each head.
    pub fn seeds(&self) -> usize {
        self.heads.len() * self.tokens.len()
    }

    pub fn seed(&self, n: usize) -> PeerSample {
        let (head, token) = (n / self.tokens.len(), n % self.tokens.len());
        PeerSample { head: self.heads[head].clone(), unit: vec![self.tokens[token].clone()] }
    }

    pub fn random(&self, dice: &mut fastrand::Rng) -> PeerSample {
        let unit = (0..dice.usize(1..=4)).map(|_| self.token(dice)).collect();
        PeerSample { head: self.heads[dice.usize(..self.heads.len())].clone(), unit }
    }

    pub fn mutated(&self, sample: &PeerSample, dice: &mut fastrand::Rng) -> PeerSample {
        let mut next = sample.clone();
        let at = dice.usize(..next.unit.len());
        match dice.u8(0..5) {
            0 if next.unit.len() > 1 => drop(next.unit.remove(at)),
            1 if next.unit.len() < UNIT_TOKENS_MAX => next.unit.insert(at, self.token(dice)),
            2 if next.unit.len() < UNIT_TOKENS_MAX => next.unit.insert(at, next.unit[at].clone()),
            3 => next.head.clone_from(&self.heads[dice.usize(..self.heads.len())]),
            _ => next.unit[at] = self.token(dice),
        }
        next
    }

    pub fn reply(&self, sample: &PeerSample, bytes: usize) -> Vec<u8> {
        self.peer.reply(&sample.head, &sample.unit(), sample.unit.len(), bytes)
    }

    fn token(&self, dice: &mut fastrand::Rng) -> Vec<u8> {
        self.tokens[dice.usize(..self.tokens.len())].clone()
    }
}

impl PeerSample {
    pub fn unit(&self) -> Vec<u8> {
        self.unit.concat()
    }
}

fn packet(command: u8, data: &[&[u8]]) -> Vec<u8> {
    let data = data.concat();
    let length = (1 + data.len()) as u32;
    [&length.to_be_bytes()[..], &[command], &data].concat()
}

/// Changes that a milter may ask for; indices at the begin, in the middle and behind the end of the header.
fn packets() -> Vec<Vec<u8>> {
    let index = |n: u32| n.to_be_bytes();
    let long = vec![b'x'; 60_000];
    vec![
        packet(b'p', &[]),
        packet(b'h', &[b"A\0\0"]),
        packet(b'h', &[b"A\0b\nc\nd\ne\0"]),
        packet(b'h', &[b"A\0", &long, b"\0"]),
        packet(b'i', &[&index(0), b"A\0\0"]),
        packet(b'i', &[&index(500), b"A\0\0"]),
        packet(b'i', &[&index(u32::MAX), b"A\0\0"]),
        packet(b'm', &[&index(1), b"X-Field-999\0v\0"]),
        packet(b'm', &[&index(1), b"X-Field-1\0\0"]),
        packet(b'm', &[&index(1), b"None\0\0"]),
        packet(b'm', &[&index(400), b"A\0\0"]),
        packet(b'm', &[&index(1), b"A\0b\0"]),
        packet(b'm', &[&index(u32::MAX), b"A\0\0"]),
        packet(b'b', &[b"x\r\n"]),
        packet(b'b', &[b"\n"]),
        packet(b'b', &[&long]),
        packet(b'+', &[b"<a@b.example>\0"]),
        packet(b'-', &[b"<a@b.example>\0"]),
        packet(b'2', &[b"<a@b.example>\0NOTIFY=NEVER\0"]),
        packet(b'e', &[b"<a@b.example>\0\0"]),
        packet(b'q', &[b"why\0"]),
    ]
}

/// A question for MX records (class IN).
fn question(labels: &[&str]) -> Vec<u8> {
    let mut octets = name(labels);
    octets.extend([0, 15, 0, 1]);
    octets
}

fn name(labels: &[&str]) -> Vec<u8> {
    let mut octets = Vec::new();
    for label in labels {
        octets.push(label.len() as u8);
        octets.extend_from_slice(label.as_bytes());
    }
    octets.push(0);
    octets
}

fn record(owner: &[u8], kind: u16, data: &[u8]) -> Vec<u8> {
    let mut octets = owner.to_vec();
    octets.extend(kind.to_be_bytes());
    octets.extend([0, 1, 0, 0, 0, 60]);
    octets.extend((data.len() as u16).to_be_bytes());
    octets.extend_from_slice(data);
    octets
}

/// Records of the question's name, of a part of it and of others, with pointers and without (RFC 1035 section 4.1.4).
fn records() -> Vec<Vec<u8>> {
    const QUESTION: &[u8] = &[0xc0, 12];
    const PARENT: &[u8] = &[0xc0, 14];
    const MX: u16 = 15;
    let preferred = |to: &[u8]| [&[0, 10], to].concat();
    let (root, host, long) = (name(&[]), name(&["a"]), name(&["a"; 100]));
    let soa = [QUESTION, QUESTION, &[0; 20]].concat();
    vec![
        record(QUESTION, MX, &preferred(QUESTION)),
        record(QUESTION, MX, &preferred(PARENT)),
        record(QUESTION, MX, &preferred(&host)),
        record(QUESTION, MX, &preferred(&long)),
        record(PARENT, MX, &preferred(PARENT)),
        record(&root, MX, &preferred(&root)),
        record(QUESTION, 5, PARENT),
        record(PARENT, 5, QUESTION),
        record(QUESTION, 5, QUESTION),
        record(&root, 5, &root),
        record(&host, 5, QUESTION),
        record(QUESTION, 1, &[192, 0, 2, 1]),
        record(&root, 1, &[192, 0, 2, 1]),
        record(QUESTION, 28, &[0; 16]),
        record(QUESTION, 16, &[0]),
        record(QUESTION, 16, &[1, b'x', 1, b'x', 1, b'x', 1, b'x']),
        record(QUESTION, 6, &soa),
        record(QUESTION, 2, QUESTION),
        record(&root, 65_000, &[]),
        record(QUESTION, 47, &[0xc0, 12, 0, 1, 0x40]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is measured is read: octets that are no reply would cost nothing.
    #[test]
    fn replies_are_read_to_their_end() {
        let [milter, name_server] = decoders();
        let octets = name_server.reply(&name_server.seed(2), 20_000);
        assert!(stentor_resolve::offline::mx_records(&octets, "d.x.") > 1_000);
        for decoder in [&milter, &name_server] {
            for n in 0..decoder.seeds() {
                let reply = decoder.reply(&decoder.seed(n), 20_000);
                assert!(decoder.peer.cost(&reply, 1) > 0.0, "{} {n}", decoder.name);
            }
        }
    }
}
