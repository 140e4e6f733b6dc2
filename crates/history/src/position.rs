//! A consumer's position.

use std::fmt;
use std::str::FromStr;

/// The place after a record: a consumer stores it to continue after a restart. As text `FILE.RECORD.OFFSET`.
///
/// Records are counted over all files, so that the difference of two positions is the number of records between them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Position {
    /// Number of the file.
    pub file: u64,
    /// Number of the next record.
    pub record: u64,
    /// Where the record's block, or the one before it, begins within the file; a hint.
    pub offset: u64,
}

impl Position {
    /// The position before all records.
    pub const OLDEST: Position = Position { file: 0, record: 0, offset: 0 };
}

impl fmt::Display for Position {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}.{}", self.file, self.record, self.offset)
    }
}

/// The text is not a valid position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoPosition;

impl fmt::Display for NoPosition {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("not a position in the history; write FILE.RECORD.OFFSET")
    }
}

impl std::error::Error for NoPosition {}

impl FromStr for Position {
    type Err = NoPosition;

    fn from_str(text: &str) -> Result<Position, NoPosition> {
        let mut numbers = text.split('.').map(|part| part.parse().map_err(|_| NoPosition));
        let mut number = || numbers.next().unwrap_or(Err(NoPosition));
        let position = Position { file: number()?, record: number()?, offset: number()? };
        if numbers.next().is_some() { Err(NoPosition) } else { Ok(position) }
    }
}
