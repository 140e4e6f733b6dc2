//! The suppressions in memory: the answer to each look-up.
//!
//! Promise: a look-up takes no lock for longer than a probe, allocates nothing, and looks only for kinds of entries
//! that exist: without entries it costs a few loads. Keys are 64-bit hashes of scope and subject under a key that each
//! process draws at random, so that nobody can make two addresses collide. Two of ten million entries collide by chance
//! once in 300,000 starts; an address that is not suppressed matches with odds of ten million to 2^64.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::RwLock;

use crate::Ms;
use crate::suppression::{Scope, Subject, SuppressionReason};
use crate::table::{IndexEntry, Table};

/// Tables with a lock each: one grows without delaying look-ups in the others.
const SHARDS: usize = 64;
const SHARD_BITS: u32 = SHARDS.ilog2();

/// Entries that one look-up may have to search for, in the order of the search.
#[derive(Clone, Copy)]
enum Kind {
    Everything,
    List,
    SenderAddress,
    SenderDomain,
}

const KINDS: usize = 4;

#[derive(Clone, Copy)]
enum SubjectKind {
    Address,
    Domain,
}

const SUBJECT_KINDS: usize = 2;

/// The scope by which a recipient is suppressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MatchedScope {
    Everything,
    List,
    Sender,
}

/// Why a recipient is suppressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SuppressionMatch {
    pub scope: MatchedScope,
    pub reason: SuppressionReason,
}

impl fmt::Display for SuppressionMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scope = match self.scope {
            MatchedScope::Everything => "for all mail",
            MatchedScope::List => "for this list",
            MatchedScope::Sender => "for this sender",
        };
        write!(f, "suppressed {scope} ({})", self.reason)
    }
}

pub struct SuppressionIndex {
    hasher: RandomState,
    /// Tables of a kind and a kind of subject, one after the other: those with few entries stay in the processor's
    /// cache, so that a look-up waits only for the large ones.
    shards: Vec<RwLock<Table>>,
    /// Number of entries by kind and kind of subject.
    counts: [[AtomicUsize; SUBJECT_KINDS]; KINDS],
}

impl Default for SuppressionIndex {
    fn default() -> SuppressionIndex {
        SuppressionIndex {
            hasher: RandomState::new(),
            shards: (0..KINDS * SUBJECT_KINDS * SHARDS).map(|_| RwLock::default()).collect(),
            counts: Default::default(),
        }
    }
}

/// Hash and counter of an entry.
struct IndexKey {
    hash: u64,
    kind: Kind,
    subject: SubjectKind,
}

impl SuppressionIndex {
    /// Returns why nothing is sent from `sender` to `address`, if so. `list`: the list, if the message is a post to
    /// one. Spelling of ASCII letters does not matter. An entry for a sender also holds for its addresses with a
    /// detail: managers number their posts there.
    pub fn find(&self, address: &str, list: Option<&str>, sender: &str, now: Ms) -> Option<SuppressionMatch> {
        let domain_of = |text: &str| text.rfind('@').map_or(text.len(), |at| at + 1);
        let sender_domain = &sender[domain_of(sender)..];
        let base = without_detail(sender);
        let scopes = [
            (Kind::Everything, Some("")),
            (Kind::List, list),
            (Kind::SenderAddress, Some(sender).filter(|sender| !sender.is_empty())),
            (Kind::SenderAddress, base.as_deref()),
            (Kind::SenderDomain, Some(sender_domain).filter(|domain| !domain.is_empty())),
        ];
        let domain = &address[domain_of(address)..];
        let has_any =
            |kind: Kind, subject: SubjectKind| self.counts[kind as usize][subject as usize].load(Ordering::Acquire) > 0;
        // Each text is hashed once, and only if there are such entries.
        let mut subjects = [(SubjectKind::Address, address, None), (SubjectKind::Domain, domain, None)];
        for (kind, value) in scopes {
            let Some(value) = value else { continue };
            let mut scope = None;
            for (subject, text, of_subject) in &mut subjects {
                if !has_any(kind, *subject) {
                    continue;
                }
                let scope = *scope.get_or_insert_with(|| self.hash_of_scope(kind, value));
                let of_subject = *of_subject.get_or_insert_with(|| self.hash_folded(text));
                let key = IndexKey { hash: mixed(scope, of_subject), kind, subject: *subject };
                if let Some(reason) = self.get(&key, now) {
                    return Some(SuppressionMatch { scope: matched(kind), reason });
                }
            }
        }
        None
    }

