//! Canonical addresses and masquerading of envelopes and headers.
//!
//! Promise: an envelope's addresses are rewritten when they are named, before rules see them. A header is rewritten
//! once, with the stored message, and only for trusted clients, so that other senders' signatures stay valid. Only
//! addresses in a header change. A header that arrives in several pieces is rewritten field by field
//! ([`HeaderStream`]), whatever its size.
//!
//! Failure: 451, and nothing of the message is kept. A field too long to be held passes unchanged and is logged.

use std::net::IpAddr;

use stentor_addresses::{AddressChange, AddressRole, HeaderStream, Split, addresses, replaced};
use stentor_core::Settings;
use stentor_core::intake::IntakeRefusal;
use stentor_mail::address::Address;
use stentor_mail::reply::Reply;
use stentor_rules::{Part, PendingLookup, Step};
use stentor_ruletables::Questions;

/// Maximum number of questions to remote tables, for one address and for a header.
const QUESTIONS_MAX: usize = 64;
const HEADER_QUESTIONS_MAX: usize = 1_000;
/// Addresses of a header looked up before other tasks get a turn.
const AT_ONCE: usize = 1_000;

/// Returns the canonical address for one of an envelope, if it differs. `stranger`: the client, if untrusted. `steps`
/// collects the look-ups.
pub async fn canonical(
    settings: &Settings,
    address: &Address,
    role: AddressRole,
    stranger: Option<IpAddr>,
    mut steps: Option<&mut Vec<Step>>,
) -> Result<Option<Address>, Reply> {
    let tables = settings.tables.questions().of_stranger(stranger);
    let mut lookups = Lookups { settings, tables, left: QUESTIONS_MAX };
    lookups.canonical(address, role, Part::Envelope, &mut steps).await
}

/// Table lookups for one address or header, and how many more may be made.
struct Lookups<'a> {
    settings: &'a Settings,
    tables: Questions<'a>,
    left: usize,
}

impl Lookups<'_> {
    async fn canonical(
        &mut self,
        address: &Address,
        role: AddressRole,
        part: Part,
        steps: &mut Option<&mut Vec<Step>>,
    ) -> Result<Option<Address>, Reply> {
        loop {
            let mut made = Vec::new();
            let noted = steps.is_some().then_some(&mut made);
            match self.settings.rules.canonical(address, role, part, &self.tables, noted) {
                Ok(found) => {
                    if let Some(steps) = steps {
                        steps.append(&mut made);
                    }
                    return found;
                }
                Err(PendingLookup) if self.left > 0 => {
                    self.left -= 1;
                    self.tables.fetch().await;
                }
                Err(PendingLookup) => return Err(IntakeRefusal::Table.reply()),
            }
        }
    }
}

/// Rewrites addresses in the next octets of a message, and returns those that can be stored, up to the last complete
/// field. `steps` collects the look-ups.
///
/// # Errors
/// A table cannot be asked, or has an invalid address.
pub async fn header(
    settings: &Settings,
    stream: &mut HeaderStream,
    octets: Vec<u8>,
    is_last: bool,
    steps: Option<&mut Vec<Step>>,
) -> Result<Vec<u8>, Reply> {
    let Split { mut before, fields, behind, too_long } = stream.split(octets, is_last);
    if let Some(name) = too_long {
        tracing::warn!(?name, "header field too long; its addresses are not rewritten");
    }
    let fields = if fields.is_empty() { fields } else { rewritten(settings, fields, steps).await? };
    if before.is_empty() && (fields.is_empty() || behind.is_empty()) {
        return Ok(if fields.is_empty() { behind } else { fields });
    }
    before.extend(fields);
    before.extend(behind);
    Ok(before)
}

/// Rewrites the header of a message, or of the beginning of one with its complete header. `steps` collects the
/// look-ups.
async fn rewritten(settings: &Settings, message: Vec<u8>, mut steps: Option<&mut Vec<Step>>) -> Result<Vec<u8>, Reply> {
    let mut lookups = Lookups { settings, tables: settings.tables.questions(), left: HEADER_QUESTIONS_MAX };
    let mut changes: Vec<AddressChange> = Vec::new();
    for (n, found) in addresses(&message).into_iter().enumerate() {
        if n % AT_ONCE == AT_ONCE - 1 {
            tokio::task::yield_now().await;
        }
        let Ok(address) = found.address.parse::<Address>() else { continue };
        if let Some(to) = lookups.canonical(&address, found.role, Part::Header, &mut steps).await? {
            let (local, domain) = (to.local().to_owned(), to.domain().to_owned());
            changes.push(AddressChange { old: found, local, domain });
        }
    }
    Ok(if changes.is_empty() { message } else { replaced(&message, &changes) })
}
