//! Members of lists: rows, and the statements that change and read them.
//!
//! Promise: an address is a member of a list or suppressed for it without end, never both: an entry for a list removes
//! the membership in its transaction (`sqlite.rs`), and joining removes the entry. Each change of a list's members
//! gives its roster another stamp, which depends on all changes before it, so that a restored backup has its own.

use std::collections::BTreeMap;

use rusqlite::{OptionalExtension, Row, Transaction, params};
use sha2::{Digest, Sha256};
use stentor_mail::address::Address;

use crate::suppression::{Scope, Subject, SuppressionError, SuppressionKey, SuppressionReason, check_text};
use crate::{Ms, signed};

/// Longest name of a person, in octets.
pub const NAME_BYTES_MAX: usize = 200;
/// Octets of the digest in a roster's stamp.
const STAMP_BYTES: usize = size_of::<u64>();

/// `member.address` is the canonical subject; `spelling` is what mail is sent to.
pub(crate) const SCHEMA: &str = "
CREATE TABLE roster (id INTEGER PRIMARY KEY, list TEXT NOT NULL UNIQUE, stamp TEXT NOT NULL, members INTEGER NOT NULL) STRICT;
CREATE TABLE member (
    roster INTEGER NOT NULL REFERENCES roster (id),
    address TEXT NOT NULL,
    spelling TEXT NOT NULL,
    name TEXT NOT NULL,
    delivery TEXT NOT NULL,
    joined INTEGER NOT NULL,
    source TEXT NOT NULL,
    PRIMARY KEY (roster, address)
) STRICT, WITHOUT ROWID;
CREATE INDEX member_address ON member (address);
CREATE INDEX member_silent ON member (roster, address) WHERE delivery <> 'mail';
CREATE TABLE departure (
    address TEXT NOT NULL,
    list TEXT NOT NULL,
    joined INTEGER NOT NULL,
    joined_source TEXT NOT NULL,
    at INTEGER NOT NULL,
    reason TEXT NOT NULL,
    source TEXT NOT NULL
) STRICT;
CREATE INDEX departure_address ON departure (address);
";

/// Which posts a member gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemberDelivery {
    /// Each post, by mail.
    Mail,
    /// No posts; the member may post.
    None,
}

/// A member of a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// As the person writes it.
    pub address: Address,
    /// The person's name; may be empty.
    pub name: String,
    pub delivery: MemberDelivery,
    pub joined: Ms,
    /// Who or what made the person a member: `mail 192.0.2.1`, `uid=0(root) pid=812`.
    pub source: String,
}

/// One person's membership of one list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListMember {
    pub list: String,
    pub member: Member,
}

/// Members to add to a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberAddition {
    pub list: String,
    pub members: Vec<Member>,
    pub by: JoinedBy,
    pub now: Ms,
}

/// Who adds members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JoinedBy {
    /// The person, who has confirmed it. Whoever an operator suppressed for the list cannot join.
    Person,
    /// An operator or a program. Those who left, complained, failed or were banned are added only `again`.
    Operator { again: bool },
}

impl JoinedBy {
    /// Whether an entry for the list with this reason keeps a person out.
    fn is_kept_out(self, reason: SuppressionReason) -> bool {
        match self {
            JoinedBy::Person => reason == SuppressionReason::Operator,
            JoinedBy::Operator { again } => !again,
        }
    }
}

/// The effect of adding members.
pub(crate) struct JoinResult {
    /// One per member, in order.
    pub effects: Vec<JoinEffect>,
    /// Entries that ended.
    pub ended: Vec<SuppressionKey>,
}

/// What became of a member to add.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JoinEffect {
    Joined,
    AlreadyMember,
    /// The person left, complained or was banned before, and was not added.
    LeftBefore(SuppressionReason),
}

/// The end of a membership.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Departure {
    pub list: String,
    pub joined: Ms,
    pub joined_source: String,
    pub at: Ms,
    pub reason: SuppressionReason,
    pub source: String,
}

