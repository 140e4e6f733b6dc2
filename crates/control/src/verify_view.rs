//! The fate of mail to an address, as far as RCPT decides: the reply to `verify`.

use serde::{Deserialize, Serialize};

/// The output of `sendmail -bv ADDRESS`.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct VerifyView {
    pub hostname: String,
    /// The address as requested.
    pub address: String,
    /// The final recipients; at least one row.
    pub rows: Vec<VerifyRow>,
    /// Number of further recipients.
    pub more: u64,
}

/// One final recipient.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct VerifyRow {
    pub address: String,
    /// `esmtp`, `lmtp`, `list`, `prog`, `*file*` or `discard`; empty if undeliverable.
    pub mailer: String,
    /// The next hop.
    pub host: String,
    pub user: String,
    /// The reply that refuses it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Whether that reply is temporary.
    pub is_temporary: bool,
}

impl VerifyRow {
    pub fn new(address: &str, mailer: &str, host: &str, user: &str) -> VerifyRow {
        let [address, mailer, host, user] = [address, mailer, host, user].map(str::to_owned);
        VerifyRow { address, mailer, host, user, refused: None, is_temporary: false }
    }
}
