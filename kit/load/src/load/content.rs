//! What is sent: made messages of chosen sizes, or real ones from files. All is prepared ahead; a message costs no copy
//! of its body.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::people::rng;

/// Of one message; also the cap of drawn sizes.
const SIZE_MAX: usize = 256 << 20;
const LOG_NORMAL_MAX: usize = 10 << 20;
/// All files together.
const FILES_BYTES_MAX: u64 = 2 << 30;
const LINE: &[u8] = b"The quick brown fox jumps over the lazy dog, and runs on until the end\r\n";

/// Octets of a message with its header section, as they pass the wire without the dots.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Sizes {
    Fixed(usize),
    /// From, to; evenly.
    Uniform(usize, usize),
    /// Median, sigma of the logarithm, cap.
    LogNormal(usize, f64, usize),
}

impl Sizes {
    /// `4096`, `64K`, `uniform:1K-64K`, `lognormal:8K,1.2`, `lognormal:8K,1.2,1M`.
    pub fn parse(text: &str) -> Result<Sizes, String> {
        let sizes = if let Some(rest) = text.strip_prefix("uniform:") {
            let (from, to) = rest.split_once('-').ok_or_else(|| format!("{text}: write it as uniform:1K-64K"))?;
            Sizes::Uniform(octets(from)?, octets(to)?)
        } else if let Some(rest) = text.strip_prefix("lognormal:") {
            let parts: Vec<&str> = rest.split(',').collect();
            let (&[median, sigma] | &[median, sigma, _]) = parts.as_slice() else {
                return Err(format!("{text}: write it as lognormal:8K,1.2 (median, sigma)"));
            };
            let sigma: f64 = sigma.trim().parse().map_err(|_| format!("{sigma} is not a number"))?;
            let cap = parts.get(2).map_or(Ok(LOG_NORMAL_MAX), |cap| octets(cap))?;
            Sizes::LogNormal(octets(median)?, sigma, cap)
        } else {
            Sizes::Fixed(octets(text)?)
        };
        sizes.check()?;
        Ok(sizes)
    }

    fn check(self) -> Result<(), String> {
        match self {
            Sizes::Uniform(from, to) if from > to => {
                Err(format!("sizes from {from} to {to}: the smaller one must come first"))
            }
            Sizes::LogNormal(_, sigma, _) if !(0.0..=5.0).contains(&sigma) => {
                Err(format!("invalid sigma {sigma}; choose 0 to 5"))
            }
            _ if self.max() > SIZE_MAX => {
                Err(format!("invalid size of {} octets; the maximum is {SIZE_MAX}", self.max()))
            }
            _ => Ok(()),
        }
    }

    pub fn max(self) -> usize {
        match self {
            Sizes::Fixed(size) | Sizes::Uniform(_, size) | Sizes::LogNormal(_, _, size) => size,
        }
    }

    /// Of message `number`.
    pub fn of(self, seed: u64, number: u64) -> usize {
        match self {
            Sizes::Fixed(size) => size,
            Sizes::Uniform(from, to) => rng(seed, number, 4).usize(from..=to),
            Sizes::LogNormal(median, sigma, cap) => {
                let mut rng = rng(seed, number, 4);
                // Box and Muller: two even draws make a normal one.
                let radius = (-2.0 * (1.0 - rng.f64()).max(f64::MIN_POSITIVE).ln()).sqrt();
                let normal = radius * (std::f64::consts::TAU * rng.f64()).cos();
                ((median as f64 * (sigma * normal).exp()) as usize).min(cap)
            }
        }
    }
}

/// `4096`, `4K`, `2M`, `1G`: powers of 1,024.
pub(crate) fn octets(text: &str) -> Result<usize, String> {
    let text = text.trim();
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 10),
        Some(b'm' | b'M') => (&text[..text.len() - 1], 20),
        Some(b'g' | b'G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    let number: usize = digits.parse().map_err(|_| format!("{text} is not a valid size; write 4096, 64K or 2M"))?;
    number.checked_mul(1 << shift).ok_or_else(|| format!("{text} is too large"))
}

#[derive(Clone, Debug)]
pub enum Content {
    Made(GeneratedContent),
    /// In turn.
    Files(Arc<[File]>),
}

/// A header section with a Message-ID of its own, then text.
#[derive(Clone, Debug)]
pub struct GeneratedContent {
    sizes: Sizes,
    before_id: Vec<u8>,
    after_id: Vec<u8>,
    text: Arc<[u8]>,
}

/// A real message, with CRLF lines.
#[derive(Debug)]
pub struct File {
    plain: Vec<u8>,
    /// With its dots doubled, where that is not the same.
    stuffed: Option<Vec<u8>>,
    has_8bit: bool,
}

/// What follows the header section that is made anew for each message.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(super) enum Body {
    #[default]
    None,
    /// So many octets of the text, then these.
    Text(usize, &'static [u8]),
    /// A file by number, dots doubled or not.
    File(usize, bool),
}

impl Content {
    pub fn made(sizes: Sizes, sender: &str, run: &str) -> Content {
        let before_id = format!(
            "From: <{sender}>\r\nTo: undisclosed-recipients:;\r\nDate: Sat, 21 Nov 2026 12:00:00 +0000\r\nSubject: load\r\n\
             Message-ID: <{run}."
        );
        let text = LINE.repeat(sizes.max() / LINE.len() + 1).into();
        let after_id = b"@source.lab>\r\n\r\n".to_vec();
        Content::Made(GeneratedContent { sizes, before_id: before_id.into_bytes(), after_id, text })
    }

