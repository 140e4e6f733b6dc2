//! A domain in From: all that receivers check of its mail.

use crate::check::{Findings, IdentityFinding};
use crate::domain_identity::DomainIdentity;
use crate::lookups::Lookups;
use crate::spf::SpfIdentity;
use crate::{dkim, dmarc, message, return_path, spf};

/// Judges a domain with the answers known so far.
pub fn examine_domain(identity: &DomainIdentity<'_>, lookups: &Lookups) -> Vec<IdentityFinding> {
    let DomainIdentity { domain, return_paths, sources, signers, rotating, message, .. } = *identity;
    let mut out = Findings::default();
    for path in return_paths {
        let end = spf::examine(lookups, SpfIdentity::ReturnPath(path), sources, &mut out);
        out.end(path, "SPF", end);
    }
    // The server reports records of its own keys itself.
    if rotating.is_empty() || !signers.is_empty() {
        dkim::examine(lookups, domain, signers, &mut out);
    }
    let signatures = signers.iter().map(|signer| &*signer.domain);
    let signatures: Vec<&str> = signatures.chain(rotating.iter().copied()).collect();
    let end = dmarc::examine(lookups, identity, &signatures, &mut out);
    out.end(domain, "DMARC", end);
    let others = return_paths.iter().map(String::as_str).filter(|path| *path != domain);
    for name in std::iter::once(domain).chain(others) {
        let end = return_path::examine(lookups, name, &mut out);
        out.end(name, "MX", end);
    }
    return_path::examine_tls(lookups, domain, &mut out);
    if let Some(rendered) = message {
        message::examine(lookups, domain, rendered, signers, &mut out);
    }
    out.into_vec()
}
