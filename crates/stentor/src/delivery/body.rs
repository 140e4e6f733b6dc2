//! The content of a transaction on its way out: prefix, then the stored octets, converted where the host needs that.

use std::io;

use stentor_mail::seven_bit::Converter;

use super::assignment::Assignment;
use crate::core::Core;

/// Octets read from the journal at a time.
const CHUNK_BYTES: usize = 64 * 1024;

/// Where the sending of a content stands.
pub struct Outgoing {
    prefix_done: bool,
    at: u64,
    len: u64,
    converter: Option<Box<Converter>>,
    converted: Vec<u8>,
    buffer: Vec<u8>,
}

/// Why a content could not be sent.
#[derive(Debug, thiserror::Error)]
pub enum ContentError {
    #[error("the stored content cannot be read: {0}")]
    Read(#[from] io::Error),
    #[error("the content cannot be converted to 7 bits: {0}")]
    Convert(String),
}

impl Outgoing {
    /// `seven_bit`: convert 8-bit parts (RFC 6152).
    pub fn new(assignment: &Assignment, seven_bit: bool) -> Outgoing {
        Outgoing {
            prefix_done: assignment.prefix.is_empty(),
            at: 0,
            len: assignment.size - assignment.prefix.len() as u64,
            converter: seven_bit.then(|| Box::new(Converter::new())),
            converted: Vec::new(),
            buffer: Vec::new(),
        }
    }

    /// Octets that will be sent. A conversion is run once for its size and its errors, so that neither turns up in the
    /// middle of a transaction; what is not converted is as long as it is stored.
    pub fn wire_size(core: &Core, assignment: &Assignment, seven_bit: bool) -> Result<u64, ContentError> {
        if !seven_bit {
            return Ok(assignment.size);
        }
        let mut trial = Outgoing::new(assignment, true);
        let mut size = 0;
        while trial.next(core, assignment, |bytes| size += bytes.len() as u64)? {}
        Ok(size)
    }

    /// Hands the next piece to `send`; false when there is no more.
    pub fn next(
        &mut self,
        core: &Core,
        assignment: &Assignment,
        mut send: impl FnMut(&[u8]),
    ) -> Result<bool, ContentError> {
        if !self.prefix_done {
            self.prefix_done = true;
            self.convert(&assignment.prefix, &mut send)?;
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
            // From the page cache, or one read of the disk: handing the thread's other tasks to a new thread for that
            // would cost more, and threads keep memory.
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
                converter.finish(&mut self.converted).map_err(|error| ContentError::Convert(error.to_string()))?;
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
                converter.push(bytes, &mut self.converted).map_err(|error| ContentError::Convert(error.to_string()))?;
                send(&self.converted);
            }
        }
        Ok(())
    }
}
