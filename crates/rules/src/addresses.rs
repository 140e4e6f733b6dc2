//! What a configuration has of tables that say what addresses stand for.

use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashSet;
use stentor_addresses::Srs;
use stentor_mail::address::unquote;

use crate::facts::TableId;

/// Tables that say what addresses stand for.
#[derive(Debug, Default)]
pub struct Addresses {
    /// In the form of virtual(5) or of the virtusertable.
    pub virtual_tables: Vec<TableId>,
    pub alias_tables: Vec<TableId>,
    /// All of their addresses are in `virtual_tables`; they are local for the policy.
    pub virtual_domains: HashSet<Box<str>, FixedState>,
    /// The same for domains that are keys of these tables.
    pub virtual_domain_tables: Vec<TableId>,
    /// To whose names alias files apply, beside the local domains.
    pub alias_domains: HashSet<Box<str>, FixedState>,
    /// The domain of names without one.
    pub origin: Box<str>,
    /// The next hop of programs and files of alias files, as a recipient's own is kept.
    pub programs: Arc<str>,
    /// How senders of forwarded mail are rewritten; its domain is local for the policy.
    pub srs: Option<Srs>,
    pub rewriting: Rewriting,
    pub generic: Generic,
}

/// Tables that say which address stands for one of an envelope or a header.
#[derive(Debug, Default)]
pub struct Rewriting {
    /// In the form of canonical(5): of senders and recipients, of one of them.
    pub canonical: Vec<TableId>,
    pub sender_canonical: Vec<TableId>,
    pub recipient_canonical: Vec<TableId>,
    pub masquerade: Masquerade,
}

impl Rewriting {
    pub fn is_empty(&self) -> bool {
        let tables = [&self.canonical, &self.sender_canonical, &self.recipient_canonical];
        tables.iter().all(|tables| tables.is_empty()) && self.masquerade.domains.is_empty()
    }
}

/// Tables that say which address stands for one on the way out to other hosts.
#[derive(Debug, Default)]
pub struct Generic {
    /// In the form of generic(5) or of the genericstable.
    pub tables: Vec<TableId>,
    /// What a genericstable applies to beside our own domains; with a leading dot what is below one.
    pub domains: Vec<Box<str>>,
}

impl Generic {
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    pub(crate) fn has_domain(&self, domain: &str) -> bool {
        self.domains.iter().any(|own| if own.starts_with('.') { domain.ends_with(&**own) } else { **own == *domain })
    }
}

/// Domains whose subdomains are hidden.
#[derive(Debug, Default)]
pub struct Masquerade {
    /// The first that an address is in counts; those with `false` stay as they are.
    pub domains: Vec<(bool, Box<str>)>,
    /// Local parts that keep their domain.
    pub exceptions: Vec<Box<str>>,
}

/// The extension of a local part that was found without it. Either may have quotes.
pub(crate) fn extension(local: &str, key: &str) -> String {
    let user = key.rsplit_once('@').map_or(key, |(user, _)| user);
    let (local, user) = (unquote(local), unquote(user));
    match (local.get(..user.len()), local.get(user.len()..)) {
        (Some(same), Some(rest)) if !user.is_empty() && same.eq_ignore_ascii_case(&user) && rest.starts_with('+') => {
            rest.to_owned()
        }
        _ => String::new(),
    }
}

impl Addresses {
    pub fn has_tables(&self) -> bool {
        !self.virtual_tables.is_empty() || !self.alias_tables.is_empty()
    }

    pub fn is_empty(&self) -> bool {
        !self.has_tables() && self.srs.is_none() && self.virtual_domain_tables.is_empty()
    }
}
