//! What whoever loads a table is asked for: the content of files.

use std::path::Path;

/// A file that is to be read.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'p> {
    pub path: &'p Path,
    /// One with more octets is [`ReadError::TooLarge`].
    pub bytes_max: usize,
    /// The user who has named the file, who must be able to read it: it counts only if it is theirs or root's. `None`: the
    /// administrator has. Whoever else can change where the path leads must be able to read it too.
    pub reader: Option<u32>,
}

/// What is in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    pub bytes: Vec<u8>,
    /// The user whose file it is, or who has chosen that it is read.
    pub owner: u32,
}

/// Why a file was not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadError {
    TooLarge,
    Failed(String),
}

/// Gives the content of files.
pub(crate) type Read<'r> = &'r mut dyn FnMut(Wanted<'_>) -> Result<Content, ReadError>;
