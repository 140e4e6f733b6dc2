//! Packets: a length of four octets, most significant first, a command, and data.
//!
//! A packet to a milter has at most [`DATA_BYTES_MAX`] octets of data. libmilter closes the connection after a larger
//! one (`mi_rd_cmd` in comm.c). sendmail never sends one (`milter_write` in milter.c) and limits the whole header to
//! 32 KiB by default; Postfix sends fields whole, up to its `header_size_limit` of 100 KiB. Here a text that is too
//! long is cut in what the milter gets, and nowhere else: otherwise a client could make a milter fail at will.
//!
//! Promise: [`Packets`] holds at most one packet of [`PACKET_BYTES_MAX`]; a larger one is an error as soon as its
//! length is known.

/// Maximum size of a milter's packet, including its command (as `SMFIP_MDS_1M` allows).
pub const PACKET_BYTES_MAX: usize = 1024 * 1024;
/// Maximum octets after the command of a packet to a milter (`MILTER_MAX_DATA_SIZE`). Larger packets would have to be
/// negotiated (`SMFIP_MDS_256K`, `SMFIP_MDS_1M`), and are not offered.
pub const DATA_BYTES_MAX: usize = 65_535;
/// Octets of a body in one packet (`MILTER_CHUNK_SIZE`).
pub const CHUNK_BYTES_MAX: usize = DATA_BYTES_MAX;
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

/// Appends a packet. `data` writes the part after the command; it is passed the greatest offset at which it may end.
pub(crate) fn packet<T>(out: &mut Vec<u8>, command: u8, data: impl FnOnce(&mut Vec<u8>, usize) -> T) -> T {
    let start = out.len();
    out.extend_from_slice(&[0; LENGTH_BYTES]);
    out.push(command);
    let end = out.len() + DATA_BYTES_MAX;
    let result = data(out, end);
    debug_assert!(out.len() <= end, "a packet is too large for a milter");
    let length = u32::try_from(out.len() - start - LENGTH_BYTES).unwrap_or(u32::MAX);
    out[start..start + LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
    result
}

/// Appends a text with its NUL. NULs within it are removed, because they would end it.
pub(crate) fn text(out: &mut Vec<u8>, text: &[u8]) {
    out.extend(text.iter().copied().filter(|&octet| octet != 0));
    out.push(0);
}

/// Appends a text like [`text`], cut so that it ends before the offset `end`. Returns whether it is complete.
pub(crate) fn text_until(out: &mut Vec<u8>, text: &[u8], end: usize) -> bool {
    let mut octets = text.iter().copied().filter(|&octet| octet != 0);
    out.extend(octets.by_ref().take(end.saturating_sub(out.len() + 1)));
    out.push(0);
    octets.next().is_none()
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
                packet(&mut octets, *command, |out, _| out.extend_from_slice(data));
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
