//! Displays lists and members on a terminal. All text is escaped.

use std::fmt::Write as _;

use stentor_records::civil::Zone;

use super::format::{Width, cut, instant, plural};
use super::list_view::{DepartureView, ListOverview, ListTable, MemberTable, MemberView, PersonView};
use super::render_suppressions::scope;

const NAME_COLUMNS: usize = 24;
const ADDRESS_COLUMNS: usize = 40;
const TEXT_COLUMNS: usize = 300;

/// Writing to a String cannot fail.
macro_rules! line {
    ($out:expr, $($arguments:tt)*) => { let _ = writeln!($out, $($arguments)*); };
}

pub(super) fn lists(table: &ListTable, width: Width) -> String {
    let mut out = String::new();
    if let [one] = &table.rows[..]
        && !one.keys.is_empty()
    {
        return list(one);
    }
    if table.rows.is_empty() {
        return "no lists; create one: `stentor list create NAME --address ADDRESS --owner ADDRESS`\n".to_owned();
    }
    let name = width.fit(NAME_COLUMNS, table.rows.iter().map(|row| row.name.as_str()));
    let address = width.fit(ADDRESS_COLUMNS, table.rows.iter().map(|row| row.address.as_str()));
    line!(out, "{:<name$}  {:<address$}  {:>9}  who may post; members in", "list", "address", "members");
    for row in &table.rows {
        let members = row.members.map_or("-".to_owned(), |members| members.to_string());
        let rest = cut(&format!("{}; {}", row.post, row.members_in), TEXT_COLUMNS);
        line!(out, "{:<name$}  {:<address$}  {members:>9}  {rest}", cut(&row.name, name), cut(&row.address, address));
    }
    out
}

fn list(row: &ListOverview) -> String {
    let mut out = String::new();
    let members = row.members.map_or("members not read yet".to_owned(), |members| plural(members, "member"));
    line!(
        out,
        "list {} <{}>: {members} in {}",
        cut(&row.name, TEXT_COLUMNS),
        cut(&row.address, TEXT_COLUMNS),
        cut(&row.members_in, TEXT_COLUMNS)
    );
    for (key, value) in &row.keys {
        line!(out, "  {} = {}", cut(key, TEXT_COLUMNS), cut(value, TEXT_COLUMNS));
    }
    out
}

pub(super) fn members(table: &MemberTable, zone: &Zone, width: Width) -> String {
    let mut out = String::new();
    if !table.rows.is_empty() {
        let address = width.fit(ADDRESS_COLUMNS, table.rows.iter().map(|row| row.address.as_str()));
        line!(out, "{:<address$}  {:<8}  joined, source, name", "address", "delivery");
        for row in &table.rows {
            line!(out, "{:<address$}  {:<8}  {}", cut(&row.address, address), cut(&row.delivery, 8), about(row, zone));
        }
    }
    let shown = table.rows.len();
    if table.next.is_some() {
        line!(out, "{shown} shown of {}; `stentor member export LIST` writes all", plural(table.members, "member"));
    } else {
        line!(out, "{shown} shown; {} in the list", plural(table.members, "member"));
    }
    out
}

fn about(row: &MemberView, zone: &Zone) -> String {
    let name = if row.name.is_empty() { String::new() } else { format!(", {}", row.name) };
    cut(&format!("{}, {}{name}", instant(row.joined, zone), row.source), TEXT_COLUMNS)
}

pub(super) fn person(person: &PersonView, zone: &Zone) -> String {
    let mut out = String::new();
    line!(out, "{}", cut(&person.address, TEXT_COLUMNS));
    for row in &person.memberships {
        let delivery = if row.delivery == "mail" { "" } else { " without posts" };
        line!(out, "  member of {}{delivery} since {}", cut(&row.list, TEXT_COLUMNS), about(row, zone));
    }
    for list in &person.files {
        line!(out, "  in the subscribers file of {}", cut(list, TEXT_COLUMNS));
    }
    for DepartureView { list, joined, joined_source, left, reason, source } in &person.departures {
        let text = format!(
            "left {list} at {} ({reason}, {source}); had joined at {} ({joined_source})",
            instant(*left, zone),
            instant(*joined, zone)
        );
        line!(out, "  {}", cut(&text, TEXT_COLUMNS));
    }
    for row in &person.suppressions {
        let text = format!("suppressed: {}, {}, {} ({})", scope(row), row.reason, instant(row.since, zone), row.source);
        line!(out, "  {}", cut(&text, TEXT_COLUMNS));
    }
    if person.memberships.is_empty() && person.files.is_empty() {
        line!(out, "  not a member of any list");
    }
    line!(out, "`stentor trace {}` shows each delivery", cut(&person.address, TEXT_COLUMNS));
    out
}
