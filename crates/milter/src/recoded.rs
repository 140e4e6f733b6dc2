//! Converts a message to other transfer encodings at the request of a rule.
//!
//! Promise: the content is first read to find out whether anything changes, and is rewritten, in pieces, only if it
//! does. A content that cannot be converted is kept; its delivery then decides which hosts can receive it, as for any
//! message. Other tasks can run after each chunk.
//!
//! Failure: the refusal; the content must then be dropped.

use stentor_mail::reply::Reply;
use stentor_mime::recode::{Converter, RecodeTarget, Recoding, Survey};
use stentor_smtp::server::{EndOfData, TextBody};
use tokio::task::yield_now;

use crate::protocol::{CHUNK_BYTES_MAX, HeaderReader};
use crate::rewrite::{Content, GROWTH_BYTES, PIECE_BYTES, unreadable};

/// Result of a conversion.
// There is one per message, which is moved once: a box would cost more.
#[allow(clippy::large_enum_variant)]
pub enum RecodeResult {
    /// Nothing changes; this number of encoded texts stay encoded.
    Same { stayed: usize },
    /// The part that was not yet written to the [`Content`], with size and facts.
    New { end: EndOfData, stayed: usize },
    /// It cannot be converted, for this reason.
    Cannot(String),
}

/// Converts a message to 7 or 8 bits; its first `ours` fields were added by us.
///
/// # Errors
/// It cannot be read back or written; the content must then be dropped.
pub async fn recoded<C: Content>(
    content: &mut C,
    ours: usize,
    size_max: u64,
    target: RecodeTarget,
) -> Result<RecodeResult, Reply> {
    let size_max = size_max.saturating_add(GROWTH_BYTES);
    let mut buffer = vec![0; CHUNK_BYTES_MAX];
    let (mut survey, mut at) = (Survey::new(target), 0);
    loop {
        let read = content.read_at(at, &mut buffer).map_err(|error| unreadable(&error))?;
        if read == 0 {
            break;
        }
        survey.push(&buffer[..read]);
        at += read as u64;
        yield_now().await;
    }
    let (converter, stayed) = match survey.finish() {
        Ok((None, stayed)) => return Ok(RecodeResult::Same { stayed }),
        Ok((Some(Recoding { converter, size }), stayed)) if size <= size_max => (converter, stayed),
        Ok((Some(_), _)) => return Ok(RecodeResult::Cannot("it would exceed the message size limit".to_owned())),
        Err(error) => return Ok(RecodeResult::Cannot(error.to_string())),
    };
    let mut new = NewContent { converter, text: None, ours, size_max };
    let mut at = 0;
    loop {
        let read = content.read_at(at, &mut buffer).map_err(|error| unreadable(&error))?;
        let written = if read == 0 { new.finish() } else { new.push(&buffer[..read]) };
        if let Err(why) = written {
            return Ok(RecodeResult::Cannot(why));
        }
        if let Some(piece) = new.text.as_mut().and_then(TextBody::full_piece) {
            content.write(piece).await?;
        }
        if read == 0 {
            break;
        }
        at += read as u64;
        yield_now().await;
    }
    match new.text.map(TextBody::finish) {
        Some(Ok(mut end)) => {
            content.replace(std::mem::take(&mut end.last));
            Ok(RecodeResult::New { end, stayed })
        }
        Some(Err(reply)) => Ok(RecodeResult::Cannot(reply.text.into())),
        None => Ok(RecodeResult::Same { stayed }),
    }
}

/// The content being written.
struct NewContent {
    converter: Converter,
    /// The message's text from the end of its header; fields before the message are neither counted in its size nor
    /// examined.
    text: Option<TextBody>,
    ours: usize,
    size_max: u64,
}

impl NewContent {
    fn push(&mut self, octets: &[u8]) -> Result<(), String> {
        let mut out = Vec::new();
        self.converter.push(octets, &mut out).map_err(|error| error.to_string())?;
        self.take(&out)
    }

    fn finish(&mut self) -> Result<(), String> {
        let mut out = Vec::new();
        self.converter.finish(&mut out).map_err(|error| error.to_string())?;
        self.take(&out)
    }

    fn take(&mut self, out: &[u8]) -> Result<(), String> {
        if out.is_empty() {
            return Ok(());
        }
        let lead = if self.text.is_some() {
            0
        } else {
            // The converter writes a header section as a whole.
            let mut reader = HeaderReader::new(self.ours);
            reader.push(out).map_or(0, |_| reader.finish().0.lead())
        };
        let (lead, rest) = out.split_at(lead);
        let text = self.text.get_or_insert_with(|| TextBody::new(lead.to_vec(), self.size_max, PIECE_BYTES));
        text.push(rest).map_err(|refusal| refusal.text.into())
    }
}
