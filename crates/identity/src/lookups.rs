//! Questions to the DNS and to web servers, and the answers so far.
//!
//! A check asks for what it needs; an answer that is not known yet ends it as pending, and the question is noted.
//! Promise: one examination asks at most [`QUESTIONS_MAX`] different questions; the others count as failed.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::IpAddr;

use stentor_tls_policy::sts::StsPolicy;

/// Maximum questions of one examination.
pub const QUESTIONS_MAX: usize = 600;

/// A question; names are in lower case, without a final dot.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum LookupQuestion {
    /// TXT records of a name.
    Texts(String),
    /// Addresses of a name, of both families.
    Addresses(String),
    /// MX records of a domain.
    Mx(String),
    /// PTR records of an address.
    Names(IpAddr),
    /// MTA-STS policy of a domain, over HTTPS.
    Policy(String),
    /// Whether a web server answers at a URL.
    Page(String),
}

/// Answer to a question; records that do not exist are empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LookupAnswer {
    /// The strings of each record joined.
    Texts(Vec<Vec<u8>>),
    Addresses(Vec<IpAddr>),
    /// Hosts, the best first; that of a null MX is empty.
    Mx(Vec<String>),
    Names(Vec<String>),
    /// The policy, or why there is no valid one.
    Policy(Result<StsPolicy, String>),
    /// HTTP status, or why there is none.
    Page(Result<u16, String>),
    /// It could not be asked, with the reason.
    Failed(String),
}

/// Why a check cannot go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Missing {
    /// The question is noted.
    Pending,
    Failed(String),
}

pub(crate) type Lookup<T> = Result<T, Missing>;

/// All answers of one examination, and the questions still to be asked.
#[derive(Debug, Default)]
pub struct Lookups {
    known: HashMap<LookupQuestion, LookupAnswer>,
    wanted: RefCell<Vec<LookupQuestion>>,
}

impl Lookups {
    pub fn add(&mut self, question: LookupQuestion, answer: LookupAnswer) {
        self.known.insert(question, answer);
    }

    /// Takes the questions that were noted.
    pub fn take_wanted(&mut self) -> Vec<LookupQuestion> {
        std::mem::take(self.wanted.get_mut())
    }

    fn answer(&self, question: LookupQuestion) -> Lookup<&LookupAnswer> {
        if let Some(answer) = self.known.get(&question) {
            return match answer {
                LookupAnswer::Failed(why) => Err(Missing::Failed(why.clone())),
                answer => Ok(answer),
            };
        }
        let mut wanted = self.wanted.borrow_mut();
        if !wanted.contains(&question) {
            if self.known.len() + wanted.len() >= QUESTIONS_MAX {
                return Err(Missing::Failed(format!("more than {QUESTIONS_MAX} look-ups")));
            }
            wanted.push(question);
        }
        Err(Missing::Pending)
    }

    pub(crate) fn texts(&self, name: &str) -> Lookup<&[Vec<u8>]> {
        match self.answer(LookupQuestion::Texts(plain(name)))? {
            LookupAnswer::Texts(texts) => Ok(texts),
            other => Err(unexpected(other)),
        }
    }

    pub(crate) fn addresses(&self, name: &str) -> Lookup<&[IpAddr]> {
        match self.answer(LookupQuestion::Addresses(plain(name)))? {
            LookupAnswer::Addresses(addresses) => Ok(addresses),
            other => Err(unexpected(other)),
        }
    }

    pub(crate) fn mx(&self, domain: &str) -> Lookup<&[String]> {
        match self.answer(LookupQuestion::Mx(plain(domain)))? {
            LookupAnswer::Mx(hosts) => Ok(hosts),
            other => Err(unexpected(other)),
        }
    }

    pub(crate) fn names(&self, address: IpAddr) -> Lookup<&[String]> {
        match self.answer(LookupQuestion::Names(address))? {
            LookupAnswer::Names(names) => Ok(names),
            other => Err(unexpected(other)),
        }
    }

    pub(crate) fn policy(&self, domain: &str) -> Lookup<Result<&StsPolicy, &str>> {
        match self.answer(LookupQuestion::Policy(plain(domain)))? {
            LookupAnswer::Policy(policy) => Ok(policy.as_ref().map_err(String::as_str)),
            other => Err(unexpected(other)),
        }
    }

    pub(crate) fn page(&self, url: &str) -> Lookup<Result<u16, &str>> {
        match self.answer(LookupQuestion::Page(url.to_owned()))? {
            LookupAnswer::Page(status) => Ok(status.as_ref().map(|status| *status).map_err(String::as_str)),
            other => Err(unexpected(other)),
        }
    }
}

fn unexpected(answer: &LookupAnswer) -> Missing {
    Missing::Failed(format!("unexpected answer {answer:?}"))
}

/// The name in lower case, without the final dot.
pub(crate) fn plain(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_noted_once_and_bounded() {
        let mut lookups = Lookups::default();
        assert_eq!(lookups.texts("A.example."), Err(Missing::Pending));
        assert_eq!(lookups.texts("a.example"), Err(Missing::Pending));
        assert_eq!(lookups.take_wanted(), [LookupQuestion::Texts("a.example".to_owned())]);
        lookups.add(LookupQuestion::Texts("a.example".to_owned()), LookupAnswer::Texts(vec![b"x".to_vec()]));
        assert_eq!(lookups.texts("a.example").unwrap(), [b"x".to_vec()]);
        for n in 0..2 * QUESTIONS_MAX {
            let _ = lookups.texts(&format!("{n}.example"));
        }
        assert!(matches!(lookups.texts("last.example"), Err(Missing::Failed(_))));
        assert_eq!(lookups.take_wanted().len(), QUESTIONS_MAX - 1);
    }
}
