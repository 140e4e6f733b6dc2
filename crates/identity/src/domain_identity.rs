//! What is known of a domain in From before anything is looked up.

use std::fmt;

use stentor_dkim::Signer;
use stentor_domain_reports::dmarc::DmarcSums;

use crate::message::Rendered;
use crate::source::Source;

/// Days whose reports say whether our own mail fails.
pub const RECENT_DAYS: u64 = 7;
/// Days whose reports say whether the policy can be raised.
pub const POLICY_DAYS: u64 = 90;

/// What sends mail from a domain.
#[derive(Debug)]
pub struct DomainIdentity<'a> {
    /// The domain in From: A-labels, lower case.
    pub domain: &'a str,
    /// Domains of the return paths used with it; not empty.
    pub return_paths: &'a [String],
    pub sources: &'a [Source],
    /// Keys that sign such mail.
    pub signers: &'a [&'a Signer],
    /// Domains whose keys the running server makes and watches; they sign, too.
    pub rotating: &'a [&'a str],
    pub message: Option<&'a Rendered>,
    /// `None`: what this server knows of reports is not considered.
    pub reports: Option<ReceivedReports<'a>>,
}

/// Reports that this server receives.
#[derive(Clone, Copy)]
pub struct ReceivedReports<'a> {
    /// The address whose reports are kept.
    pub address: Option<&'a str>,
    /// Names of this server, also in HELO.
    pub host_names: &'a [String],
    /// Whether an address does not exist, though its domain is one of this server.
    pub is_unknown_here: &'a (dyn Fn(&str) -> bool + Sync),
    /// Sums of the last [`RECENT_DAYS`].
    pub recent: &'a DmarcSums,
    /// Sums of the last [`POLICY_DAYS`].
    pub policy: &'a DmarcSums,
}

impl fmt::Debug for ReceivedReports<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ReceivedReports { address, host_names, recent, policy, .. } = self;
        out.debug_struct("ReceivedReports")
            .field("address", address)
            .field("host_names", host_names)
            .field("recent", recent)
            .field("policy", policy)
            .finish_non_exhaustive()
    }
}
