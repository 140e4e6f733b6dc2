//! Confirmations: what a person is to confirm by a token from a mail, and whom we have mailed lately.
//!
//! Promise: a token works once and until it expires; only its digest is stored. Nobody gets more than one such mail a
//! day, whoever asks for it and however often, also across restarts.

use rusqlite::{OptionalExtension, Transaction, params};
use sha2::{Digest, Sha256};
use stentor_mail::address::Address;

use crate::members::{JoinedBy, Member, MemberAddition, MemberDelivery, NewDeparture, Rosters};
use crate::suppression::{Scope, Subject, Suppression, SuppressionReason};
use crate::{Ms, signed};

pub(crate) const SCHEMA: &str = "
CREATE TABLE confirmation (
    token BLOB PRIMARY KEY,
    list TEXT NOT NULL,
    address TEXT NOT NULL,
    name TEXT NOT NULL,
    action TEXT NOT NULL,
    source TEXT NOT NULL,
    since INTEGER NOT NULL,
    expires INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX confirmation_expires ON confirmation (expires);
CREATE TABLE notified (address TEXT PRIMARY KEY, at INTEGER NOT NULL) STRICT, WITHOUT ROWID;
CREATE INDEX notified_at ON notified (at);
";

/// Time between two mails to a person who has not acted.
pub const NOTIFY_PAUSE_MS: Ms = 24 * 3_600_000;
/// Expired rows deleted with each new confirmation.
const DELETED_MAX: i64 = 16;

/// What a person confirms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConfirmedAction {
    Join,
    Leave,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Confirmation {
    pub list: String,
    /// The person's address, as [`stentor_mail::address::Address`] writes it.
    pub address: String,
    /// The person's name; may be empty.
    pub name: String,
    pub action: ConfirmedAction,
    /// Who asked: `mail 192.0.2.1`.
    pub source: String,
    pub since: Ms,
    pub expires: Ms,
}

/// Whether a confirmation is to be mailed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OfferEffect {
    Offered,
    /// The person got a mail less than [`NOTIFY_PAUSE_MS`] ago; nothing was stored.
    MailedRecently,
    AlreadyMember,
    NotMember,
    /// An operator suppressed the person for the list; nothing was stored.
    Banned,
}

impl ConfirmedAction {
    fn name(self) -> &'static str {
        match self {
            ConfirmedAction::Join => "join",
            ConfirmedAction::Leave => "leave",
        }
    }

    fn parse(text: &str) -> Option<ConfirmedAction> {
        [ConfirmedAction::Join, ConfirmedAction::Leave].into_iter().find(|action| action.name() == text)
    }
}

/// The digest under which a token is stored.
pub(crate) fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token).into()
}

pub(crate) fn offer(
    transaction: &Transaction<'_>,
    rosters: &mut Rosters<'_>,
    token: &[u8; 32],
    confirmation: &Confirmation,
    pause: &OfferPause,
) -> rusqlite::Result<OfferEffect> {
    let Ok(subject) = Subject::parse(&confirmation.address) else { return Ok(OfferEffect::NotMember) };
    match (confirmation.action, rosters.is_member(&confirmation.list, &subject)?) {
        (ConfirmedAction::Join, true) => return Ok(OfferEffect::AlreadyMember),
        (ConfirmedAction::Leave, false) => return Ok(OfferEffect::NotMember),
        (ConfirmedAction::Join, false) if rosters.is_banned(&confirmation.list, &subject, confirmation.since)? => {
            return Ok(OfferEffect::Banned);
        }
        _ => {}
    }
    if !notify(transaction, pause, confirmation.since)? {
        return Ok(OfferEffect::MailedRecently);
    }
    let mut put = transaction.prepare_cached(
        "INSERT OR REPLACE INTO confirmation (token, list, address, name, action, source, since, expires)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?;
    let Confirmation { list, address, name, action, source, since, expires } = confirmation;
    put.execute(params![token, list, address, name, action.name(), source, signed(*since), signed(*expires)])?;
    Ok(OfferEffect::Offered)
}

/// Whose pause counts before another mail is sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OfferPause {
    /// Who reads the mail, if the person's address is an alias here.
    pub reader: String,
    /// The person is proven to ask: forged requests do not use up this pause.
    pub is_proven: bool,
}

impl OfferPause {
    /// The mailbox, since anybody can add details to somebody's address.
    fn key(&self) -> String {
        let mailbox = mailbox(&self.reader);
        if self.is_proven { format!("{PROVEN}{mailbox}") } else { mailbox }
    }
}

