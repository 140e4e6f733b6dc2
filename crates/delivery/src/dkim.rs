//! Signs a copy with DKIM, in the form in which it is sent: after all changes, and before dots are doubled.
//!
//! Promise: what is hashed is what [`BodyProgress`] sends. Body hashes are shared by all copies in the same form
//! ([`stentor_core::dkim`]); of a copy only the header is read and signed. Mail to LMTP hosts, which is delivered there
//! and not sent on, is not signed.
//!
//! Failure: a copy whose header cannot be signed is returned; any other failure defers it with 4.3.0, and the log has
//! the reason.

use stentor_core::assignment::Assignment;
use stentor_core::dkim::{BodyForm, DomainSigners, SigningFailure, SigningRequest};
use stentor_core::{Core, Settings};
use stentor_dkim::{BodyDigest, MessageHash, SignError};
use stentor_mail::Class;
use stentor_mail::address::normalise_domain;
use stentor_mail::headers::HeaderScan;
use stentor_mail::reply::Enhanced;
use stentor_queue::site::Target;

use super::body::{BodyProgress, ContentError, Form};

const MS: u64 = 1_000;
/// How long a signature that a copy already has must be valid at least: hosts on the way may keep it for some time.
const VALID_S_MIN: u64 = 24 * 3_600;
/// RFC 3463 section 3.7: other or undefined media error.
const UNSIGNABLE: Enhanced = Enhanced::new(5, 6, 0);

/// Whether mail to this host is signed at all.
pub fn applies(settings: &Settings, target: &Target) -> bool {
    !target.lmtp && !settings.dkim().is_empty()
}

/// Puts the signatures for this form before the content. Repeated for the same form it does nothing.
///
/// # Errors
/// The content cannot be read, or the copy cannot be signed.
pub async fn sign(
    core: &Core,
    settings: &Settings,
    assignment: &mut Assignment,
    form: Form,
) -> Result<(), ContentError> {
    if assignment.signed_form == Some(form.recoded) {
        return Ok(());
    }
    assignment.signature = if is_trusted(settings, assignment) || !assignment.list.is_empty() {
        let _turn = core.dkim.turn().await.map_err(ContentError::Signature)?;
        signature(core, settings, assignment, form).await?
    } else {
        Vec::new()
    };
    assignment.signed_form = Some(form.recoded);
    Ok(())
}

async fn signature(
    core: &Core,
    settings: &Settings,
    assignment: &Assignment,
    form: Form,
) -> Result<Vec<u8>, ContentError> {
    let header = header(core, assignment, form).await?;
    let signers = signers(core, settings, assignment, &header);
    if signers.is_empty() {
        return Ok(Vec::new());
    }
    let body = body_digest(core, assignment, form).await?;
    let now_s = core.clock.now() / MS;
    let valid_until_s = valid_until_s(settings, assignment).max(now_s + VALID_S_MIN);
    let request = SigningRequest { header, body, signers, now_s, valid_until_s };
    core.dkim.sign(request).await.map_err(|failure| match failure {
        // The header stays as it is.
        SigningFailure::Sign(error @ (SignError::NoFrom | SignError::TooManyFields)) => {
            ContentError::Unfit(UNSIGNABLE, format!("the message cannot be signed (DKIM): {error}"))
        }
        failure => ContentError::Signature(failure),
    })
}

/// Returns the end of the message's lifetime, in seconds since 1970.
fn valid_until_s(settings: &Settings, assignment: &Assignment) -> u64 {
    let list = Some(&*assignment.list).filter(|list| !list.is_empty());
    let class = if assignment.is_bulk { Class::Bulk } else { Class::Ordinary };
    let lifetime_ms = if assignment.is_archive {
        settings.archive_lifetime_ms()
    } else {
        settings.lifetime_ms_of(list, &assignment.sender, class)
    };
    assignment.accepted.saturating_add(lifetime_ms) / MS
}