    /// Whether there is no entry at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of entries, expired ones included until they are deleted.
    pub fn len(&self) -> usize {
        self.counts.iter().flatten().map(|count| count.load(Ordering::Acquire)).sum()
    }

    /// Octets of its tables.
    pub fn heap_bytes(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().heap_bytes()).sum()
    }

    /// Shows an entry, which must be durable.
    pub fn insert(&self, subject: &Subject, scope: &Scope, reason: SuppressionReason, expires: Option<Ms>) {
        let key = self.key(subject, scope);
        // At the second that follows; a time beyond 2106 is never.
        let ends_s = expires.map_or(0, |ms| u32::try_from(ms.div_ceil(1_000).max(1)).unwrap_or(0));
        if self.shard(&key).write().insert(key.hash, IndexEntry { ends_s, reason: reason as u8 }) {
            self.counts[key.kind as usize][key.subject as usize].fetch_add(1, Ordering::AcqRel);
        }
    }

    pub(crate) fn remove(&self, subject: &Subject, scope: &Scope) {
        let key = self.key(subject, scope);
        if self.shard(&key).write().remove(key.hash) {
            self.counts[key.kind as usize][key.subject as usize].fetch_sub(1, Ordering::AcqRel);
        }
    }

    fn get(&self, key: &IndexKey, now: Ms) -> Option<SuppressionReason> {
        let entry = self.shard(key).read().get(key.hash)?;
        let is_over = entry.ends_s != 0 && now / 1_000 >= Ms::from(entry.ends_s);
        SuppressionReason::ALL.get(usize::from(entry.reason)).copied().filter(|_| !is_over)
    }

    fn shard(&self, key: &IndexKey) -> &RwLock<Table> {
        let tables = key.kind as usize * SUBJECT_KINDS + key.subject as usize;
        // The low bits: the high ones are the place within the table.
        &self.shards[tables * SHARDS + (key.hash & ((1 << SHARD_BITS) - 1)) as usize]
    }

    fn key(&self, subject: &Subject, scope: &Scope) -> IndexKey {
        let (kind, value) = match scope {
            Scope::Everything => (Kind::Everything, ""),
            Scope::List(name) => (Kind::List, &**name),
            Scope::Sender(sender) if sender.contains('@') => (Kind::SenderAddress, &**sender),
            Scope::Sender(domain) => (Kind::SenderDomain, &**domain),
        };
        let (subject, text) = match subject {
            Subject::Address(address) => (SubjectKind::Address, &**address),
            Subject::Domain(domain) => (SubjectKind::Domain, &**domain),
        };
        let hash = mixed(self.hash_of_scope(kind, value), self.hash_folded(text));
        IndexKey { hash, kind, subject }
    }

    fn hash_of_scope(&self, kind: Kind, value: &str) -> u64 {
        match kind {
            // A list's name is compared as it is.
            Kind::List => self.hasher.hash_one(value.as_bytes()),
            Kind::Everything | Kind::SenderAddress | Kind::SenderDomain => self.hash_folded(value),
        }
    }

    /// Hashes a text with its ASCII letters in lower case.
    fn hash_folded(&self, text: &str) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        write_folded(&mut hasher, text);
        hasher.finish()
    }
}

/// One hash of two: both halves of their product. Nobody knows either of them, so nobody can choose texts that collide.
fn mixed(scope: u64, subject: u64) -> u64 {
    let product = u128::from(scope) * u128::from(subject);
    ((product >> 64) as u64 ^ product as u64).max(1)
}

fn matched(kind: Kind) -> MatchedScope {
    match kind {
        Kind::Everything => MatchedScope::Everything,
        Kind::List => MatchedScope::List,
        Kind::SenderAddress | Kind::SenderDomain => MatchedScope::Sender,
    }
}

