//! Schedules reports: where each due report still has to go, when it is retried, and how many a mail domain gets per
//! day.
//!
//! Promise: new destinations come before failed ones; a destination that failed is tried again an hour after that
//! attempt ended; a domain has one POST at a time, so a domain with slow web servers takes only one of the slots. The
//! caller drops reports over a daily limit.

use std::collections::HashMap;

use stentor_domain_reports::{ReportDestination, day_of, likely_organization};
use stentor_mail::address::Address;
use stentor_queue::ids::Ms;

/// Pause after a failed attempt.
const RETRY_MS: Ms = 3_600_000;
/// After this time a POST counts as ended.
const POST_MS_MAX: Ms = 120_000;
/// Maximum reports per day (UTC) to one address, and to all addresses of one organization: whoever has a domain can
/// name any number of hosts below a victim's.
const TO_ADDRESS_MAX: u32 = 20;
const TO_ORGANIZATION_MAX: u32 = 100;

/// The day and domain of a report.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReportKey {
    pub day: u64,
    pub domain: String,
}

/// Reports that have not been sent to all destinations yet.
#[derive(Debug, Default)]
pub struct Agenda {
    left: HashMap<ReportKey, ReportState>,
}

#[derive(Debug)]
enum ReportState {
    /// The destinations could not be looked up; time of the next look-up.
    Unknown(Ms),
    Open(OpenDestinations),
}

#[derive(Debug, Default)]
struct OpenDestinations {
    /// Remaining destinations with the time of the next attempt.
    open: Vec<(ReportDestination, Ms)>,
    posts: u32,
    /// A POST is under way, at the latest until this time.
    posting_until: Ms,
}

impl Agenda {
    pub fn retain(&mut self, is_kept: impl Fn(&ReportKey) -> bool) {
        self.left.retain(|key, _| is_kept(key));
    }

    pub fn is_known(&self, key: &ReportKey) -> bool {
        self.left.contains_key(key)
    }

    /// Records that the destinations could not be looked up.
    pub fn not_looked_up(&mut self, key: ReportKey, now: Ms) {
        self.left.insert(key, ReportState::Unknown(now + RETRY_MS));
    }

    pub fn looked_up(&mut self, key: ReportKey, destinations: Vec<ReportDestination>) {
        let open = destinations.into_iter().map(|destination| (destination, 0)).collect();
        self.left.insert(key, ReportState::Open(OpenDestinations { open, ..OpenDestinations::default() }));
    }

    /// Reports whose destinations must be looked up again.
    pub fn to_look_up(&self, now: Ms) -> impl Iterator<Item = &ReportKey> {
        let is_due = move |(key, left): (_, &ReportState)| {
            matches!(left, ReportState::Unknown(next) if *next <= now).then_some(key)
        };
        self.left.iter().filter_map(is_due)
    }

    /// Reports to send by mail now.
    pub fn mail(&self, now: Ms) -> Vec<(ReportKey, String)> {
        let mut found = Vec::new();
        for (key, left) in &self.left {
            let ReportState::Open(all) = left else { continue };
            for (destination, next) in &all.open {
                if let ReportDestination::Mail(address) = destination
                    && *next <= now
                {
                    found.push((key.clone(), address.clone()));
                }
            }
        }
        found
    }

