//! The walk up the tree of domains that finds DMARC records and the organization's domain (RFC 9989 section 4.10).

use super::record::{DmarcRecord, PublicSuffix, is_dmarc};
use crate::lookups::{Lookup, Lookups, Missing};

/// Number of labels to which a longer name is cut after its own query.
const LABELS_MAX: usize = 7;

/// One name of the walk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    pub domain: String,
    /// Number of DMARC records; with several none counts.
    pub records: usize,
    /// The only record, or why it is not valid.
    pub policy: Option<Result<DmarcRecord, String>>,
}

impl Step {
    fn public_suffix(&self) -> PublicSuffix {
        match &self.policy {
            Some(Ok(policy)) => policy.public_suffix,
            _ => PublicSuffix::Unknown,
        }
    }
}

/// The walk from a domain up; the domain comes first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TreeWalk(Vec<Step>);

/// Walks up from a domain until a record with `psd=y` or `psd=n`.
pub(crate) fn tree_walk(lookups: &Lookups, domain: &str) -> Lookup<TreeWalk> {
    // All are asked before the first one decides.
    let answers: Vec<_> =
        names(domain).into_iter().map(|name| (lookups.texts(&format!("_dmarc.{name}")), name)).collect();
    if answers.iter().any(|(answer, _)| *answer == Err(Missing::Pending)) {
        return Err(Missing::Pending);
    }
    let mut steps: Vec<Step> = Vec::new();
    for (answer, name) in answers {
        let records: Vec<&Vec<u8>> = answer?.iter().filter(|text| is_dmarc(text)).collect();
        let policy = if let [record] = records.as_slice() { Some(DmarcRecord::parse(record)) } else { None };
        let step = Step { domain: name, records: records.len(), policy };
        let is_last = step.public_suffix() != PublicSuffix::Unknown;
        steps.push(step);
        if is_last {
            break;
        }
    }
    Ok(TreeWalk(steps))
}

/// The names of the walk: the domain, and those above it.
fn names(domain: &str) -> Vec<String> {
    let labels: Vec<&str> = domain.split('.').collect();
    let first = if labels.len() > LABELS_MAX { labels.len() - LABELS_MAX } else { 1 };
    let above = (first..labels.len()).map(|from| labels[from..].join("."));
    std::iter::once(domain.to_owned()).chain(above).collect()
}

impl TreeWalk {
    /// The step with the record of a public suffix.
    pub fn suffix_step(&self) -> Option<&Step> {
        self.0.iter().find(|step| step.public_suffix() == PublicSuffix::Yes)
    }

    pub fn step(&self, domain: &str) -> Option<&Step> {
        self.0.iter().find(|step| step.domain == domain)
    }

    /// The organization's domain: that of `psd=n`, the one below `psd=y`, else the shortest with a record; without
    /// any, the domain itself (RFC 9989 section 4.10.2).
    pub fn organization(&self) -> &str {
        let own = self.0.first().map_or("", |step| &*step.domain);
        for (at, step) in self.0.iter().enumerate() {
            match step.public_suffix() {
                PublicSuffix::No => return &step.domain,
                PublicSuffix::Yes => return at.checked_sub(1).map_or(own, |below| &self.0[below].domain),
                PublicSuffix::Unknown => {}
            }
        }
        let with_record = self.0.iter().rev().find(|step| step.policy.is_some());
        with_record.map_or(own, |step| &step.domain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lookups::{LookupAnswer, LookupQuestion};

    fn walked(domain: &str, records: &[&str]) -> TreeWalk {
        let mut lookups = Lookups::default();
        assert_eq!(tree_walk(&lookups, domain), Err(Missing::Pending));
        for question in lookups.take_wanted() {
            let LookupQuestion::Texts(name) = &question else { panic!("{question:?}") };
            let texts = records.iter().filter_map(|record| record.strip_prefix(&format!("{name} ")));
            let texts = texts.map(|text| text.as_bytes().to_vec()).collect();
            lookups.add(question, LookupAnswer::Texts(texts));
        }
        tree_walk(&lookups, domain).unwrap()
    }

    #[test]
    fn organizations() {
        for (domain, records, wanted) in [
            ("a.b.example.com", &["_dmarc.example.com v=DMARC1; p=none"][..], "example.com"),
            ("a.example.com", &["_dmarc.a.example.com v=DMARC1; p=none"], "a.example.com"),
            (
                "a.example.com",
                &["_dmarc.a.example.com v=DMARC1; p=none", "_dmarc.example.com v=DMARC1; p=none"],
                "example.com",
            ),
            (
                "a.example.com",
                &["_dmarc.a.example.com v=DMARC1; p=none; psd=n", "_dmarc.example.com v=DMARC1; p=none"],
                "a.example.com",
            ),
            ("a.giant.bank.example", &["_dmarc.bank.example v=DMARC1; p=reject; psd=y"], "giant.bank.example"),
            ("bank.example", &["_dmarc.bank.example v=DMARC1; p=reject; psd=y"], "bank.example"),
            ("a.example.com", &[], "a.example.com"),
            (
                "a.example.com",
                &["_dmarc.example.com v=DMARC1; p=none", "_dmarc.example.com v=DMARC1; p=x"],
                "a.example.com",
            ),
        ] {
            assert_eq!(walked(domain, records).organization(), wanted, "{domain} {records:?}");
        }
    }

    /// The example of section 4.10 has a name of twelve labels.
    #[test]
    fn long_names_are_cut() {
        let asked = names("a.b.c.d.e.f.g.h.i.j.mail.example.com");
        assert_eq!(asked.len(), 1 + LABELS_MAX);
        assert_eq!(asked[1], "g.h.i.j.mail.example.com");
        assert_eq!(
            names("a.b.c.d.e.f.g.example"),
            [
                "a.b.c.d.e.f.g.example",
                "b.c.d.e.f.g.example",
                "c.d.e.f.g.example",
                "d.e.f.g.example",
                "e.f.g.example",
                "f.g.example",
                "g.example",
                "example"
            ]
        );
    }
}
