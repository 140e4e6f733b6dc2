//! The table of `mailstat`: counts of mail by hour (day, list, domain, host, source).
//!
//! Rules for counting (for operators: docs/operate/statistics.md):
//! - an attempt counts when it ended, a post when it was accepted;
//! - a recipient counts once per attempt. A host counts once per message and row, however many recipients it served and
//!   however often it was tried: distinct pairs of message and host;
//! - an attempt that reached no host counts for its recipients' domains instead of hosts;
//! - a session or look-up that failed counts once for each recipient that it deferred, at the recipients' domains;
//! - records of `bounce` and `operator` are fates of recipients, not attempts: they count only as bounced.
//!
//! Bounds: `ROWS_MAX` rows, further keys share one row. `PAIRS_MAX` pairs (as 64-bit hashes: the chance that two of a
//! million pairs collide is 3 in 10^8); at the bound the pairs are cleared, and recurring ones are counted again
//! (`pairs_forgotten`).

mod render;

use std::hash::{BuildHasher, Hash, Hasher};
use std::ops::AddAssign;

use foldhash::quality::FixedState;
use hashbrown::{HashMap, HashSet};

pub use self::render::{bytes as octets, csv, duration, json, text};
use crate::civil::{Civil, DAY_S, OFFSET_STEP_S, Zone};
use crate::histogram::Histogram;
use crate::record::{Attempt, Ms, Record, Stat, Unreached, domain};

/// Largest number of rows; at 100 hours a screen this is years. Each takes up to 8 KiB.
pub const ROWS_MAX: usize = 20_000;
/// Largest number of pairs of message and host known at a time; about 350 MiB in the worst case.
pub const PAIRS_MAX: usize = 20_000_000;

/// The subject of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum By {
    #[default]
    Hour,
    Day,
    List,
    /// The recipients' domains: every log has them, whichever of a domain's hosts answered.
    Site,
    /// The host that answered or failed.
    Host,
    Source,
}

#[derive(Clone, Debug, Default)]
pub struct Options {
    pub by: By,
    /// The hour, 0 to 23, at which a day begins.
    pub day_starts_h: u32,
    /// Records before this time are left out.
    pub since: Option<Ms>,
    /// Records from this time on are left out.
    pub until: Option<Ms>,
    /// The zone of hours and days.
    pub zone: Zone,
}

/// Numbers of distinct pairs of message and host, and of recipients.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Pair {
    pub hosts: u64,
    pub recipients: u64,
}