/// Which members to list: of a list in the order of their addresses, or one person's in the order of the lists.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MemberQuery {
    pub list: Option<String>,
    pub address: Option<Subject>,
    /// Only members after this address.
    pub after: Option<String>,
    pub rows_max: usize,
}

/// What is known of a list's members as a whole.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RosterState {
    pub list: String,
    pub stamp: String,
    pub members: u64,
}

/// A change of one member, as posts see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RosterChange {
    pub address: Address,
    /// `None`: no longer a member.
    pub delivery: Option<MemberDelivery>,
}

/// The changes of one list in a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RosterUpdate {
    pub state: RosterState,
    pub changes: Vec<RosterChange>,
}

impl MemberDelivery {
    pub const ALL: [MemberDelivery; 2] = [MemberDelivery::Mail, MemberDelivery::None];

    pub fn name(self) -> &'static str {
        match self {
            MemberDelivery::Mail => "mail",
            MemberDelivery::None => "none",
        }
    }

    pub fn parse(text: &str) -> Option<MemberDelivery> {
        MemberDelivery::ALL.into_iter().find(|delivery| delivery.name() == text)
    }
}

impl Member {
    /// Checks the texts, which become fields of logs and lines of CSV.
    pub fn check(&self) -> Result<(), SuppressionError> {
        check_text("name", &self.name, NAME_BYTES_MAX)?;
        check_text("source", &self.source, crate::suppression::TEXT_BYTES_MAX)
    }

    /// The person, whatever the spelling of the address.
    pub fn subject(&self) -> Subject {
        Subject::Address(self.address.as_str().to_ascii_lowercase().into())
    }
}

/// A list's row during a transaction.
struct OpenRoster {
    id: i64,
    /// Its count changed without changes that posts see.
    is_touched: bool,
    update: RosterUpdate,
}

/// The rosters that a transaction touches.
pub(crate) struct Rosters<'t> {
    transaction: &'t Transaction<'t>,
    open: BTreeMap<String, OpenRoster>,
}

