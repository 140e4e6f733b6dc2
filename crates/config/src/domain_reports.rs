//! `[tls_reports]` and `[dmarc_reports]`: whether domains get the reports that they request (RFC 8460, RFC 9990), the
//! sender of reports, and the address to which others send theirs.

use std::ops::Range;

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

/// `[dmarc_reports]` with the positions of its addresses.
pub(super) struct DmarcReportsSpot {
    pub value: DmarcReportsConfig,
    pub address_span: Range<usize>,
    pub from_span: Range<usize>,
}

/// Reads `[dmarc_reports]`. `is_evaluated`: DMARC is evaluated for incoming mail.
pub(super) fn read_dmarc(section: Section<'_>, is_evaluated: bool) -> DmarcReportsSpot {
    let address = address(&section, "address");
    let sender = sender(&section, "[dmarc_reports]");
    if sender.is_some() && !is_evaluated {
        let message = "no reports are sent: [message_authentication] does not evaluate DMARC; set `check = true` and \
            `dmarc` to \"tag\" or stricter";
        section.context.warn(section.span.clone(), message);
    }
    let (address_span, from_span) = (section.span_of("address"), section.span_of("from"));
    section.finish();
    DmarcReportsSpot { value: DmarcReportsConfig { sender, address }, address_span, from_span }
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
            let message = format!("no reports are sent: set both `organization` and `from` in {name}");
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::check_text;

    fn warnings(reports: &str) -> String {
        let text = format!(
            "hostname = \"mx.test\"\n[domains]\nrelay = [\"relayed.test\"]\n[aliases]\n\"dmarc@our.test\" = [\"x@y.test\"]\n\
             [message_authentication]\ncheck = true\ndmarc = \"tag\"\n[dmarc_reports]\n{reports}"
        )
        .replace("[domains]", "[domains]\nlocal = [\"our.test\"]");
        let found = check_text(Path::new("stentor.toml"), &text).map_or_else(|found| found, |config| config.warnings);
        let found = found.iter().map(ToString::to_string);
        found.filter(|one| one.contains("report")).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn addresses_that_cannot_work_are_named() {
        for address in ["dmarc@our.test", "any@relayed.test"] {
            assert_eq!(warnings(&format!("address = \"{address}\"")), "");
        }
        for address in ["other@our.test", "dmarc@elsewhere.test"] {
            let found = warnings(&format!("address = \"{address}\""));
            assert!(found.contains(&format!("no reports arrive: {address} is no address here")), "{found}");
        }
        let found = warnings("organization = \"Us\"\nfrom = \"dmarc@our.test\"");
        assert!(found.contains("reports have no DKIM signature of our.test"), "{found}");
    }
}
