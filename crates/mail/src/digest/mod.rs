//! Digests: several posts of a list in one message, for subscribers who were unreachable or prefer digests.
//!
//! There are two forms. [`Form::Mime`] is a table of contents and a `multipart/digest` (RFC 2046 section 5.1.5) in
//! which every post is unchanged, octet for octet; readers show and answer each one individually. [`Form::Plain`] is
//! the older one of RFC 1153 for readers without MIME: one text with the important fields, and lines of hyphens between
//! posts. A post that is not plain text keeps its encoding and its MIME fields, so that software which takes digests
//! apart can restore it.
//!
//! A digest is built in two passes, so that a post of any size needs no memory. [`Digest`] reads every post and records
//! its size, its entry in the table of contents, and any text that resembles one of our boundaries. [`Plan`] then knows
//! the digest's exact size and supplies the text between posts, which the caller streams through [`Plan::post`].
//!
//! Promises: no boundary occurs anywhere in the posts; [`Plan::size`] is exact; nothing in a post can end its part or
//! reach the header section; a digest of 7-bit posts is 7-bit. A digest never needs SMTPUTF8 itself: posts with UTF-8
//! in their header sections are `message/global` parts (RFC 6532 section 3.7) and need only 8BITMIME.
//!
//! Failures are [`DigestError`]s: no posts, too many posts, or posts that were written to collide.

mod plain;
mod scan;
#[cfg(test)]
mod tests;
mod toc;

use std::fmt::Write as _;

use crate::fields::Splitter;
pub use plain::PostWriter;
use plain::{SEPARATOR, TOP_SEPARATOR};
use scan::{BoundaryScan, Utf8Scan};
use toc::Entry;

/// Maximum number of posts in one digest.
pub const POSTS_MAX: usize = 1_000;

/// The form of a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Mime,
    Plain,
}

/// The text around the posts.
#[derive(Debug, Clone, Copy)]
pub struct Spec<'a> {
    /// Name in the subject and above the table of contents: printable ASCII.
    pub list: &'a str,
    /// The list's address: `From` and `To`.
    pub address: &'a str,
    /// `Date` ([`crate::dsn::format_date`]).
    pub date: &'a str,
    /// Message-ID without angle brackets.
    pub message_id: &'a str,
    /// Where all posts can be read, if there is such a place.
    pub archive: Option<&'a str>,
    pub form: Form,
}

/// Why there is no digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DigestError {
    #[error("the digest has no posts")]
    Empty,
    #[error("the digest has more than {POSTS_MAX} posts")]
    TooMany,
    /// No boundary is free with this token; use another one.
    #[error("a post contains text that matches every boundary of this token")]
    Boundary,
}

/// The first pass's record of one post.
#[derive(Debug, Default)]
struct Post {
    /// Octets in the original and in the plain form.
    bytes: u64,
    plain_bytes: u64,
    eight_bit: bool,
    /// UTF-8 in the header section (RFC 6532).
    global: bool,
    entry: Entry,
    /// Where it can be read.
    permalink: Option<String>,
}

/// The first pass; see the module documentation.
#[derive(Debug)]
pub struct Digest {
    token: String,
    posts: Vec<Post>,
    too_many: bool,
    boundary: BoundaryScan,
    utf8: Utf8Scan,
    splitter: Splitter,
    writer: PostWriter,
    scratch: Vec<u8>,
}

impl Digest {
    /// Begins a digest. `token` makes its boundaries unique, such as its queue id; only its letters and digits are
    /// used.
    pub fn new(token: &str) -> Digest {
        let token: String = token.chars().filter(char::is_ascii_alphanumeric).take(40).collect();
        Digest {
            boundary: BoundaryScan::new(&token),
            token,
            posts: Vec::new(),
            too_many: false,
            utf8: Utf8Scan::default(),
            splitter: Splitter::default(),
            writer: PostWriter::new(Form::Plain),
            scratch: Vec::new(),
        }
    }

