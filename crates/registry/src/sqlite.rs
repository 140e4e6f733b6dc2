//! The registry in SQLite.
//!
//! Promise: WAL with `synchronous = FULL`, so each commit is one write and one sync of the WAL. The database is locked
//! exclusively: no other process changes it, and the index of the WAL is in memory instead of a mapped file, which
//! would raise SIGBUS on a full disk. A file of a newer version, or of another program, is refused and left as it is;
//! one of an older version is converted when it is opened.
//!
//! The functions that change data assume valid entries ([`Suppression::check`]).

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, Row, Transaction, params};

use crate::confirmations::{self, Confirmation, ConfirmedAction};
use crate::dkim::{self, DkimState};
use crate::error::OpenRegistryError;
use crate::members::{
    self, Departure, JoinEffect, JoinResult, ListMember, MemberQuery, NewDeparture, RosterState, Rosters,
};
use crate::store::{
    Committed, EntryEffect, ListedSuppressions, RegistryChange, RegistryEffect, RegistryStore, RegistryStoreError,
    SuppressionQuery,
};
use crate::suppression::{Scope, Subject, Suppression, SuppressionKey, SuppressionReason};
use crate::{Ms, signed};

/// Version of the schema. Version 1 had a position of the journal that nothing used (`folded`), version 2 no members.
const VERSION: i64 = 3;
/// Identifies our databases: "Sten".
const APPLICATION: i64 = 0x5374_656e;
/// Entries that one listing looks at.
const LISTED_MAX: i64 = 10_000;
/// How long a start waits for the lock of a server that is stopping.
const LOCK_WAIT: Duration = Duration::from_secs(2);
/// Pages cached: 8 MiB.
const CACHE: &str = "PRAGMA cache_size = -8192;";

const SCHEMA: &str = "
CREATE TABLE suppression (
    subject TEXT NOT NULL,
    scope TEXT NOT NULL,
    reason TEXT NOT NULL,
    source TEXT NOT NULL,
    note TEXT NOT NULL,
    since INTEGER NOT NULL,
    expires INTEGER,
    PRIMARY KEY (subject, scope)
) STRICT, WITHOUT ROWID;
CREATE INDEX suppression_expires ON suppression (expires) WHERE expires IS NOT NULL;
";
/// Converts a registry of version 1. `dkim` may be missing there.
const FROM_VERSION_1: &str = "DROP TABLE IF EXISTS folded;";

const COLUMNS: &str = "subject, scope, reason, source, note, since, expires";

/// How commits are synced. Only [`Durability::Full`] keeps the registry's promise; tests use the other one to show that
/// they would notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    Full,
    Off,
}

pub struct SqliteStore {
    connection: Connection,
    failed: Option<RegistryStoreError>,
}

impl SqliteStore {
    /// Opens or creates the database. Its folder must exist.
    pub fn open(path: &Path) -> Result<SqliteStore, OpenRegistryError> {
        SqliteStore::open_with(path, Durability::Full)
    }

    /// Creates a registry that is gone when it is closed, for simulations.
    pub fn in_memory() -> Result<SqliteStore, OpenRegistryError> {
        let failed = |error: rusqlite::Error| of_open(Path::new(":memory:"), &error);
        let connection = Connection::open_in_memory().map_err(failed)?;
        convert(&connection, &[SCHEMA, members::SCHEMA, confirmations::SCHEMA]).map_err(failed)?;
        Ok(SqliteStore { connection, failed: None })
    }

    /// As [`SqliteStore::open`], with another durability.
    pub fn open_with(path: &Path, durability: Durability) -> Result<SqliteStore, OpenRegistryError> {
        let failed = |error: rusqlite::Error| of_open(path, &error);
        let connection = connect(path).map_err(failed)?;
        // Looked at before anything is written: a file that is not ours stays as it is.
        let pragma = |name: &str| {
            connection.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0)).map_err(failed)
        };
        let (application, version) = (pragma("application_id")?, pragma("user_version")?);
        let changes: &[&str] = match (application, version) {
            (APPLICATION, VERSION) => &[],
            (APPLICATION, 1) => &[FROM_VERSION_1, members::SCHEMA, confirmations::SCHEMA],
            (APPLICATION, 2) => &[members::SCHEMA, confirmations::SCHEMA],
            (0, 0) if pragma("schema_version")? == 0 => &[SCHEMA, members::SCHEMA, confirmations::SCHEMA],
            (APPLICATION, version) if version > VERSION => {
                return Err(OpenRegistryError::Newer { path: path.to_owned(), version, known: VERSION });
            }
            _ => return Err(OpenRegistryError::Foreign { path: path.to_owned() }),
        };
        configure(&connection, durability).map_err(failed)?;
        if !changes.is_empty() {
            convert(&connection, changes).map_err(failed)?;
        }
        Ok(SqliteStore { connection, failed: None })
    }

    /// Runs `f` unless an earlier call failed for good, and remembers such a failure.
    fn trusted<T>(&mut self, f: impl FnOnce(&mut Connection) -> rusqlite::Result<T>) -> Result<T, RegistryStoreError> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        f(&mut self.connection).map_err(|error| {
            let error = of_use(&error);
            if error != RegistryStoreError::Full {
                self.failed = Some(error.clone());
            }
            error
        })
    }
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    // Who unsubscribed and who complained is nobody else's business. The WAL gets the same mode. An error shows below.
    let _ = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(LOCK_WAIT)?;
    // Before the first access, so that the index of the WAL is never a mapped file.
    connection.execute_batch("PRAGMA locking_mode = EXCLUSIVE;")?;
    Ok(connection)
}

