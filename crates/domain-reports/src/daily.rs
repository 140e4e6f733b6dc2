//! Counts for the reports of a day (UTC), by domain, in bounded memory.
//!
//! Domains beyond [`DOMAINS_MAX`] get no report for this day. Since others choose the data, no new texts are stored
//! beyond [`OCTETS_MAX`], and an organization has at most [`DayCount::ORGANIZATION_DOMAINS_MAX`] domains; the
//! [`DayCount`] decides what a domain counted before still records.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::fnv1a;

pub const DAY_MS: u64 = 86_400_000;
/// Maximum domains counted in one day.
pub const DOMAINS_MAX: usize = 16_384;
/// Maximum octets of all texts of all days.
pub const OCTETS_MAX: usize = 32 * 1024 * 1024;
/// Upper limit of valid days, beyond the year 4000.
const DAY_NUMBER_MAX: u64 = 750_000;
/// Reports are sent within these hours after the end of a day.
const DELAY_MS_MAX: u64 = 4 * 3_600_000;

/// What is counted for one domain in a day.
pub trait DayCount: Clone + Default + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// First line of the file.
    const HEAD: &'static str;
    /// Maximum domains of one organization ([`likely_organization`]) in a day.
    const ORGANIZATION_DOMAINS_MAX: u32;

    /// Octets of its texts.
    fn octets(&self) -> usize;

    /// Destinations that have received the report of this day, or get none, in the form of
    /// [`ReportDestination::uri`](crate::ReportDestination::uri).
    fn done(&self) -> &[String];

    fn done_mut(&mut self) -> &mut Vec<String>;
}

/// Days that are not reported yet, including the present one. A copy shares the domains' counts with the original
/// until either changes them, so that it is cheap and can be written while counting goes on.
#[derive(Debug, Clone)]
pub struct DailyCounts<C> {
    days: BTreeMap<u64, HashMap<String, Arc<C>, foldhash::fast::RandomState>>,
    /// Domains of each organization that were counted in a day, by its hash.
    organizations: BTreeMap<u64, HashMap<u64, u32, foldhash::fast::RandomState>>,
    /// Octets of all texts.
    octets: usize,
    /// Events of domains beyond the limit, since the start.
    uncounted: u64,
    is_changed: bool,
}

impl<C> Default for DailyCounts<C> {
    fn default() -> DailyCounts<C> {
        DailyCounts {
            days: BTreeMap::new(),
            organizations: BTreeMap::new(),
            octets: 0,
            uncounted: 0,
            is_changed: false,
        }
    }
}

/// Why a file cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CountsError {
    #[error("not a file of report counts of this version")]
    Head,
    #[error("line {0} is malformed")]
    Line(usize),
}

/// Days since 1970 of a time.
pub const fn day_of(now: u64) -> u64 {
    now / DAY_MS
}

/// When a domain's report is sent, in milliseconds after the end of its day: spread over four hours, so that a
/// receiver for many domains does not get all reports at once (RFC 8460 4.1).
pub fn delay_ms(domain: &str) -> u64 {
    fnv1a(&[domain]) % DELAY_MS_MAX
}

/// The domain under which others can make up any number of names, as its labels suggest: the last two, or three below
/// such as `co.uk`. Good enough for limits; who really has a domain is known by its records alone.
pub fn likely_organization(domain: &str) -> &str {
    let mut labels = domain.rsplitn(4, '.');
    let (Some(last), Some(second), Some(third)) = (labels.next(), labels.next(), labels.next()) else { return domain };
    let is_by_country = last.len() == 2 && second.len() <= 3;
    let bytes = last.len() + 1 + second.len() + if is_by_country { 1 + third.len() } else { 0 };
    &domain[domain.len() - bytes..]
}

impl<C: DayCount> DailyCounts<C> {
    /// Changes today's count of a domain. `change` gets whether new texts may be stored, and returns the number of
    /// octets added.
    pub fn update(&mut self, domain: &str, now: u64, change: impl FnOnce(&mut C, bool) -> usize) {
        let has_space = self.octets < OCTETS_MAX;
        let day = self.days.entry(day_of(now)).or_default();
        if !day.contains_key(domain) {
            let organizations = self.organizations.entry(day_of(now)).or_default();
            let of_organization = organizations.entry(fnv1a(&[likely_organization(domain)])).or_default();
            if day.len() >= DOMAINS_MAX || !has_space || *of_organization >= C::ORGANIZATION_DOMAINS_MAX {
                self.uncounted += 1;
                return;
            }
            *of_organization += 1;
        }
        self.is_changed = true;
        self.octets += change(Arc::make_mut(day.entry_ref(domain).or_default()), has_space);
    }