/// Whether a trusted client, a user or this server sends the message. Logins and certificates are stored with it; only
/// the address of other clients is looked at now.
pub(super) fn is_trusted(settings: &Settings, assignment: &Assignment) -> bool {
    assignment.client.is_none_or(|client| settings.policy.is_trusted(client))
}

/// Returns the keys of the domains that sign this copy.
fn signers(core: &Core, settings: &Settings, assignment: &Assignment, header: &[u8]) -> Vec<DomainSigners> {
    let named = author_domain(header);
    let is_trusted = is_trusted(settings, assignment);
    let author = named.as_deref().filter(|_| is_trusted);
    let list = Some(&*assignment.list).filter(|list| !list.is_empty()).and_then(|list| settings.list(list));
    let list = list.map(|list| list.settings().address.domain());
    let of_list = list.and_then(|list| settings.dkim().of_list(list));
    settings
        .dkim()
        .signing(author, list)
        .into_iter()
        // A signature must not prove an author whom anybody can name.
        .filter(|domain| {
            let is_of_list = of_list.is_some_and(|of_list| std::ptr::eq(of_list, *domain));
            let is_besides = domain.config.every && !is_of_list;
            is_trusted || !is_besides || named.as_deref().is_none_or(|named| !is_related(named, &domain.config.domain))
        })
        .filter_map(|domain| core.dkim.signers(domain))
        .collect()
}

/// Whether two domains may be of the same organization: they end alike from the second-last label on.
fn is_related(one: &str, other: &str) -> bool {
    let end = |domain: &str| domain.rsplit('.').take(2).map(str::to_owned).collect::<Vec<_>>();
    end(one) == end(other)
}

/// Returns the domain of the first address of From, as it is in DNS.
fn author_domain(header: &[u8]) -> Option<String> {
    let mut scan = HeaderScan::new();
    scan.push(header);
    let from = scan.finish().from?;
    let domain = from.rsplit_once('@')?.1;
    normalise_domain(domain.strip_suffix('.').unwrap_or(domain)).ok()
}

/// Reads the header section as it is sent.
async fn header(core: &Core, assignment: &Assignment, form: Form) -> Result<Vec<u8>, ContentError> {
    let mut message = MessageHash::of_header();
    let sent = BodyProgress::unsigned(assignment, form);
    sent.each_while(core, assignment, |octets| {
        message.push(octets);
        !message.has_header()
    })
    .await?;
    Ok(message.finish().0)
}

/// Returns the hash of the body as it is sent; hashes it unless another copy has.
async fn body_digest(core: &Core, assignment: &Assignment, form: Form) -> Result<BodyDigest, ContentError> {
    if assignment.is_merged {
        return hashed(core, assignment, form).await;
    }
    let form_of_body = BodyForm::new(assignment.content, form.recoded, assignment.is_report, &assignment.prefix);
    let shared = core.dkim.digest(form_of_body);
    shared.get_or_try_init(|| hashed(core, assignment, form)).await.copied()
}

async fn hashed(core: &Core, assignment: &Assignment, form: Form) -> Result<BodyDigest, ContentError> {
    let mut message = MessageHash::default();
    let sent = BodyProgress::unsigned(assignment, form);
    sent.each_while(core, assignment, |octets| {
        message.push(octets);
        true
    })
    .await?;
    Ok(message.finish().1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_author_is_the_first_address_of_from() {
        let domain = |from: &str| author_domain(format!("To: x@y.example\r\nFrom: {from}\r\n\r\n").as_bytes());
        assert_eq!(domain("Ann <ann@Example.org>, b@z.example").as_deref(), Some("example.org"));
        assert_eq!(domain("Ann <ann@example.org.>").as_deref(), Some("example.org"), "fully qualified");
        assert_eq!(domain("ann@example.org..").as_deref(), None);
        assert_eq!(domain("Ann"), None);
    }
}
