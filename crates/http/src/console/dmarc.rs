//! DMARC reports of others: how much of our domains' mail passes, and which sources fail; as in `stentor dmarc`.
//!
//! All names in them are claims of strangers: they are shown as text, and no link is made from them.

use axum::extract::{Query, State};
use axum::response::Response;
use maud::{Markup, html};
use serde::Deserialize;
use stentor_control::ErrorCode;
use stentor_control::format::date_time;
use stentor_control::problem::Problem;
use stentor_domain_reports::dmarc::{DAY_S, DmarcSummary, DomainSums, MessageSums, ReportFilter, SourceSums};
use stentor_mail::address::normalise_domain;
use stentor_records::civil::Zone;

use super::format::{address, number, percent, plural, shown};
use super::page::{Frame, heading};
use super::table::{column, head, table};
use crate::Http;
use crate::browser::encode;
use crate::dmarc_sums::ROWS_MAX;

/// Rows of each table, unless all are asked for.
const ROWS_DEFAULT: usize = 50;
const SPANS: [(u64, &str); 4] = [(7, "7 days"), (30, "30 days"), (90, "90 days"), (0, "All")];
/// Seconds since 1970 of the latest date that is shown as such: the year 9999.
const DATE_S_MAX: u64 = 253_402_300_799;

#[derive(Deserialize, Default)]
#[serde(default)]
pub struct DmarcPageQuery {
    domain: String,
    days: String,
    rows: String,
}

/// `GET /dmarc`
pub async fn page(State(http): State<Http>, Query(query): Query<DmarcPageQuery>, frame: Frame) -> Response {
    let (days, words) = SPANS.into_iter().find(|(days, _)| days.to_string() == query.days).unwrap_or(SPANS[1]);
    let domain = query.domain.trim();
    let filter = match Some(domain).filter(|domain| !domain.is_empty()).map(normalise_domain).transpose() {
        Ok(domain) => ReportFilter { since_s: since_s(http.core.clock.now() / 1_000, days), domain },
        Err(error) => {
            let text = format!("{domain:?} is not a valid domain: {error}");
            return frame.problem("/dmarc", &Problem::new(ErrorCode::BadRequest, text));
        }
    };
    let summary = match http.dmarc_sums.get(&http.core, filter).await {
        Ok(summary) => summary,
        Err(problem) => return frame.problem("/dmarc", &problem),
    };
    let rows_max = query.rows.parse().unwrap_or(ROWS_DEFAULT).clamp(1, ROWS_MAX);
    let rows = summary.with_rows(rows_max);
    let left_out = rows.domains.len() < rows.domains_total || rows.failed_sources.len() < rows.failed_sources_total;
    let keeps = http.core.settings().config.dmarc_reports.address.is_some();
    let main = html! {
        (heading("DMARC", &html! { "What receivers report about mail from our domains" }))
        section.panel aria-label="Filter" { (form(domain, days)) }
        section.panel aria-labelledby="domains" {
            h2 #domains { "Domains" }
            @if rows.domains.is_empty() { (empty(domain, days, words, keeps)) } @else { (domains(&rows.domains, &http.zone)) }
        }
        @if !rows.domains.is_empty() {
            section.panel aria-labelledby="sources" {
                h2 #sources { "Sources whose mail fails" }
                @if rows.failed_sources.is_empty() { p.empty { "None." } } @else { (sources(&rows.failed_sources)) }
            }
        }
        @if left_out && rows_max < ROWS_MAX {
            div.pages { a.button href={ "/dmarc?rows=" (ROWS_MAX) "&days=" (days) "&domain=" (encode(domain)) } { "More" } }
        }
        (notes(&rows))
    };
    frame.page("/dmarc", "DMARC", &main)
}

/// Start of a period of whole days (UTC), so that one cached reading serves a day; 0: all reports.
fn since_s(now_s: u64, days: u64) -> u64 {
    if days == 0 { 0 } else { (now_s / DAY_S).saturating_sub(days) * DAY_S }
}

fn form(domain: &str, days: u64) -> Markup {
    html! {
        form.fields method="get" action="/dmarc" {
            div {
                label for="f-domain" { "Domain, with those below" }
                input #f-domain name="domain" value=(domain) autocomplete="off" spellcheck="false" placeholder="example.org";
            }
            div {
                label for="f-days" { "Last" }
                select #f-days name="days" { @for (value, words) in SPANS { option value=(value) selected[value == days] { (words) } } }
            }
            div.go { button.main { "Show" } }
        }
    }
}

fn empty(domain: &str, days: u64, words: &str, keeps: bool) -> Markup {
    let about = if domain.is_empty() { String::new() } else { format!(" about {}", shown(domain)) };
    html! {
        p.empty {
            "No reports" (about) @if days > 0 { " of the last " (words) } "."
            @if !keeps {
                " To receive them, set " code { "address" } " in " code { "[dmarc_reports]" } " and publish it as "
                code { "rua=" } " in the DMARC records of your domains."
            }
        }
    }
}

