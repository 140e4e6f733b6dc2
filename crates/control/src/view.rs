//! Options shared by the commands that show waiting mail: which mail, the kind of rows, their order and number.
//! `queue`, `site`, `hosts`, `stuck` and `report` accept the same words on the command line and in requests; an option
//! without meaning for one of them is refused, naming the command that has it.

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Default rows of `queue`, and of the other answers.
const SITES_DEFAULT: u32 = 50;
pub const ROWS_DEFAULT: u32 = 20;
/// Maximum rows of one answer, except of `queue`.
pub const ROWS_MAX: u32 = 1_000;

/// What each row shows.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum RowKind {
    /// A site.
    Site,
    /// A list.
    List,
    /// A site, with its recipients by age (like qshape).
    Age,
    /// A recipient.
    Recipient,
}

/// The order of rows.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Sort {
    /// Most pending recipients first.
    Waiting,
    /// Most messages first.
    Messages,
    /// Oldest first.
    Age,
    /// Next try first.
    NextTry,
    /// Most failures first.
    Failures,
    /// Slowest first.
    Latency,
    /// By name.
    Name,
}

/// See the module's page.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug, Args)]
#[serde(default, deny_unknown_fields)]
pub struct View {
    /// What each row shows: site, list or age in `queue`, recipient or site in `stuck`.
    #[arg(long, value_enum, value_name = "WHAT", hide_possible_values = true)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<RowKind>,
    /// Only mail of this list.
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list: Option<String>,
    /// Only mail to this site: its name as `stentor queue` shows it, or a domain that it serves.
    #[arg(long, value_name = "NAME")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// Order of rows.
    #[arg(long, value_enum, value_name = "KEY")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sort: Option<Sort>,
    /// Number of rows.
    #[arg(id = "limit", long = "limit", short = 'n', aliases = ["rows", "sites-max", "last"], value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..))]
    #[serde(alias = "sites_max", alias = "last", skip_serializing_if = "Option::is_none")]
    pub rows_max: Option<u32>,
}

/// The commands that accept a [`View`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    Queue,
    /// `queue --by age`, which has its own reply.
    Ages,
    Site,
    Hosts,
    Stuck,
    Report,
}

/// The orders of sites and lists.
const OF_SITES: &[Sort] = &[Sort::Waiting, Sort::Messages, Sort::Age, Sort::NextTry, Sort::Name];
/// The orders of sites in `stuck`, beside recipients by messages.
const OF_STUCK_SITES: &[Sort] = &[Sort::Waiting, Sort::Messages, Sort::Age, Sort::NextTry, Sort::Name];

impl Subject {
    pub const ALL: [Subject; 6] =
        [Subject::Queue, Subject::Ages, Subject::Site, Subject::Hosts, Subject::Stuck, Subject::Report];

