//! A message in other transfer encodings, because a rule asks for it.
//!
//! Promise: the content is read once to learn whether anything changes, and written anew, in pieces, only if it does. What cannot be
//! converted stays as it is: to whom it can go is decided at its delivery, as of any message. Others get a turn after each chunk.
//!
//! Failure: the refusal; the content is then of no use to anybody.

use stentor_mail::reply::Reply;
use stentor_mail::server::{EndOfData, TextBody};
use stentor_milter::{CHUNK_BYTES_MAX, HeaderReader};
use stentor_recode::{Converter, Recoding, Survey, Target};
use tokio::task::yield_now;

use crate::rewrite::{Content, GROWTH_BYTES, PIECE_BYTES, unreadable};

/// What became of a message.
// One for each message, moved once: a box would cost more.
#[allow(clippy::large_enum_variant)]
pub enum Recoded {
    /// It is what it should be, but for so many encoded texts that stay.
    Same { stayed: usize },
    /// What was not written to the [`Content`], with size and facts.
    New { end: EndOfData, stayed: usize },
    /// It stays as it is, for this reason.
    Cannot(String),
}

/// Brings a message to 7 or 8 bits; the first `ours` fields before it are ours.
///
/// # Errors
/// It cannot be read back or written; the content is then of no use to anybody.
pub async fn recoded<C: Content>(
    content: &mut C,
    ours: usize,
    size_max: u64,
    target: Target,
) -> Result<Recoded, Reply> {
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
        Ok((None, stayed)) => return Ok(Recoded::Same { stayed }),
        Ok((Some(Recoding { converter, size }), stayed)) if size <= size_max => (converter, stayed),
        Ok((Some(_), _)) => return Ok(Recoded::Cannot("it would be larger than a message may be".to_owned())),
        Err(error) => return Ok(Recoded::Cannot(error.to_string())),
    };
    let mut new = New { converter, text: None, ours, size_max };
    let mut at = 0;
    loop {
        let read = content.read_at(at, &mut buffer).map_err(|error| unreadable(&error))?;
        let written = if read == 0 { new.finish() } else { new.push(&buffer[..read]) };
        if let Err(why) = written {
            return Ok(Recoded::Cannot(why));
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
            Ok(Recoded::New { end, stayed })
        }
        Some(Err(reply)) => Ok(Recoded::Cannot(reply.text.into())),
        None => Ok(Recoded::Same { stayed }),
    }
}

/// The content as it is written.
struct New {
    converter: Converter,
    /// From the header's end on: what is before the message is neither counted in its size nor looked at.
    text: Option<TextBody>,
    ours: usize,
    size_max: u64,
}

impl New {
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
