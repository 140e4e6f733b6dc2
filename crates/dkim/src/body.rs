//! The hash of a body in canonical form (RFC 6376 sections 3.4.3 and 3.4.4).
//!
//! Empty lines at the end of the body are ignored. In the relaxed form, spaces and tabs at the end of a line are
//! ignored, too, and other runs of them count as one space. A body that is not empty ends with CRLF, whether or not it
//! was sent; so does an empty one in the simple form. A CR or LF outside of CRLF is an ordinary octet.
//!
//! State: what may still turn out to be ignored (spaces, empty lines, a CR) is held back until the next octet decides.

use aws_lc_rs::digest::{Context, SHA256};

use crate::form::CanonicalForm;

/// SHA-256 of a canonical body.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BodyDigest(pub [u8; 32]);

/// A canonical body: its hash, and its length for `l=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HashedBody {
    pub digest: BodyDigest,
    pub bytes: u64,
}

/// Canonical octets gathered before they are hashed.
const GATHERED_BYTES: usize = 8 * 1024;

/// Hashes a body in pieces.
pub struct BodyHash {
    form: CanonicalForm,
    hash: Context,
    /// Canonical octets so far.
    bytes: u64,
    gathered: Vec<u8>,
    /// Spaces or tabs that end the line unless more follows.
    has_space: bool,
    /// A CR that may begin a line end.
    has_cr: bool,
    /// Empty lines that end the body unless more follows.
    empty_lines: u64,
    is_line_empty: bool,
}

impl Default for BodyHash {
    /// Hashes the relaxed form.
    fn default() -> BodyHash {
        BodyHash::new(CanonicalForm::Relaxed)
    }
}

impl BodyHash {
    pub fn new(form: CanonicalForm) -> BodyHash {
        BodyHash {
            form,
            hash: Context::new(&SHA256),
            bytes: 0,
            gathered: Vec::with_capacity(GATHERED_BYTES + 2),
            has_space: false,
            has_cr: false,
            empty_lines: 0,
            is_line_empty: true,
        }
    }

    pub fn push(&mut self, octets: &[u8]) {
        let is_relaxed = self.form == CanonicalForm::Relaxed;
        let is_space = |octet: u8| is_relaxed && matches!(octet, b' ' | b'\t');
        let mut rest = octets;
        while let Some((octet, behind)) = rest.split_first() {
            if std::mem::take(&mut self.has_cr) {
                if *octet == b'\n' {
                    self.end_line();
                    rest = behind;
                    continue;
                }
                self.write(b"\r");
            }
            match octet {
                octet if is_space(*octet) => self.has_space = true,
                b'\r' => self.has_cr = true,
                _ => {
                    let end = rest.iter().position(|octet| *octet == b'\r' || is_space(*octet));
                    let (run, more) = rest.split_at(end.unwrap_or(rest.len()));
                    self.write(run);
                    rest = more;
                    continue;
                }
            }
            rest = behind;
        }
    }

    pub fn finish(self) -> BodyDigest {
        self.finish_counted().digest
    }

    pub fn finish_counted(mut self) -> HashedBody {
        if std::mem::take(&mut self.has_cr) {
            self.write(b"\r");
        }
        let is_empty = self.form == CanonicalForm::Simple && self.bytes == 0;
        if !self.is_line_empty || is_empty {
            self.gather(b"\r\n");
        }
        self.hash.update(&self.gathered);
        let mut digest = [0; 32];
        digest.copy_from_slice(self.hash.finish().as_ref());
        HashedBody { digest: BodyDigest(digest), bytes: self.bytes }
    }

    /// Adds octets that are not ignored, and what was held back before them.
    fn write(&mut self, run: &[u8]) {
        for _ in 0..std::mem::take(&mut self.empty_lines) {
            self.gather(b"\r\n");
        }
        if std::mem::take(&mut self.has_space) {
            self.gather(b" ");
        }
        self.gather(run);
        self.is_line_empty = false;
    }

