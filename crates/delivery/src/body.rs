//! The content of an outgoing transaction: chooses the form that a host can take, then sends prefix and stored octets
//! in that form, with generic addresses in the header ([`super::generic`]), and before it signatures
//! ([`super::dkim`]) and the copy's own fields ([`super::copies`]).
//!
//! [`Form::choose`] is the only place that decides whether the transaction uses SMTPUTF8, whether the content is
//! converted (RFC 6152, RFC 3030 section 3), or whether it cannot go to this host at all. Our own DSNs always can,
//! since no sender could be notified otherwise: characters that 7 bits cannot express become `?`. No host gets a line
//! over 998 octets (RFC 5321 section 4.5.3.1.6), which many refuse: such content is converted to short lines, which
//! never fails. All mail passes here, whatever its source and protocol.
//!
//! Scanning and converting are CPU-bound, so they yield every [`super::turns::TURN_BYTES`].
//!
//! Content that is read completely before anything is written (small, converted or scanned content) cannot fail in the
//! middle of a transaction. Large content can: then the lost connection is our fault, not the host's.

use std::io;
use std::sync::Arc;

use stentor_core::Core;
use stentor_core::assignment::Assignment;
use stentor_core::dkim::SigningFailure;
use stentor_core::host_knowledge::Traits;
use stentor_mail::reply::{Enhanced, Reply};
use stentor_mime::recode::{Converter, LineScan};
use stentor_records::record::WireChanges;
use stentor_smtp::client::ClientSession;

use super::turns::Turns;

/// Octets read from the journal at a time.
const CHUNK_BYTES: usize = 64 * 1024;

/// Why a content could not be sent.
#[derive(Debug)]
pub enum ContentError {
    /// The journal cannot return it; the host is not at fault.
    Read(io::Error),
    /// This host cannot take it in any form.
    Unfit(Enhanced, String),
    /// A table of generic addresses has no usable answer now.
    Table(Reply),
    /// It should be signed and cannot be now.
    Signature(SigningFailure),
}

impl From<io::Error> for ContentError {
    fn from(error: io::Error) -> ContentError {
        ContentError::Read(error)
    }
}

const CONVERSION_NEEDED: Enhanced = Enhanced::new(5, 6, 3);
const SMTPUTF8_NEEDED: Enhanced = Enhanced::new(5, 6, 7);

/// The form of a message for a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Form {
    /// Uses SMTPUTF8 at MAIL. Without it, only recipients whose addresses need it fail.
    pub smtputf8: bool,
    pub recoded: WireChanges,
}

impl Form {
    /// Chooses the form for the host that `smtp` is connected to; `converts` is the configured setting.
    ///
    /// # Errors
    /// The content cannot be read, or cannot be sent to this host.
    pub async fn choose(
        core: &Core,
        assignment: &Assignment,
        smtp: &ClientSession,
        converts: bool,
    ) -> Result<Form, ContentError> {
        let caps = smtp.caps();
        let unfit = |dsn, text: &str| Err(ContentError::Unfit(dsn, text.to_owned()));
        // Only mail submitted with SMTPUTF8 may have UTF-8 in its header. If only the body has UTF-8, 8BITMIME is
        // enough, as in Postfix.
        let may_be_global = assignment.smtputf8 && assignment.eight_bit;
        let mut seven_bit = assignment.eight_bit && !caps.eight_bit_mime;
        if !caps.smtputf8 {
            if !assignment.wire_sender().is_ascii() {
                return unfit(SMTPUTF8_NEEDED, "SMTPUTF8 is needed for the sender but the host does not offer it");
            }
            if may_be_global && assignment.is_report {
                seven_bit = true;
            } else if may_be_global && has_eight_bit_header(core, assignment).await? {
                return unfit(SMTPUTF8_NEEDED, "SMTPUTF8 is needed for the header but the host does not offer it");
            }
        }
        if seven_bit && !converts && !assignment.is_report {
            return unfit(CONVERSION_NEEDED, "the host does not accept 8-bit content and conversion is off");
        }
        // With DATA, NULs could imitate the end of the data for receivers that drop them.
        if !seven_bit && !smtp.uses_chunks() && holds_nul(core, assignment).await? {
            if !converts && !assignment.is_report {
                return unfit(CONVERSION_NEEDED, "the host does not accept content with NULs and conversion is off");
            }
            seven_bit = true;
        }
        let smtputf8 = caps.smtputf8 && (may_be_global || !assignment.has_ascii_addresses());
        Ok(Form { smtputf8, recoded: WireChanges { seven_bit, lines: has_long_line(core, assignment).await? } })
    }
}