    /// Starts due POSTs, at most one per domain; they count as under way.
    pub fn begin_posts(&mut self, now: Ms, limit: usize) -> Vec<(ReportKey, String)> {
        let busy = |all: &OpenDestinations| all.posting_until > now;
        let all = || {
            self.left
                .iter()
                .filter_map(|(key, left)| if let ReportState::Open(all) = left { Some((key, all)) } else { None })
        };
        let mut domains: Vec<String> = all().filter(|(_, all)| busy(all)).map(|(key, _)| key.domain.clone()).collect();
        let mut found: Vec<(u32, Ms, &ReportKey, &str)> = Vec::new();
        for (key, all) in all().filter(|(_, all)| !busy(all)) {
            let due = all
                .open
                .iter()
                .filter(|(destination, next)| matches!(destination, ReportDestination::Https(_)) && *next <= now);
            if let Some((ReportDestination::Https(url), next)) = due.min_by_key(|(_, next)| *next) {
                found.push((all.posts, *next, key, url));
            }
        }
        found.sort_unstable();
        let mut begun = Vec::new();
        for (_, _, key, url) in found {
            if begun.len() == limit {
                break;
            }
            if !domains.contains(&key.domain) {
                domains.push(key.domain.clone());
                begun.push((key.clone(), url.to_owned()));
            }
        }
        for (key, _) in &begun {
            if let Some(ReportState::Open(all)) = self.left.get_mut(key) {
                all.posts += 1;
                all.posting_until = now + POST_MS_MAX;
            }
        }
        begun
    }

    pub fn post_ended(&mut self, key: &ReportKey) {
        if let Some(ReportState::Open(all)) = self.left.get_mut(key) {
            all.posting_until = 0;
        }
    }

    /// Records that an attempt failed, ending now.
    pub fn failed(&mut self, key: &ReportKey, at: &ReportDestination, now: Ms) {
        let Some(ReportState::Open(all)) = self.left.get_mut(key) else { return };
        if let Some((_, next)) = all.open.iter_mut().find(|(destination, _)| destination == at) {
            *next = now + RETRY_MS;
        }
    }

    /// Records that the destination has the report, or gets none.
    pub fn done(&mut self, key: &ReportKey, at: &ReportDestination) {
        if let Some(ReportState::Open(all)) = self.left.get_mut(key) {
            all.open.retain(|(destination, _)| destination != at);
        }
    }

    /// Whether no destinations are left.
    pub fn is_done(&self, key: &ReportKey) -> bool {
        matches!(self.left.get(key), Some(ReportState::Open(all)) if all.open.is_empty())
    }
}

/// Reports mailed today.
#[derive(Debug, Default)]
pub struct MailedReports {
    day: u64,
    to_address: HashMap<String, u32>,
    /// By [`likely_organization`].
    to_organization: HashMap<String, u32>,
}

