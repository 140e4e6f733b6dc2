//! One lookup of a rule or route in a table, by the partial keys documented for its dialect, most specific first.

use std::borrow::Cow;
use std::net::IpAddr;

use stentor_tables::candidates::{Candidates, Options, Owner};
use stentor_tables::expand::expand;
use stentor_tables::{Scratch, Table};

use crate::address::Key;
use crate::facts::{Field, LookupResult, Subject, TableEntry, TableId};
use crate::rule::Dialect;

/// Maximum key sets kept: a decision looks up few subjects, in as many forms as there are dialects.
const KEPT_MAX: usize = 8;

/// The lookups of one decision: buffers, and the keys of each subject, which many tables share. Reusable.
#[derive(Debug, Default)]
pub struct LookupBuffers {
    kept: Vec<SubjectKeys>,
    /// Index of the next set to replace.
    next: usize,
    scratch: Scratch,
}

/// The keys of one subject.
#[derive(Debug)]
struct SubjectKeys {
    owner: Owner,
    is_local: bool,
    text: String,
    candidates: Candidates,
    /// Tables without any of these keys, one bit each.
    missed: Vec<u64>,
}

impl SubjectKeys {
    fn is_missed(&self, table: TableId) -> bool {
        let (word, bit) = place_of_bit(table);
        self.missed.get(word).is_some_and(|bits| bits & bit != 0)
    }

    fn miss(&mut self, table: TableId) {
        let (word, bit) = place_of_bit(table);
        if self.missed.len() <= word {
            self.missed.resize(word + 1, 0);
        }
        self.missed[word] |= bit;
    }
}

fn place_of_bit(TableId(table): TableId) -> (usize, u64) {
    (usize::from(table / 64), 1 << (table % 64))
}

impl LookupBuffers {
    /// Index of the key set of a subject.
    fn keys_of(&mut self, dialect: Dialect, field: Field, subject: Subject<'_>) -> usize {
        let (owner, text, is_local) = asked(dialect, field, subject);
        let is_it = |kept: &SubjectKeys| kept.owner == owner && kept.is_local == is_local && *kept.text == *text;
        if let Some(at) = self.kept.iter().position(is_it) {
            return at;
        }
        let mut candidates = Candidates::default();
        candidates.set(owner, text.as_bytes(), &Options { is_local, ..Options::default() });
        let kept = SubjectKeys { owner, is_local, text: text.into_owned(), candidates, missed: Vec::new() };
        if self.kept.len() < KEPT_MAX {
            self.kept.push(kept);
            return self.kept.len() - 1;
        }
        let at = self.next;
        self.next = (at + 1) % KEPT_MAX;
        self.kept[at] = kept;
        at
    }
}

/// One key of a lookup, and the values of `%1` and the like in its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableKey {
    pub text: String,
    arguments: Vec<Vec<u8>>,
}

impl TableKey {
    /// Expands a value found for this key.
    pub fn filled(&self, dialect: Dialect, value: String) -> String {
        let arguments: Vec<&[u8]> = self.arguments.iter().map(Vec::as_slice).collect();
        filled(dialect, value, self.text.as_bytes(), &arguments)
    }
}