/// Loads a small content into memory, unless it is there.
///
/// # Errors
/// The content cannot be read.
pub fn load(core: &Core, assignment: &mut Assignment) -> io::Result<()> {
    let len = assignment.content_len();
    if assignment.body.is_some() || len > CHUNK_BYTES as u64 {
        return Ok(());
    }
    let mut body = vec![0; len as usize];
    let mut filled = 0;
    while filled < body.len() {
        match core.reader.read_at(assignment.content.0, filled as u64, &mut body[filled..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => filled += read,
        }
    }
    assignment.body = Some(Arc::new(body));
    Ok(())
}

async fn has_eight_bit_header(core: &Core, assignment: &Assignment) -> Result<bool, ContentError> {
    let (mut converter, mut out) = (Converter::lossy(), Vec::new());
    let mut result = Ok(());
    let whole = BodyProgress::plain(assignment);
    let looked = whole.each(core, assignment, |bytes| {
        out.clear();
        if result.is_ok() {
            result = converter.push(bytes, &mut out);
        }
    });
    looked.await?;
    // A header section too large to scan may contain UTF-8.
    Ok(result.and_then(|()| converter.finish(&mut out)).is_err() || converter.has_eight_bit_header())
}

async fn holds_nul(core: &Core, assignment: &Assignment) -> Result<bool, ContentError> {
    if let Some(body) = &assignment.body {
        return Ok(body.contains(&0) || assignment.prefix.contains(&0));
    }
    Ok(assignment.prefix.contains(&0) || stored_traits(core, assignment).await?.holds_nul)
}

/// Stored content is scanned once for all hosts; the prefix and a rewritten header are small.
async fn has_long_line(core: &Core, assignment: &Assignment) -> Result<bool, ContentError> {
    let has_long_line = |octets: &[u8]| {
        let mut scan = LineScan::default();
        scan.push(octets);
        scan.has_long_line()
    };
    let (header, instead_of) = assignment.wire_header().unwrap_or_default();
    if has_long_line(&assignment.prefix) || has_long_line(header) {
        return Ok(true);
    }
    match &assignment.body {
        Some(body) => Ok(has_long_line(&body[instead_of as usize..])),
        None => Ok(stored_traits(core, assignment).await?.has_long_line),
    }
}

/// Returns the traits of a stored content that is not in memory.
async fn stored_traits(core: &Core, assignment: &Assignment) -> Result<Traits, ContentError> {
    if let Some(traits) = core.known.traits(assignment.content) {
        return Ok(traits);
    }
    let (mut holds_nul, mut scan) = (false, LineScan::default());
    let stored = BodyProgress { prefix_done: true, header_done: true, ..BodyProgress::plain(assignment) };
    let looked = stored.each(core, assignment, |bytes| {
        holds_nul = holds_nul || bytes.contains(&0);
        scan.push(bytes);
    });
    looked.await?;
    let traits = Traits { holds_nul, has_long_line: scan.has_long_line() };
    core.known.note_traits(assignment.content, traits);
    Ok(traits)
}

/// Progress of sending a content.
pub struct BodyProgress {
    signature_done: bool,
    own_done: bool,
    prefix_done: bool,
    header_done: bool,
    at: u64,
    len: u64,
    converter: Option<Box<Converter>>,
    converted: Vec<u8>,
    buffer: Vec<u8>,
}

impl BodyProgress {
    /// Sends the content in this form, with its signatures.
    pub fn new(assignment: &Assignment, form: Form) -> BodyProgress {
        BodyProgress { signature_done: assignment.signature.is_empty(), ..BodyProgress::unsigned(assignment, form) }
    }

    /// Sends the content in this form, without signatures.
    pub fn unsigned(assignment: &Assignment, form: Form) -> BodyProgress {
        let converter = match form.recoded {
            WireChanges { seven_bit: true, .. } if assignment.is_report => Some(Converter::lossy()),
            WireChanges { seven_bit: true, .. } => Some(Converter::new()),
            WireChanges { lines: true, .. } => Some(Converter::of_lines()),
            _ => None,
        };
        let own_done = assignment.own_fields().is_empty();
        BodyProgress { own_done, converter: converter.map(Box::new), ..BodyProgress::plain(assignment) }
    }

    /// Sends the content without a conversion and without the copy's own fields, which are short lines of ASCII.
    fn plain(assignment: &Assignment) -> BodyProgress {
        BodyProgress {
            signature_done: true,
            own_done: true,
            prefix_done: assignment.prefix.is_empty(),
            header_done: assignment.wire_header().is_none(),
            at: 0,
            len: assignment.content_len(),
            converter: None,
            converted: Vec::new(),
            buffer: Vec::new(),
        }
    }

    /// Returns the octets that will be sent. A conversion is run once for its size and its errors, so that neither
    /// turns up in the middle of a transaction.
    pub async fn wire_size(core: &Core, assignment: &Assignment, form: Form) -> Result<u64, ContentError> {
        if form.recoded == WireChanges::default() {
            return Ok(assignment.wire_size());
        }
        let mut size = 0;
        BodyProgress::new(assignment, form).each(core, assignment, |bytes| size += bytes.len() as u64).await?;
        Ok(size)
    }

    async fn each(self, core: &Core, assignment: &Assignment, mut take: impl FnMut(&[u8])) -> Result<(), ContentError> {
        self.each_while(core, assignment, |octets| {
            take(octets);
            true
        })
        .await
    }

    /// Passes all pieces to `take` until it returns false.
    pub async fn each_while(
        mut self,
        core: &Core,
        assignment: &Assignment,
        mut take: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), ContentError> {
        let (mut turns, mut goes_on) = (Turns::default(), true);
        while self.next(core, assignment, |octets| goes_on = take(octets) && goes_on)? && goes_on {
            turns.advance(CHUNK_BYTES).await;
        }
        Ok(())
    }

    /// Passes the next piece to `send`; returns false at the end.
    pub fn next(
        &mut self,
        core: &Core,
        assignment: &Assignment,
        mut send: impl FnMut(&[u8]),
    ) -> Result<bool, ContentError> {
        if !self.signature_done {
            // Signed is the converted content, so the signatures themselves are not converted.
            self.signature_done = true;
            send(&assignment.signature);
            return Ok(true);
        }
        if !self.own_done {
            self.own_done = true;
            send(assignment.own_fields());
            return Ok(true);
        }
        if !self.prefix_done {
            self.prefix_done = true;
            self.convert(&assignment.prefix, &mut send)?;
            return Ok(true);
        }
        if let Some((header, instead_of)) = assignment.wire_header().filter(|_| !self.header_done) {
            (self.header_done, self.at) = (true, instead_of);
            self.convert(header, &mut send)?;
            return Ok(true);
        }
        if self.at < self.len {
            if let Some(body) = &assignment.body {
                let end = self.len.min(self.at + CHUNK_BYTES as u64) as usize;
                self.convert(&body[self.at as usize..end], &mut send)?;
                self.at = end as u64;
                return Ok(true);
            }
            let wanted = (self.len - self.at).min(CHUNK_BYTES as u64) as usize;
            let mut buffer = std::mem::take(&mut self.buffer);
            buffer.resize(wanted, 0);
            // Served by the page cache, or by one disk read: moving the thread's other tasks to a new thread for that
            // would cost more, and threads use memory.
            let read = core.reader.read_at(assignment.content.0, self.at, &mut buffer)?;
            if read == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            let result = self.convert(&buffer[..read], &mut send);
            self.buffer = buffer;
            self.at += read as u64;
            return result.map(|()| true);
        }
        match self.converter.take() {
            Some(mut converter) => {
                self.converted.clear();
                converter.finish(&mut self.converted).map_err(|error| not_convertible(&error))?;
                send(&self.converted);
                Ok(true)
            }
            None => Ok(false),
        }
    }

    fn convert(&mut self, bytes: &[u8], send: &mut impl FnMut(&[u8])) -> Result<(), ContentError> {
        match &mut self.converter {
            None => send(bytes),
            Some(converter) => {
                self.converted.clear();
                converter.push(bytes, &mut self.converted).map_err(|error| not_convertible(&error))?;
                send(&self.converted);
            }
        }
        Ok(())
    }
}

fn not_convertible(error: &impl std::fmt::Display) -> ContentError {
    ContentError::Unfit(CONVERSION_NEEDED, format!("the content cannot be converted for this host: {error}"))
}