impl MailedReports {
    /// Why this address gets no report about the domain: the record's owner can name any address, and our rules for
    /// mail from others are not applied.
    pub fn refusal(&mut self, to: &Address, about: &str, is_local: bool, now: Ms) -> Option<&'static str> {
        if is_local && to.domain() != about {
            return Some("the address belongs to another domain that is local to this server");
        }
        if self.day != day_of(now) {
            *self = MailedReports { day: day_of(now), ..MailedReports::default() };
        }
        let has = |of: &HashMap<String, u32>, name: &str, most| of.get(name).is_some_and(|number| *number >= most);
        if has(&self.to_address, to.as_str(), TO_ADDRESS_MAX) {
            return Some("the address has reached its limit of reports for today");
        }
        has(&self.to_organization, likely_organization(to.domain()), TO_ORGANIZATION_MAX)
            .then_some("the organization of the address has reached its limit of reports for today")
    }

    pub fn count(&mut self, to: &Address) {
        *self.to_address.entry(to.as_str().to_owned()).or_default() += 1;
        *self.to_organization.entry(likely_organization(to.domain()).to_owned()).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(domain: &str) -> ReportKey {
        ReportKey { day: 1, domain: domain.to_owned() }
    }

    fn https(url: &str) -> ReportDestination {
        ReportDestination::Https(url.to_owned())
    }

    fn domains(begun: &[(ReportKey, String)]) -> Vec<&str> {
        let mut domains: Vec<&str> = begun.iter().map(|(key, _)| &*key.domain).collect();
        domains.sort_unstable();
        domains
    }

    #[test]
    fn one_post_of_a_domain_at_a_time_and_the_untried_first() {
        let mut agenda = Agenda::default();
        agenda.looked_up(key("slow.test"), vec![https("https://a"), https("https://b")]);
        let first = agenda.begin_posts(10, 8);
        assert_eq!(domains(&first), ["slow.test"]);
        assert!(agenda.begin_posts(11, 8).is_empty(), "it is under way");
        let other_day = ReportKey { day: 2, ..key("slow.test") };
        agenda.looked_up(other_day.clone(), vec![https("https://a")]);
        assert!(agenda.begin_posts(11, 8).is_empty(), "another day of the same domain waits too");
        agenda.retain(|key| *key != other_day);
        // The next attempt counts from the end of this one.
        agenda.failed(&first[0].0, &https(&first[0].1), 5000);
        agenda.post_ended(&first[0].0);
        for domain in ["x.test", "y.test"] {
            agenda.looked_up(key(domain), vec![https("https://a")]);
        }
        let second = agenda.begin_posts(6000, 2);
        assert_eq!(domains(&second), ["x.test", "y.test"]);
        let third = agenda.begin_posts(6000, 2);
        assert_eq!(domains(&third), ["slow.test"]);
        assert_ne!(third[0].1, first[0].1, "the destination that was not tried");
        agenda.done(&third[0].0, &https(&third[0].1));
        agenda.post_ended(&third[0].0);
        assert!(agenda.begin_posts(RETRY_MS + 4999, 1).iter().all(|(key, _)| key.domain != "slow.test"));
        assert!(!agenda.is_done(&key("slow.test")));
        assert!(agenda.begin_posts(RETRY_MS + 5000, 8).iter().any(|(key, _)| key.domain == "slow.test"));
        agenda.done(&key("slow.test"), &https(&first[0].1));
        assert!(agenda.is_done(&key("slow.test")));
    }

    #[test]
    fn mail_waits_for_no_web_server() {
        let mut agenda = Agenda::default();
        let mail = ReportDestination::Mail("a@b.test".to_owned());
        agenda.looked_up(key("a.test"), vec![https("https://a"), mail.clone()]);
        agenda.begin_posts(1, 8);
        assert_eq!(agenda.mail(1), [(key("a.test"), "a@b.test".to_owned())]);
        agenda.failed(&key("a.test"), &mail, 7);
        assert!(agenda.mail(RETRY_MS + 6).is_empty());
        assert_eq!(agenda.mail(RETRY_MS + 7).len(), 1);
        agenda.not_looked_up(key("c.test"), 7);
        assert!(agenda.to_look_up(RETRY_MS + 6).next().is_none() && !agenda.is_done(&key("c.test")));
        assert_eq!(agenda.to_look_up(RETRY_MS + 7).collect::<Vec<_>>(), [&key("c.test")]);
    }

    #[test]
    fn nobody_is_flooded_with_reports() {
        let address = |text: &str| Address::parse(text.as_bytes(), true).expect("an address");
        let mut mailed = MailedReports::default();
        let now = 1_000_000_000;
        let ann = address("ann@v.test");
        for _ in 0..TO_ADDRESS_MAX {
            assert_eq!(mailed.refusal(&ann, "a.test", false, now), None);
            mailed.count(&ann);
        }
        assert!(mailed.refusal(&ann, "a.test", false, now).is_some_and(|why| why.starts_with("the address")));
        for n in TO_ADDRESS_MAX..TO_ORGANIZATION_MAX {
            let other = address(&format!("ann@n{n}.v.test"));
            assert_eq!(mailed.refusal(&other, "a.test", false, now), None);
            mailed.count(&other);
        }
        let other = address("other@v.test");
        assert!(mailed.refusal(&other, "a.test", false, now).is_some_and(|why| why.starts_with("the organization")));
        assert_eq!(mailed.refusal(&other, "a.test", false, now + 86_400_000), None);
    }

    #[test]
    fn a_local_address_gets_reports_about_its_own_domain_alone() {
        let list = Address::parse(b"list@our.test", true).expect("an address");
        let mut mailed = MailedReports::default();
        assert!(mailed.refusal(&list, "a.test", true, 1).is_some());
        assert_eq!(mailed.refusal(&list, "our.test", true, 1), None);
        assert_eq!(mailed.refusal(&list, "a.test", false, 1), None);
    }
}
