//! The checks, their stable keys, and findings.
//!
//! Promise: keys are interfaces (JSON, docs/operate/identity.md) and never change. A finding is reported once.

use stentor_records::health::Severity;

use crate::lookups::{Lookup, Missing};

macro_rules! checks {
    ($($name:ident $severity:ident $key:literal $meaning:literal,)*) => {
        /// What a finding is about.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Check {
            $(#[doc = $meaning] $name,)*
        }

        impl Check {
            pub const ALL: &[Check] = &[$(Check::$name,)*];

            /// Stable name in JSON and documentation.
            pub fn key(self) -> &'static str {
                match self { $(Check::$name => $key,)* }
            }

            /// One line for the documentation.
            pub fn meaning(self) -> &'static str {
                match self { $(Check::$name => $meaning,)* }
            }

            /// A problem if receivers refuse or distrust mail because of it.
            pub fn severity(self) -> Severity {
                match self { $(Check::$name => Severity::$severity,)* }
            }
        }
    };
}

checks! {
    Unchecked Warning "unchecked" "a name server did not answer, or the address is not public",
    PtrMissing Problem "ptr_missing" "the source address has no PTR record",
    PtrUnconfirmed Problem "ptr_unconfirmed" "no name of the PTR records has the address",
    PtrGeneric Problem "ptr_generic" "the PTR name looks like that of a dial-up or rented address",
    HeloName Problem "helo_name" "the HELO name is not a full host name",
    HeloUnresolved Problem "helo_unresolved" "the HELO name has no address",
    HeloAddress Problem "helo_address" "the HELO name has other addresses than the source",
    HeloPtr Warning "helo_ptr" "the HELO name differs from the PTR name",
    BlockList Problem "block_list" "a DNS block list has the source address",
    SpfMissing Problem "spf_missing" "the domain of a return path has no SPF record",
    SpfHelo Warning "spf_helo" "the HELO name has no SPF record; it counts for bounces",
    SpfSeveral Problem "spf_several" "a name has several SPF records, so none counts",
    SpfSyntax Problem "spf_syntax" "an SPF record cannot be parsed",
    SpfInclude Problem "spf_include" "an `include` or `redirect` names a domain without an SPF record",
    SpfLoop Problem "spf_loop" "SPF records include each other in a circle",
    SpfLookups Problem "spf_lookups" "the record needs more than ten look-ups",
    SpfVoid Problem "spf_void" "more than two look-ups of the record find nothing",
    SpfMx Problem "spf_mx" "an `mx` term has more than ten hosts",
    SpfSource Problem "spf_source" "the record does not permit a source address",
    SpfPassAll Problem "spf_pass_all" "the record permits everybody",
    SpfOpen Warning "spf_open" "the record refuses nobody: it does not end with `-all` or `~all`",
    SpfPtr Warning "spf_ptr" "the record uses `ptr`, which receivers may ignore",
    DkimUnsigned Problem "dkim_unsigned" "mail from the domain is not signed",
    DkimMissing Problem "dkim_missing" "the key in use is not published",
    DkimSeveral Problem "dkim_several" "a selector has several records",
    DkimSyntax Problem "dkim_syntax" "a key record cannot be parsed",
    DkimRevoked Problem "dkim_revoked" "the published key is empty: it is revoked",
    DkimType Problem "dkim_type" "the published key has another type than the key in use",
    DkimKey Problem "dkim_key" "the published key is not the key in use",
    DkimHash Problem "dkim_hash" "the key record excludes SHA-256",
    DkimService Problem "dkim_service" "the key record excludes mail",
    DkimTesting Problem "dkim_testing" "the key record has the testing flag",
    DkimTag Warning "dkim_tag" "a key record has an unknown tag",
    DkimRsa Warning "dkim_rsa" "there is only an Ed25519 key, which some receivers cannot verify",
    DkimAlignment Problem "dkim_alignment" "no signature has a domain that DMARC accepts for From",
    DmarcMissing Problem "dmarc_missing" "no DMARC record applies to the domain",
    DmarcSeveral Problem "dmarc_several" "the domain has several DMARC records, so none counts",
    DmarcSyntax Problem "dmarc_syntax" "the DMARC record cannot be parsed, or has no valid policy",
    DmarcPolicy Warning "dmarc_policy" "the policy that applies is `none`",
    DmarcTest Warning "dmarc_test" "the record has `t=y`, or a `pct` below 100: the policy is not applied",
    DmarcReports Warning "dmarc_reports" "the record requests no reports",
    DmarcRua Problem "dmarc_rua" "an address in `rua` is not valid",
    DmarcExternal Problem "dmarc_external" "a destination of reports outside of the domain does not agree to get them",
    SpfAlignment Warning "spf_alignment" "no return path has a domain that DMARC accepts for From",
    MxMissing Problem "mx_missing" "the domain has neither MX records nor an address: it receives no replies and bounces",
    MxNull Problem "mx_null" "the domain has a null MX record: it receives no replies and bounces",
    MxHost Problem "mx_host" "an MX host has no address",
    StsMissing Warning "sts_missing" "the domain has no MTA-STS record",
    StsRecord Problem "sts_record" "the MTA-STS record is not valid",
    StsPolicy Problem "sts_policy" "the MTA-STS policy cannot be fetched or is not valid",
    StsMx Problem "sts_mx" "the MTA-STS policy does not list an MX host",
    StsMode Warning "sts_mode" "the MTA-STS policy is not enforced",
    TlsrptMissing Warning "tlsrpt_missing" "the domain requests no TLS reports",
    TlsrptRecord Problem "tlsrpt_record" "the TLS-RPT record is not valid",
    MessageField Problem "message_field" "From, Date or Message-ID is missing or repeated",
    MessageFrom Problem "message_from" "From has no address, several, or one of another domain",
    MessageSize Problem "message_size" "the message is larger than large receivers accept",
    MessageSignature Problem "message_signature" "the message cannot be signed, or its signature is not valid",
    ListId Warning "list_id" "bulk mail without List-Id",
    Unsubscribe Warning "unsubscribe" "bulk mail without List-Unsubscribe",
    OneClick Warning "one_click" "bulk mail without a one-click unsubscribe link",
    UnsubscribeLink Problem "unsubscribe_link" "the one-click unsubscribe link cannot be reached",
}