    fn end_line(&mut self) {
        self.has_space = false;
        if std::mem::replace(&mut self.is_line_empty, true) {
            self.empty_lines += 1;
        } else {
            self.gather(b"\r\n");
        }
    }

    fn gather(&mut self, octets: &[u8]) {
        self.bytes += octets.len() as u64;
        if self.gathered.len() + octets.len() > GATHERED_BYTES {
            self.hash.update(&self.gathered);
            self.gathered.clear();
        }
        if octets.len() > GATHERED_BYTES {
            self.hash.update(octets);
        } else {
            self.gathered.extend_from_slice(octets);
        }
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::digest::digest;
    use proptest::prelude::*;

    use super::*;

    fn hash(pieces: &[&[u8]]) -> BodyDigest {
        let mut body = BodyHash::default();
        for piece in pieces {
            body.push(piece);
        }
        body.finish()
    }

    fn sha256(octets: &[u8]) -> BodyDigest {
        BodyDigest(digest(&SHA256, octets).as_ref().try_into().unwrap())
    }

    /// The definition of RFC 6376 section 3.4.4, line by line.
    fn relaxed(body: &[u8]) -> Vec<u8> {
        let mut lines: Vec<Vec<u8>> = Vec::new();
        let mut rest = body;
        loop {
            let end = rest.windows(2).position(|two| two == b"\r\n");
            let line = &rest[..end.unwrap_or(rest.len())];
            let mut out: Vec<u8> = Vec::new();
            for octet in line {
                let octet = if *octet == b'\t' { b' ' } else { *octet };
                if octet != b' ' || out.last() != Some(&b' ') {
                    out.push(octet);
                }
            }
            if out.last() == Some(&b' ') {
                out.pop();
            }
            lines.push(out);
            let Some(end) = end else { break };
            rest = &rest[end + 2..];
        }
        while lines.last().is_some_and(Vec::is_empty) {
            lines.pop();
        }
        lines.iter().flat_map(|line| [&line[..], b"\r\n"].concat()).collect()
    }

    #[test]
    fn bodies_of_rfc_6376() {
        // Sections 3.4.5 and 3.4.4.
        assert_eq!(hash(&[b" C \r\nD \t E\r\n\r\n\r\n"]), sha256(b" C\r\nD E\r\n"));
        for empty in [&b""[..], b"\r\n", b"\r\n\r\n\r\n", b" \t\r\n \r\n", b"  "] {
            assert_eq!(hash(&[empty]), sha256(b""), "{}", empty.escape_ascii());
        }
    }

    #[test]
    fn ends_are_ignored_and_a_missing_one_is_added() {
        for body in [&b"a\r\n"[..], b"a", b"a \t", b"a\r\n\r\n", b"a\r\n \r\n\t\r\n", b"a  \r\n  "] {
            assert_eq!(hash(&[body]), sha256(b"a\r\n"), "{}", body.escape_ascii());
        }
        assert_eq!(hash(&[b"\r\n\r\na \r\n\r\n \tb"]), sha256(b"\r\n\r\na\r\n\r\n b\r\n"));
        assert_eq!(hash(&[b"a\r"]), sha256(b"a\r\r\n"));
        assert_eq!(hash(&[b"a \rb\n\r\n"]), sha256(b"a \rb\n\r\n"));
    }

    #[test]
    fn long_bodies_are_hashed_whole() {
        let line = [vec![b'x'; 3 * GATHERED_BYTES], b"  y\r\n".to_vec()].concat();
        let body = line.repeat(3);
        assert_eq!(hash(&[&body]), sha256(&relaxed(&body)));
    }

    proptest! {
        #[test]
        fn splits_do_not_matter(body in "[ab \t\r\n\u{e9}]{0,60}|([ab]?[ \t]{0,2}(\r\n)?){0,30}",
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8)) {
            let body = body.as_bytes();
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
            at.extend([0, body.len()]);
            at.sort_unstable();
            let pieces: Vec<&[u8]> = at.windows(2).map(|two| &body[two[0]..two[1]]).collect();
            prop_assert_eq!(hash(&pieces), sha256(&relaxed(body)));
        }
    }
}