/// Replaces `%1` and the like in a value, if the dialect has them.
fn filled(dialect: Dialect, value: String, key: &[u8], arguments: &[&[u8]]) -> String {
    if !dialect.has_arguments() || !value.contains('%') {
        return value;
    }
    let mut out = Vec::new();
    expand(value.as_bytes(), key, arguments, &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

/// The keys of a lookup, in order. `takes_parts`: the table may be asked for more than the first.
pub fn keys(dialect: Dialect, field: Field, subject: Subject<'_>, takes_parts: bool) -> Vec<TableKey> {
    let mut asking = LookupBuffers::default();
    if let Some(own) = own_keys(dialect, subject, takes_parts) {
        return own.into_iter().map(|text| TableKey { text, arguments: Vec::new() }).collect();
    }
    let at = asking.keys_of(dialect, field, subject);
    let all = asking.kept[at].candidates.iter().filter(|candidate| takes_parts || !candidate.is_partial);
    all.map(|candidate| TableKey {
        text: String::from_utf8_lossy(candidate.key).to_lowercase(),
        arguments: candidate.arguments.iter().map(|argument| argument.to_vec()).collect(),
    })
    .collect()
}

/// Looks up a subject in a table in memory; misses are remembered. `place_of` describes the place of entries without
/// a file.
pub fn find(
    id: TableId,
    table: &Table,
    dialect: Dialect,
    field: Field,
    subject: Subject<'_>,
    asking: &mut LookupBuffers,
    place_of: impl Fn(&str) -> String,
) -> LookupResult {
    let takes_parts = table.takes_partial_keys();
    if let Some(own) = own_keys(dialect, subject, takes_parts) {
        for key in &own {
            match said(table.get(key.as_bytes(), &mut asking.scratch), key.as_bytes(), &place_of) {
                LookupResult::NotFound => {}
                other => return other,
            }
        }
        return LookupResult::NotFound;
    }
    let at = asking.keys_of(dialect, field, subject);
    let LookupBuffers { kept, scratch, .. } = asking;
    let kept = &mut kept[at];
    if kept.is_missed(id) {
        return LookupResult::NotFound;
    }
    for candidate in kept.candidates.iter().filter(|candidate| takes_parts || !candidate.is_partial) {
        match said(table.get_candidate(&candidate, scratch), candidate.key, &place_of) {
            LookupResult::NotFound => {}
            LookupResult::Found(found) => {
                let value = filled(dialect, found.value, candidate.key, &candidate.arguments);
                return LookupResult::Found(TableEntry { value, ..found });
            }
            other => return other,
        }
    }
    kept.miss(id);
    LookupResult::NotFound
}

/// Keys of tables in our own syntax: those that patterns of rules would match, and the catch-all. A quoted address
/// has two spellings, both of which are whole.
fn own_keys(dialect: Dialect, subject: Subject<'_>, takes_parts: bool) -> Option<Vec<String>> {
    if dialect != Dialect::Own {
        return None;
    }
    let any = std::iter::once("*".to_owned());
    let of_key = |key: &Key| -> Vec<String> {
        let whole = 1 + usize::from(key.has_quotes());
        of_address(key).chain(any.clone()).take(if takes_parts { usize::MAX } else { whole }).collect()
    };
    let parts = if takes_parts { usize::MAX } else { 1 };
    Some(match subject {
        Subject::Client(client) => std::iter::once(client.to_string()).chain(any).take(parts).collect(),
        Subject::Name(name) => {
            let suffixes = name.match_indices('.').map(|(dot, _)| name[dot..].to_owned());
            std::iter::once(name.to_owned()).chain(suffixes).chain(any).take(parts).collect()
        }
        Subject::Address(key) => of_key(key),
        Subject::Mailbox { address, .. } => of_key(&Key::new(address)),
    })
}

/// Keys of an address. A domain may be written with its `@`, as in Postfix's sender tables.
fn of_address(key: &Key) -> impl Iterator<Item = String> {
    let domain = Some(key.domain()).filter(|domain| !domain.is_empty());
    let with_at = domain.map(|domain| format!("@{domain}"));
    key.mailboxes().map(str::to_owned).chain(with_at).chain(key.domains().map(str::to_owned))
}

impl Dialect {
    /// The server whose partial keys this dialect uses. `None`: those of our own rules.
    pub fn owner(self) -> Option<Owner> {
        Some(match self {
            Dialect::Own => return None,
            Dialect::Access => Owner::Access,
            Dialect::SendmailAccess => Owner::AccessDb,
            Dialect::Transport => Owner::Transport,
            Dialect::Mailertable => Owner::Mailertable,
            Dialect::Virtual => Owner::Virtual,
            Dialect::Virtusertable => Owner::Virtusertable,
            Dialect::Aliases => Owner::Aliases,
            Dialect::Canonical | Dialect::Relayhost | Dialect::SenderTransport | Dialect::Bcc => Owner::Canonical,
            Dialect::Generic => Owner::Generic,
            Dialect::Genericstable => Owner::Genericstable,
        })
    }
}

/// Input of the owner's key generator: the owner, the text to look up, and whether its domain is ours.
fn asked(dialect: Dialect, field: Field, subject: Subject<'_>) -> (Owner, Cow<'_, str>, bool) {
    let text: Cow<'_, str> = match subject {
        Subject::Client(client) => client_text(dialect, client).into(),
        Subject::Name(name) => name.into(),
        Subject::Address(key) if dialect == Dialect::Mailertable => key.domain().into(),
        // A lookup of a domain alone: Postfix has no key with an empty local part.
        Subject::Address(key) if dialect == Dialect::Transport && key.as_str().starts_with('@') => key.domain().into(),
        Subject::Address(key) => key.as_str().into(),
        Subject::Mailbox { address, .. } => address.into(),
    };
    let text = if dialect == Dialect::SendmailAccess {
        let tag = match field {
            Field::Client | Field::ClientName | Field::Helo => "Connect",
            Field::Sender => "From",
            Field::Recipient => "To",
        };
        format!("{tag}:{text}").into()
    } else {
        text
    };
    let owner = dialect.owner().unwrap_or(Owner::Access);
    let is_local = match subject {
        Subject::Address(key) => key.is_local,
        Subject::Mailbox { is_local, .. } => is_local,
        Subject::Client(_) | Subject::Name(_) => false,
    };
    (owner, text, is_local)
}

/// sendmail writes `IPv6:` before IPv6 addresses.
fn client_text(dialect: Dialect, client: IpAddr) -> String {
    match client {
        IpAddr::V6(client) if dialect == Dialect::SendmailAccess => format!("IPv6:{client}"),
        client => client.to_string(),
    }
}

/// Converts a table's answer for this key.
fn said(answer: stentor_tables::TableResult<'_>, key: &[u8], place_of: &impl Fn(&str) -> String) -> LookupResult {
    match answer {
        stentor_tables::TableResult::Found { value, place } => {
            let key = String::from_utf8_lossy(key).into_owned();
            let place = match place {
                Some((file, 0)) => file.to_owned(),
                Some((file, line)) => format!("{file}:{line}"),
                None => place_of(&key),
            };
            LookupResult::Found(TableEntry { value: String::from_utf8_lossy(value).into_owned(), key, place })
        }
        stentor_tables::TableResult::NotFound => LookupResult::NotFound,
        stentor_tables::TableResult::Tempfail(why) => LookupResult::Unavailable(why.to_owned()),
    }
}