    pub fn name(self) -> &'static str {
        match self {
            Subject::Queue => "queue",
            Subject::Ages => "ages",
            Subject::Site => "site",
            Subject::Hosts => "hosts",
            Subject::Stuck => "stuck",
            Subject::Report => "report",
        }
    }

    /// The kinds of rows; the first is the default, except in `stuck`, which shows each.
    pub fn rows(self) -> &'static [RowKind] {
        match self {
            Subject::Queue => &[RowKind::Site, RowKind::List, RowKind::Age],
            Subject::Ages => &[RowKind::Age],
            Subject::Hosts => &[RowKind::Site],
            Subject::Stuck => &[RowKind::Recipient, RowKind::Site],
            Subject::Site | Subject::Report => &[],
        }
    }

    /// The orders of such rows; see [`Subject::default_sort`].
    pub fn orders(self, by: Option<RowKind>) -> &'static [Sort] {
        match (self, by) {
            (Subject::Queue | Subject::Ages, _) => OF_SITES,
            (Subject::Stuck, Some(RowKind::Site)) => OF_STUCK_SITES,
            (Subject::Stuck, _) => &[Sort::Messages],
            (Subject::Hosts, _) => &[Sort::Waiting, Sort::Failures, Sort::Latency, Sort::NextTry, Sort::Name],
            (Subject::Report, _) => &[Sort::Age, Sort::Waiting, Sort::Failures, Sort::Name],
            (Subject::Site, _) => &[],
        }
    }

    /// The default order; `None` for newest first.
    pub fn default_sort(self, by: Option<RowKind>) -> Option<Sort> {
        self.orders(by).first().copied().filter(|_| self != Subject::Report)
    }

    /// The default number of rows.
    pub fn default_rows(self) -> u32 {
        if matches!(self, Subject::Queue | Subject::Ages) { SITES_DEFAULT } else { ROWS_DEFAULT }
    }

    /// Whether it accepts a site.
    pub fn takes_site(self) -> bool {
        self != Subject::Report
    }

    /// The orders of all kinds of rows.
    pub fn all_orders(self) -> &'static [Sort] {
        let kinds = self.rows().iter().map(|by| self.orders(Some(*by)));
        kinds.max_by_key(|orders| orders.len()).unwrap_or(self.orders(None))
    }

    /// Minimum and maximum number of rows; 0 means only the totals of the queue.
    pub fn rows_range(self) -> (u32, u32) {
        if matches!(self, Subject::Queue | Subject::Ages) { (0, u32::MAX) } else { (1, ROWS_MAX) }
    }
}

impl View {
    /// A view of this many rows of everything.
    pub fn rows(rows_max: u32) -> View {
        View { rows_max: Some(rows_max), ..View::default() }
    }

    /// Whether there is a filter.
    pub fn is_narrow(&self) -> bool {
        self.list.is_some() || self.site.is_some()
    }

    /// The fields of a request.
    pub fn to_json(&self) -> Map<String, Value> {
        match serde_json::to_value(self) {
            Ok(Value::Object(fields)) => fields,
            // A plain struct with string keys is an object.
            _ => Map::new(),
        }
    }

    /// Checks the options against a command.
    ///
    /// # Errors
    /// An option that does not apply to this command, naming the command that has it.
    pub fn check(&self, subject: Subject) -> Result<(), String> {
        let name = subject.name();
        if let Some(by) = self.by.filter(|by| !subject.rows().contains(by)) {
            return Err(format!("{name} has no --by {}: {}", word(&by), elsewhere(subject, by)));
        }
        match subject {
            _ if self.site.is_some() && !subject.takes_site() => {
                return Err(
                    "report has no --site, because it counts whole posts; `stentor mailqq --site NAME` lists messages \
                     with recipients there"
                        .to_owned(),
                );
            }
            Subject::Site if self.sort.is_some() || self.rows_max.is_some() => {
                return Err("site shows one site and has no --sort or --limit; use `stentor hosts`".to_owned());
            }
            _ => {}
        }
        let orders = subject.orders(self.by);
        if let Some(sort) = self.sort.filter(|sort| !orders.contains(sort)) {
            return Err(format!("{name} has no --sort {}: {}", word(&sort), sorted_elsewhere(subject, sort)));
        }
        let (least, most) = subject.rows_range();
        match self.rows_max {
            Some(rows) if rows > most => Err(format!("--limit must be at most {most}")),
            Some(rows) if rows < least => Err("--limit must be at least 1".to_owned()),
            _ => Ok(()),
        }
    }
}

/// The command that has such rows.
fn elsewhere(subject: Subject, by: RowKind) -> String {
    match (subject, by) {
        (Subject::Report, _) => {
            "each row is a post; use `stentor mailstat` for sums by list, domain and host".to_owned()
        }
        (Subject::Site, RowKind::Site) => "it shows one site; use `stentor queue --by site` for all".to_owned(),
        (Subject::Site, by) if by != RowKind::Recipient => {
            format!("use `stentor queue --site NAME --by {}`", word(&by))
        }
        (_, RowKind::Recipient) => "use `stentor stuck --by recipient`".to_owned(),
        (_, by) => format!("use `stentor queue --by {}`", word(&by)),
    }
}

