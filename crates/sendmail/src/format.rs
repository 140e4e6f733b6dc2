//! File format of the submission folder, version 1 (see the table in docs/design/submission.md).
//!
//! Promise: [`Head::read`], [`Check`] and [`SubmissionEnvelope::decode`] only accept complete, unchanged files: lengths
//! must add up to the file's, and the checksum covers every octet. Any other content is [`Damage`]; nothing panics, or
//! allocates memory by a length that is only claimed.
//!
//! The message precedes the envelope, since `-t` finds recipients while the message is written; the head is written
//! last. All numbers are little-endian.

use stentor_mail::dsn::Ret;
use xxhash_rust::xxh3::Xxh3;

pub const HEAD_BYTES: usize = 32;
const MAGIC: [u8; 8] = *b"StSubmit";
const VERSION: u16 = 1;
/// Maximum size of an envelope: more recipients than any configuration allows.
pub const ENVELOPE_BYTES_MAX: u32 = 8 * 1024 * 1024;
/// Position of the checksum in the head.
const CHECKSUM_AT: usize = 24;
const FIELD_BYTES: usize = 5;

/// Why a file is not a valid submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    #[error("not a submission")]
    Magic,
    #[error("unknown format version {0}")]
    Version(u16),
    #[error("its lengths do not match the file size")]
    Length,
    #[error("checksum mismatch")]
    Checksum,
    #[error("the envelope is malformed")]
    Envelope,
    #[error("no recipients")]
    NoRecipients,
}

/// The head of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    pub message: u64,
    pub envelope: u32,
    checksum: u64,
}

impl Head {
    /// Reads the head of a file of `file_bytes`.
    ///
    /// # Errors
    /// It is not a head, or the file does not have the stated length.
    pub fn read(bytes: &[u8; HEAD_BYTES], file_bytes: u64) -> Result<Head, Damage> {
        if bytes[..8] != MAGIC {
            return Err(Damage::Magic);
        }
        let version = u16::from_le_bytes([bytes[8], bytes[9]]);
        if version != VERSION || bytes[10..12] != [0, 0] {
            return Err(Damage::Version(version));
        }
        let envelope = u32::from_le_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]);
        let number = |at: usize| {
            let mut octets = [0; 8];
            octets.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(octets)
        };
        let head = Head { message: number(16), envelope, checksum: number(CHECKSUM_AT) };
        let sum = head.message.checked_add(u64::from(envelope)).and_then(|sum| sum.checked_add(HEAD_BYTES as u64));
        if envelope > ENVELOPE_BYTES_MAX || sum != Some(file_bytes) {
            return Err(Damage::Length);
        }
        Ok(head)
    }

    fn fixed(message: u64, envelope: u32) -> [u8; CHECKSUM_AT] {
        let mut bytes = [0; CHECKSUM_AT];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&envelope.to_le_bytes());
        bytes[16..24].copy_from_slice(&message.to_le_bytes());
        bytes
    }
}

/// Computes the checksum of the message, for writer and reader.
#[derive(Default)]
pub struct Check {
    hash: Xxh3,
    message: u64,
}

impl Check {
    /// Adds the next octets of the message.
    pub fn push(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.message += bytes.len() as u64;
    }

    /// Number of octets of the message so far.
    pub fn bytes(&self) -> u64 {
        self.message
    }

    /// The head of a file with this message and envelope.
    pub fn head(mut self, envelope: &[u8]) -> [u8; HEAD_BYTES] {
        let fixed = Head::fixed(self.message, envelope.len() as u32);
        self.hash.update(envelope);
        self.hash.update(&fixed);
        let mut head = [0; HEAD_BYTES];
        head[..CHECKSUM_AT].copy_from_slice(&fixed);
        head[CHECKSUM_AT..].copy_from_slice(&self.hash.digest().to_le_bytes());
        head
    }

    /// Checks that message and envelope match the head.
    ///
    /// # Errors
    /// They do not match.
    pub fn finish(self, head: &Head, envelope: &[u8]) -> Result<(), Damage> {
        let expected = head.checksum.to_le_bytes();
        let is_whole = self.message == head.message && envelope.len() == head.envelope as usize;
        if is_whole && self.head(envelope)[CHECKSUM_AT..] == expected { Ok(()) } else { Err(Damage::Checksum) }
    }
}

