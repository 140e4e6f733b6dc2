//! The checks, their stable keys, and findings.
//!
//! Promise: keys are interfaces (JSON, docs/operate/identity.md) and never change. A finding is reported once.

use stentor_records::health::Severity;

use crate::lookups::{Lookup, Missing};

macro_rules! checks {
    ($($name:ident $severity:ident $scope:ident $key:literal $meaning:literal,)*) => {
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

            fn refusal_scope(self) -> RefusalScope {
                match self { $(Check::$name => RefusalScope::$scope,)* }
            }
        }
    };
}

checks! {
    Unchecked Warning Never "unchecked" "a name server did not answer, or the address is not public",
    PtrMissing Problem Always "ptr_missing" "the source address has no PTR record",
    PtrUnconfirmed Problem Always "ptr_unconfirmed" "no name of the PTR records has the address",
    PtrGeneric Problem Never "ptr_generic" "the PTR name looks like that of a dial-up or rented address",
    HeloName Problem Never "helo_name" "the HELO name is not a full host name",
    HeloUnresolved Problem Never "helo_unresolved" "the HELO name has no address",
    HeloAddress Problem Never "helo_address" "the HELO name has other addresses than the source",
    HeloPtr Warning Never "helo_ptr" "the HELO name differs from the PTR name",
    BlockList Problem Never "block_list" "a DNS block list has the source address",
    SpfMissing Problem Always "spf_missing" "the domain of a return path has no SPF record",
    SpfHelo Warning Never "spf_helo" "the HELO name has no SPF record; it counts for bounces",
    SpfSeveral Problem Always "spf_several" "a name has several SPF records, so none counts",
    SpfSyntax Problem Always "spf_syntax" "an SPF record cannot be parsed",
    SpfInclude Problem Always "spf_include" "an `include` or `redirect` names a domain without an SPF record",
    SpfLoop Problem Always "spf_loop" "SPF records form a loop",
    SpfLookups Problem Always "spf_lookups" "the record needs more than ten look-ups",
    SpfVoid Problem Always "spf_void" "more than two look-ups of the record find nothing",
    SpfMx Problem Always "spf_mx" "an `mx` term has more than ten hosts",
    SpfSource Problem Always "spf_source" "the record does not permit a source address",
    SpfPassAll Problem Never "spf_pass_all" "the record permits everybody",
    SpfOpen Warning Never "spf_open" "the record refuses nobody: it does not end with `-all` or `~all`",
    SpfPtr Warning Never "spf_ptr" "the record uses `ptr`, which receivers may ignore",
    DkimUnsigned Problem Always "dkim_unsigned" "mail from the domain is not signed",
    DkimMissing Problem Always "dkim_missing" "the key in use is not published",
    DkimSeveral Problem Always "dkim_several" "a selector has several records",
    DkimSyntax Problem Always "dkim_syntax" "a key record cannot be parsed",
    DkimRevoked Problem Always "dkim_revoked" "the published key is empty: it is revoked",
    DkimType Problem Always "dkim_type" "the published key has another type than the key in use",
    DkimKey Problem Always "dkim_key" "the published key is not the key in use",
    DkimHash Problem Always "dkim_hash" "the key record excludes SHA-256",
    DkimService Problem Always "dkim_service" "the key record excludes mail",
    DkimTesting Problem Never "dkim_testing" "the key record has the testing flag",
    DkimTag Warning Never "dkim_tag" "a key record has an unknown tag",
    DkimRsa Warning Never "dkim_rsa" "there is only an Ed25519 key, which some receivers cannot verify",
    DkimAlignment Problem Always "dkim_alignment" "no signature has a domain that DMARC accepts for From",
    DmarcMissing Problem Bulk "dmarc_missing" "no DMARC record applies to the domain",
    DmarcSeveral Problem Bulk "dmarc_several" "the domain has several DMARC records, so none counts",
    DmarcSyntax Problem Bulk "dmarc_syntax" "the DMARC record cannot be parsed, or has no valid policy",
    DmarcPolicy Warning Never "dmarc_policy" "the policy that applies is `none`",
    DmarcTest Warning Never "dmarc_test" "the record has `t=y`, or a `pct` below 100: the policy is not applied",
    DmarcReports Warning Never "dmarc_reports" "the record requests no reports",
    DmarcRua Problem Never "dmarc_rua" "an address in `rua` is not valid",
    DmarcExternal Problem Never "dmarc_external" "a destination of reports outside of the domain does not agree to get them",
    DmarcRuaUnknown Warning Never "dmarc_rua_unknown" "DMARC reports go to an address of this server that does not exist",
    DmarcRuaOther Warning Never "dmarc_rua_other" "no DMARC reports go to `address` in `[dmarc_reports]`",
    DmarcOwnSource Warning Never "dmarc_own_source" "the DMARC reports of the last 7 days say that mail from our own addresses fails",
    DmarcRaise Warning Never "dmarc_raise" "the policy that applies is `none`, and DMARC reports say that mail passes",
    SpfAlignment Warning Never "spf_alignment" "no return path has a domain that DMARC accepts for From",
    MxMissing Problem Never "mx_missing" "the domain has neither MX records nor an address: it receives no replies and bounces",
    MxNull Problem Never "mx_null" "the domain has a null MX record: it receives no replies and bounces",
    MxHost Problem Never "mx_host" "an MX host has no address",
    StsMissing Warning Never "sts_missing" "the domain has no MTA-STS record",
    StsRecord Problem Never "sts_record" "the MTA-STS record is not valid",
    StsPolicy Problem Never "sts_policy" "the MTA-STS policy cannot be fetched or is not valid",
    StsMx Problem Never "sts_mx" "the MTA-STS policy does not list an MX host",
    StsMode Warning Never "sts_mode" "the MTA-STS policy is not enforced",
    TlsrptMissing Warning Never "tlsrpt_missing" "the domain requests no TLS reports",
    TlsrptRecord Problem Never "tlsrpt_record" "the TLS-RPT record is not valid",
    MessageField Problem Always "message_field" "From, Date or Message-ID is missing or repeated",
    MessageFrom Problem Always "message_from" "From has no address, several, or one of another domain",
    MessageSize Problem Always "message_size" "the message is larger than large receivers accept",
    MessageSignature Problem Always "message_signature" "the message cannot be signed, or its signature is not valid",
    ListId Warning Never "list_id" "bulk mail without List-Id",
    Unsubscribe Warning Bulk "unsubscribe" "bulk mail without List-Unsubscribe",
    OneClick Warning Bulk "one_click" "bulk mail without a one-click unsubscribe link",
    UnsubscribeLink Problem Never "unsubscribe_link" "the one-click unsubscribe link cannot be reached",
}

