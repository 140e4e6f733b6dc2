//! Errors, typed so that the owner can choose its response (452, 451, refuse to start).

use std::error::Error;
use std::io;

use thiserror::Error;

/// Why a batch was not made durable. Nothing of a refused batch is ever acknowledged; the batch stays with the caller.
#[derive(Debug, Error)]
pub enum CommitError {
    /// The disk has no space (or inodes, or quota) for another segment or for the batch. No part of the batch counts;
    /// try again when space is free ([`crate::Journal::is_low`]). SMTP reply: 452 4.3.1.
    #[error("the disk is full ({0})")]
    Full(#[source] io::Error),
    /// A write or sync failed. That segment is abandoned; later commits go to a new one. SMTP reply: 451.
    #[error("I/O error on {file} at offset {offset}: {source}")]
    Io {
        /// Name of the file in the journal's directory.
        file: String,
        /// Byte offset of the failed write, or of the batch whose sync failed.
        offset: u64,
        /// The system's error.
        source: io::Error,
    },
    /// The batch (or one record) is larger than a segment or `batch_bytes_max` allows.
    #[error("batch of {bytes} bytes is over the limit of {bytes_max}")]
    TooLarge {
        /// Bytes of the batch.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// A piece was added to a content that is already complete: a bug in the owner.
    #[error("content {0} is complete and cannot get another piece")]
    ContentComplete(u64),
}

impl CommitError {
    /// True if waiting for free space may help.
    pub fn is_full(&self) -> bool {
        matches!(self, CommitError::Full(_))
    }
}

/// Why a journal could not be opened or read.
#[derive(Debug, Error)]
pub enum JournalError {
    /// Another process holds the lock.
    #[error(
        "in use by {}; stop that server, or set another `data_dir`",
        .pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}"))
    )]
    InUse {
        /// Its process id, if the lock file names one.
        pid: Option<u32>,
    },
    /// Acknowledged bytes have changed. Starting would silently lose them.
    #[error(
        "{file} is damaged at offset {offset}: {what}. Nothing was changed. Keep a copy of the directory, run \
         `stentor journal verify`, then salvage what is readable"
    )]
    Damaged {
        /// Name of the file in the journal's directory.
        file: String,
        /// Byte offset in it.
        offset: u64,
        /// What is wrong there.
        what: String,
    },
    /// A format version unknown to this program.
    #[error("{file} has format version {version}; this program reads version {known}")]
    Version {
        /// Name of the file.
        file: String,
        /// Its version.
        version: u16,
        /// The version of this program.
        known: u16,
    },
    /// The options contradict each other.
    #[error("journal options: {0}")]
    Options(&'static str),
    /// The owner rejected a record.
    #[error("record in {file}, batch at offset {offset}: {source}")]
    Owner {
        /// Name of the file.
        file: String,
        /// Offset of the batch.
        offset: u64,
        /// The owner's error.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The system refused to list, open, read or sync.
    #[error("{file}: {source}")]
    Io {
        /// Name of the file, or the operation.
        file: String,
        /// The system's error.
        source: io::Error,
    },
}

impl JournalError {
    pub(crate) fn io(file: &str) -> impl FnOnce(io::Error) -> JournalError + '_ {
        move |source| JournalError::Io { file: file.to_owned(), source }
    }

    pub(crate) fn damaged(file: &str, offset: u64, what: impl Into<String>) -> JournalError {
        JournalError::Damaged { file: file.to_owned(), offset, what: what.into() }
    }
}

/// True if the error means that space (or inodes, or quota) is used up.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
