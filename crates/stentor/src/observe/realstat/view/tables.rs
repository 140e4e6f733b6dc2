//! Tables of sites, messages and events.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use stentor_control::MailqqSort;
use stentor_control::causes::headline;
use stentor_control::format::{bytes, cut, next_try, plural, span};
use stentor_control::site_view::site_state;
use stentor_control::snapshot::SiteNow;
use stentor_records::now::EventNow;

use super::{App, bold, dim, number};

/// Reasons and replies are cut after this many characters.
const REASON_CHARS: usize = 200;
/// Minimum width for wider names.
const WIDE: u16 = 110;

/// The first row to show so that the selected one is visible.
fn first_row(selected: usize, height: usize) -> usize {
    (selected + 1).saturating_sub(height)
}

fn chosen(is_chosen: bool) -> Style {
    if is_chosen { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() }
}

/// Width of the longest state, `backing off`.
const STATE_COLUMNS: usize = 11;

/// The colour of a state.
fn lane_color(lane: &str) -> Color {
    match lane {
        "fast" => Color::Green,
        "connecting" => Color::Cyan,
        "slow" => Color::Yellow,
        "clock" => Color::Red,
        _ => Color::Magenta,
    }
}

fn lane_text(lane: &str) -> String {
    site_state(lane).map_or_else(|| cut(lane, STATE_COLUMNS), str::to_lowercase)
}

/// Why mail waits at a site and its hosts' last replies; of several causes, the largest that fit.
fn why(row: &SiteNow, columns: usize) -> String {
    let is_tried = row.causes.iter().any(|cause| cause.since.is_some());
    let has_said = row.waits_for.is_empty() || !row.last_reply.is_empty() && !is_tried;
    let text = if has_said { &row.last_reply } else { &row.waits_for };
    if !has_said && row.causes.len() > 1 && text.len() > columns {
        return headline(&row.causes, columns);
    }
    cut(text, columns.max(1))
}