/// For which posts large receivers refuse mail that fails a check, or treat it as spam.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RefusalScope {
    Never,
    /// Those of a sender of over 5,000 messages a day.
    Bulk,
    Always,
}

impl Check {
    /// Whether large receivers refuse mail that fails this check, or treat it as spam, by their published rules:
    /// Gmail's Email sender guidelines, Yahoo's Sender Best Practices, and Outlook's requirements for high-volume
    /// senders (550 5.7.515). `is_bulk`: the rules for those who send over 5,000 messages a day apply.
    pub fn causes_refusal(self, is_bulk: bool) -> bool {
        self.refusal_scope() == RefusalScope::Always || is_bulk && self.refusal_scope() == RefusalScope::Bulk
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
        let held = |check: &Check| match check.refusal_scope() {
            RefusalScope::Never => "",
            RefusalScope::Bulk => " bulk",
            RefusalScope::Always => " yes",
        };
        let row = |check: &Check| {
            let (key, severity, meaning) = (check.key(), check.severity().words(), check.meaning());
            format!("| `{key}` | {severity} |{} | {meaning} |\n", held(check))
        };
        let rows = Check::ALL.iter().map(row).collect::<Vec<_>>().concat();
        let (_, table) = page.split_once("| check | severity | held | found |\n|---|---|---|---|\n").unwrap();
        assert!(table == rows, "the table in docs/operate/identity.md is stale; it should be\n{rows}");
    }
}