fn configure(connection: &Connection, durability: Durability) -> rusqlite::Result<()> {
    connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get::<_, String>(0))?;
    connection.execute_batch(match durability {
        Durability::Full => "PRAGMA synchronous = FULL;",
        Durability::Off => "PRAGMA synchronous = OFF;",
    })?;
    connection.execute_batch(CACHE)?;
    // Takes the write lock, which is kept: a second server must fail now and not at its first change.
    connection.execute_batch("BEGIN IMMEDIATE; COMMIT;")
}

/// Makes a database one of this version, in one transaction.
fn convert(connection: &Connection, changes: &[&str]) -> rusqlite::Result<()> {
    let changes = changes.concat();
    connection.execute_batch(&format!(
        "BEGIN; {changes} {} PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION}; COMMIT;",
        dkim::SCHEMA
    ))
}

fn of_open(path: &Path, error: &rusqlite::Error) -> OpenRegistryError {
    let path: PathBuf = path.to_owned();
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => OpenRegistryError::Locked { path },
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            OpenRegistryError::Damaged { path, why: error.to_string() }
        }
        _ => OpenRegistryError::Open { path, why: error.to_string() },
    }
}

fn of_use(error: &rusqlite::Error) -> RegistryStoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => RegistryStoreError::Full,
        _ => RegistryStoreError::Failed(error.to_string()),
    }
}

impl RegistryStore for SqliteStore {
    fn dkim_states(&mut self) -> Result<Vec<DkimState>, RegistryStoreError> {
        self.trusted(|connection| dkim::load(connection))
    }

    fn load(&mut self, entry: &mut dyn FnMut(&Suppression)) -> Result<(), RegistryStoreError> {
        self.trusted(|connection| {
            let mut all = connection.prepare(&format!("SELECT {COLUMNS} FROM suppression"))?;
            let mut rows = all.query([])?;
            while let Some(row) = rows.next()? {
                entry(&read(row)?);
            }
            Ok(())
        })
    }

    fn commit(&mut self, changes: &[RegistryChange]) -> Result<Committed, RegistryStoreError> {
        self.trusted(|connection| {
            let transaction = connection.transaction()?;
            let mut rosters = Rosters::new(&transaction);
            let effects = changes.iter().map(|change| apply(&transaction, &mut rosters, change));
            let effects = effects.collect::<Result<_, _>>()?;
            let rosters = rosters.finish()?;
            transaction.commit()?;
            Ok(Committed { effects, rosters })
        })
    }

    fn rosters(&mut self) -> Result<Vec<RosterState>, RegistryStoreError> {
        self.trusted(|connection| members::rosters(connection))
    }

    fn silent(&mut self, visit: &mut dyn FnMut(&ListMember)) -> Result<(), RegistryStoreError> {
        self.trusted(|connection| members::silent(connection, visit))
    }

    fn members(&mut self, query: &MemberQuery) -> Result<Vec<ListMember>, RegistryStoreError> {
        self.trusted(|connection| members::list(connection, query))
    }

    fn departures(&mut self, subject: &Subject, rows_max: usize) -> Result<Vec<Departure>, RegistryStoreError> {
        self.trusted(|connection| members::departures(connection, subject, rows_max))
    }

    fn confirmation(&mut self, token: &[u8; 32], now: Ms) -> Result<Option<Confirmation>, RegistryStoreError> {
        self.trusted(|connection| confirmations::find(connection, token, now))
    }

    fn list(&mut self, query: &SuppressionQuery) -> Result<ListedSuppressions, RegistryStoreError> {
        self.trusted(
            |connection| {
                if query.subjects.is_empty() { page(connection, query) } else { of_subjects(connection, query) }
            },
        )
    }
}

