//! Divides a message that arrives in pieces into header section and body, and hashes the body.

use stentor_mime::field::{Section, Token};

use crate::body::{BodyDigest, BodyHash};

/// A message as it is sent, read in pieces. The header section is kept; of the body only the hash.
pub struct MessageHash {
    section: Section,
    header: Vec<u8>,
    body: BodyHash,
    is_header_only: bool,
}

impl Default for MessageHash {
    fn default() -> MessageHash {
        MessageHash { section: Section::bare(), header: Vec::new(), body: BodyHash::default(), is_header_only: false }
    }
}

impl MessageHash {
    /// Keeps the header section and ignores the body, whose hash is then that of an empty one.
    pub fn of_header() -> MessageHash {
        MessageHash { is_header_only: true, ..MessageHash::default() }
    }

    pub fn push(&mut self, octets: &[u8]) {
        let MessageHash { section, header, body, is_header_only } = self;
        let rest =
            if section.is_over() { octets } else { section.push(octets, &mut |token| take(token, header, body)) };
        if !*is_header_only {
            body.push(rest);
        }
    }

    /// Octets in memory.
    pub fn bytes(&self) -> u64 {
        self.header.capacity() as u64
    }

    /// Whether the header section is complete: no further octet changes [`Self::header`].
    pub fn has_header(&self) -> bool {
        self.section.is_over()
    }

    /// Returns the header section, without the empty line, and the hash of the body.
    pub fn finish(mut self) -> (Vec<u8>, BodyDigest) {
        let MessageHash { section, header, body, .. } = &mut self;
        if !section.is_over() {
            section.finish(&mut |token| take(token, header, body));
        }
        (self.header, self.body.finish())
    }
}

fn take(token: Token<'_>, header: &mut Vec<u8>, body: &mut BodyHash) {
    match token {
        Token::Name { octets, .. } | Token::Value(octets) | Token::Mbox(octets) => header.extend_from_slice(octets),
        Token::Empty(_) => {}
        Token::Body(octets) => body.push(octets),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn divided(pieces: &[&[u8]]) -> (Vec<u8>, BodyDigest) {
        let mut message = MessageHash::default();
        for piece in pieces {
            message.push(piece);
        }
        message.finish()
    }

    #[test]
    fn a_message_may_have_no_body() {
        let empty = BodyHash::default().finish();
        assert_eq!(divided(&[b"A: b\r\n c\r\n\r\n"]), (b"A: b\r\n c\r\n".to_vec(), empty));
        assert_eq!(divided(&[b"A: b\r\n"]), (b"A: b\r\n".to_vec(), empty));
        assert_eq!(divided(&[]), (Vec::new(), empty));
    }

    proptest! {
        #[test]
        fn splits_do_not_matter(message in "(A: [a ]{0,3}(\r\n )?b\r\n){0,3}(\r\n)?[ab \r\n]{0,20}",
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6)) {
            let message = message.as_bytes();
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(message.len() + 1)).collect();
            at.extend([0, message.len()]);
            at.sort_unstable();
            let pieces: Vec<&[u8]> = at.windows(2).map(|two| &message[two[0]..two[1]]).collect();
            prop_assert_eq!(divided(&pieces), divided(&[message]));
        }
    }
}
