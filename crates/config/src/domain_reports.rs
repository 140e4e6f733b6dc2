//! `[tls_reports]` and `[dmarc_reports]`: whether domains get the reports that they request (RFC 8460, RFC 9990), the
//! sender of reports, and the address to which others send theirs.

use stentor_mail::address::Address;

use super::raw::Section;

/// Maximum characters of the organization's name.
const ORGANIZATION_CHARS_MAX: usize = 200;

/// Who sends reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReportSenderConfig {
    pub organization: String,
    /// Contact for readers of reports.
    pub contact: Address,
    /// Sender of reports.
    pub from: Address,
}

/// Settings of `[dmarc_reports]`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DmarcReportsConfig {
    /// Without it nothing is counted or sent.
    pub sender: Option<ReportSenderConfig>,
    /// The address that others send reports about our domains to; what arrives is kept.
    pub address: Option<Address>,
}

/// Reads `[tls_reports]`; `None`: nothing is counted or sent.
pub(super) fn read_tls(section: Section<'_>) -> Option<ReportSenderConfig> {
    let found = sender(&section, "[tls_reports]");
    section.finish();
    found
}

/// Reads `[dmarc_reports]`. `is_evaluated`: DMARC is evaluated for incoming mail.
pub(super) fn read_dmarc(section: Section<'_>, is_evaluated: bool) -> DmarcReportsConfig {
    let address = address(&section, "address");
    let sender = sender(&section, "[dmarc_reports]");
    if sender.is_some() && !is_evaluated {
        let message = "no reports are sent: [message_authentication] does not evaluate DMARC";
        section.context.warn(section.span.clone(), message);
    }
    section.finish();
    DmarcReportsConfig { sender, address }
}

fn sender(section: &Section<'_>, name: &str) -> Option<ReportSenderConfig> {
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
    match (organization, address(section, "from"), address(section, "contact")) {
        (Some(organization), Some(from), contact) => {
            let contact = contact.unwrap_or_else(|| from.clone());
            Some(ReportSenderConfig { organization, contact, from })
        }
        (None, None, None) => None,
        _ => {
            let message = format!("no reports are sent: {name} needs `organization` and `from`");
            section.context.warn(section.span.clone(), message);
            None
        }
    }
}

fn address(section: &Section<'_>, key: &'static str) -> Option<Address> {
    section.text(key).and_then(|text| match text.value.parse::<Address>() {
        Ok(address) if address.is_ascii() => Some(address),
        _ => {
            section.context.error(text.span, format!("{:?} is not a valid ASCII mail address", text.value));
            None
        }
    })
}