impl<'t> Rosters<'t> {
    pub fn new(transaction: &'t Transaction<'t>) -> Rosters<'t> {
        Rosters { transaction, open: BTreeMap::new() }
    }

    /// Returns the id of a list's roster, if it has one.
    pub fn find(&mut self, list: &str) -> rusqlite::Result<Option<i64>> {
        if let Some(open) = self.open.get(list) {
            return Ok(Some(open.id));
        }
        let mut find = self.transaction.prepare_cached("SELECT id, stamp, members FROM roster WHERE list = ?1")?;
        let found = find.query_row([list], |row| {
            let state =
                RosterState { list: list.to_owned(), stamp: row.get(1)?, members: row.get::<_, i64>(2)? as u64 };
            Ok(OpenRoster { id: row.get(0)?, is_touched: false, update: RosterUpdate { state, changes: Vec::new() } })
        });
        let Some(open) = found.optional()? else { return Ok(None) };
        let id = open.id;
        self.open.insert(list.to_owned(), open);
        Ok(Some(id))
    }

    fn find_or_create(&mut self, list: &str) -> rusqlite::Result<i64> {
        if let Some(id) = self.find(list)? {
            return Ok(id);
        }
        self.transaction.execute("INSERT INTO roster (list, stamp, members) VALUES (?1, '', 0)", [list])?;
        self.find(list)?.ok_or(rusqlite::Error::QueryReturnedNoRows)
    }

    /// Records a change; `added`: members more.
    fn changed(&mut self, list: &str, added: i64, change: RosterChange) {
        if let Some(open) = self.open.get_mut(list) {
            open.update.state.members = open.update.state.members.saturating_add_signed(added);
            open.update.changes.push(change);
        }
    }

    /// Adds members, and ends their entries for the list, unless those keep them out. Returns for each what became of
    /// it, and the entries that ended.
    pub fn join(&mut self, new: &MemberAddition) -> rusqlite::Result<JoinResult> {
        let id = self.find_or_create(&new.list)?;
        let scope = Scope::List(new.list.as_str().into());
        let mut left = self
            .transaction
            .prepare_cached("SELECT reason FROM suppression WHERE subject = ?1 AND scope = ?2 AND expires IS NULL")?;
        let mut end = self.transaction.prepare_cached("DELETE FROM suppression WHERE subject = ?1 AND scope = ?2")?;
        let mut put = self.transaction.prepare_cached(
            "INSERT OR IGNORE INTO member (roster, address, spelling, name, delivery, joined, source)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?;
        let (mut effects, mut ended) = (Vec::with_capacity(new.members.len()), Vec::new());
        for member in &new.members {
            let subject = member.subject();
            let (text, scope_text) = (subject.text(), scope.text());
            // A ban of a domain, or for a time, stays whoever adds its people.
            let reason: Option<String> = left.query_row([&text, &scope_text], |row| row.get(0)).optional()?;
            if reason.is_none() && self.is_banned(&new.list, &subject, new.now)? {
                effects.push(JoinEffect::LeftBefore(SuppressionReason::Operator));
                continue;
            }
            let reason = reason.and_then(|reason| SuppressionReason::parse(&reason).ok());
            if let Some(reason) = reason {
                if new.by.is_kept_out(reason) {
                    effects.push(JoinEffect::LeftBefore(reason));
                    continue;
                }
                end.execute([&text, &scope_text])?;
                ended.push(SuppressionKey { subject, scope: scope.clone() });
            }
            let (spelling, delivery) = (member.address.as_str(), member.delivery.name());
            let joined = signed(member.joined);
            let is_new = put.execute(params![id, text, spelling, member.name, delivery, joined, member.source])? > 0;
            effects.push(if is_new { JoinEffect::Joined } else { JoinEffect::AlreadyMember });
            if is_new {
                let change = RosterChange { address: member.address.clone(), delivery: Some(member.delivery) };
                self.changed(&new.list, 1, change);
            }
        }
        Ok(JoinResult { effects, ended })
    }

    /// Ends a membership, if there is one.
    pub fn leave(&mut self, list: &str, subject: &Subject, departure: &NewDeparture<'_>) -> rusqlite::Result<bool> {
        let Some(id) = self.find(list)? else { return Ok(false) };
        let mut delete = self.transaction.prepare_cached(
            "DELETE FROM member WHERE roster = ?1 AND address = ?2 RETURNING spelling, joined, source",
        )?;
        let text = subject.text();
        let row = delete.query_row(params![id, text], |row| {
            Ok((address(row, 0)?, row.get::<_, i64>(1)?, row.get::<_, String>(2)?))
        });
        let Some((address, joined, joined_source)) = row.optional()? else { return Ok(false) };
        let mut put = self.transaction.prepare_cached(
            "INSERT INTO departure (address, list, joined, joined_source, at, reason, source)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?;
        let NewDeparture { at, reason, source } = *departure;
        put.execute(params![text, list, joined, joined_source, signed(at), reason.name(), source])?;
        self.changed(list, -1, RosterChange { address, delivery: None });
        Ok(true)
    }

    /// Changes which posts members get. Returns for each whether it is a member.
    pub fn set_delivery(&mut self, change: &DeliveryChange) -> rusqlite::Result<Vec<bool>> {
        let id = self.find(&change.list)?;
        let mut set = self
            .transaction
            .prepare_cached("UPDATE member SET delivery = ?3 WHERE roster = ?1 AND address = ?2 RETURNING spelling")?;
        let mut all = Vec::with_capacity(change.subjects.len());
        for subject in &change.subjects {
            let row = set.query_row(params![id, subject.text(), change.delivery.name()], |row| address(row, 0));
            let found = row.optional()?;
            all.push(found.is_some());
            if let Some(address) = found {
                self.changed(&change.list, 0, RosterChange { address, delivery: Some(change.delivery) });
            }
        }
        Ok(all)
    }

    /// Deletes up to `max` members of a list that no longer exists, and its roster with the last ones.
    pub fn delete(&mut self, list: &str, max: usize) -> rusqlite::Result<usize> {
        let Some(id) = self.find(list)? else { return Ok(0) };
        let deleted = self.transaction.execute(
            "DELETE FROM member WHERE roster = ?1
             AND address IN (SELECT address FROM member WHERE roster = ?1 ORDER BY address LIMIT ?2)",
            params![id, signed(max as u64)],
        )?;
        if deleted < max {
            self.transaction.execute("DELETE FROM roster WHERE id = ?1", [id])?;
            self.open.remove(list);
            self.transaction.execute("DELETE FROM confirmation WHERE list = ?1", [list])?;
        } else if let Some(open) = self.open.get_mut(list) {
            open.update.state.members -= deleted as u64;
            open.is_touched = true;
        }
        Ok(deleted)
    }

    /// Whether an operator suppressed a person for the list, or the person's domain.
    pub fn is_banned(&self, list: &str, subject: &Subject, now: Ms) -> rusqlite::Result<bool> {
        let mut find = self.transaction.prepare_cached(
            "SELECT 1 FROM suppression WHERE subject IN (?1, ?2) AND scope = ?3 AND reason = ?4
             AND (expires IS NULL OR expires > ?5)",
        )?;
        let (scope, text) = (Scope::List(list.into()).text(), subject.text());
        let domain = text.rfind('@').map_or("", |at| &text[at..]);
        find.exists(params![text, domain, scope, SuppressionReason::Operator.name(), signed(now)])
    }

    pub fn is_member(&mut self, list: &str, subject: &Subject) -> rusqlite::Result<bool> {
        let Some(id) = self.find(list)? else { return Ok(false) };
        let mut find = self.transaction.prepare_cached("SELECT 1 FROM member WHERE roster = ?1 AND address = ?2")?;
        find.exists(params![id, subject.text()])
    }

    /// Writes the rosters that changed, and returns their updates.
    pub fn finish(self) -> rusqlite::Result<Vec<RosterUpdate>> {
        let mut put = self.transaction.prepare_cached("UPDATE roster SET stamp = ?2, members = ?3 WHERE id = ?1")?;
        let mut updates = Vec::new();
        for OpenRoster { id, is_touched, mut update } in self.open.into_values() {
            if update.changes.is_empty() && !is_touched {
                continue;
            }
            update.state.stamp = next_stamp(&update);
            put.execute(params![id, update.state.stamp, signed(update.state.members)])?;
            updates.push(update);
        }
        Ok(updates)
    }
}

/// Why and when a membership ends.
#[derive(Clone, Copy)]
pub(crate) struct NewDeparture<'a> {
    pub at: Ms,
    pub reason: SuppressionReason,
    pub source: &'a str,
}