    /// Begins the next post; later pushes belong to it. `permalink`: where it can be read, for the table of contents.
    pub fn begin_post(&mut self, permalink: Option<&str>) {
        self.end_post();
        self.too_many |= self.posts.len() == POSTS_MAX;
        self.posts.push(Post { permalink: permalink.map(clean), ..Post::default() });
    }

    /// Takes octets of the post, in pieces of any size, as on the wire: header section, empty line, body.
    pub fn push(&mut self, bytes: &[u8]) {
        let Some(post) = self.posts.last_mut() else { return };
        post.bytes += bytes.len() as u64;
        post.eight_bit |= !bytes.is_ascii();
        self.boundary.push(bytes);
        self.utf8.push(bytes);
        let mut global = false;
        let entry = &mut post.entry;
        self.splitter.push(bytes, &mut |piece| {
            global |= entry.take(piece);
        });
        post.global |= global;
        self.scratch.clear();
        self.writer.push(bytes, &mut self.scratch);
        post.plain_bytes += self.scratch.len() as u64;
    }

    fn end_post(&mut self) {
        let Some(post) = self.posts.last_mut() else { return };
        self.scratch.clear();
        self.writer.finish(&mut self.scratch);
        post.plain_bytes += self.scratch.len() as u64;
        // Text that is not UTF-8 is in an old, unnamed charset; `message/rfc822` promises least.
        post.global &= post.entry.is_utf8();
        self.boundary.end_post();
        self.utf8.end_post();
        self.splitter = Splitter::default();
        self.writer = PostWriter::new(Form::Plain);
    }

    /// Ends the first pass.
    pub fn plan(mut self, spec: &Spec<'_>) -> Result<Plan, DigestError> {
        self.end_post();
        if self.posts.is_empty() {
            return Err(DigestError::Empty);
        }
        if self.too_many {
            return Err(DigestError::TooMany);
        }
        let boundary = self.boundary.free(&self.token).ok_or(DigestError::Boundary)?;
        let eight_bit = self.posts.iter().any(|post| post.eight_bit);
        let mut plan = match spec.form {
            Form::Mime => self.mime(spec, &boundary, eight_bit),
            Form::Plain => self.plain(spec, eight_bit),
        };
        plan.size += plan.texts.iter().map(|text| text.len() as u64).sum::<u64>();
        Ok(plan)
    }

    fn mime(&self, spec: &Spec<'_>, boundary: &str, eight_bit: bool) -> Plan {
        let encoding = if eight_bit { "Content-Transfer-Encoding: 8bit\r\n" } else { "" };
        let mut head = self.header(spec);
        let _ = write!(
            head,
            "Content-Type: multipart/mixed;\r\n boundary=\"{boundary}m\"\r\n{encoding}\r\n\
             This is a digest in MIME format.\r\n\r\n--{boundary}m\r\n"
        );
        let mut head = head.into_bytes();
        toc::write_part(&self.contents(spec), &mut head);
        let mut text = format!(
            "\r\n--{boundary}m\r\nContent-Type: multipart/digest;\r\n boundary=\"{boundary}d\"\r\n{encoding}\r\n"
        );
        let mut texts = Vec::with_capacity(self.posts.len() + 1);
        for (no, post) in self.posts.iter().enumerate() {
            let kind = if post.global { "message/global" } else { "message/rfc822" };
            let encoding = if post.eight_bit { "Content-Transfer-Encoding: 8bit\r\n" } else { "" };
            // The first delimiter is already at the start of a line.
            let line_end = if no == 0 { "" } else { "\r\n" };
            let _ = write!(text, "{line_end}--{boundary}d\r\nContent-Type: {kind}\r\n{encoding}\r\n");
            head.extend_from_slice(std::mem::take(&mut text).as_bytes());
            texts.push(std::mem::take(&mut head));
        }
        texts.push(format!("\r\n--{boundary}d--\r\n\r\n--{boundary}m--\r\n").into_bytes());
        Plan { texts, form: Form::Mime, eight_bit, size: self.posts.iter().map(|post| post.bytes).sum() }
    }