fn domains(rows: &[DomainSums], zone: &Zone) -> Markup {
    let columns = [
        head("Domain", "long"),
        column("Reports", "n"),
        column("Messages", "n"),
        column("Passed", "n"),
        column("DKIM", "n"),
        column("SPF", "n"),
        column("Quarantined", "n"),
        column("Rejected", "n"),
        column("Policy", "t"),
    ];
    let row = |row: &DomainSums| {
        let MessageSums { messages, passed, dkim_passed, spf_passed, quarantined, rejected } = row.sums;
        vec![
            html! {
                (address(&row.domain))
                div.beside { (date(row.begin_s, zone)) " – " (date(row.end_s, zone)) }
            },
            html! { (number(row.reports)) div.beside { "of " (plural(row.reporters as u64, "reporter")) } },
            html! { (number(messages)) },
            html! { (number(passed)) div.beside { (percent(passed, messages)) } },
            html! { (number(dkim_passed)) },
            html! { (number(spf_passed)) },
            html! { (number(quarantined)) },
            html! { (number(rejected)) },
            html! { (shown(&row.policy)) },
        ]
    };
    table("Domains, those with most messages first", &columns, &rows.iter().map(row).collect::<Vec<_>>(), None)
}

fn sources(rows: &[SourceSums]) -> Markup {
    let columns = [
        head("Source", "long"),
        column("Domain", "long"),
        column("Messages", "n"),
        column("Failed", "n"),
        column("Quarantined", "n"),
        column("Rejected", "n"),
        column("Sender", "long"),
    ];
    // Only a different domain hints at the sender.
    let hint = |row: &SourceSums| {
        let named = [("sender", &row.envelope_from), ("signed by", &row.dkim_domain)];
        let named: Vec<_> = named.into_iter().filter(|(_, name)| !name.is_empty() && **name != row.domain).collect();
        html! {
            @for (what, name) in &named { div { (what) " " (address(name)) } }
            @if named.is_empty() { "–" }
        }
    };
    let row = |row: &SourceSums| {
        vec![
            html! { span.addr { (row.source) } },
            address(&row.domain),
            html! { (number(row.sums.messages)) },
            html! { (number(row.sums.failed())) },
            html! { (number(row.sums.quarantined)) },
            html! { (number(row.sums.rejected)) },
            hint(row),
        ]
    };
    table("Sources, those with most failed mail first", &columns, &rows.iter().map(row).collect::<Vec<_>>(), None)
}

/// What is not in the tables.
fn notes(rows: &DmarcSummary) -> Markup {
    let more = |total: usize, shown: usize| total.saturating_sub(shown) as u64;
    let notes = [
        (more(rows.domains_total, rows.domains.len()), "more domain", "not shown"),
        (more(rows.failed_sources_total, rows.failed_sources.len()), "more source", "not shown"),
        (rows.reports_repeated, "report", "ignored: another file has the same organization and report id"),
        (rows.reports_left_out, "report", "about further domains ignored"),
        (rows.messages_of_other_sources, "message", "of further sources only in the sums of their domains"),
        (rows.files_unreadable, "file", "in data_dir/dmarc_received cannot be read as reports"),
    ];
    html! {
        @for (count, what, why) in notes.into_iter().filter(|(count, ..)| *count > 0) {
            p.quiet { (plural(count, what)) " " (why) "." }
        }
    }
}

/// A date in the zone; reports may claim any.
fn date(at_s: u64, zone: &Zone) -> String {
    let text = date_time(at_s.min(DATE_S_MAX) * 1_000, zone);
    text.split(' ').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_strangers_are_text() {
        let hostile = "\"><script>@\u{202e}x".to_owned();
        let sums = MessageSums { messages: u64::MAX, passed: 1, ..MessageSums::default() };
        let domain = DomainSums {
            domain: hostile.clone(),
            policy: hostile.clone(),
            begin_s: u64::MAX,
            end_s: u64::MAX,
            sums: sums.clone(),
            ..DomainSums::default()
        };
        let source = SourceSums {
            domain: hostile.clone(),
            source: [192, 0, 2, 1].into(),
            sums,
            dkim_domain: hostile.clone(),
            envelope_from: hostile.clone(),
        };
        let text =
            [domains(&[domain], &Zone::utc()), sources(&[source]), form(&hostile, 7), empty(&hostile, 7, "", false)];
        for text in text.map(Markup::into_string) {
            assert!(!text.contains("<script") && !text.contains("<a "), "{text}");
        }
    }

    #[test]
    fn a_period_begins_with_a_day() {
        assert_eq!([since_s(10 * DAY_S + 5, 7), since_s(10 * DAY_S + 5, 0), since_s(5, 7)], [3 * DAY_S, 0, 0]);
        assert_eq!(date(DAY_S, &Zone::utc()), "1970-01-02");
    }
}