/// Draws the sites with the selected one visible. `is_short` omits columns that say little about why mail waits.
pub fn sites(frame: &mut Frame<'_>, area: Rect, app: &App, is_short: bool, now: u64) {
    if area.height == 0 {
        return;
    }
    // The reason gets the remaining width: no other column is wider than its longest text.
    let is_wide = area.width >= WIDE;
    let longest = |text: fn(&SiteNow) -> usize| app.sites().iter().map(text).max().unwrap_or(0);
    let names = longest(|row| row.site.chars().count()).clamp(4, if is_wide { 40 } else { 22 });
    let counts = longest(|row| number(row.waiting).len()).max("waiting".len());
    let conns = if is_wide { format!("{:>5} ", "conns") } else { String::new() };
    let used = if is_short { String::new() } else { format!("{conns}{:>7} ", "latency") };
    let heading = format!(
        "{:>counts$} {used}{:>6} {:<STATE_COLUMNS$} {:<names$} {}",
        "waiting", "next", "state", "site", "reason"
    );
    let mut lines = vec![Line::styled(heading, dim())];
    let height = usize::from(area.height).saturating_sub(1);
    let first = first_row(app.selected, height);
    for (at, row) in app.sites().iter().enumerate().skip(first).take(height) {
        let latency = if row.latency_ms > 0 { format!("{}ms", row.latency_ms) } else { "-".to_owned() };
        let next = row.next_try.map_or_else(|| "-".to_owned(), |_| next_try(row.next_try, now));
        let conns = if is_wide { format!("{:>5} ", row.connections) } else { String::new() };
        let used = if is_short { String::new() } else { format!("{conns}{latency:>7} ") };
        let before = format!("{:>counts$} {used}{next:>6} ", number(row.waiting));
        let state =
            Span::styled(format!("{:<STATE_COLUMNS$}", lane_text(&row.lane)), Style::new().fg(lane_color(&row.lane)));
        let left = usize::from(area.width).saturating_sub(before.len() + STATE_COLUMNS + names + 2);
        let after = format!(" {:<names$} {}", cut(&row.site, names), why(row, left.min(REASON_CHARS)));
        let line = Line::from(vec![Span::raw(before), state, Span::raw(after)]);
        lines.push(line.style(chosen(app.selected == at)));
    }
    if app.sites().is_empty() {
        lines.push(Line::styled("  no mail is waiting at any site", dim()));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

/// An action in words: `suspend by root: site mx.example`; other failures unchanged.
pub(super) fn event_text(event: &EventNow) -> String {
    let text = event.text.as_str();
    let Some((start, fields)) = text.split_once(": ").filter(|_| event.kind == "audit") else { return text.to_owned() };
    let Ok(serde_json::Value::Object(fields)) = serde_json::from_str(fields) else { return text.to_owned() };
    let (verb, who) = start.split_once(" by ").unwrap_or((start, ""));
    // `uid=0(root) pid=7`, `user=ann address=192.0.2.1`
    let name = who.split(' ').next().unwrap_or_default();
    let login = name.split_once('(').and_then(|(_, login)| login.strip_suffix(')'));
    let name = login.or_else(|| name.split_once('=').map(|(_, name)| name)).unwrap_or(name);
    let value = |value: &serde_json::Value| match value {
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Array(all) => all
            .iter()
            .map(|one| one.as_str().map_or_else(|| one.to_string(), str::to_owned))
            .collect::<Vec<_>>()
            .join(" "),
        other => other.to_string(),
    };
    let fields = fields.iter().filter(|(_, of)| !of.is_null());
    let fields: Vec<_> = fields
        .map(|(name, of)| {
            if name == "what" {
                value(of).replacen(':', " ", 1)
            } else {
                format!("{} {}", name.replace('_', " "), value(of))
            }
        })
        .collect();
    format!("{verb} by {name}: {}", fields.join(", "))
}

/// Draws the newest events that fit, newest at the bottom.
pub fn events(frame: &mut Frame<'_>, area: Rect, app: &App, events: &[EventNow]) {
    let height = usize::from(area.height);
    let lines = events.iter().skip(events.len().saturating_sub(height)).map(|event| {
        let color = match event.kind.as_str() {
            "bounced" | "expired" => Color::Red,
            "audit" => Color::Cyan,
            _ => Color::Yellow,
        };
        let kind = event.kind.replace('_', " ");
        let times = if event.times > 1 { format!(" ({} times)", number(event.times)) } else { String::new() };
        Line::from(vec![
            Span::styled(app.clock(event.at), dim()),
            Span::styled(format!(" {:<14} ", cut(&kind, 14)), Style::new().fg(color)),
            Span::raw(format!("{}{times}", cut(&event_text(event), REASON_CHARS))),
        ])
    });
    let mut lines: Vec<Line<'_>> = lines.collect();
    if lines.is_empty() {
        lines.push(Line::styled("no failures or actions so far", dim()));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

pub fn messages(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let Some(m) = &app.mailqq else {
        frame.render_widget(Paragraph::new("searching the messages"), area);
        return;
    };
    let order = match app.sort {
        MailqqSort::Count => "most waiting first",
        MailqqSort::Age => "oldest first",
        MailqqSort::Size => "largest first",
    };
    let stopped =
        if m.stopped_after.is_some() { format!(" of the oldest {}", number(m.looked_at)) } else { String::new() };
    let sum = format!(
        "{} in {}, {}; {order}{stopped}",
        plural(m.matching_recipients.unwrap_or(m.recipients), "recipient"),
        plural(m.matching_messages.unwrap_or(m.messages), "message"),
        bytes(m.octets)
    );
    let heading =
        format!("{:>12}  {:<13} {:>10} {:>7}  {:<16} {}", "recipients", "id", "length", "age", "list", "sender");
    let mut lines = vec![Line::styled(sum, bold()), Line::styled(heading, dim())];
    let height = usize::from(area.height).saturating_sub(2);
    let first = first_row(app.selected, height);
    for (at, row) in m.rows.iter().enumerate().skip(first).take(height) {
        let mark = match (row.held, row.in_flight) {
            (true, _) => "!",
            (false, 0) => " ",
            (false, _) => "*",
        };
        let text = format!(
            "{:>12}  {:<12}{mark} {:>10} {:>7}  {:<16} <{}>",
            number(row.here.unwrap_or(row.pending)),
            cut(&row.id, 12),
            bytes(row.size),
            span(m.now.saturating_sub(row.accepted)),
            cut(row.list.as_deref().unwrap_or("-"), 16),
            cut(&row.sender, 60)
        );
        let color = if row.held { Style::new().fg(Color::Magenta) } else { Style::new() };
        lines.push(Line::styled(text, chosen(at == app.selected).patch(color)));
    }
    frame.render_widget(Paragraph::new(lines), area);
}