/// A change of what members of a list get.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeliveryChange {
    pub list: String,
    pub subjects: Vec<Subject>,
    pub delivery: MemberDelivery,
}

/// A digest over the stamp before and the changes.
fn next_stamp(update: &RosterUpdate) -> String {
    let mut digest = Sha256::new();
    digest.update(&update.state.stamp);
    digest.update(update.state.members.to_le_bytes());
    for change in &update.changes {
        digest.update([0, change.delivery.map_or(0, |delivery| delivery as u8 + 1)]);
        digest.update(change.address.as_str());
    }
    let head = digest.finalize().iter().take(STAMP_BYTES).fold(0u64, |head, octet| head << 8 | u64::from(*octet));
    format!("{head:016x}")
}

fn address(row: &Row<'_>, column: usize) -> rusqlite::Result<Address> {
    row.get_ref(column)?.as_str()?.parse().map_err(|error| {
        rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, Box::new(error))
    })
}

fn unknown_word(column: usize, what: &str) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, what.into())
}

fn list_member(row: &Row<'_>) -> rusqlite::Result<ListMember> {
    let delivery = MemberDelivery::parse(row.get_ref(3)?.as_str()?).ok_or_else(|| unknown_word(3, "a delivery"))?;
    let member = Member {
        address: address(row, 1)?,
        name: row.get(2)?,
        delivery,
        joined: row.get::<_, i64>(4)? as Ms,
        source: row.get(5)?,
    };
    Ok(ListMember { list: row.get(0)?, member })
}

