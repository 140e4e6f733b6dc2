//! First pass over a content that is to be stored with other encodings: does anything change, is it possible, and how
//! large will it be?

use super::eight_bit::Decoding;
use super::{ConvertError, Converter, RecodeTarget, is_plain};

/// Examines a content: call `push` with its octets, then `finish`.
#[derive(Debug)]
pub struct Survey {
    target: RecodeTarget,
    converter: Converter,
    result: Result<(), ConvertError>,
    is_plain: bool,
    size: u64,
    out: Vec<u8>,
}

/// How a content is to be written.
#[derive(Debug)]
pub struct Recoding {
    /// Converter for the second pass.
    pub converter: Converter,
    /// Number of octets that it will write, without the encodings that multiparts get.
    pub size: u64,
}

impl Survey {
    pub fn new(target: RecodeTarget) -> Survey {
        let converter = match target {
            RecodeTarget::SevenBit => Converter::new(),
            RecodeTarget::EightBit => Converter::decoding(Decoding::default()),
        };
        Survey { target, converter, result: Ok(()), is_plain: true, size: 0, out: Vec::new() }
    }

    /// Examines the next octets (lines end with CRLF).
    pub fn push(&mut self, octets: &[u8]) {
        self.is_plain &= is_plain(octets);
        if self.result.is_ok() {
            self.result = self.converter.push(octets, &mut self.out);
            self.count();
        }
    }

    /// Ends the content. `None`: nothing changes; the number says how many encoded texts stay encoded in a conversion
    /// to 8 bits.
    ///
    /// # Errors
    /// It cannot be converted.
    pub fn finish(mut self) -> Result<(Option<Recoding>, usize), ConvertError> {
        if self.target == RecodeTarget::SevenBit && self.is_plain {
            return Ok((None, 0));
        }
        self.result?;
        self.converter.finish(&mut self.out)?;
        self.count();
        let stayed = self.converter.decoding.as_ref().map_or(0, |decoding| decoding.stayed);
        let converter = match self.converter.decoding {
            None => Converter::new(),
            Some(decoding) if !decoding.has_changed => return Ok((None, stayed)),
            Some(decoding) => Converter::decoding(decoding.again()),
        };
        Ok((Some(Recoding { converter, size: self.size }), stayed))
    }

    fn count(&mut self) {
        self.size += self.out.len() as u64;
        self.out.clear();
    }
}
