//! States of the DKIM keys that the server makes, by domain. A state is kept as text: only its writer knows what it
//! says.

use rusqlite::{Connection, Transaction, params};

/// Made with each conversion: a registry of version 1 may be older than this table.
pub(crate) const SCHEMA: &str = "
CREATE TABLE IF NOT EXISTS dkim (domain TEXT PRIMARY KEY, state TEXT NOT NULL) STRICT, WITHOUT ROWID;
";

/// Longest state in octets: 32 key pairs of 1 KiB, with room for more.
pub const STATE_BYTES_MAX: usize = 256 * 1024;

/// The state of a domain's keys.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DkimState {
    pub domain: String,
    pub state: String,
}

pub(crate) fn load(connection: &Connection) -> rusqlite::Result<Vec<DkimState>> {
    let mut all = connection.prepare("SELECT domain, state FROM dkim")?;
    let states = all.query_map([], |row| Ok(DkimState { domain: row.get(0)?, state: row.get(1)? }))?;
    states.collect()
}

pub(crate) fn set(transaction: &Transaction<'_>, state: &DkimState) -> rusqlite::Result<()> {
    let mut put = transaction.prepare_cached("INSERT OR REPLACE INTO dkim (domain, state) VALUES (?1, ?2)")?;
    put.execute(params![state.domain, state.state]).map(drop)
}