impl AddAssign for Pair {
    fn add_assign(&mut self, other: Pair) {
        self.hosts += other.hosts;
        self.recipients += other.recipients;
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Key {
    /// Seconds of the local clock in the table's zone when the hour or day began, counted as if it were UTC.
    Time(i64),
    Name(Box<str>),
    /// Sessions and look-ups that failed, in rows by list: the waiting recipients belong to several lists.
    Unreached,
    /// Everything beyond `ROWS_MAX` rows.
    Others,
    Total,
}

/// A message without a list is a post from this many recipients on.
pub const POST_RECIPIENTS_MIN: u64 = 100;

#[derive(Clone, Debug, Default)]
pub struct Counts {
    pub failed: Pair,
    pub delivered: Pair,
    /// Recipients deferred, once per attempt or per failed session or look-up.
    pub deferred: u64,
    /// Recipients given up: bounced or expired.
    pub bounced: u64,
    /// Messages accepted.
    pub messages: u64,
    /// Posts among these messages: to a list, or to at least [`POST_RECIPIENTS_MIN`] recipients.
    pub posts: u64,
    /// Recipients of these posts, as far as the log has them.
    pub posted_to: u64,
    /// Octets delivered: a message's size for each recipient, if the log has it.
    pub bytes: u64,
    /// Times of attempts that delivered, once per recipient.
    pub xdelay: Histogram,
    pub delay: Histogram,
}

impl Counts {
    fn merge(&mut self, other: &Counts) {
        self.failed += other.failed;
        self.delivered += other.delivered;
        self.deferred += other.deferred;
        self.bounced += other.bounced;
        self.messages += other.messages;
        self.posts += other.posts;
        self.posted_to += other.posted_to;
        self.bytes += other.bytes;
        self.xdelay.merge(&other.xdelay);
        self.delay.merge(&other.delay);
    }
}

#[derive(Clone, Debug)]
pub struct Row {
    pub key: Key,
    pub counts: Counts,
}

pub struct Table {
    options: Options,
    rows: Vec<Row>,
    by_time: HashMap<i64, usize, FixedState>,
    by_name: HashMap<Box<str>, usize, FixedState>,
    unreached: Option<usize>,
    others: Option<usize>,
    pairs: HashSet<u64, FixedState>,
    pairs_max: usize,
    pairs_forgotten: bool,
    hasher: FixedState,
    /// Start of a period and its zone offset, in seconds.
    offset: (i64, i64),
    /// The row of the last time looked up.
    last: Option<(i64, usize)>,
    /// Buffer for the name of the current row.
    name: String,
}

impl Table {
    pub fn new(options: Options) -> Table {
        Table::bounded(options, PAIRS_MAX)
    }

    fn bounded(options: Options, pairs_max: usize) -> Table {
        Table {
            options,
            rows: Vec::new(),
            by_time: HashMap::default(),
            by_name: HashMap::default(),
            unreached: None,
            others: None,
            pairs: HashSet::default(),
            pairs_max,
            pairs_forgotten: false,
            hasher: FixedState::default(),
            offset: (i64::MIN, 0),
            last: None,
            name: String::new(),
        }
    }

    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Whether a pair of message and host may have been counted twice because there were more than `PAIRS_MAX`.
    pub fn pairs_forgotten(&self) -> bool {
        self.pairs_forgotten
    }

    pub fn add(&mut self, record: &Record<'_>) {
        let at = record.at();
        if self.options.since.is_some_and(|since| at < since) || self.options.until.is_some_and(|until| at >= until) {
            return;
        }
        match record {
            Record::Accepted(accepted) if accepted.is_release() => {}
            Record::Accepted(accepted) => {
                let row = match self.options.by {
                    By::Hour | By::Day => self.row_of_time(at),
                    By::List => self.row_of_name(accepted.list),
                    // Destination and source are not known yet.
                    By::Site | By::Host | By::Source => return,
                };
                let counts = &mut self.rows[row].counts;
                counts.messages += 1;
                let is_post = !accepted.list.is_empty() || accepted.recipients >= POST_RECIPIENTS_MIN;
                counts.posts += u64::from(is_post);
                counts.posted_to += accepted.recipients;
            }
            Record::Attempt(attempt) => self.attempt(attempt),
            Record::Refused(_) | Record::Note(_) | Record::Machine(_) => {}
        }
    }

    fn attempt(&mut self, attempt: &Attempt<'_>) {
        let row = match self.options.by {
            By::Hour | By::Day => self.row_of_time(attempt.at),
            By::List if attempt.unreached.is_some() => self.row_of_unreached(),
            By::List => self.row_of_name(attempt.list),
            By::Source => self.row_of_name(attempt.source),
            By::Host => match attempt.ip {
                Some(ip) if attempt.host.is_empty() => self.row_of_name(&ip.to_string()),
                _ => self.row_of_name(attempt.host),
            },
            By::Site => return self.attempt_by_site(attempt),
        };
        match &attempt.unreached {
            Some(unreached) => self.count_unreached(row, attempt, unreached, unreached.waiting),
            None => self.count(row, attempt, &attempt.to),
        }
    }

    fn attempt_by_site(&mut self, attempt: &Attempt<'_>) {
        if let Some(unreached) = &attempt.unreached {
            let mut unnamed = unreached.waiting;
            for (domain, waiting) in &unreached.domains {
                let row = self.row_of_name(domain);
                self.count_unreached(row, attempt, unreached, *waiting);
                unnamed = unnamed.saturating_sub(*waiting);
            }
            if unnamed > 0 {
                let row = self.row_of_others();
                self.count_unreached(row, attempt, unreached, unnamed);
            }
            return;
        }
        let mut from = 0;
        while from < attempt.to.len() {
            let domain = domain(attempt.to[from]);
            let same = attempt.to[from..].iter().take_while(|to| self::domain(to) == domain).count();
            let row = self.row_of_name(domain);
            self.count(row, attempt, &attempt.to[from..from + same]);
            from += same;
        }
    }

    /// Counts a failed session or look-up, which deferred `waiting` recipients.
    fn count_unreached(&mut self, row: usize, attempt: &Attempt<'_>, unreached: &Unreached<'_>, waiting: u64) {
        let hosts = if attempt.host.is_empty() && attempt.ip.is_none() {
            unreached.domains.iter().map(|(domain, _)| self.is_new_pair(row, false, "", domain.as_bytes())).sum()
        } else {
            self.new_hosts(row, attempt, &[])
        };
        let counts = &mut self.rows[row].counts;
        counts.failed += Pair { hosts, recipients: waiting };
        counts.deferred += waiting;
    }

    /// Counts the outcome of these recipients of the attempt.
    fn count(&mut self, row: usize, attempt: &Attempt<'_>, to: &[&str]) {
        let recipients = to.len() as u64;
        let hosts = if attempt.is_fate_alone() { 0 } else { self.new_hosts(row, attempt, to) };
        let counts = &mut self.rows[row].counts;
        if attempt.is_fate_alone() {
            if attempt.is_given_up() && matches!(attempt.stat, Stat::Bounced | Stat::Expired) {
                counts.bounced += recipients;
            }
            return;
        }
        match attempt.stat {
            Stat::Sent => {
                counts.delivered += Pair { hosts, recipients };
                counts.bytes += attempt.size * recipients;
                counts.xdelay.add_times(attempt.xdelay_ms, recipients);
                counts.delay.add_times(attempt.delay_ms, recipients);
            }
            Stat::Deferred | Stat::Bounced => {
                counts.failed += Pair { hosts, recipients };
                counts.deferred += if attempt.stat == Stat::Deferred { recipients } else { 0 };
            }
            Stat::Expired | Stat::Removed | Stat::Coalesced | Stat::Quarantined | Stat::Released => {}
        }
    }

    /// Number of pairs of this message and these hosts that are new to the row.
    fn new_hosts(&mut self, row: usize, attempt: &Attempt<'_>, to: &[&str]) -> u64 {
        let delivered = attempt.stat == Stat::Sent;
        if !attempt.host.is_empty() {
            return self.is_new_pair(row, delivered, attempt.id, attempt.host.as_bytes());
        }
        if let Some(ip) = attempt.ip {
            let mut bytes = [0; 16];
            match ip {
                std::net::IpAddr::V4(v4) => bytes[..4].copy_from_slice(&v4.octets()),
                std::net::IpAddr::V6(v6) => bytes = v6.octets(),
            }
            return self.is_new_pair(row, delivered, attempt.id, &bytes);
        }
        let mut new = 0;
        let mut before = "";
        for to in to {
            let domain = domain(to);
            if domain != before {
                new += self.is_new_pair(row, delivered, attempt.id, domain.as_bytes());
                before = domain;
            }
        }
        new
    }

    fn is_new_pair(&mut self, row: usize, delivered: bool, id: &str, host: &[u8]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        (row, delivered, id).hash(&mut hasher);
        hasher.write(host);
        if self.pairs.len() >= self.pairs_max {
            self.pairs.clear();
            self.pairs_forgotten = true;
        }
        u64::from(self.pairs.insert(hasher.finish()))
    }

    fn row_of_time(&mut self, at: Ms) -> usize {
        let unix_s = (at / 1000).cast_signed();
        let step = unix_s.div_euclid(OFFSET_STEP_S);
        if step != self.offset.0 {
            self.offset = (step, i64::from(self.options.zone.offset_s(unix_s)));
        }
        let local_s = unix_s + self.offset.1;
        let starts_s = i64::from(self.options.day_starts_h) * 3600;
        let key = match self.options.by {
            By::Day => (local_s - starts_s).div_euclid(DAY_S) * DAY_S + starts_s,
            _ => local_s.div_euclid(3600) * 3600,
        };
        if let Some((_, row)) = self.last.filter(|(last, _)| *last == key) {
            return row;
        }
        let row = match self.by_time.get(&key) {
            Some(row) => *row,
            None if self.rows.len() >= ROWS_MAX => return self.row_of_others(),
            None => {
                self.by_time.insert(key, self.rows.len());
                self.new_row(Key::Time(key))
            }
        };
        self.last = Some((key, row));
        row
    }

    fn row_of_name(&mut self, name: &str) -> usize {
        self.name.clear();
        self.name.push_str(name);
        self.name.make_ascii_lowercase();
        if let Some(row) = self.by_name.get(self.name.as_str()) {
            return *row;
        }
        if self.rows.len() >= ROWS_MAX {
            return self.row_of_others();
        }
        self.by_name.insert(self.name.as_str().into(), self.rows.len());
        self.new_row(Key::Name(self.name.as_str().into()))
    }

    fn row_of_unreached(&mut self) -> usize {
        if let Some(row) = self.unreached {
            return row;
        }
        let row = self.new_row(Key::Unreached);
        self.unreached = Some(row);
        row
    }

    fn row_of_others(&mut self) -> usize {
        if let Some(row) = self.others {
            return row;
        }
        let row = self.new_row(Key::Others);
        self.others = Some(row);
        row
    }

    fn new_row(&mut self, key: Key) -> usize {
        self.rows.push(Row { key, counts: Counts::default() });
        self.rows.len() - 1
    }

    /// The rows by time, or those with most recipients first.
    pub fn rows(&self) -> Vec<&Row> {
        let mut rows: Vec<&Row> = self.rows.iter().collect();
        let last = |key: &Key| (*key == Key::Others, *key == Key::Unreached);
        rows.sort_by(|a, b| match (&a.key, &b.key) {
            (Key::Time(a), Key::Time(b)) => a.cmp(b),
            (Key::Name(a_name), Key::Name(b_name)) => {
                let traffic = |row: &Row| row.counts.delivered.recipients + row.counts.failed.recipients;
                traffic(b).cmp(&traffic(a)).then_with(|| a_name.cmp(b_name))
            }
            (a, b) => last(a).cmp(&last(b)),
        });
        rows
    }

    /// The sum of the rows: a host tried for a message in two hours counts in both.
    pub fn total(&self) -> Row {
        let mut counts = Counts::default();
        for row in &self.rows {
            counts.merge(&row.counts);
        }
        Row { key: Key::Total, counts }
    }
}

/// Text of the first column.
pub fn label(key: &Key, by: By) -> String {
    match key {
        Key::Time(local_s) => {
            let civil = Civil::of_local(*local_s);
            match by {
                By::Day => civil.date_text(),
                _ => format!("{} {:02}", civil.month_day(), civil.hour),
            }
        }
        Key::Name(name) if name.is_empty() => "-".to_owned(),
        Key::Name(name) => name.to_string(),
        Key::Unreached => "(not connected)".to_owned(),
        Key::Others => "(others)".to_owned(),
        Key::Total => "Totals".to_owned(),
    }
}

#[cfg(test)]
mod tests;