/// A recipient.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recipient {
    /// Address as given; without a domain it gets the server's name.
    pub address: String,
    /// NOTIFY and ORCPT (RFC 3461).
    pub notify: Option<u8>,
    pub orcpt: Option<String>,
}

/// Envelope of a submission.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SubmissionEnvelope {
    /// Time of the call, by the program's clock (milliseconds since the Unix epoch).
    pub at: u64,
    /// Login name of the user in the system's directory.
    pub login: String,
    /// Sender. `None`: the user's own address. Empty: the null path.
    pub sender: Option<String>,
    pub recipients: Vec<Recipient>,
    pub ret: Option<Ret>,
    /// ENVID, as xtext (RFC 3461 section 4).
    pub envid: Option<String>,
}

impl SubmissionEnvelope {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut field = |tag: u8, value: &[u8]| {
            out.push(tag);
            out.extend_from_slice(&(value.len() as u32).to_le_bytes());
            out.extend_from_slice(value);
        };
        field(b'T', &self.at.to_le_bytes());
        field(b'L', self.login.as_bytes());
        if let Some(sender) = &self.sender {
            field(b'S', sender.as_bytes());
        }
        match self.ret {
            Some(Ret::Full) => field(b'F', b"F"),
            Some(Ret::Headers) => field(b'F', b"H"),
            None => {}
        }
        if let Some(envid) = &self.envid {
            field(b'E', envid.as_bytes());
        }
        for recipient in &self.recipients {
            field(b'R', recipient.address.as_bytes());
            if let Some(notify) = recipient.notify {
                field(b'N', &[notify]);
            }
            if let Some(orcpt) = &recipient.orcpt {
                field(b'O', orcpt.as_bytes());
            }
        }
        out
    }

    /// Decodes an envelope.
    ///
    /// # Errors
    /// A field is unknown, repeated, truncated or not text, or there is no recipient.
    pub fn decode(mut bytes: &[u8]) -> Result<SubmissionEnvelope, Damage> {
        let mut envelope = SubmissionEnvelope::default();
        // Fields of the envelope, or of the current recipient.
        let mut seen: Vec<u8> = Vec::new();
        while let Some((head, rest)) = bytes.split_at_checked(FIELD_BYTES) {
            let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
            let (value, rest) = rest.split_at_checked(length).ok_or(Damage::Envelope)?;
            bytes = rest;
            if head[0] == b'R' {
                seen.retain(|tag| *tag == b'T');
            }
            let is_early = head[0] == b'R' && seen.is_empty();
            if is_early || seen.contains(&head[0]) {
                return Err(Damage::Envelope);
            }
            envelope.take(head[0], value)?;
            seen.push(head[0]);
        }
        match (bytes, seen.contains(&b'T'), envelope.recipients.is_empty()) {
            ([], true, false) => Ok(envelope),
            ([], true, true) => Err(Damage::NoRecipients),
            _ => Err(Damage::Envelope),
        }
    }

    fn take(&mut self, tag: u8, value: &[u8]) -> Result<(), Damage> {
        let text = || std::str::from_utf8(value).map(str::to_owned).map_err(|_| Damage::Envelope);
        match (tag, value) {
            (b'T', _) => self.at = u64::from_le_bytes(value.try_into().map_err(|_| Damage::Envelope)?),
            (b'L', _) => self.login = text()?,
            (b'S', _) => self.sender = Some(text()?),
            (b'E', _) => self.envid = Some(text()?),
            (b'F', b"F") => self.ret = Some(Ret::Full),
            (b'F', b"H") => self.ret = Some(Ret::Headers),
            (b'R', _) => self.recipients.push(Recipient { address: text()?, ..Recipient::default() }),
            (b'N' | b'O', _) => {
                let last = self.recipients.last_mut().ok_or(Damage::Envelope)?;
                match (tag, value) {
                    (b'O', _) => last.orcpt = Some(text()?),
                    (_, [bits @ (1 | 2 | 4 | 6 | 8 | 10 | 12 | 14)]) => last.notify = Some(*bits),
                    _ => return Err(Damage::Envelope),
                }
            }
            _ => return Err(Damage::Envelope),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file(message: &[u8], envelope: &SubmissionEnvelope) -> Vec<u8> {
        let (mut check, encoded) = (Check::default(), envelope.encode());
        check.push(message);
        [&check.head(&encoded)[..], message, &encoded].concat()
    }

    fn read(bytes: &[u8]) -> Result<(Vec<u8>, SubmissionEnvelope), Damage> {
        let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>().ok_or(Damage::Magic)?;
        let head = Head::read(head, bytes.len() as u64)?;
        let (message, envelope) = rest.split_at(head.message as usize);
        let mut check = Check::default();
        check.push(message);
        check.finish(&head, envelope)?;
        Ok((message.to_vec(), SubmissionEnvelope::decode(envelope)?))
    }

    fn some() -> SubmissionEnvelope {
        SubmissionEnvelope {
            at: 7,
            login: "ann".to_owned(),
            sender: Some(String::new()),
            recipients: vec![
                Recipient { address: "bob@x".to_owned(), notify: Some(6), orcpt: Some("rfc822;b@x".to_owned()) },
                Recipient { address: "root".to_owned(), notify: None, orcpt: None },
            ],
            ret: Some(Ret::Headers),
            envid: Some("id".to_owned()),
        }
    }

    #[test]
    fn every_changed_cut_or_added_octet_is_noticed() {
        let whole = file(b"Subject: x\n\nbody\n", &some());
        assert_eq!(read(&whole), Ok((b"Subject: x\n\nbody\n".to_vec(), some())));
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 1;
            assert!(read(&changed).is_err(), "{at}");
            assert!(read(&whole[..at]).is_err(), "{at}");
        }
        assert!(read(&[&whole[..], b"x"].concat()).is_err());
    }

    #[test]
    fn the_octets_of_version_1_stay_what_they_are() {
        let recipients = vec![Recipient { address: "b".into(), ..Recipient::default() }];
        let envelope = SubmissionEnvelope { at: 1, login: "a".into(), recipients, ..SubmissionEnvelope::default() };
        let expected = b"StSubmit\x01\0\0\0\x19\0\0\0\x02\0\0\0\0\0\0\0";
        let bytes = file(b"x\n", &envelope);
        assert_eq!(bytes[..CHECKSUM_AT], expected[..]);
        assert_eq!(&bytes[HEAD_BYTES..], b"x\nT\x08\0\0\0\x01\0\0\0\0\0\0\0L\x01\0\0\0aR\x01\0\0\0b");
        assert_eq!(bytes[CHECKSUM_AT..HEAD_BYTES], [235, 30, 166, 62, 99, 224, 63, 140]);
    }

    #[test]
    fn an_envelope_is_refused_for_what_it_lacks_or_repeats() {
        let none = SubmissionEnvelope { recipients: Vec::new(), ..some() };
        assert_eq!(SubmissionEnvelope::decode(&none.encode()), Err(Damage::NoRecipients));
        let twice = [some().encode(), some().encode()].concat();
        for bad in [&b""[..], b"R\x01\0\0\0b", b"Z\0\0\0\0", b"R\xff\xff\xff\xffb", &twice] {
            assert_eq!(SubmissionEnvelope::decode(bad), Err(Damage::Envelope), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn any_envelope_is_read_as_written(
            at: u64, login in "\\PC{0,9}", sender in proptest::option::of("\\PC{0,9}"),
            recipients in proptest::collection::vec("\\PC{0,9}", 1..5), message: Vec<u8>,
        ) {
            let recipients = recipients.into_iter().map(|address| Recipient { address, notify: Some(1), orcpt: None }).collect();
            let envelope = SubmissionEnvelope { at, login, sender, recipients, ..some() };
            prop_assert_eq!(read(&file(&message, &envelope)), Ok((message, envelope)));
        }

        #[test]
        fn no_bytes_panic(bytes: Vec<u8>) {
            let _ = (read(&bytes), SubmissionEnvelope::decode(&bytes));
        }
    }
}