    /// Days before today that have something to report, the oldest first.
    pub fn finished(&self, now: u64) -> impl Iterator<Item = (u64, &str)> {
        let past = self.days.range(..day_of(now));
        past.flat_map(|(day, domains)| domains.keys().map(move |domain| (*day, &**domain)))
    }

    pub fn of(&self, day: u64, domain: &str) -> Option<&C> {
        self.days.get(&day)?.get(domain).map(|count| &**count)
    }

    /// Returns a shared copy of a domain's count, for use without the lock.
    pub fn shared(&self, day: u64, domain: &str) -> Option<Arc<C>> {
        self.days.get(&day)?.get(domain).cloned()
    }

    /// Records that the report is not sent to this destination (again), even after a restart.
    pub fn set_done(&mut self, day: u64, domain: &str, uri: &str) {
        let Some(count) = self.days.get_mut(&day).and_then(|domains| domains.get_mut(domain)) else { return };
        if !count.done().iter().any(|done| done == uri) {
            Arc::make_mut(count).done_mut().push(uri.to_owned());
            self.is_changed = true;
        }
    }

    /// Removes a count that was reported, or whose domain requests no report.
    pub fn remove(&mut self, day: u64, domain: &str) {
        let Some(domains) = self.days.get_mut(&day) else { return };
        if let Some(count) = domains.remove(domain) {
            self.octets = self.octets.saturating_sub(count.octets());
            self.is_changed = true;
        }
        if domains.is_empty() {
            self.days.remove(&day);
            self.organizations.remove(&day);
        }
    }

    /// Drops counts that could not be reported within two days after their day; returns their number. A report is due
    /// up to four hours after its day and must be tried for 24 hours from then (RFC 8460 5.4), which exceeds one day.
    pub fn give_up(&mut self, now: u64) -> usize {
        let first = day_of(now).saturating_sub(2);
        self.organizations = self.organizations.split_off(&first);
        let kept = self.days.split_off(&first);
        let given_up = std::mem::replace(&mut self.days, kept);
        let octets: usize = given_up.values().flat_map(HashMap::values).map(|count| count.octets()).sum();
        self.octets = self.octets.saturating_sub(octets);
        let given_up = given_up.values().map(HashMap::len).sum();
        self.is_changed |= given_up > 0;
        given_up
    }

    /// Events that are in no report, because there are too many domains.
    pub fn uncounted(&self) -> u64 {
        self.uncounted
    }

    /// Marks it as changed, because the last text could not be written.
    pub fn set_changed(&mut self) {
        self.is_changed = true;
    }

    /// Whether there are changes to write since the last call.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.is_changed)
    }

    /// Formats the file: a line for each domain and day.
    pub fn write(&self) -> String {
        let mut text = format!("{}\n", C::HEAD);
        for (day, domains) in &self.days {
            for (domain, count) in domains {
                if let Ok(line) = serde_json::to_string(&(day, domain, &**count)) {
                    text.push_str(&line);
                    text.push('\n');
                }
            }
        }
        text
    }

    /// Parses the file.
    ///
    /// # Errors
    /// The file has another format or is damaged; the caller moves it aside and starts with empty counts.
    pub fn read(text: &str) -> Result<DailyCounts<C>, CountsError> {
        let mut lines = text.lines().zip(1..);
        if lines.next().is_none_or(|(line, _)| line != C::HEAD) {
            return Err(CountsError::Head);
        }
        let mut counts = DailyCounts::default();
        for (line, number) in lines {
            let (day, domain, count): (u64, String, C) =
                serde_json::from_str(line).map_err(|_| CountsError::Line(number))?;
            if day > DAY_NUMBER_MAX {
                return Err(CountsError::Line(number));
            }
            let domains = counts.days.entry(day).or_default();
            if domains.len() < DOMAINS_MAX && counts.octets < OCTETS_MAX {
                counts.octets += count.octets();
                let organizations = counts.organizations.entry(day).or_default();
                *organizations.entry(fnv1a(&[likely_organization(&domain)])).or_default() += 1;
                domains.insert(domain, Arc::new(count));
            }
        }
        Ok(counts)
    }
}
