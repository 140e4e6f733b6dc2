//! Addresses that reports about posts come to: lists' bounce addresses, and return paths of managers' mail.
//!
//! Promise: without `verp` in `[senders]` this costs one look at an empty table. A message to another address of such
//! a domain is a report only if it is a feedback report that names a return path; it is looked for in the first
//! [`HEADER_BYTES`] octets. Of one message the first [`READ_MAX`] recipients are read.

use std::io;
use std::sync::Arc;

use stentor_bounces::ParsedBounce;
use stentor_bounces::message::ComplaintFacts;
use stentor_copies::{SenderPath, VerpTemplate};
use stentor_core::{Core, Settings};
use stentor_mail::address::Address;

use super::Transaction;

/// Octets in which the type of a feedback report is looked for.
const HEADER_BYTES: usize = 16 * 1024;
/// Recipients of a message that are read as return paths, each of which may cost seals.
const READ_MAX: usize = 100;
/// Recipients of a report that are compared with readings.
const NAMED_MAX: usize = 100;
/// RFC 5965 section 3: the value of `report-type`.
const FEEDBACK_REPORT: &[u8] = b"feedback-report";

/// An address that a report may have come to, as the reporter named it.
pub(super) struct ReportAddress {
    /// `None`: an address at the domain of a manager's sender.
    pub list: Option<Arc<str>>,
    /// Readings as a return path, the likeliest first.
    readings: Vec<SenderPath>,
}

/// The copy that a report is about.
pub(super) struct ReportedCopy {
    /// The list whose copy it is; none for a manager's mail.
    pub list: Option<Arc<str>>,
    pub path: Option<SenderPath>,
}

impl ReportAddress {
    /// Whether the address is a return path or a list's bounce address. At others only complaints are read.
    fn takes_bounces(&self) -> bool {
        self.list.is_some() || !self.readings.is_empty()
    }

    /// The reading as a return path that the report confirms, or else the likeliest.
    pub fn return_path(&self, parsed: &ParsedBounce) -> Option<&SenderPath> {
        let is_named = |reading: &&SenderPath| {
            let recipient = reading.path.recipient.as_str();
            parsed.reports.iter().take(NAMED_MAX).any(|report| report.recipient.eq_ignore_ascii_case(recipient))
        };
        self.readings.iter().find(is_named).or(self.readings.first())
    }

    /// The copy that a person complained about. A proven path of a list is that list's, wherever the complaint comes.
    pub fn copy_of_complaint(
        &self,
        settings: &Settings,
        parsed: &ParsedBounce,
        facts: &ComplaintFacts,
    ) -> ReportedCopy {
        let named = facts.mail_from.as_deref().and_then(|path| path.parse::<Address>().ok());
        let named = named.and_then(|path| {
            let of_list = settings.copies.proven_reading(&path);
            let of_list = of_list.and_then(|proven| settings.copies.list_of_bounces(&proven.sender));
            match of_list.or(self.list.as_ref()) {
                Some(list) => Some(ReportAddress::of_list(settings, list, &path)),
                None => ReportAddress::of_manager(settings, &path),
            }
        });
        let of = |address: &ReportAddress| {
            let path = address.return_path(parsed)?.clone();
            Some(ReportedCopy { list: address.list.clone(), path: Some(path) })
        };
        let named = named.as_ref().and_then(of).or_else(|| of(self));
        named.unwrap_or_else(|| ReportedCopy { list: self.list.clone(), path: None })
    }

    /// Reads an address at a list's bounce address.
    fn of_list(settings: &Settings, list: &Arc<str>, path: &Address) -> ReportAddress {
        let read = || {
            let (sender, key) = (settings.list(list)?.settings().bounces.as_str(), settings.copies.key()?);
            let tagged = VerpTemplate::tagged().read(path, sender, key).filter(|found| found.is_proven);
            let path = tagged.or_else(|| settings.copies.of(list, "")?.verp.as_ref()?.read(path, sender, key))?;
            Some(SenderPath { sender: sender.to_owned(), path })
        };
        ReportAddress { list: Some(list.clone()), readings: read().into_iter().collect() }
    }

    /// Reads an address that may be a return path of a manager's mail; none at other domains.
    fn of_manager(settings: &Settings, path: &Address) -> Option<ReportAddress> {
        // One message may have asked for tags though its sender has none.
        if let Some(proven) = settings.copies.proven_reading(path) {
            let list = settings.copies.list_of_bounces(&proven.sender).cloned();
            return Some(ReportAddress { list, readings: vec![proven] });
        }
        let (verp, key) = settings.copies.sender_paths(path)?;
        Some(ReportAddress { list: None, readings: verp.readings(path, key) })
    }
}

impl Transaction {
    /// Returns up to `max` addresses of the message that reports come to. Empty: it is no report.
    ///
    /// # Errors
    /// The message cannot be read.
    pub(super) fn report_addresses(
        &self,
        core: &Core,
        settings: &Settings,
        last: &[u8],
        max: usize,
    ) -> io::Result<Vec<ReportAddress>> {
        let of_lists = self.rcpts.reports().map(|(list, path)| Some(ReportAddress::of_list(settings, list, path)));
        let others = self.rcpts.relayed_and_aliases();
        let of_managers = others.map(|path| ReportAddress::of_manager(settings, path));
        let mut all: Vec<ReportAddress> = Vec::new();
        for address in of_lists.chain(of_managers).take(READ_MAX).flatten() {
            if all.len() >= max {
                break;
            }
            // One address is enough for complaints that name a return path.
            if address.takes_bounces() || all.iter().all(ReportAddress::takes_bounces) {
                all.push(address);
            }
        }
        if !all.iter().all(ReportAddress::takes_bounces) && !self.is_feedback_report(core, last)? {
            all.retain(ReportAddress::takes_bounces);
        }
        Ok(all)
    }

    fn is_feedback_report(&self, core: &Core, last: &[u8]) -> io::Result<bool> {
        let mut begin = Vec::with_capacity(HEADER_BYTES.min(last.len()));
        self.read_content(core, last, HEADER_BYTES, |piece| begin.extend_from_slice(piece))?;
        Ok(begin.windows(FEEDBACK_REPORT.len()).any(|octets| octets.eq_ignore_ascii_case(FEEDBACK_REPORT)))
    }
}