/// Writes a text with its ASCII letters in lower case.
fn write_folded(hasher: &mut impl Hasher, text: &str) {
    let mut buffer = [0; 64];
    for part in text.as_bytes().chunks(buffer.len()) {
        let folded = &mut buffer[..part.len()];
        folded.copy_from_slice(part);
        folded.make_ascii_lowercase();
        hasher.write(folded);
    }
}

/// `talk@l.example` of `talk+bounces-7@l.example`; `None`: there is no detail.
fn without_detail(sender: &str) -> Option<String> {
    let (local, domain) = sender.rsplit_once('@')?;
    let base = local.split_once('+')?.0;
    (!base.is_empty()).then(|| format!("{base}@{domain}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(entries: &[(&str, &str, Option<Ms>)]) -> SuppressionIndex {
        let index = SuppressionIndex::default();
        for (subject, scope, expires) in entries {
            index.insert(
                &Subject::parse(subject).unwrap(),
                &Scope::parse(scope).unwrap(),
                SuppressionReason::Complaint,
                *expires,
            );
        }
        index
    }

    fn scope(index: &SuppressionIndex, address: &str, list: Option<&str>, sender: &str) -> Option<MatchedScope> {
        index.find(address, list, sender, 0).map(|found| found.scope)
    }

    #[test]
    fn each_scope_covers_its_mail_only() {
        let index = index(&[
            ("a@x.example", "everything", None),
            ("b@x.example", "list:news", None),
            ("c@x.example", "sender:shop@s.example", None),
            ("d@x.example", "sender:s.example", None),
            ("@gone.example", "everything", None),
            ("@part.example", "list:news", None),
        ]);
        let all = Some(MatchedScope::Everything);
        assert_eq!(scope(&index, "a@x.example", None, ""), all);
        assert_eq!(scope(&index, "A@X.example", Some("other"), "x@y"), all);
        assert_eq!(scope(&index, "b@x.example", Some("news"), "x@y"), Some(MatchedScope::List));
        assert_eq!(scope(&index, "b@x.example", Some("News"), "x@y"), None);
        assert_eq!(scope(&index, "b@x.example", None, "news"), None);
        assert_eq!(scope(&index, "c@x.example", None, "Shop@s.example"), Some(MatchedScope::Sender));
        assert_eq!(scope(&index, "c@x.example", None, "other@s.example"), None);
        assert_eq!(scope(&index, "d@x.example", None, "other@S.example"), Some(MatchedScope::Sender));
        assert_eq!(scope(&index, "d@x.example", None, "other@sub.s.example"), None);
        assert_eq!(scope(&index, "z@gone.example", None, ""), all);
        assert_eq!(scope(&index, "z@sub.gone.example", None, ""), None);
        assert_eq!(scope(&index, "z@part.example", Some("news"), ""), Some(MatchedScope::List));
        assert_eq!(scope(&index, "z@part.example", None, ""), None);
        assert_eq!((index.len(), index.is_empty()), (6, false));
    }

    #[test]
    fn expired_and_removed_entries_have_no_effect() {
        let index = index(&[("a@x.example", "everything", Some(5_500))]);
        let is_found = |now| index.find("a@x.example", None, "", now).is_some();
        assert!(is_found(5_499) && is_found(5_999) && !is_found(6_000));
        index.insert(&Subject::parse("a@x.example").unwrap(), &Scope::Everything, SuppressionReason::Bounce, None);
        assert_eq!(index.len(), 1);
        assert!(is_found(6_000));
        index.remove(&Subject::parse("A@x.example").unwrap(), &Scope::Everything);
        assert!(!is_found(0) && index.is_empty());
    }

    /// Without entries nothing is hashed, whatever the address.
    #[test]
    fn any_text_can_be_looked_up() {
        let index = index(&[("a@x.example", "sender:x", None), ("@x", "everything", None)]);
        for text in ["", "@", "a@", "@x", "a", "ä@x", "\"a@b\"@x"] {
            let _ = index.find(text, Some(text), text, 0);
        }
        assert!(index.find("\"a@b\"@x", None, "", 0).is_some(), "the domain follows the last @");
    }
}
