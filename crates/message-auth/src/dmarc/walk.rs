//! The DNS tree walk: policy records of a domain and those above it (RFC 9989 section 4.10).
//!
//! Promise: at most eight names are looked up. Failure: the first failed look-up that the walk needs.

use super::record::{DmarcRecord, PublicSuffix};

/// Labels of the longest domain that is asked for after the first one.
const LABELS_MAX: usize = 7;

/// A domain of a walk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WalkStep<'d> {
    pub domain: &'d str,
    /// Number of DMARC records; with several none counts.
    pub records: usize,
    /// The only record.
    pub record: Option<DmarcRecord>,
}

impl WalkStep<'_> {
    fn public_suffix(&self) -> PublicSuffix {
        self.record.as_ref().map_or(PublicSuffix::Unknown, |record| record.public_suffix)
    }
}

/// The walk from a domain upwards, up to the first record that says whether its domain is a public suffix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeWalk<'d>(Vec<WalkStep<'d>>);

/// The domains that a walk asks for, the longest first: the domain itself, and at most [`LABELS_MAX`] above it.
fn targets(domain: &str) -> Vec<&str> {
    let mut all = vec![domain];
    let labels = domain.split('.').count();
    let mut rest = domain;
    for left in (1..labels).rev() {
        let Some((_, above)) = rest.split_once('.') else { break };
        rest = above;
        if left <= LABELS_MAX {
            all.push(rest);
        }
    }
    all
}

impl<'d> TreeWalk<'d> {
    /// Walks from a domain in lower case. `texts` looks up TXT records; it is called for all names before the first
    /// answer counts.
    ///
    /// # Errors
    /// The first error of a look-up that is needed.
    pub fn of<'a, E>(domain: &'d str, texts: impl Fn(&str) -> Result<Vec<&'a [u8]>, E>) -> Result<TreeWalk<'d>, E> {
        let answers: Vec<_> = targets(domain).into_iter().map(|at| (at, texts(&format!("_dmarc.{at}")))).collect();
        let mut steps = Vec::with_capacity(answers.len());
        for (domain, answer) in answers {
            let mut records: Vec<DmarcRecord> = answer?.into_iter().filter_map(DmarcRecord::parse).collect();
            let count = records.len();
            let step = WalkStep { domain, records: count, record: records.pop().filter(|_| count == 1) };
            let is_last = step.public_suffix() != PublicSuffix::Unknown;
            steps.push(step);
            if is_last {
                break;
            }
        }
        Ok(TreeWalk(steps))
    }

    /// The first domain, which every walk has.
    pub fn own(&self) -> &WalkStep<'d> {
        &self.0[0]
    }

    /// The step whose record applies to the first domain: its own, its organization's, or that of its public suffix.
    pub fn applied(&self) -> Option<&WalkStep<'d>> {
        let with_record = |domain: &str| self.0.iter().find(|step| step.domain == domain && step.record.is_some());
        let suffix = || self.0.iter().find(|step| step.public_suffix() == PublicSuffix::Yes);
        with_record(self.own().domain).or_else(|| with_record(self.organization())).or_else(suffix)
    }

    /// The organizational domain (section 4.10.2): that of `psd=n`, the one below `psd=y`, else the shortest with a
    /// record; without any, the first domain.
    pub fn organization(&self) -> &'d str {
        let own = self.own().domain;
        for step in &self.0 {
            match step.public_suffix() {
                PublicSuffix::No => return step.domain,
                PublicSuffix::Yes if step.domain != own => return one_below(own, step.domain),
                PublicSuffix::Yes | PublicSuffix::Unknown => {}
            }
        }
        self.0.iter().rev().find(|step| step.record.is_some()).map_or(own, |step| step.domain)
    }
}

/// The domain one label below a suffix.
fn one_below<'a>(domain: &'a str, suffix: &str) -> &'a str {
    let before = domain.strip_suffix(suffix).and_then(|before| before.strip_suffix('.')).unwrap_or_default();
    let begin = before.rfind('.').map_or(0, |dot| dot + 1);
    &domain[begin..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_asks_for_at_most_eight_domains() {
        assert_eq!(targets("a.mail.example.com"), ["a.mail.example.com", "mail.example.com", "example.com", "com"]);
        let long = "a.b.c.d.e.f.g.h.i.j.mail.example.com";
        let all = targets(long);
        assert_eq!(all.len(), 8);
        assert_eq!((all[0], all[1], all[7]), (long, "g.h.i.j.mail.example.com", "com"));
        assert_eq!(targets("com"), ["com"]);
    }

    #[test]
    fn organizational_domains_are_those_of_the_walk() {
        let of = |zone: &[(&str, &'static str)], domain: &str| {
            let texts = |name: &str| -> Result<Vec<&[u8]>, ()> {
                Ok(zone.iter().filter(|(at, _)| *at == name).map(|(_, text)| text.as_bytes()).collect())
            };
            TreeWalk::of(domain, texts).unwrap().organization().to_owned()
        };
        let mail = ("_dmarc.mail.example.com", "v=DMARC1; p=none");
        let org = ("_dmarc.example.com", "v=DMARC1; p=none");
        let domain = "a.mail.example.com";
        // The examples of RFC 9989 section 4.10.2.
        assert_eq!(of(&[mail, org], domain), "example.com");
        assert_eq!(of(&[("_dmarc.com", "v=DMARC1; psd=y")], domain), "example.com");
        assert_eq!(of(&[("_dmarc.mail.example.com", "v=DMARC1; psd=n"), org], domain), "mail.example.com");
        assert_eq!(of(&[mail, org, ("_dmarc.com", "v=DMARC1; psd=y")], domain), "example.com");
        assert_eq!(of(&[], domain), domain);
        // Two records of a name are none; a suffix that sends mail is its own organization.
        assert_eq!(of(&[mail, org, org], domain), "mail.example.com");
        assert_eq!(of(&[("_dmarc.a.mail.example.com", "v=DMARC1; psd=y")], domain), domain);
    }

    #[test]
    fn a_failed_look_up_counts_only_below_the_end_of_the_walk() {
        let walk = |failing: &str| {
            TreeWalk::of("a.example.com", |name| match name {
                "_dmarc.example.com" => Ok(vec![&b"v=DMARC1; p=none; psd=n"[..]]),
                name if name == failing => Err(()),
                _ => Ok(Vec::new()),
            })
            .map(|walk| walk.organization())
        };
        assert_eq!((walk("_dmarc.com"), walk("_dmarc.a.example.com")), (Ok("example.com"), Err(())));
    }
}
