//! The configured tables that rewrite and expand addresses.

use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashSet;
use stentor_addresses::Srs;
use stentor_mail::address::unquote;

use crate::facts::TableId;
use crate::hop::NextHop;

/// Tables that rewrite and expand addresses.
#[derive(Debug, Default)]
pub struct Addresses {
    /// Tables in the format of virtual(5) or of the virtusertable.
    pub virtual_tables: Vec<TableId>,
    pub alias_tables: Vec<TableId>,
    /// Domains whose addresses are all in `virtual_tables`; the policy treats them as local.
    pub virtual_domains: HashSet<Box<str>, FixedState>,
    /// Tables whose keys are further such domains.
    pub virtual_domain_tables: Vec<TableId>,
    /// Domains, besides the local ones, to whose users alias files apply.
    pub alias_domains: HashSet<Box<str>, FixedState>,
    /// Domain of names without one.
    pub origin: Box<str>,
    /// Next hop of programs and files of alias files.
    pub programs: Option<Arc<NextHop>>,
    /// Rewriting of forwarded mail's senders; the policy treats its domain as local.
    pub srs: Option<Srs>,
    pub rewriting: Rewriting,
    pub generic: GenericTables,
}

/// Tables that rewrite addresses of envelopes and headers.
#[derive(Debug, Default)]
pub struct Rewriting {
    /// Tables in the format of canonical(5): those for all addresses; those for senders and for recipients follow.
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

/// Tables that rewrite addresses of mail to other hosts.
#[derive(Debug, Default)]
pub struct GenericTables {
    /// Tables in the format of generic(5) or of the genericstable.
    pub tables: Vec<TableId>,
    /// Domains besides our own to which a genericstable applies; a leading dot means all domains below.
    pub domains: Vec<Box<str>>,
}

impl GenericTables {
    pub fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    pub(crate) fn has_domain(&self, domain: &str) -> bool {
        self.domains.iter().any(|own| if own.starts_with('.') { domain.ends_with(&**own) } else { **own == *domain })
    }
}

/// Masquerading: domains whose subdomains are hidden.
#[derive(Debug, Default)]
pub struct Masquerade {
    /// Domains; the first one that contains the address applies. `false` exempts a domain.
    pub domains: Vec<(bool, Box<str>)>,
    /// Local parts whose domain is not changed.
    pub exceptions: Vec<Box<str>>,
}

/// The extension of a local part that was found without it. Either text may be quoted.
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
