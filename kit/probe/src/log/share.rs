//! What the writers of a cell are given, and what each thread gives back.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use stentor_measure::{Histogram, Stop};

/// What ends a cell, whichever comes first; one commit is always made.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    pub time: Duration,
    /// Of all writers together.
    pub records: u64,
    /// Of all files together.
    pub file_bytes: u64,
    /// How long a group's committer waits for more, once it has something.
    pub gather: Duration,
    pub reuse: bool,
    pub verify: bool,
}

/// Where it is measured.
pub struct Site<'a> {
    pub folder: &'a Path,
    /// `254:0`.
    pub device: Option<&'a str>,
    /// Logical block of the device.
    pub block: usize,
    pub stop: &'a Stop,
}

/// What one thread did.
#[derive(Default)]
pub struct Share {
    pub records: u64,
    pub commits: u64,
    pub sync: Histogram,
    pub wait: Histogram,
    pub span: Option<(Instant, Instant)>,
}

pub fn panicked() -> io::Error {
    io::Error::other("a writer's thread panicked")
}
