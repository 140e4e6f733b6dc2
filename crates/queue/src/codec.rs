//! The bytes under the durable schema: LEB128 varints, zigzag, length-prefixed strings, and a reader that never panics.
//!
//! A reader that runs out of bytes returns [`EventError::Short`]; the caller decides whether a field may be missing
//! (written by an older version) or not.

/// Why a record cannot be read. The journal's checksum was right, so another version wrote it, or we have a defect.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventError {
    #[error("record ends within a field")]
    Short,
    #[error("malformed record: {0}")]
    Malformed(&'static str),
    #[error("unknown record kind {0:#04x}: the journal was written by a newer version")]
    UnknownKind(u8),
}

/// Largest number of bytes of a `u64` as a varint.
pub const VARINT_BYTES_MAX: usize = 10;

/// Appends `value` in 7-bit groups, least significant first.
#[inline]
pub fn put_varint(buf: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        buf.push(value as u8 | 0x80);
        value >>= 7;
    }
    buf.push(value as u8);
}

/// Appends a signed number so that small magnitudes stay short.
#[inline]
pub fn put_zigzag(buf: &mut Vec<u8>, value: i64) {
    put_varint(buf, ((value << 1) ^ (value >> 63)).cast_unsigned());
}

/// Appends the length and the bytes.
#[inline]
pub fn put_bytes(buf: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(buf, bytes.len() as u64);
    buf.extend_from_slice(bytes);
}

/// Appends 0 for `None`, or the length plus one and the text.
#[inline]
pub fn put_option(buf: &mut Vec<u8>, text: Option<&str>) {
    match text {
        None => buf.push(0),
        Some(text) => {
            put_varint(buf, text.len() as u64 + 1);
            buf.extend_from_slice(text.as_bytes());
        }
    }
}

/// A cursor over a record's bytes.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    /// Whether all bytes have been read. A trailing field that an older version did not write is then absent.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub fn byte(&mut self) -> Result<u8, EventError> {
        let (first, rest) = self.rest.split_first().ok_or(EventError::Short)?;
        self.rest = rest;
        Ok(*first)
    }

    pub fn varint(&mut self) -> Result<u64, EventError> {
        let mut value = 0u64;
        for (i, byte) in self.rest.iter().take(VARINT_BYTES_MAX).enumerate() {
            let bits = u64::from(byte & 0x7f);
            if i == VARINT_BYTES_MAX - 1 && bits > 1 {
                return Err(EventError::Malformed("varint over 64 bits"));
            }
            value |= bits << (7 * i);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[i + 1..];
                return Ok(value);
            }
        }
        Err(if self.rest.len() < VARINT_BYTES_MAX {
            EventError::Short
        } else {
            EventError::Malformed("varint too long")
        })
    }

    pub fn varint32(&mut self) -> Result<u32, EventError> {
        u32::try_from(self.varint()?).map_err(|_| EventError::Malformed("number over 32 bits"))
    }

    pub fn zigzag(&mut self) -> Result<i64, EventError> {
        let raw = self.varint()?;
        Ok((raw >> 1).cast_signed() ^ -(raw & 1).cast_signed())
    }

    /// The next `len` bytes.
    pub fn take(&mut self, len: u64) -> Result<&'a [u8], EventError> {
        let len = usize::try_from(len).map_err(|_| EventError::Short)?;
        let (head, rest) = self.rest.split_at_checked(len).ok_or(EventError::Short)?;
        self.rest = rest;
        Ok(head)
    }

    pub fn bytes(&mut self) -> Result<&'a [u8], EventError> {
        let len = self.varint()?;
        self.take(len)
    }

    pub fn text(&mut self) -> Result<&'a str, EventError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| EventError::Malformed("text is not UTF-8"))
    }

    pub fn option(&mut self) -> Result<Option<&'a str>, EventError> {
        match self.varint()? {
            0 => Ok(None),
            len => std::str::from_utf8(self.take(len - 1)?)
                .map(Some)
                .map_err(|_| EventError::Malformed("text is not UTF-8")),
        }
    }
}
