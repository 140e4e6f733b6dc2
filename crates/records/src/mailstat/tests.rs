use super::*;
use crate::record::Accepted;

const HOUR: Ms = 3_600_000;
/// 2026-11-22 00:00 UTC.
const START: Ms = 1_795_305_600_000;

fn attempt<'a>(at: Ms, id: &'a str, host: &'a str, to: &[&'a str], stat: Stat) -> Record<'a> {
    let to = to.iter().copied().collect();
    Record::Attempt(Attempt { at, id, host, to, stat, xdelay_ms: 500, delay_ms: 2000, size: 100, ..Attempt::default() })
}

fn table(by: By) -> Table {
    Table::new(Options { by, ..Options::default() })
}

#[test]
fn a_host_counts_once_per_message_and_hour() {
    let mut table = table(By::Hour);
    for (id, host) in [("A", "mx1"), ("A", "mx1"), ("A", "mx2"), ("B", "mx1")] {
        table.add(&attempt(START, id, host, &["a@x", "b@x"], Stat::Sent));
    }
    table.add(&attempt(START + HOUR, "A", "mx1", &["c@x"], Stat::Sent));
    table.add(&attempt(START, "A", "mx1", &["d@x"], Stat::Deferred));
    let rows = table.rows();
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[0].counts.delivered, Pair { hosts: 3, recipients: 8 });
    assert_eq!(rows[0].counts.failed, Pair { hosts: 1, recipients: 1 });
    assert_eq!(rows[0].counts.bytes, 800);
    assert_eq!(table.total().counts.delivered, Pair { hosts: 4, recipients: 9 });
}

#[test]
fn where_no_host_was_reached_the_domains_count() {
    let mut table = table(By::Hour);
    table.add(&attempt(START, "A", "", &["a@x.example", "b@x.example", "c@y.example"], Stat::Deferred));
    table.add(&attempt(START, "A", "", &["d@y.example"], Stat::Deferred));
    assert_eq!(table.total().counts.failed, Pair { hosts: 2, recipients: 4 });
}

