//! The interface through which table loading reads files.

use std::path::Path;

/// A request to read a file.
#[derive(Debug, Clone, Copy)]
pub struct FileRequest<'p> {
    pub path: &'p Path,
    /// Maximum size; a larger file is [`ReadError::TooLarge`].
    pub bytes_max: usize,
    /// The user who named the file. They must be able to read it, and it must belong to them or to root. `None`: the
    /// administrator named it. Anyone else who can change where the path leads must be able to read the file, too.
    pub reader: Option<u32>,
}

/// Content of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileContent {
    pub bytes: Vec<u8>,
    /// The user who owns the file, or who chose it.
    pub owner: u32,
}

/// Why a file was not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadError {
    TooLarge,
    Failed(String),
}

/// Reads files.
pub(crate) type FileReader<'r> = &'r mut dyn FnMut(FileRequest<'_>) -> Result<FileContent, ReadError>;
