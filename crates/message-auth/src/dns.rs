//! DNS questions of the methods, and the answers so far.
//!
//! A method is a function of the answers: it is called again with more of them until it asks nothing. Promise: one
//! message asks at most [`QUESTIONS_MAX`] different questions; those beyond count as failed.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::IpAddr;

/// Maximum questions for one message. Two SPF records at their limits of look-ups have fewer.
pub const QUESTIONS_MAX: usize = 200;
/// Maximum questions asked at the same time.
const PARALLEL_MAX: usize = 20;
/// Longest name and label (RFC 1035 section 2.3.4).
pub(crate) const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

/// Type of the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RecordKind {
    A,
    Aaaa,
    Mx,
    Ptr,
    Txt,
}

/// A question; the name is in lower case, without a final dot. It may have octets that host names have not.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DnsQuestion {
    pub name: Box<str>,
    pub kind: RecordKind,
}

/// An answer of the DNS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordAnswer {
    Addresses(Vec<IpAddr>),
    /// Hosts of MX records, best first, or names of PTR records.
    Hosts(Vec<Box<str>>),
    /// TXT records, the strings of each joined.
    Texts(Vec<Box<[u8]>>),
    /// The name does not exist, or has no such records.
    Empty,
    /// The DNS did not answer, or with an error.
    Failed,
}

static EMPTY: RecordAnswer = RecordAnswer::Empty;
static FAILED: RecordAnswer = RecordAnswer::Failed;

impl RecordAnswer {
    pub(crate) fn addresses(&self) -> &[IpAddr] {
        if let RecordAnswer::Addresses(all) = self { all } else { &[] }
    }

    pub(crate) fn hosts(&self) -> &[Box<str>] {
        if let RecordAnswer::Hosts(all) = self { all } else { &[] }
    }

    pub(crate) fn texts(&self) -> &[Box<[u8]>] {
        if let RecordAnswer::Texts(all) = self { all } else { &[] }
    }
}

/// The method needs more answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pending;

/// All answers about one message.
#[derive(Debug, Default)]
pub struct KnownAnswers {
    known: HashMap<DnsQuestion, RecordAnswer>,
    /// Time is over: everything unknown has failed.
    is_closed: bool,
}

impl KnownAnswers {
    pub fn add(&mut self, question: DnsQuestion, answer: RecordAnswer) {
        self.known.insert(question, answer);
    }

    pub fn close(&mut self) {
        self.is_closed = true;
    }
}

/// One pass of the methods over the answers; collects the questions.
pub struct Inquiry<'a> {
    answers: &'a KnownAnswers,
    wanted: RefCell<Vec<DnsQuestion>>,
    /// Number of questions answered or wanted.
    questions: Cell<usize>,
}

impl<'a> Inquiry<'a> {
    pub fn new(answers: &'a KnownAnswers) -> Inquiry<'a> {
        Inquiry { answers, wanted: RefCell::default(), questions: Cell::new(answers.known.len()) }
    }

    /// Returns the answer to a question.
    ///
    /// # Errors
    /// It must be asked first.
    pub fn ask(&self, name: &str, kind: RecordKind) -> Result<&'a RecordAnswer, Pending> {
        let name = name.strip_suffix('.').unwrap_or(name);
        // A name that the DNS cannot have does not exist.
        if !is_name(name) {
            return Ok(&EMPTY);
        }
        let question = DnsQuestion { name: name.to_ascii_lowercase().into(), kind };
        if let Some(answer) = self.answers.known.get(&question) {
            return Ok(answer);
        }
        if self.answers.is_closed {
            return Ok(&FAILED);
        }
        let mut wanted = self.wanted.borrow_mut();
        if !wanted.contains(&question) {
            if self.questions.get() >= QUESTIONS_MAX {
                return Ok(&FAILED);
            }
            if wanted.len() < PARALLEL_MAX {
                self.questions.set(self.questions.get() + 1);
                wanted.push(question);
            }
        }
        Err(Pending)
    }

    /// Returns the questions of this pass.
    pub fn into_questions(self) -> Vec<DnsQuestion> {
        self.wanted.into_inner()
    }
}

/// Whether the DNS can have the name.
pub(crate) fn is_name(name: &str) -> bool {
    name.len() <= NAME_BYTES_MAX && name.split('.').all(|label| (1..=LABEL_BYTES_MAX).contains(&label.len()))
}

/// Whether a name is a domain below a top level, as in mail addresses: no address literal.
pub(crate) fn is_domain(name: &str) -> bool {
    is_name(name) && name.contains('.') && !name.starts_with('[')
}
