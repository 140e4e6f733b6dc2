//! `[tls_reports]`: whether domains get the TLS reports that they request (RFC 8460), and the sender of reports.

use stentor_mail::address::Address;

use super::raw::Section;

/// Maximum characters of the organization's name.
const ORGANIZATION_CHARS_MAX: usize = 200;

/// Settings of `[tls_reports]`; without them nothing is counted or sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsReportsConfig {
    pub organization: String,
    /// Contact for readers of reports.
    pub contact: Address,
    /// Sender of reports.
    pub from: Address,
}

pub(super) fn read(section: Section<'_>) -> Option<TlsReportsConfig> {
    let organization = section.text("organization").and_then(|text| {
        let value = text.value.trim();
        let is_name = !value.is_empty()
            && value.chars().count() <= ORGANIZATION_CHARS_MAX
            && !value.chars().any(char::is_control);
        if !is_name {
            let message = format!("`organization` must be a name of at most {ORGANIZATION_CHARS_MAX} characters");
            section.context.error(text.span, message);
        }
        is_name.then(|| value.to_owned())
    });
    let address = |key: &'static str| {
        section.text(key).and_then(|text| match text.value.parse::<Address>() {
            Ok(address) if address.is_ascii() => Some(address),
            _ => {
                section.context.error(text.span, format!("{:?} is not a valid ASCII mail address", text.value));
                None
            }
        })
    };
    let (from, contact) = (address("from"), address("contact"));
    let found = match (organization, from) {
        (Some(organization), Some(from)) => {
            let contact = contact.unwrap_or_else(|| from.clone());
            Some(TlsReportsConfig { organization, contact, from })
        }
        (None, None) if contact.is_none() => None,
        _ => {
            let message = "no reports are sent: [tls_reports] needs `organization` and `from`";
            section.context.warn(section.span.clone(), message);
            None
        }
    };
    section.finish();
    found
}