    fn plain(&self, spec: &Spec<'_>, eight_bit: bool) -> Plan {
        let mut contents = self.contents(spec);
        if !self.utf8.is_valid() {
            // The posts' charsets differ: the table only uses characters that all of them share.
            contents = contents.chars().map(|c| if c.is_ascii() { c } else { '?' }).collect();
        }
        let eight_bit = eight_bit || !contents.is_ascii();
        let mut head = self.header(spec);
        let charset = match (eight_bit, self.utf8.is_valid()) {
            (false, _) => "us-ascii",
            (true, true) => "utf-8",
            // RFC 1428 section 3.
            (true, false) => "unknown-8bit",
        };
        let encoding = if eight_bit { "8bit" } else { "7bit" };
        let _ = write!(
            head,
            "Content-Type: text/plain; charset={charset}\r\nContent-Transfer-Encoding: {encoding}\r\n\r\n\
             {contents}\r\n{TOP_SEPARATOR}\r\n\r\n"
        );
        let mut texts = vec![head.into_bytes()];
        texts.extend((1..self.posts.len()).map(|_| format!("\r\n{SEPARATOR}\r\n\r\n").into_bytes()));
        let end = format!("End of {} Digest", clean(spec.list));
        texts.push(format!("\r\n{SEPARATOR}\r\n\r\n{end}\r\n{}\r\n", "*".repeat(end.len())).into_bytes());
        Plan { texts, form: Form::Plain, eight_bit, size: self.posts.iter().map(|post| post.plain_bytes).sum() }
    }

    /// Returns the header up to the Content-Type.
    fn header(&self, spec: &Spec<'_>) -> String {
        let (list, address) = (clean(spec.list), clean(spec.address));
        let count = self.posts.len();
        let posts = if count == 1 { "post" } else { "posts" };
        // RFC 3834 section 5: prevents automatic replies.
        format!(
            "Date: {}\r\nFrom: <{address}>\r\nTo: <{address}>\r\nSubject: {list} Digest, {count} {posts}\r\n\
             Message-ID: <{}>\r\nAuto-Submitted: auto-generated\r\nMIME-Version: 1.0\r\n",
            clean(spec.date),
            clean(spec.message_id)
        )
    }

    fn contents(&self, spec: &Spec<'_>) -> String {
        let mut text = format!("{} Digest, {}\r\n\r\n", clean(spec.list), clean(spec.date));
        if let Some(archive) = spec.archive {
            let _ = write!(text, "All posts: {}\r\n\r\n", clean(archive));
        }
        text.push_str("Today's Topics:\r\n\r\n");
        for (no, post) in self.posts.iter().enumerate() {
            let _ = write!(text, "{:4}. ", no + 1);
            post.entry.write(&mut text);
            text.push_str("\r\n");
            if let Some(permalink) = &post.permalink {
                let _ = write!(text, "      {permalink}\r\n");
            }
        }
        text
    }
}

/// Keeps printable characters only, so that a caller's text cannot end its line.
fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(900).collect()
}

/// The second pass: `before(0)`, post 0, `before(1)`, post 1, ... and `end()`.
#[derive(Debug)]
pub struct Plan {
    /// The texts before each post, and the text after the last.
    texts: Vec<Vec<u8>>,
    form: Form,
    eight_bit: bool,
    size: u64,
}

impl Plan {
    /// Returns the number of posts.
    pub fn posts(&self) -> usize {
        self.texts.len() - 1
    }

    /// Returns the octets before a post; those before the first include the header section.
    pub fn before(&self, post: usize) -> &[u8] {
        &self.texts[post]
    }

    /// Creates a writer for one post, which returns the output for each piece and for the end of the post.
    pub fn post(&self) -> PostWriter {
        PostWriter::new(self.form)
    }

    /// Returns the octets after the last post.
    pub fn end(&self) -> &[u8] {
        self.texts.last().map_or(&[], Vec::as_slice)
    }

    /// Returns the octets of the whole digest.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Whether the digest needs 8BITMIME.
    pub fn eight_bit(&self) -> bool {
        self.eight_bit
    }
}