/// Begins the key of a proven person's pause; no address begins with it.
const PROVEN: &str = "proven ";

fn mailbox(reader: &str) -> String {
    let text = Subject::parse(reader).map_or_else(|_| reader.to_ascii_lowercase(), |subject| subject.text());
    let base = text.parse::<Address>().ok().and_then(|address| address.without_detail());
    base.map_or(text, |base| base.to_string())
}

/// Notes a mail to a person, unless there was one within [`NOTIFY_PAUSE_MS`]. Returns whether it may be sent.
fn notify(transaction: &Transaction<'_>, pause: &OfferPause, now: Ms) -> rusqlite::Result<bool> {
    let (before, mailbox) = (signed(now.saturating_sub(NOTIFY_PAUSE_MS)), pause.key());
    let mut find = transaction.prepare_cached("SELECT 1 FROM notified WHERE address = ?1 AND at > ?2")?;
    if find.exists(params![mailbox, before])? {
        return Ok(false);
    }
    let mut old = transaction.prepare_cached(
        "DELETE FROM notified WHERE address IN (SELECT address FROM notified WHERE at <= ?1 ORDER BY at LIMIT ?2)",
    )?;
    old.execute(params![before, DELETED_MAX])?;
    let mut expired = transaction.prepare_cached(
        "DELETE FROM confirmation WHERE token IN
         (SELECT token FROM confirmation WHERE expires <= ?1 ORDER BY expires LIMIT ?2)",
    )?;
    expired.execute(params![signed(now), DELETED_MAX])?;
    let mut put = transaction.prepare_cached("INSERT OR REPLACE INTO notified (address, at) VALUES (?1, ?2)")?;
    put.execute(params![mailbox, signed(now)])?;
    Ok(true)
}

/// Returns a confirmation that has not expired.
pub(crate) fn find(
    connection: &rusqlite::Connection,
    token: &[u8; 32],
    now: Ms,
) -> rusqlite::Result<Option<Confirmation>> {
    let mut find = connection.prepare_cached(
        "SELECT list, address, name, action, source, since, expires FROM confirmation
         WHERE token = ?1 AND expires > ?2",
    )?;
    let found = find.query_row(params![token, signed(now)], |row| {
        let action = ConfirmedAction::parse(row.get_ref(3)?.as_str()?);
        Ok(Confirmation {
            list: row.get(0)?,
            address: row.get(1)?,
            name: row.get(2)?,
            action: action.ok_or(rusqlite::Error::InvalidQuery)?,
            source: row.get(4)?,
            since: row.get::<_, i64>(5)? as Ms,
            expires: row.get::<_, i64>(6)? as Ms,
        })
    });
    found.optional()
}

/// Removes and returns a confirmation; its person may be mailed again at once.
pub(crate) fn take(transaction: &Transaction<'_>, token: &[u8; 32], now: Ms) -> rusqlite::Result<Option<Confirmation>> {
    let Some(confirmation) = find(transaction, token, now)? else { return Ok(None) };
    transaction.prepare_cached("DELETE FROM confirmation WHERE token = ?1")?.execute([token])?;
    let mut lift = transaction.prepare_cached("DELETE FROM notified WHERE address IN (?1, ?2)")?;
    let mailbox = mailbox(&confirmation.address);
    lift.execute([&mailbox, &format!("{PROVEN}{mailbox}")])?;
    Ok(Some(confirmation))
}

impl Confirmation {
    /// The member that a confirmed join makes. `None`: the stored address is damaged.
    pub(crate) fn new_member(&self, now: Ms) -> Option<MemberAddition> {
        let member = Member {
            address: self.address.parse().ok()?,
            name: self.name.clone(),
            delivery: MemberDelivery::Mail,
            joined: now,
            source: self.source.clone(),
        };
        Some(MemberAddition { list: self.list.clone(), members: vec![member], by: JoinedBy::Person, now })
    }

    /// The entry that a confirmed departure makes.
    pub(crate) fn suppression(&self, now: Ms) -> Option<Suppression> {
        let (subject, scope) = (Subject::parse(&self.address).ok()?, Scope::list(&self.list).ok()?);
        Some(Suppression::new(subject, scope, SuppressionReason::Unsubscribe, &self.source, now))
    }
}

impl<'a> NewDeparture<'a> {
    pub(crate) fn of(entry: &'a Suppression) -> NewDeparture<'a> {
        NewDeparture { at: entry.since, reason: entry.reason, source: &entry.source }
    }
}