fn apply(
    transaction: &Transaction<'_>,
    rosters: &mut Rosters<'_>,
    change: &RegistryChange,
) -> rusqlite::Result<RegistryEffect> {
    match change {
        RegistryChange::Add(entries) => add_all(transaction, rosters, entries).map(RegistryEffect::Added),
        RegistryChange::Remove(keys) => {
            let mut delete = transaction.prepare_cached("DELETE FROM suppression WHERE subject = ?1 AND scope = ?2")?;
            let removed = keys.iter().map(|key| Ok(delete.execute(params![key.subject.text(), key.scope.text()])? > 0));
            removed.collect::<rusqlite::Result<_>>().map(RegistryEffect::Removed)
        }
        RegistryChange::DeleteExpired { before, max } => delete_expired(transaction, *before, *max),
        RegistryChange::SetDkimState(state) => dkim::set(transaction, state).map(|()| RegistryEffect::DkimStateSet),
        RegistryChange::Join(new) => {
            let JoinResult { effects, ended } = rosters.join(new)?;
            Ok(RegistryEffect::Joined { effects, ended })
        }
        RegistryChange::SetDelivery(change) => rosters.set_delivery(change).map(RegistryEffect::DeliverySet),
        RegistryChange::DeleteMembers { list, max } => rosters.delete(list, *max).map(RegistryEffect::MembersDeleted),
        RegistryChange::Offer { token, confirmation, pause } => {
            confirmations::offer(transaction, rosters, token, confirmation, pause).map(RegistryEffect::Offer)
        }
        RegistryChange::Confirm { token, now } => confirm(transaction, rosters, token, *now),
    }
}

/// Uses a confirmation up, and does what it says.
fn confirm(
    transaction: &Transaction<'_>,
    rosters: &mut Rosters<'_>,
    token: &[u8; 32],
    now: Ms,
) -> rusqlite::Result<RegistryEffect> {
    let mut confirmation = confirmations::take(transaction, token, now)?;
    let (mut ended, mut entry) = (Vec::new(), None);
    match confirmation.as_ref().map(|found| found.action) {
        Some(ConfirmedAction::Join) => {
            if let Some(new) = confirmation.as_ref().and_then(|found| found.new_member(now)) {
                let JoinResult { effects, ended: lifted } = rosters.join(&new)?;
                ended = lifted;
                // An operator has banned the person since.
                confirmation = confirmation.filter(|_| !matches!(effects[..], [JoinEffect::LeftBefore(_)]));
            }
        }
        Some(ConfirmedAction::Leave) => {
            entry = confirmation.as_ref().and_then(|found| found.suppression(now));
            add_all(transaction, rosters, entry.as_slice())?;
        }
        None => {}
    }
    Ok(RegistryEffect::Confirmed { confirmation: confirmation.map(Box::new), ended, entry: entry.map(Box::new) })
}

/// Whether an operator keeps a person off a list, until the operator ends it.
fn is_ban(entry: &Suppression) -> bool {
    matches!(entry.key.scope, Scope::List(_)) && entry.reason == SuppressionReason::Operator && entry.expires.is_none()
}

