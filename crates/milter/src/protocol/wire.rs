//! Packets: a length of four octets, most significant first, a command, and data.
//!
//! Promise: [`Packets`] holds at most one packet of [`PACKET_BYTES_MAX`]; a larger one is an error as soon as its
//! length is known.

/// Maximum size of a milter's packet, including its command (as `SMFIP_MDS_1M` allows).
pub const PACKET_BYTES_MAX: usize = 1024 * 1024;
/// Octets of a body in one packet (`MILTER_CHUNK_SIZE`).
pub const CHUNK_BYTES_MAX: usize = 65_535;
/// Size of the length.
const LENGTH_BYTES: usize = 4;
/// Maximum size of the buffer kept between packets.
const KEPT_BYTES_MAX: usize = 16 * 1024;

/// Why a milter's data cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("it sent a packet of {0} octets")]
    Oversize(u32),
    #[error("it sent an empty packet")]
    Empty,
    #[error("it answered {0} with {1}")]
    Unexpected(&'static str, String),
    #[error("it sent a malformed {0}")]
    Malformed(&'static str),
    #[error("it uses protocol version {0}; supported versions are 2 to 6")]
    Version(u32),
    #[error("it requested features that were not offered ({0})")]
    NotOffered(String),
    #[error("it requested a change that it did not announce: {0}")]
    NotAnnounced(&'static str),
}

/// Formats a command or an answer for people.
pub(crate) fn shown(command: u8) -> String {
    format!("'{}'", command.escape_ascii())
}

/// Appends a packet; `data` writes the part after the command.
pub(crate) fn packet(out: &mut Vec<u8>, command: u8, data: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; LENGTH_BYTES]);
    out.push(command);
    data(out);
    // Our packets are limited by SMTP's limits, far below 4 GiB.
    let length = u32::try_from(out.len() - start - LENGTH_BYTES).unwrap_or(u32::MAX);
    out[start..start + LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
}

/// Appends a text with its NUL. NULs within it are removed, because they would end it.
pub(crate) fn text(out: &mut Vec<u8>, text: &[u8]) {
    out.extend(text.iter().copied().filter(|&octet| octet != 0));
    out.push(0);
}

/// Reads a number from the front.
pub(crate) fn take_u32(data: &mut &[u8]) -> Option<u32> {
    let (number, rest) = data.split_first_chunk::<4>()?;
    *data = rest;
    Some(u32::from_be_bytes(*number))
}

/// Reads a text from the front, up to its NUL.
pub(crate) fn take_text<'a>(data: &mut &'a [u8]) -> Option<&'a [u8]> {
    let end = memchr::memchr(0, data)?;
    let text = &data[..end];
    *data = &data[end + 1..];
    Some(text)
}

/// Splits received octets into packets.
#[derive(Debug, Default)]
pub(crate) struct Packets {
    buffer: Vec<u8>,
    at: usize,
}

impl Packets {
    pub fn receive(&mut self, octets: &[u8]) {
        self.buffer.drain(..self.at);
        self.at = 0;
        self.buffer.extend_from_slice(octets);
    }

    /// Whether there are no octets of an incomplete packet.
    pub fn is_empty(&self) -> bool {
        self.at == self.buffer.len()
    }

    /// The next packet: its command and data. `None`: it is incomplete.
    pub fn next(&mut self) -> Result<Option<(u8, &[u8])>, Error> {
        let rest = &self.buffer[self.at..];
        let Some((length, _)) = rest.split_first_chunk::<LENGTH_BYTES>() else {
            if rest.is_empty() {
                self.at = 0;
                self.buffer.clear();
                self.buffer.shrink_to(KEPT_BYTES_MAX);
            }
            return Ok(None);
        };
        let length = u32::from_be_bytes(*length);
        let bytes = usize::try_from(length).unwrap_or(usize::MAX);
        if bytes == 0 {
            return Err(Error::Empty);
        }
        if bytes > PACKET_BYTES_MAX {
            return Err(Error::Oversize(length));
        }
        let (from, to) = (self.at + LENGTH_BYTES, self.at + LENGTH_BYTES + bytes);
        if self.buffer.len() < to {
            return Ok(None);
        }
        self.at = to;
        Ok(Some((self.buffer[from], &self.buffer[from + 1..to])))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn packets_come_back_however_they_are_cut(
            sent in proptest::collection::vec((any::<u8>(), proptest::collection::vec(any::<u8>(), 0..60)), 0..8),
            cut in 1usize..40,
        ) {
            let mut octets = Vec::new();
            for (command, data) in &sent {
                packet(&mut octets, *command, |out| out.extend_from_slice(data));
            }
            let mut packets = Packets::default();
            let mut got = Vec::new();
            for part in octets.chunks(cut) {
                packets.receive(part);
                while let Some((command, data)) = packets.next().unwrap() {
                    got.push((command, data.to_vec()));
                }
            }
            prop_assert_eq!(got, sent);
            prop_assert!(packets.is_empty());
        }
    }

    #[test]
    fn a_packet_that_is_too_large_is_refused_by_its_length() {
        let mut packets = Packets::default();
        packets.receive(&(PACKET_BYTES_MAX as u32).to_be_bytes());
        assert_eq!(packets.next(), Ok(None));
        let mut packets = Packets::default();
        packets.receive(&(PACKET_BYTES_MAX as u32 + 1).to_be_bytes());
        assert_eq!(packets.next(), Err(Error::Oversize(PACKET_BYTES_MAX as u32 + 1)));
        let mut packets = Packets::default();
        packets.receive(&[0; 4]);
        assert_eq!(packets.next(), Err(Error::Empty));
    }

    #[test]
    fn texts_end_at_their_nul() {
        let mut out = Vec::new();
        text(&mut out, b"a\0b");
        assert_eq!(out, b"ab\0");
        let mut data = &b"one\0two\0rest"[..];
        assert_eq!(
            (take_text(&mut data), take_text(&mut data), take_text(&mut data)),
            (Some(&b"one"[..]), Some(&b"two"[..]), None)
        );
        assert_eq!(data, b"rest");
    }
}
