//! Names of the client's address: PTR records whose names have that address (RFC 8601 section 2.7.3, RFC 7208 section
//! 5.5).
//!
//! Promise: at most [`NAMES_MAX`] names are looked up. Failure: a name whose look-up fails is not confirmed.

use std::net::IpAddr;

use stentor_mail::domain::reverse_name;

use crate::dns::{Inquiry, Pending, RecordAnswer, RecordKind};
use crate::method::MethodResult;

/// Maximum names of one address that are examined (RFC 7208 section 4.6.4).
const NAMES_MAX: usize = 10;
/// The same for the result of its own, which needs one name.
const IPREV_NAMES_MAX: usize = 4;

/// Type of the records of an address's family.
pub(crate) fn address_kind(client: IpAddr) -> RecordKind {
    if client.is_ipv4() { RecordKind::A } else { RecordKind::Aaaa }
}

/// Names of an address.
pub(crate) struct ReverseNames {
    /// Names that have the address, in the order of the records.
    pub confirmed: Vec<Box<str>>,
    /// Whether the address has names at all.
    pub has_names: bool,
    /// Whether a question failed.
    pub has_failed: bool,
}

/// Finds at most `names_max` names of an address.
pub(crate) fn reverse_names(inquiry: &Inquiry<'_>, client: IpAddr, names_max: usize) -> Result<ReverseNames, Pending> {
    let answer = inquiry.ask(&reverse_name(client), RecordKind::Ptr)?;
    let mut names = ReverseNames {
        confirmed: Vec::new(),
        has_names: !answer.hosts().is_empty(),
        has_failed: *answer == RecordAnswer::Failed,
    };
    let mut is_pending = false;
    for name in answer.hosts().iter().take(names_max) {
        match inquiry.ask(name, address_kind(client)) {
            Ok(RecordAnswer::Failed) => names.has_failed = true,
            Ok(addresses) if addresses.addresses().contains(&client) => names.confirmed.push(name.clone()),
            Ok(_) => {}
            Err(Pending) => is_pending = true,
        }
    }
    if is_pending { Err(Pending) } else { Ok(names) }
}

/// The names for SPF.
pub(crate) fn spf_names(inquiry: &Inquiry<'_>, client: IpAddr) -> Result<Vec<Box<str>>, Pending> {
    Ok(reverse_names(inquiry, client, NAMES_MAX)?.confirmed)
}

/// Whether the client's address has a name that has the address.
pub(crate) fn iprev(inquiry: &Inquiry<'_>, client: IpAddr) -> Result<MethodResult, Pending> {
    let names = reverse_names(inquiry, client, IPREV_NAMES_MAX)?;
    Ok(match () {
        () if !names.confirmed.is_empty() => MethodResult::Pass,
        () if names.has_failed => MethodResult::TempError,
        () if names.has_names => MethodResult::Fail,
        () => MethodResult::PermError,
    })
}