/// Adds entries. One for a list without an end ends the membership, too.
fn add_all(
    transaction: &Transaction<'_>,
    rosters: &mut Rosters<'_>,
    entries: &[Suppression],
) -> rusqlite::Result<Vec<EntryEffect>> {
    let mut find =
        transaction.prepare_cached("SELECT expires, reason FROM suppression WHERE subject = ?1 AND scope = ?2")?;
    let mut relabel = transaction
        .prepare_cached("UPDATE suppression SET reason = ?3, source = ?4 WHERE subject = ?1 AND scope = ?2")?;
    let mut put = transaction.prepare_cached(&format!(
        "INSERT OR REPLACE INTO suppression ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)"
    ))?;
    let mut effects = Vec::with_capacity(entries.len());
    for entry in entries {
        let (subject, scope) = (entry.key.subject.text(), entry.key.scope.text());
        let before: Option<(Option<i64>, String)> =
            find.query_row([&subject, &scope], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        let (reason, source, note) = (entry.reason.name(), &*entry.source, &*entry.note);
        // Only where people join by themselves must a ban outlast what they do.
        let is_joined_here = match &entry.key.scope {
            Scope::List(list) => rosters.find(list)?.is_some(),
            Scope::Everything | Scope::Sender(_) => false,
        };
        let effect = match before.map(|(expires, reason)| (expires.map(|ms| ms as Ms), reason)) {
            None => EntryEffect::Added,
            Some((expires, _)) if entry.outlasts(expires) => EntryEffect::Extended,
            // A ban is not undone by what the person does, and replaces it.
            Some((_, before)) if is_joined_here && is_ban(entry) && before != reason => EntryEffect::Extended,
            Some((_, before)) if is_joined_here && before == SuppressionReason::Operator.name() => {
                EntryEffect::Unchanged
            }
            Some((expires, before)) if entry.reason == SuppressionReason::Complaint && before != reason => {
                EntryEffect::ReasonChanged { expires }
            }
            Some(_) => EntryEffect::Unchanged,
        };
        match effect {
            EntryEffect::Added | EntryEffect::Extended => {
                let expires = entry.expires.map(signed);
                put.execute(params![subject, scope, reason, source, note, signed(entry.since), expires])?;
            }
            EntryEffect::ReasonChanged { .. } => {
                relabel.execute(params![subject, scope, reason, source])?;
            }
            EntryEffect::Unchanged => {}
        }
        if let Scope::List(list) = &entry.key.scope
            && entry.expires.is_none()
        {
            rosters.leave(list, &entry.key.subject, &NewDeparture::of(entry))?;
        }
        effects.push(effect);
    }
    Ok(effects)
}

fn delete_expired(transaction: &Transaction<'_>, before: Ms, max: usize) -> rusqlite::Result<RegistryEffect> {
    let mut delete = transaction.prepare_cached(
        "DELETE FROM suppression WHERE (subject, scope) IN
         (SELECT subject, scope FROM suppression WHERE expires < ?1 ORDER BY expires LIMIT ?2)
         RETURNING subject, scope",
    )?;
    let mut rows = delete.query(params![signed(before), signed(max as u64)])?;
    let mut keys = Vec::new();
    while let Some(row) = rows.next()? {
        keys.push(key(row)?);
    }
    Ok(RegistryEffect::Expired(keys))
}

/// Entries in order, a bounded number looked at.
fn page(connection: &Connection, query: &SuppressionQuery) -> rusqlite::Result<ListedSuppressions> {
    let mut all = connection.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM suppression WHERE (subject, scope) > (?1, ?2) ORDER BY subject, scope LIMIT ?3"
    ))?;
    let after = query.after.as_ref().map(|key| (key.subject.text(), key.scope.text())).unwrap_or_default();
    let mut rows = all.query(params![after.0, after.1, LISTED_MAX])?;
    let (mut listed, mut seen) = (ListedSuppressions::default(), 0);
    while let Some(row) = rows.next()? {
        let entry = read(row)?;
        seen += 1;
        let is_wanted = query.scope.as_ref().is_none_or(|scope| *scope == entry.key.scope.text())
            && query.reason.is_none_or(|reason| reason == entry.reason);
        let key = entry.key.clone();
        if is_wanted {
            listed.rows.push(entry);
        }
        if listed.rows.len() >= query.rows_max || seen == LISTED_MAX {
            listed.next = Some(key);
            break;
        }
    }
    Ok(listed)
}

fn of_subjects(connection: &Connection, query: &SuppressionQuery) -> rusqlite::Result<ListedSuppressions> {
    let mut of_one = connection.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM suppression WHERE subject = ?1 AND (?2 IS NULL OR scope = ?2) ORDER BY scope LIMIT ?3"
    ))?;
    let mut listed = ListedSuppressions::default();
    for subject in &query.subjects {
        let mut rows = of_one.query(params![subject, query.scope, LISTED_MAX.min(signed(query.rows_max as u64))])?;
        while let Some(row) = rows.next()? {
            let entry = read(row)?;
            if query.reason.is_none_or(|reason| reason == entry.reason) {
                listed.rows.push(entry);
            }
        }
    }
    Ok(listed)
}

fn key(row: &Row<'_>) -> rusqlite::Result<SuppressionKey> {
    let (subject, scope) = (row.get_ref(0)?.as_str()?, row.get_ref(1)?.as_str()?);
    SuppressionKey::parse(subject, scope).map_err(|error| unreadable(0, error))
}

fn read(row: &Row<'_>) -> rusqlite::Result<Suppression> {
    let reason = SuppressionReason::parse(row.get_ref(2)?.as_str()?).map_err(|error| unreadable(2, error))?;
    Ok(Suppression {
        key: key(row)?,
        reason,
        source: row.get_ref(3)?.as_str()?.into(),
        note: row.get_ref(4)?.as_str()?.into(),
        since: row.get::<_, i64>(5)? as Ms,
        expires: row.get::<_, Option<i64>>(6)?.map(|ms| ms as Ms),
    })
}