const MEMBER: &str = "roster.list, spelling, name, delivery, joined, source";

/// Returns the rosters of all lists.
pub(crate) fn rosters(connection: &rusqlite::Connection) -> rusqlite::Result<Vec<RosterState>> {
    let mut all = connection.prepare("SELECT list, stamp, members FROM roster")?;
    let rows = all.query_map([], |row| {
        Ok(RosterState { list: row.get(0)?, stamp: row.get(1)?, members: row.get::<_, i64>(2)? as u64 })
    })?;
    rows.collect()
}

/// Passes each member who gets no posts to `visit`.
pub(crate) fn silent(connection: &rusqlite::Connection, visit: &mut dyn FnMut(&ListMember)) -> rusqlite::Result<()> {
    let mut all = connection.prepare(&format!(
        "SELECT {MEMBER} FROM member JOIN roster ON roster.id = member.roster WHERE delivery <> 'mail'"
    ))?;
    let mut rows = all.query([])?;
    while let Some(row) = rows.next()? {
        visit(&list_member(row)?);
    }
    Ok(())
}

/// Lists members; at most `rows_max`.
pub(crate) fn list(connection: &rusqlite::Connection, query: &MemberQuery) -> rusqlite::Result<Vec<ListMember>> {
    let after = query.after.as_deref().unwrap_or_default();
    let rows_max = signed(query.rows_max as u64);
    let subject = query.address.as_ref().map(Subject::text);
    match (&query.list, subject) {
        (list, Some(subject)) => {
            let mut all = connection.prepare_cached(&format!(
                "SELECT {MEMBER} FROM member JOIN roster ON roster.id = member.roster
                 WHERE address = ?1 AND (?2 IS NULL OR roster.list = ?2) AND roster.list > ?3
                 ORDER BY roster.list LIMIT ?4"
            ))?;
            let rows = all.query_map(params![subject, list, after, rows_max], list_member)?;
            rows.collect()
        }
        (Some(list), None) => {
            let mut all = connection.prepare_cached(&format!(
                "SELECT {MEMBER} FROM roster JOIN member ON member.roster = roster.id
                 WHERE roster.list = ?1 AND address > ?2 ORDER BY address LIMIT ?3"
            ))?;
            let rows = all.query_map(params![list, after, rows_max], list_member)?;
            rows.collect()
        }
        (None, None) => Ok(Vec::new()),
    }
}

/// Returns the ends of a person's memberships, the latest first; at most `rows_max`.
pub(crate) fn departures(
    connection: &rusqlite::Connection,
    subject: &Subject,
    rows_max: usize,
) -> rusqlite::Result<Vec<Departure>> {
    let mut all = connection.prepare_cached(
        "SELECT list, joined, joined_source, at, reason, source FROM departure WHERE address = ?1
         ORDER BY at DESC LIMIT ?2",
    )?;
    let rows = all.query_map(params![subject.text(), signed(rows_max as u64)], |row| {
        let reason = SuppressionReason::parse(row.get_ref(4)?.as_str()?).map_err(|_| unknown_word(4, "a reason"))?;
        Ok(Departure {
            list: row.get(0)?,
            joined: row.get::<_, i64>(1)? as Ms,
            joined_source: row.get(2)?,
            at: row.get::<_, i64>(3)? as Ms,
            reason,
            source: row.get(5)?,
        })
    })?;
    rows.collect()
}
