//! `stentor queue --by age`: a table like that of qshape.

use std::fmt::Write;

use stentor_queue::age::{BUCKETS, MINUTES};

use super::ages::Ages;
use super::foreign::cut;
use super::format::{Width, counted, line, part, plural};

const SITE_COLUMNS: usize = 30;

pub fn ages(a: &Ages, width: Width) -> String {
    let mut out = String::new();
    if a.counted.is_none() {
        counted(&mut out, None, a.now);
        return out;
    }
    let (recipients, sites) = (plural(a.recipients, "pending recipient"), plural(a.sites_total, "site"));
    let of = part(&a.part);
    line(&mut out, format_args!("{}: {recipients}{of} at {sites}, by minutes since acceptance", cut(&a.hostname, 40)));
    counted(&mut out, a.counted, a.now);
    let mut heads: Vec<String> = MINUTES.iter().map(|minutes| format!("<{minutes}")).collect();
    heads.push(format!("{}+", MINUTES[BUCKETS - 2]));
    line(&mut out, format_args!("{:<SITE_COLUMNS$} {:>8}{}", "site", "total", cells(heads.into_iter())));
    let mut row = |name: &str, total: u64, by_age: &[u64; BUCKETS]| {
        let counts = cells(by_age.iter().copied().map(short));
        line(&mut out, format_args!("{:<SITE_COLUMNS$} {total:>8}{counts}", cut(name, width.column(SITE_COLUMNS))));
    };
    row("TOTAL", a.recipients, &a.total);
    for one in &a.rows {
        row(&one.site, one.recipients, &one.by_age);
    }
    let more = a.sites_total.saturating_sub(a.rows.len() as u64);
    if more > 0 {
        line(&mut out, format_args!("... and {}", plural(more, "more site")));
    }
    out
}

fn cells(texts: impl Iterator<Item = String>) -> String {
    texts.fold(String::new(), |mut all, text| {
        // Writing to a String cannot fail.
        let _ = write!(all, " {text:>5}");
        all
    })
}

/// Formats a count in five columns: `99999`, then `123k`, `45M`.
fn short(count: u64) -> String {
    match count {
        0..100_000 => count.to_string(),
        100_000..10_000_000 => format!("{}k", count / 1_000),
        _ => format!("{}M", count / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ages::AgesRow;

    #[test]
    fn a_row_for_each_site_and_one_for_all() {
        let by_age = [1, 0, 0, 0, 0, 0, 0, 0, 0, 2_500_000];
        let row = AgesRow { site: "mx.one.example".to_owned(), recipients: 2_500_001, by_age };
        let counts = Ages {
            hostname: "mx.test".to_owned(),
            recipients: 2_500_001,
            now: 9_000,
            counted: Some(0),
            sites_total: 2,
            total: by_age,
            rows: vec![row],
            ..Ages::default()
        };
        let table = ages(&counts, Width::LEAST);
        let expected = "\
mx.test: 2500001 pending recipients at 2 sites, by minutes since acceptance
counted 9s ago
site                              total    <5   <10   <20   <40   <80  <160  <320  <640 <1280 1280+
TOTAL                           2500001     1     0     0     0     0     0     0     0     0 2500k
mx.one.example                  2500001     1     0     0     0     0     0     0     0     0 2500k
... and 1 more site
";
        assert_eq!(table, expected);
        assert!(table.lines().skip(1).all(|line| line.len() <= Width::LEAST.columns()));
    }
}