    /// From files as they lie on a disk: a file, or a folder's files (a maildir's `new` and `cur` too), in the order of
    /// their names.
    pub fn from_paths(paths: &[PathBuf]) -> Result<Content, String> {
        let mut files = Vec::new();
        for path in paths {
            collect(path, &mut files).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        let mut all = Vec::new();
        let mut octets = 0;
        for path in files {
            let text = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            octets += text.len() as u64;
            if octets > FILES_BYTES_MAX {
                return Err(format!("the messages exceed {FILES_BYTES_MAX} octets; choose fewer files"));
            }
            if !text.is_empty() {
                all.push(stentor_lab::crlf(&text));
            }
        }
        if all.is_empty() {
            return Err("these files contain no message".to_owned());
        }
        Ok(Content::whole(all))
    }

    /// These messages, with CRLF lines, as they are.
    pub fn whole(messages: Vec<Vec<u8>>) -> Content {
        let file = |mut plain: Vec<u8>| {
            if !plain.ends_with(b"\r\n") {
                plain.extend_from_slice(b"\r\n");
            }
            let stuffed = stuffed(&plain);
            let has_8bit = plain.iter().any(|byte| *byte >= 0x80);
            File { plain, stuffed, has_8bit }
        };
        Content::Files(messages.into_iter().map(file).collect())
    }

    pub(super) fn check(&self) -> Result<(), String> {
        match self {
            Content::Made(made) => made.sizes.check(),
            Content::Files(files) if files.is_empty() => Err("no message to send".to_owned()),
            Content::Files(_) => Ok(()),
        }
    }

    pub(super) fn has_8bit(&self, number: u64) -> bool {
        matches!(self, Content::Files(files) if files[number as usize % files.len()].has_8bit)
    }

    /// Puts the header section of message `number` into `head` and says what follows. With `dot` it ends with the final
    /// dot. Returns the octets of the message, head and body together, without that.
    pub(super) fn put(&self, seed: u64, number: u64, dot: bool, head: &mut Vec<u8>) -> (Body, usize) {
        match self {
            Content::Files(files) => {
                let at = number as usize % files.len();
                (Body::File(at, dot), files[at].plain.len())
            }
            Content::Made(made) => {
                let from = head.len();
                head.extend_from_slice(&made.before_id);
                // Writing to a Vec cannot fail.
                let _ = write!(head, "{number}");
                head.extend_from_slice(&made.after_id);
                let header = head.len() - from;
                let wanted = made.sizes.of(seed, number).saturating_sub(header);
                let (length, tail) = made.cut(wanted);
                let end = if dot { tail.with_dot() } else { tail.plain() };
                (Body::Text(length, end), header + length + tail.plain().len())
            }
        }
    }

    /// The octets of a body.
    pub(super) fn slices(&self, body: Body) -> [&[u8]; 2] {
        match (self, body) {
            (Content::Made(made), Body::Text(length, tail)) => [&made.text[..length], tail],
            (Content::Files(files), Body::File(at, dot)) => {
                let file = &files[at];
                let text = if dot { file.stuffed.as_ref().unwrap_or(&file.plain) } else { &file.plain };
                [text, if dot { b".\r\n" } else { b"" }]
            }
            _ => [b"", b""],
        }
    }

    /// Message `number` as it arrives.
    pub fn message(&self, seed: u64, number: u64) -> Vec<u8> {
        let mut out = Vec::new();
        let (body, _) = self.put(seed, number, false, &mut out);
        for slice in self.slices(body) {
            out.extend_from_slice(slice);
        }
        out
    }
}

/// How the text ends after it has been cut anywhere.
#[derive(Clone, Copy)]
enum Tail {
    /// It ended with a line.
    Whole,
    /// Within a line.
    Line,
    /// Between CR and LF: the CR is left out and a letter takes its place.
    Letter,
}

impl Tail {
    fn plain(self) -> &'static [u8] {
        match self {
            Tail::Whole => b"",
            Tail::Line => b"\r\n",
            Tail::Letter => b"x\r\n",
        }
    }

    fn with_dot(self) -> &'static [u8] {
        match self {
            Tail::Whole => b".\r\n",
            Tail::Line => b"\r\n.\r\n",
            Tail::Letter => b"x\r\n.\r\n",
        }
    }
}

impl GeneratedContent {
    /// How much of the text, and what ends it, so that both have `wanted` octets (where there is room for a line's
    /// end).
    fn cut(&self, wanted: usize) -> (usize, Tail) {
        if wanted < 2 {
            return (0, Tail::Whole);
        }
        let length = wanted - 2;
        match length.checked_sub(1).map(|last| self.text[last]) {
            Some(b'\r') => (length - 1, Tail::Letter),
            _ => (length, Tail::Line),
        }
    }
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    if !fs::metadata(path)?.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    let maildir = [path.join("cur"), path.join("new")];
    let folders: Vec<&Path> =
        if maildir.iter().all(|p| p.is_dir()) { maildir.iter().map(PathBuf::as_path).collect() } else { vec![path] };
    let mut found = Vec::new();
    for folder in folders {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            if entry.metadata()?.is_file() {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    files.append(&mut found);
    Ok(())
}

/// With the dots at line starts doubled (RFC 5321 4.5.2); none if there are none.
fn stuffed(message: &[u8]) -> Option<Vec<u8>> {
    if message.first() != Some(&b'.') && memchr::memmem::find(message, b"\n.").is_none() {
        return None;
    }
    let mut data = Vec::with_capacity(message.len() + 16);
    for line in message.split_inclusive(|byte| *byte == b'\n') {
        if line.first() == Some(&b'.') {
            data.push(b'.');
        }
        data.extend_from_slice(line);
    }
    Some(data)
}