impl Check {
    /// Whether large receivers refuse mail because of it, or put it into the spam folder, by the rules that they have
    /// published: Gmail's Email sender guidelines, Yahoo's Sender Best Practices, and Outlook's requirements for
    /// high-volume senders (550 5.7.515). `is_bulk`: the rules for those who send over 5,000 messages a day apply.
    pub fn is_refused(self, is_bulk: bool) -> bool {
        use Check as C;
        let is_message = matches!(self, C::MessageField | C::MessageFrom | C::MessageSize | C::MessageSignature);
        let is_spf = matches!(
            self,
            C::SpfMissing
                | C::SpfSeveral
                | C::SpfSyntax
                | C::SpfInclude
                | C::SpfLoop
                | C::SpfLookups
                | C::SpfVoid
                | C::SpfMx
                | C::SpfSource
        );
        let is_dkim = matches!(
            self,
            C::DkimUnsigned
                | C::DkimMissing
                | C::DkimSeveral
                | C::DkimSyntax
                | C::DkimRevoked
                | C::DkimType
                | C::DkimKey
                | C::DkimHash
                | C::DkimService
                | C::DkimAlignment
        );
        let is_of_bulk =
            matches!(self, C::DmarcMissing | C::DmarcSeveral | C::DmarcSyntax | C::Unsubscribe | C::OneClick);
        let is_reverse = matches!(self, C::PtrMissing | C::PtrUnconfirmed);
        is_message || is_spf || is_dkim || is_reverse || is_bulk && is_of_bulk
    }
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityFinding {
    pub check: Check,
    /// Name, domain or address that it is about.
    pub subject: String,
    pub what: String,
    /// The record to publish, or the key to change.
    pub next: String,
}

/// Findings of one examination, in order.
#[derive(Debug, Default)]
pub(crate) struct Findings(Vec<IdentityFinding>);

impl Findings {
    pub fn add(&mut self, check: Check, subject: &str, what: impl Into<String>, next: impl Into<String>) {
        let finding = IdentityFinding { check, subject: subject.to_owned(), what: what.into(), next: next.into() };
        if !self.0.contains(&finding) {
            self.0.push(finding);
        }
    }

    /// Takes the end of a check: a failed look-up is reported, a pending one is looked up before the next call.
    pub fn end<T>(&mut self, subject: &str, topic: &str, result: Lookup<T>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(Missing::Pending) => None,
            Err(Missing::Failed(why)) => {
                let next = "check the name servers and retry";
                self.add(Check::Unchecked, subject, format!("{topic} could not be checked: {why}"), next);
                None
            }
        }
    }

    /// Whether a check with one of these subjects has been reported.
    pub fn has(&self, check: Check) -> bool {
        self.0.iter().any(|finding| finding.check == check)
    }

    pub fn into_vec(self) -> Vec<IdentityFinding> {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_different() {
        let mut keys: Vec<&str> = Check::ALL.iter().map(|check| check.key()).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), Check::ALL.len());
    }

    /// The operators' page has a row for each check.
    #[test]
    fn checks_are_documented() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operate/identity.md");
        let page = std::fs::read_to_string(path).unwrap();
        let row =
            |check: &Check| format!("| `{}` | {} | {} |\n", check.key(), check.severity().words(), check.meaning());
        let rows = Check::ALL.iter().map(row).collect::<Vec<_>>().concat();
        let (_, table) = page.split_once("| check | severity | found |\n|---|---|---|\n").unwrap();
        assert!(table == rows, "the table in docs/operate/identity.md is stale; it should be\n{rows}");
    }
}