/// A failed session or look-up (without a host) that deferred recipients of these domains, and `waiting` in total.
fn unreached<'a>(host: &'a str, waiting: u64, domains: &[(&'a str, u64)]) -> Record<'a> {
    let unreached = Unreached { site: host, waiting, domains: domains.to_vec() };
    let stat = Stat::Deferred;
    Record::Attempt(Attempt { at: START, host, stat, unreached: Some(Box::new(unreached)), ..Attempt::default() })
}

#[test]
fn failed_sessions_count_for_those_who_waited() {
    let records = [
        unreached("mx1", 0, &[("x.example", 0), ("y.example", 0)]),
        unreached("mx2", 7, &[("x.example", 4), ("y.example", 2)]),
        unreached("mx2", 7, &[("x.example", 4), ("y.example", 2)]),
        unreached("", 3, &[("z.example", 3)]),
    ];
    let rows = |by| {
        let mut table = table(by);
        for record in &records {
            table.add(record);
        }
        let row = |row: &&Row| (label(&row.key, by), row.counts.failed.hosts, row.counts.failed.recipients);
        let rows: Vec<_> = table.rows().iter().map(row).collect();
        let total = table.total().counts;
        assert_eq!((total.deferred, total.failed.recipients, total.delivered.recipients), (17, 17, 0), "{by:?}");
        rows
    };
    let named = |name: &str, hosts, recipients| (name.to_owned(), hosts, recipients);
    assert_eq!(rows(By::Hour), [named("Nov 22 00", 3, 17)]);
    assert_eq!(rows(By::List), [named("(not connected)", 3, 17)], "it is no row of mail without a list");
    assert_eq!(rows(By::Host), [named("mx2", 1, 14), named("-", 1, 3), named("mx1", 1, 0)]);
    assert_eq!(
        rows(By::Site),
        [named("x.example", 2, 8), named("y.example", 2, 4), named("z.example", 1, 3), named("(others)", 1, 2)]
    );
}

#[test]
fn fates_are_no_attempts() {
    let mut table = table(By::Hour);
    table.add(&attempt(START, "A", "mx", &["a@x"], Stat::Bounced));
    for (mailer, stat) in [("bounce", Stat::Bounced), ("bounce", Stat::Expired), ("operator", Stat::Removed)] {
        let to = ["a@x"].into_iter().collect();
        table.add(&Record::Attempt(Attempt { at: START, id: "A", mailer, to, stat, ..Attempt::default() }));
    }
    let counts = table.total().counts;
    assert_eq!((counts.failed.recipients, counts.bounced, counts.deferred), (1, 2, 0));
}

#[test]
fn a_day_begins_when_it_is_told_to() {
    let zone = Zone::fixed(3600);
    let mut table = Table::new(Options { by: By::Day, day_starts_h: 4, zone, ..Options::default() });
    // 03:59 and 04:00 on a clock an hour east of Greenwich.
    table.add(&attempt(START + 3 * HOUR - 60_000, "A", "mx", &["a@x"], Stat::Sent));
    table.add(&attempt(START + 3 * HOUR, "A", "mx", &["a@x"], Stat::Sent));
    let labels: Vec<String> = table.rows().iter().map(|row| label(&row.key, By::Day)).collect();
    assert_eq!(labels, ["2026-11-21", "2026-11-22"]);
}

#[test]
fn since_and_until_leave_out_the_rest() {
    let options = Options { since: Some(START), until: Some(START + HOUR), ..Options::default() };
    let mut table = Table::new(options);
    for at in [START - 1, START, START + HOUR - 1, START + HOUR] {
        table.add(&attempt(at, "A", "mx", &["a@x"], Stat::Sent));
        table.add(&Record::Accepted(Accepted { at, recipients: 3, ..Accepted::default() }));
    }
    let counts = table.total().counts;
    assert_eq!((counts.delivered.recipients, counts.messages, counts.posts, counts.posted_to), (2, 2, 0, 6));
}

#[test]
fn posts_are_messages_to_lists_or_to_many() {
    let mut table = table(By::Hour);
    let messages = [("", 1), ("", 99), ("", 100), ("news", 3), ("news", 1_000), ("", 0)];
    for (list, recipients) in messages {
        table.add(&Record::Accepted(Accepted { at: START, list, recipients, ..Accepted::default() }));
    }
    let counts = table.total().counts;
    assert_eq!((counts.messages, counts.posts, counts.posted_to), (6, 3, 1_203));
}

#[test]
fn names_are_rows_with_the_busiest_first() {
    let mut table = table(By::Site);
    table.add(&attempt(START, "A", "mx", &["a@Small.example", "b@big.example", "c@big.example"], Stat::Sent));
    table.add(&attempt(START, "B", "", &["b@BIG.example"], Stat::Deferred));
    let rows: Vec<(String, u64)> =
        table.rows().iter().map(|row| (label(&row.key, By::Site), row.counts.delivered.recipients)).collect();
    assert_eq!(rows, [("big.example".to_owned(), 2), ("small.example".to_owned(), 1)]);
}

#[test]
fn rows_and_pairs_are_bounded() {
    let mut table = Table::bounded(Options { by: By::Host, ..Options::default() }, 10);
    for n in 0..ROWS_MAX + 5 {
        table.add(&attempt(START, "A", &format!("mx{n}"), &["a@x"], Stat::Sent));
    }
    assert_eq!(table.rows().len(), ROWS_MAX + 1);
    assert_eq!(table.rows().last().unwrap().counts.delivered.recipients, 5);
    assert!(table.pairs_forgotten());
}

#[test]
fn all_forms_say_the_same() {
    let mut table = table(By::Hour);
    table.add(&Record::Accepted(Accepted { at: START, recipients: 2, ..Accepted::default() }));
    table.add(&attempt(START, "A", "mx", &["a@x", "b@x"], Stat::Sent));
    table.add(&attempt(START + HOUR, "A", "mx", &["c@x"], Stat::Deferred));
    let text = text(&table, START, "UTC");
    let expected = [
        "mailstat: Sun 2026-11-22 00:00:00 UTC",
        "              failed        deliveries                                                      xdelay                delay",
        "MMM DD HH  mhosts/recipt   mhosts/recipt  deferred  bounced messages    bytes    p50    p90    p99    p50    p90    p99",
        "========= =============== =============== ======== ======== ======== ======== ==================== ====================",
        "Nov 22 00       0/      0       1/      2        0        0        1      200  0.50s  0.50s  0.50s  2.00s  2.00s  2.00s",
        "Nov 22 01       1/      1       0/      0        1        0        0        0      -      -      -      -      -      -",
        "========= =============== =============== ======== ======== ======== ======== ==================== ====================",
        "Totals          1/      1       1/      2        1        0        1      200  0.50s  0.50s  0.50s  2.00s  2.00s  2.00s",
    ];
    assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    let json = json(&table);
    assert_eq!(json["total"]["delivered"]["recipients"], 2);
    assert_eq!(json["rows"][0]["begins"], "2026-11-22T00:00:00");
    assert_eq!(json["rows"][0]["time"], START / 1000);
    let csv = csv(&table);
    assert_eq!(
        csv.lines().nth(1),
        Some("2026-11-22T00:00:00,0,0,1,2,0,0,1,0,2,200,0.500,0.500,0.500,2.000,2.000,2.000")
    );
    assert_eq!(csv.lines().last(), Some("total,1,1,1,2,1,0,1,0,2,200,0.500,0.500,0.500,2.000,2.000,2.000"));
}

#[test]
fn sizes_and_durations_are_short() {
    let bytes: Vec<String> =
        [0, 999, 1000, 1536, 10_240, 5 << 20, 3 << 40, u64::MAX].into_iter().map(render::bytes).collect();
    assert_eq!(bytes, ["0", "999", "1.0K", "1.5K", "10K", "5.0M", "3.0T", "16384P"]);
    let durations: Vec<String> =
        [0, 120, 12_000, 200_000, 7_500_000, 400_000_000].into_iter().map(render::duration).collect();
    assert_eq!(durations, ["0.00s", "0.12s", "12s", "3m20", "2h05", "4d15"]);
}

#[test]
fn names_from_logs_are_escaped_and_columns_named_as_the_option() {
    let mut table = table(By::Site);
    table.add(&attempt(START, "A", "mx", &["a@\u{1b}[31mred\u{7}.example"], Stat::Sent));
    let (text, csv) = (text(&table, START, "UTC"), csv(&table));
    for shown in [&text, &csv] {
        assert!(!shown.contains(['\u{1b}', '\u{7}']) && shown.contains(r"\x1b[31mred\x07.example"), "{shown}");
    }
    assert!(csv.starts_with("domain,") && text.contains("\ndomain "), "{csv}{text}");
    assert_eq!(json(&table)["by"], "site");
}