fn unreadable(column: usize, error: crate::SuppressionError) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, Box::new(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::confirmations::{NOTIFY_PAUSE_MS, OfferEffect, OfferPause};
    use crate::members::{DeliveryChange, JoinEffect, JoinedBy, Member, MemberAddition, MemberDelivery, RosterChange};

    fn entry(subject: &str, expires: Option<Ms>) -> Suppression {
        let subject = Subject::parse(subject).unwrap();
        let entry = Suppression::new(subject, Scope::Everything, SuppressionReason::Bounce, "test", 7);
        Suppression { expires, ..entry }
    }

    fn store() -> (tempfile::TempDir, SqliteStore) {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&folder.path().join(crate::FILE)).unwrap();
        (folder, store)
    }

    fn all(store: &mut SqliteStore) -> Vec<Suppression> {
        let mut all = Vec::new();
        store.load(&mut |entry| all.push(entry.clone())).unwrap();
        all
    }

    #[test]
    fn the_entry_that_lasts_longer_stays() {
        let (_folder, mut store) = store();
        let mut add = |entry: Suppression| store.commit(&[RegistryChange::Add(vec![entry])]).unwrap().effects;
        let added = |effect| vec![RegistryEffect::Added(vec![effect])];
        assert_eq!(add(entry("a@x.example", Some(10))), added(EntryEffect::Added));
        assert_eq!(add(entry("A@x.example", Some(9))), added(EntryEffect::Unchanged));
        assert_eq!(add(entry("a@x.example", Some(11))), added(EntryEffect::Extended));
        assert_eq!(add(entry("a@x.example", None)), added(EntryEffect::Extended));
        assert_eq!(add(entry("a@x.example", Some(99))), added(EntryEffect::Unchanged));
        assert_eq!(all(&mut store), [entry("a@x.example", None)]);
    }

    #[test]
    fn a_complaint_changes_the_reason_and_no_end() {
        let (_folder, mut store) = store();
        let mut add = |entry: Suppression| store.commit(&[RegistryChange::Add(vec![entry])]).unwrap().effects;
        let added = |effect| vec![RegistryEffect::Added(vec![effect])];
        let complaint = |expires| Suppression {
            reason: SuppressionReason::Complaint,
            source: "complaint".into(),
            since: 9,
            ..entry("a@x.example", expires)
        };
        let before = Suppression { note: "by phone".into(), ..entry("a@x.example", None) };
        add(before.clone());
        assert_eq!(add(complaint(Some(5))), added(EntryEffect::ReasonChanged { expires: None }));
        assert_eq!(add(complaint(None)), added(EntryEffect::Unchanged));
        assert_eq!(add(entry("a@x.example", Some(99))), added(EntryEffect::Unchanged), "other reasons change none");
        let after = Suppression { reason: SuppressionReason::Complaint, source: "complaint".into(), ..before };
        assert_eq!(all(&mut store), [after]);
    }

    /// A registry as version 1 made it.
    const VERSION_1: &str = "
        CREATE TABLE suppression (
            subject TEXT NOT NULL, scope TEXT NOT NULL, reason TEXT NOT NULL, source TEXT NOT NULL, note TEXT NOT NULL,
            since INTEGER NOT NULL, expires INTEGER, PRIMARY KEY (subject, scope)
        ) STRICT, WITHOUT ROWID;
        CREATE INDEX suppression_expires ON suppression (expires) WHERE expires IS NOT NULL;
        CREATE TABLE folded (log TEXT PRIMARY KEY, position INTEGER NOT NULL) STRICT, WITHOUT ROWID;
        CREATE TABLE dkim (domain TEXT PRIMARY KEY, state TEXT NOT NULL) STRICT, WITHOUT ROWID;
        PRAGMA application_id = 0x5374656e; PRAGMA user_version = 1; PRAGMA journal_mode = WAL;
        INSERT INTO suppression VALUES ('a@x.example', 'list:news', 'complaint', 'fbl', 'n', 7, 99);
        INSERT INTO suppression VALUES ('@y.example', 'everything', 'bounce', 'test', '', 8, NULL);
        INSERT INTO dkim VALUES ('x.example', 'state');
        INSERT INTO folded VALUES ('journal', 6);";

    #[test]
    fn a_registry_of_version_1_opens_with_equal_state_and_is_closed_to_older_programs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(crate::FILE);
        Connection::open(&path).unwrap().execute_batch(VERSION_1).unwrap();
        // A start that was killed after the conversion finds it done.
        for _ in 0..2 {
            let mut store = SqliteStore::open(&path).unwrap();
            let subjects: Vec<_> =
                all(&mut store).iter().map(|entry| (entry.key.subject.text(), entry.since)).collect();
            assert_eq!(subjects, [("@y.example".to_owned(), 8), ("a@x.example".to_owned(), 7)]);
            let complaint = &all(&mut store)[1];
            assert_eq!((&*complaint.source, &*complaint.note, complaint.expires), ("fbl", "n", Some(99)));
            assert_eq!((complaint.key.scope.text().as_str(), complaint.reason.name()), ("list:news", "complaint"));
            let state = DkimState { domain: "x.example".to_owned(), state: "state".to_owned() };
            assert_eq!(store.dkim_states(), Ok(vec![state]));
            let tables = "SELECT count(*) FROM sqlite_schema WHERE name = 'folded'";
            assert_eq!(store.connection.query_row(tables, [], |row| row.get(0)), Ok(0));
        }
        // Version 2 differs from 3 only in the tables of members and confirmations, which are made.
        let mut store = SqliteStore::open(&path).unwrap();
        let effects = store.commit(&[join(false), offer(1, 10)]).unwrap().effects;
        assert_eq!(effects[1], RegistryEffect::Offer(OfferEffect::AlreadyMember));
        drop(store);
        // What a program of version 1 looks at first: it refuses a larger number.
        let connection = Connection::open(&path).unwrap();
        assert_eq!(connection.query_row("PRAGMA user_version", [], |row| row.get(0)), Ok(3));
    }

    #[test]
    fn a_transaction_that_fails_leaves_nothing() {
        let (_folder, mut store) = store();
        store.commit(&[RegistryChange::Add(vec![entry("a@x.example", None)])]).unwrap();
        // A limit of pages stands for a full disk.
        store.connection.execute_batch("PRAGMA max_page_count = 1;").unwrap();
        let many = (0..1_000).map(|n| entry(&format!("{n}@x.example"), None)).collect();
        let full =
            store.commit(&[RegistryChange::Remove(vec![entry("a@x.example", None).key]), RegistryChange::Add(many)]);
        assert_eq!(full, Err(RegistryStoreError::Full));
        assert_eq!(all(&mut store), [entry("a@x.example", None)]);
        store.connection.execute_batch("PRAGMA max_page_count = 1000000;").unwrap();
        store.commit(&[RegistryChange::Add(vec![entry("b@x.example", None)])]).unwrap();
        assert_eq!(all(&mut store).len(), 2);
    }

    #[test]
    fn expired_entries_are_deleted_oldest_first() {
        let (_folder, mut store) = store();
        let entries = vec![entry("a@x.example", Some(30)), entry("b@x.example", Some(10)), entry("c@x.example", None)];
        store.commit(&[RegistryChange::Add(entries)]).unwrap();
        let mut delete = |before, max| store.commit(&[RegistryChange::DeleteExpired { before, max }]).unwrap().effects;
        let expired = |subjects: &[&str]| {
            vec![RegistryEffect::Expired(subjects.iter().map(|subject| entry(subject, None).key).collect())]
        };
        assert_eq!(delete(10, 5), expired(&[]));
        assert_eq!(delete(31, 1), expired(&["b@x.example"]));
        assert_eq!(delete(31, 5), expired(&["a@x.example"]));
        assert_eq!(delete(Ms::MAX, 5), expired(&[]));
    }

    #[test]
    fn pages_continue_where_the_last_one_ended() {
        let (_folder, mut store) = store();
        let entries: Vec<_> = (0..9).map(|n| entry(&format!("{n}@x.example"), None)).collect();
        store.commit(&[RegistryChange::Add(entries.clone())]).unwrap();
        let mut query = SuppressionQuery { rows_max: 4, ..SuppressionQuery::default() };
        let mut found = Vec::new();
        loop {
            let listed = store.list(&query).unwrap();
            assert!(listed.rows.len() <= 4);
            found.extend(listed.rows);
            query.after = listed.next;
            if query.after.is_none() {
                break;
            }
        }
        assert_eq!(found, entries);
        let subjects = vec!["3@x.example".to_owned(), "@x.example".to_owned()];
        let of_one = SuppressionQuery { subjects, rows_max: 4, ..SuppressionQuery::default() };
        assert_eq!(store.list(&of_one).unwrap().rows, [entries[3].clone()]);
        let complaint = Suppression { reason: SuppressionReason::Complaint, ..entry("z@x.example", None) };
        store.commit(&[RegistryChange::Add(vec![complaint.clone()])]).unwrap();
        let reason = Some(SuppressionReason::Complaint);
        let of_reason = SuppressionQuery { reason, rows_max: 4, ..SuppressionQuery::default() };
        assert_eq!(store.list(&of_reason).unwrap().rows, [complaint]);
        assert_eq!(store.list(&SuppressionQuery { reason, ..of_one }).unwrap().rows, []);
    }

    #[test]
    fn files_that_are_not_ours_are_refused_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, "this is not a database, whatever its name may say".repeat(99)).unwrap();
        let before = std::fs::read(&path).unwrap();
        assert!(matches!(SqliteStore::open(&path), Err(OpenRegistryError::Damaged { .. })));
        assert_eq!(std::fs::read(&path).unwrap(), before);
        let path = folder.path().join("foreign");
        Connection::open(&path).unwrap().execute_batch("CREATE TABLE a (b)").unwrap();
        let before = std::fs::read(&path).unwrap();
        assert!(matches!(SqliteStore::open(&path), Err(OpenRegistryError::Foreign { .. })));
        assert_eq!(std::fs::read(&path).unwrap(), before);
        let path = folder.path().join("newer");
        let store = SqliteStore::open(&path).unwrap();
        store.connection.execute_batch("PRAGMA user_version = 4").unwrap();
        drop(store);
        assert!(matches!(SqliteStore::open(&path), Err(OpenRegistryError::Newer { version: 4, .. })));
        let path = folder.path().join("no such folder").join("x");
        assert!(matches!(SqliteStore::open(&path), Err(OpenRegistryError::Open { .. })));
    }

    #[test]
    fn damage_is_found_when_the_entries_are_read() {
        let (folder, mut store) = store();
        let entries = (0..1_000).map(|n| entry(&format!("{n}@x.example"), None)).collect();
        store.commit(&[RegistryChange::Add(entries)]).unwrap();
        drop(store);
        let path = folder.path().join(crate::FILE);
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() - 8 * 4096;
        bytes[middle..middle + 4096].fill(0xff);
        std::fs::write(&path, bytes).unwrap();
        let mut store = SqliteStore::open(&path).unwrap();
        assert!(matches!(store.load(&mut |_| {}), Err(RegistryStoreError::Failed(_))));
        assert!(matches!(store.commit(&[]), Err(RegistryStoreError::Failed(_))), "nothing is trusted after that");
    }

    fn ann(delivery: MemberDelivery) -> Member {
        let address = "Ann@X.example".parse().unwrap();
        Member { address, name: "Ann".to_owned(), delivery, joined: 5, source: "test".to_owned() }
    }

    fn join(again: bool) -> RegistryChange {
        let members = vec![ann(MemberDelivery::Mail)];
        RegistryChange::Join(MemberAddition {
            list: "news".to_owned(),
            members,
            by: JoinedBy::Operator { again },
            now: 10,
        })
    }

    fn joined(effect: JoinEffect, ended: Vec<SuppressionKey>) -> RegistryEffect {
        RegistryEffect::Joined { effects: vec![effect], ended }
    }

    fn unsubscribe(list: &str, expires: Option<Ms>) -> Suppression {
        let (subject, scope) = (Subject::parse("ann@x.example").unwrap(), Scope::list(list).unwrap());
        Suppression { expires, ..Suppression::new(subject, scope, SuppressionReason::Unsubscribe, "link", 9) }
    }

    fn members_of(store: &mut SqliteStore, list: &str) -> Vec<Member> {
        let query = MemberQuery { list: Some(list.to_owned()), rows_max: 9, ..MemberQuery::default() };
        store.members(&query).unwrap().into_iter().map(|row| row.member).collect()
    }

    #[test]
    fn a_member_of_a_list_is_not_suppressed_for_it() {
        let (_folder, mut store) = store();
        let commit = |store: &mut SqliteStore, change| store.commit(&[change]).unwrap();
        let first = commit(&mut store, join(false));
        assert_eq!(first.effects, [joined(JoinEffect::Joined, Vec::new())]);
        assert_eq!(commit(&mut store, join(false)).effects, [joined(JoinEffect::AlreadyMember, Vec::new())]);
        assert_eq!(members_of(&mut store, "news"), [ann(MemberDelivery::Mail)]);
        // Another list, or an entry that ends: still a member.
        for entry in [unsubscribe("talk", None), unsubscribe("news", Some(99))] {
            assert_eq!(commit(&mut store, RegistryChange::Add(vec![entry])).rosters, []);
        }
        let entry = unsubscribe("news", None);
        let left = commit(&mut store, RegistryChange::Add(vec![entry.clone()]));
        let address = ann(MemberDelivery::Mail).address;
        assert_eq!(left.rosters[0].changes, [RosterChange { address, delivery: None }]);
        assert_eq!(left.rosters[0].state.members, 0);
        assert_ne!(left.rosters[0].state.stamp, first.rosters[0].state.stamp);
        assert_eq!(members_of(&mut store, "news"), []);
        let departures = store.departures(&entry.key.subject, 9).unwrap();
        assert_eq!((departures.len(), departures[0].joined, departures[0].at), (1, 5, 9));
        // Whoever left is added only on purpose.
        let refused = joined(JoinEffect::LeftBefore(SuppressionReason::Unsubscribe), Vec::new());
        assert_eq!(commit(&mut store, join(false)).effects, [refused]);
        assert_eq!(commit(&mut store, join(true)).effects, [joined(JoinEffect::Joined, vec![entry.key])]);
    }

    #[test]
    fn silent_members_and_stamps_are_read_again() {
        let (folder, mut store) = store();
        let subjects = vec![ann(MemberDelivery::Mail).subject(), Subject::parse("bob@x.example").unwrap()];
        let change = DeliveryChange { list: "news".to_owned(), subjects, delivery: MemberDelivery::None };
        let committed = store.commit(&[join(false), RegistryChange::SetDelivery(change)]).unwrap();
        assert_eq!(committed.effects[1], RegistryEffect::DeliverySet(vec![true, false]));
        drop(store);
        let mut store = SqliteStore::open(&folder.path().join(crate::FILE)).unwrap();
        assert_eq!(store.rosters().unwrap(), [committed.rosters[0].state.clone()]);
        let mut silent = Vec::new();
        store.silent(&mut |row| silent.push(row.member.clone())).unwrap();
        assert_eq!(silent, [ann(MemberDelivery::None)]);
        let delete = || RegistryChange::DeleteMembers { list: "news".to_owned(), max: 2 };
        let gone = store.commit(&[delete(), delete()]).unwrap();
        assert_eq!(gone.effects, [RegistryEffect::MembersDeleted(1), RegistryEffect::MembersDeleted(0)]);
        assert_eq!(store.rosters().unwrap(), []);
    }

    fn offer(token: u8, since: Ms) -> RegistryChange {
        let confirmation = Confirmation {
            list: "news".to_owned(),
            address: "Ann@x.example".to_owned(),
            name: String::new(),
            action: ConfirmedAction::Join,
            source: "test".to_owned(),
            since,
            expires: since + 1_000,
        };
        let pause = OfferPause { reader: confirmation.address.clone(), is_proven: false };
        RegistryChange::Offer { token: [token; 32], confirmation, pause }
    }

    #[test]
    fn a_confirmation_works_once_and_nobody_is_mailed_twice_a_day() {
        let (_folder, mut store) = store();
        let mut one = |change| store.commit(&[change]).unwrap().effects.remove(0);
        let confirm = |token: u8, now| RegistryChange::Confirm { token: [token; 32], now };
        let name = |effect| match effect {
            RegistryEffect::Confirmed { confirmation, .. } => confirmation.map(|found| found.address),
            other => panic!("{other:?}"),
        };
        assert_eq!(one(offer(1, 10)), RegistryEffect::Offer(OfferEffect::Offered));
        assert_eq!(one(offer(2, 11)), RegistryEffect::Offer(OfferEffect::MailedRecently));
        assert_eq!(name(one(confirm(2, 12))), None, "it was not stored");
        assert_eq!(name(one(confirm(1, 1_010))), None, "expired");
        assert_eq!(one(offer(3, 10 + NOTIFY_PAUSE_MS)), RegistryEffect::Offer(OfferEffect::Offered));
        let now = 20 + NOTIFY_PAUSE_MS;
        assert_eq!(name(one(confirm(3, now))).as_deref(), Some("Ann@x.example"));
        assert_eq!(name(one(confirm(3, now))), None, "used up");
        assert_eq!(one(offer(4, now)), RegistryEffect::Offer(OfferEffect::AlreadyMember));
    }

    #[test]
    fn details_of_an_address_are_one_mailbox() {
        let (_folder, mut store) = store();
        let mut one = |token, address: &str| {
            let RegistryChange::Offer { token, confirmation, pause } = offer(token, 10) else { panic!("an offer") };
            let confirmation = Confirmation { address: address.to_owned(), ..confirmation };
            let pause = OfferPause { reader: address.to_owned(), ..pause };
            store.commit(&[RegistryChange::Offer { token, confirmation, pause }]).unwrap().effects.remove(0)
        };
        assert_eq!(one(1, "ann+1@x.example"), RegistryEffect::Offer(OfferEffect::Offered));
        for more in ["ann+2@x.example", "ANN@x.example", "ann+1+2@x.example"] {
            assert_eq!(one(2, more), RegistryEffect::Offer(OfferEffect::MailedRecently), "{more}");
        }
        assert_eq!(one(3, "anne@x.example"), RegistryEffect::Offer(OfferEffect::Offered));
    }

    #[test]
    fn two_processes_cannot_share_it() {
        let (folder, _store) = store();
        let second = SqliteStore::open(&folder.path().join(crate::FILE));
        assert!(matches!(second, Err(OpenRegistryError::Locked { .. })));
    }
}
