//! Reads a message while it arrives: keeps the header section, and hashes the body in the forms that its signatures
//! need.
//!
//! Promise: the body is hashed at most twice, in pieces of any size, and never kept. At most [`SIGNATURES_MAX`]
//! signatures are verified, those at the top.

use stentor_dkim::{BodyHash, CanonicalForm, FieldIndex, Signature, SignatureError, SignatureKind};
use stentor_mail::headers::HEADER_BYTES_MAX;
use stentor_mime::field::{self, Section, Token};

use crate::arc::ArcFields;
use crate::author::AuthorDomains;
use crate::bodies::HashedBodies;

/// Maximum DKIM signatures that are verified.
pub const SIGNATURES_MAX: usize = 10;

/// What the methods need of a message's header section.
#[derive(Debug, Default)]
pub(crate) struct HeaderFindings {
    pub signatures: Vec<Result<Signature, SignatureError>>,
    /// Number of further signatures.
    pub skipped: usize,
    pub arc: ArcFields,
    pub authors: AuthorDomains,
}

impl HeaderFindings {
    fn read(header: &[u8]) -> HeaderFindings {
        let fields = FieldIndex::of(header);
        let signatures = fields.all("dkim-signature");
        let mut authors = AuthorDomains::default();
        for whole in fields.all("from") {
            if let Some((_, value)) = field::split(whole) {
                authors.add(value);
            }
        }
        HeaderFindings {
            skipped: signatures.len().saturating_sub(SIGNATURES_MAX),
            signatures: signatures
                .iter()
                .take(SIGNATURES_MAX)
                .map(|whole| Signature::parse(SignatureKind::Dkim, whole))
                .collect(),
            arc: ArcFields::read(&fields),
            authors,
        }
    }

    /// Whether a signature needs the body in this form.
    fn needs(&self, form: CanonicalForm) -> bool {
        let mut signatures = self.signatures.iter().flatten().chain(self.arc.newest_message());
        signatures.any(|signature| signature.body_form == form)
    }
}

/// A message that has arrived.
#[derive(Debug)]
pub struct ScannedMessage {
    pub(crate) header: Vec<u8>,
    pub(crate) findings: HeaderFindings,
    pub(crate) bodies: HashedBodies,
}

/// A message that arrives.
pub struct MessageScan {
    /// Octets of our own that precede the message.
    skip: usize,
    section: Section,
    header: Vec<u8>,
    /// The beginning of the body that came with its last line.
    begun: Vec<u8>,
    /// From the end of the header section on.
    findings: Option<HeaderFindings>,
    simple: Option<BodyHash>,
    relaxed: Option<BodyHash>,
}

impl MessageScan {
    /// Begins with a message that follows `ours` octets added by us.
    pub fn new(ours: usize) -> MessageScan {
        MessageScan {
            skip: ours,
            section: Section::default(),
            header: Vec::new(),
            begun: Vec::new(),
            findings: None,
            simple: None,
            relaxed: None,
        }
    }

    /// Octets in memory.
    pub fn bytes(&self) -> u64 {
        self.header.capacity() as u64
    }

    /// Reads the next octets.
    pub fn push(&mut self, octets: &[u8]) {
        let ours = self.skip.min(octets.len());
        self.skip -= ours;
        let mut rest = &octets[ours..];
        if self.findings.is_none() {
            let (header, begun) = (&mut self.header, &mut self.begun);
            rest = self.section.push(rest, &mut |token| keep(token, header, begun));
            if self.section.is_over() {
                self.end_header();
            }
        }
        self.body(rest);
    }

    pub fn finish(mut self) -> ScannedMessage {
        if self.findings.is_none() {
            let (header, begun) = (&mut self.header, &mut self.begun);
            self.section.finish(&mut |token| keep(token, header, begun));
            self.end_header();
        }
        let bodies = HashedBodies {
            simple: self.simple.map(BodyHash::finish_counted),
            relaxed: self.relaxed.map(BodyHash::finish_counted),
        };
        ScannedMessage { header: self.header, findings: self.findings.unwrap_or_default(), bodies }
    }

    fn end_header(&mut self) {
        let findings = HeaderFindings::read(&self.header);
        let hash = |form| findings.needs(form).then(|| BodyHash::new(form));
        (self.simple, self.relaxed) = (hash(CanonicalForm::Simple), hash(CanonicalForm::Relaxed));
        self.findings = Some(findings);
        let begun = std::mem::take(&mut self.begun);
        self.body(&begun);
    }

    fn body(&mut self, octets: &[u8]) {
        for hash in [&mut self.simple, &mut self.relaxed].into_iter().flatten() {
            hash.push(octets);
        }
    }
}

/// Keeps the octets of fields. A larger header section is refused anyway.
fn keep(token: Token<'_>, header: &mut Vec<u8>, begun: &mut Vec<u8>) {
    match token {
        Token::Name { octets, .. } | Token::Value(octets) => {
            if header.len() as u64 + octets.len() as u64 <= HEADER_BYTES_MAX {
                header.extend_from_slice(octets);
            }
        }
        Token::Mbox(_) | Token::Empty(_) => {}
        Token::Body(octets) => begun.extend_from_slice(octets),
    }
}