/// The command that has this order.
fn sorted_elsewhere(subject: Subject, sort: Sort) -> String {
    match sort {
        Sort::Failures | Sort::Latency => format!("use `stentor hosts --sort {}`", word(&sort)),
        _ if subject == Subject::Stuck => format!("use `stentor stuck --by site --sort {}`", word(&sort)),
        _ => format!("use `stentor queue --sort {}`", word(&sort)),
    }
}

/// A value as written on the command line.
pub fn word(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(subject: Subject, view: &View) -> String {
        view.check(subject).unwrap_err()
    }

    #[test]
    fn each_command_takes_its_own_rows_and_orders() {
        for subject in Subject::ALL {
            assert_eq!(View::default().check(subject), Ok(()));
            for by in RowKind::value_variants() {
                let view = View { by: Some(*by), ..View::default() };
                assert_eq!(view.check(subject).is_ok(), subject.rows().contains(by), "{subject:?} {by:?}");
                for sort in Sort::value_variants() {
                    let sorted = View { sort: Some(*sort), ..view.clone() };
                    let is_fit = subject.rows().contains(by) && subject.orders(Some(*by)).contains(sort);
                    assert_eq!(sorted.check(subject).is_ok(), is_fit, "{subject:?} {by:?} {sort:?}");
                }
            }
        }
    }

    #[test]
    fn each_command_has_its_own_defaults() {
        let defaults = |subject: Subject, by| (subject.default_sort(by), subject.default_rows());
        assert_eq!(defaults(Subject::Queue, Some(RowKind::Age)), (Some(Sort::Waiting), 50));
        assert_eq!(defaults(Subject::Stuck, None), (Some(Sort::Messages), 20));
        assert_eq!(defaults(Subject::Stuck, Some(RowKind::Site)), (Some(Sort::Waiting), 20));
        assert_eq!(defaults(Subject::Report, None), (None, 20));
    }

    #[test]
    fn a_refusal_names_the_command_that_has_it() {
        let by = |by| View { by: Some(by), ..View::default() };
        let sort = |sort| View { sort: Some(sort), ..View::default() };
        let table = [
            (Subject::Queue, by(RowKind::Recipient), "queue has no --by recipient: use `stentor stuck --by recipient`"),
            (Subject::Hosts, by(RowKind::List), "hosts has no --by list: use `stentor queue --by list`"),
            (Subject::Site, by(RowKind::Age), "site has no --by age: use `stentor queue --site NAME --by age`"),
            (Subject::Queue, sort(Sort::Latency), "queue has no --sort latency: use `stentor hosts --sort latency`"),
            (Subject::Stuck, sort(Sort::Age), "stuck has no --sort age: use `stentor stuck --by site --sort age`"),
            (Subject::Hosts, sort(Sort::Messages), "hosts has no --sort messages: use `stentor queue --sort messages`"),
        ];
        for (subject, view, text) in table {
            assert_eq!(refused(subject, &view), text);
        }
        let site = View { site: Some("mx".to_owned()), ..View::default() };
        assert!(refused(Subject::Report, &site).contains("`stentor mailqq --site NAME`"));
        assert!(refused(Subject::Site, &View::rows(3)).contains("`stentor hosts`"));
        assert_eq!(refused(Subject::Stuck, &View::rows(ROWS_MAX + 1)), "--limit must be at most 1000");
        assert_eq!(View::rows(ROWS_MAX + 1).check(Subject::Queue), Ok(()));
        assert_eq!(refused(Subject::Report, &View::rows(0)), "--limit must be at least 1");
    }

    #[test]
    fn the_older_names_of_the_number_of_rows_are_read() {
        for text in [r#"{"rows_max":7}"#, r#"{"sites_max":7}"#, r#"{"last":7}"#] {
            assert_eq!(serde_json::from_str::<View>(text).unwrap(), View::rows(7), "{text}");
        }
        assert!(serde_json::from_str::<View>(r#"{"row":7}"#).is_err());
    }
}
