//! The first view: rates, why mail waits, use of server and machine, stuck sites, newest events.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;
use stentor_control::Snapshot;
use stentor_control::causes::{most_first, next_try_of, short};
use stentor_control::format::{bytes, cut, plural, span};
use stentor_control::snapshot::time_us;
use stentor_queue::cause::Cause;

use super::super::app::{App, Column, ZOOMS};
use super::tables::{events, sites};
use super::{bold, chart, dim, number};

/// Columns of the labels beside the charts, and of a bar.
const NAMES: u16 = 24;
const BAR: usize = 8;
/// Columns between two panels.
const GAP: u16 = 3;
/// Minimum width for causes in full words.
const WIDE: u16 = 110;
/// Shares from which a bar is yellow, and red.
const HIGH: f64 = 0.6;
const FULL: f64 = 0.85;

pub fn draw(frame: &mut Frame<'_>, area: Rect, app: &App, s: &Snapshot) {
    let more = area.height.saturating_sub(22);
    let [words, chart, lower, middle, table, last] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(4 + more / 3),
        Constraint::Length(2),
        Constraint::Length(7 + (more / 4).min(8)),
        Constraint::Min(0),
        Constraint::Length(3 + more / 6),
    ])
    .areas(area);
    let color = verdict_color(&s.verdict);
    frame.render_widget(Line::styled(cut(&s.verdict, 200), Style::new().fg(color).add_modifier(Modifier::BOLD)), words);
    charts(frame, chart, lower, app, s);
    let is_wide = area.width >= WIDE;
    let columns = CauseColumns { words: if is_wide { 31 } else { 16 }, recipients: 10, next_try: 8 };
    let width = columns.words + columns.recipients + columns.next_try + 2;
    let [why, _, used] =
        Layout::horizontal([Constraint::Length(width as u16), Constraint::Length(GAP), Constraint::Min(20)])
            .areas(middle);
    causes(frame, why, s, &columns, is_wide);
    usage(frame, used, s);
    sites(frame, table, app, true, s.now);
    events(frame, last, app, &s.events);
}

/// Green without an obstacle, red at a limit, yellow while waiting.
fn verdict_color(verdict: &str) -> Color {
    let starts = |words: &[&str]| words.iter().any(|word| verdict.starts_with(word));
    if starts(&["idle", "keeping up"]) {
        Color::Green
    } else if starts(&["disk-bound", "processor-bound", "short of memory"]) {
        Color::Red
    } else {
        Color::Yellow
    }
}

fn per_s(count: u64, interval_ms: u64) -> String {
    let rate = count as f64 * 1e3 / interval_ms.max(1) as f64;
    if rate > 0.0 && rate < 9.95 { format!("{rate:.1}/s") } else { format!("{}/s", number(rate.round() as u64)) }
}

fn percent(share: f32) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Draws deliveries as an area; failed and accepted recipients as one line each.
fn charts(frame: &mut Frame<'_>, large: Rect, small: Rect, app: &App, s: &Snapshot) {
    let split = |area| Layout::horizontal([Constraint::Length(NAMES), Constraint::Min(10)]).areas::<2>(area);
    let ([names, graph], [small_names, small_graph]) = (split(large), split(small));
    let columns = app.columns(chart::values_in(usize::from(graph.width), app.is_utf8));
    let of = |value: fn(&Column) -> u64| columns.iter().map(value).collect::<Vec<u64>>();
    let (delivered, failed, accepted) = (of(|c| c.delivered), of(|c| c.failed), of(|c| c.accepted));
    let most = |rates: &[u64]| rates.iter().copied().max().unwrap_or(0);
    let (c, ms) = (&s.since, s.interval_ms);
    let text = vec![
        Line::from(vec![
            Span::raw("delivered "),
            Span::styled(per_s(c.delivered, ms), Style::new().fg(Color::Green).add_modifier(Modifier::BOLD)),
        ]),
        Line::raw(format!("  {}/h", number(stentor_records::rates::per_hour(c.delivered, ms)))),
        Line::styled(format!("  top {}/s", number(most(&delivered))), dim()),
        Line::styled(format!("  {} s per column", ZOOMS[app.zoom]), dim()),
    ];
    frame.render_widget(Paragraph::new(text), names);
    let area = chart::area(&delivered, usize::from(graph.height), app.is_utf8);
    frame.render_widget(Paragraph::new(colored(area, Color::Green)), graph);
    let text = vec![
        Line::raw(format!("failed    {}", per_s(c.failed, ms))),
        Line::raw(format!("accepted  {}", per_s(c.accepted_recipients, ms))),
    ];
    frame.render_widget(Paragraph::new(text), small_names);
    let mut lines = colored(chart::area(&failed, 1, app.is_utf8), Color::Red);
    lines.extend(colored(chart::area(&accepted, 1, app.is_utf8), Color::Blue));
    frame.render_widget(Paragraph::new(lines), small_graph);
}

fn colored(lines: Vec<String>, color: Color) -> Vec<Line<'static>> {
    lines.into_iter().map(|line| Line::styled(line, Style::new().fg(color))).collect()
}

struct CauseColumns {
    words: usize,
    recipients: usize,
    next_try: usize,
}

/// Draws why recipients wait and when the first is tried, largest group first; the rest share one row.
fn causes(frame: &mut Frame<'_>, area: Rect, s: &Snapshot, columns: &CauseColumns, is_wide: bool) {
    let &CauseColumns { words: words_width, recipients: count_width, next_try: next_width } = columns;
    let q = &s.queue;
    let (waiting, messages, oldest) = match &q.part {
        Some(part) => {
            (format!("{} of {} in all", number(part.recipients), number(q.pending())), part.messages, part.oldest)
        }
        None => (format!("{} ({} bulk)", number(q.pending()), number(q.bulk)), q.messages, q.oldest),
    };
    let oldest = oldest.map_or_else(String::new, |at| format!(", oldest {}", span(s.now.saturating_sub(at))));
    let mut lines = vec![
        Line::styled(format!("waiting {waiting}"), bold()),
        Line::raw(format!("in {}{oldest}", plural(messages, "message"))),
        Line::styled(
            format!("{:<words_width$} {:>count_width$} {:>next_width$}", "waiting for", "recipients", "next try"),
            dim(),
        ),
    ];
    let rows = most_first(&s.causes);
    let fit = usize::from(area.height).saturating_sub(lines.len());
    let (shown, rest) = rows.split_at(if rows.len() > fit { fit.saturating_sub(1) } else { rows.len() });
    let line = |words: &str, color: Color, recipients: u64, next: &str| {
        let numbers = format!(" {:>count_width$} {next:>next_width$}", number(recipients));
        let words = format!("{:<words_width$}", cut(words, words_width));
        Line::from(vec![Span::styled(words, Style::new().fg(color)), Span::raw(numbers)])
    };
    for row in shown {
        let words = if is_wide { &row.words } else { short(row.cause()) };
        let next = next_try_of(std::slice::from_ref(*row), row.next_try, s.now);
        lines.push(line(words, cause_color(row.cause()), row.recipients, &next));
    }
    if !rest.is_empty() {
        let recipients = rest.iter().map(|row| row.recipients).sum();
        lines.push(line(&plural(rest.len() as u64, "other cause"), Color::Reset, recipients, ""));
    }
    if rows.is_empty() {
        let pending = q.part.map_or_else(|| q.pending(), |part| part.recipients);
        let text = if pending == 0 { "no mail is waiting" } else { "causes are being counted" };
        lines.push(Line::styled(text, dim()));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

/// Green for mail on its way, magenta if held by an operator, red for unreachable sites, yellow for the rest.
fn cause_color(cause: Cause) -> Color {
    match cause {
        cause if cause.is_kept() => Color::Magenta,
        Cause::Dns
        | Cause::Routing
        | Cause::BlockListed
        | Cause::Refused
        | Cause::Unreachable
        | Cause::TimedOut
        | Cause::Unreadable
        | Cause::Unsigned => Color::Red,
        cause if cause.is_moving() => Color::Green,
        _ => Color::Yellow,
    }
}

/// Formats `out  |||       80 of 800`.
fn gauge(name: &str, share: f64, text: &str) -> Line<'static> {
    let color = if share >= FULL {
        Color::Red
    } else if share >= HIGH {
        Color::Yellow
    } else {
        Color::Green
    };
    Line::from(vec![
        Span::raw(format!("{name:<7}")),
        Span::styled(chart::bar(share, BAR), Style::new().fg(color)),
        Span::raw(format!(" {text}")),
    ])
}

/// Draws the use of connections, syncs and the machine.
fn usage(frame: &mut Frame<'_>, area: Rect, s: &Snapshot) {
    let (c, j, m) = (&s.connections, &s.journal, &s.machine);
    let of = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
    let sync = if j.sync_us.count == 0 {
        "no batch in this interval".to_owned()
    } else {
        format!("{}, 99 % {}, {:.1}/batch", time_us(j.sync_us.p50), time_us(j.sync_us.p99), j.messages_per_batch())
    };
    let in_line = if c.wanting > 0 { format!(", {} queued", c.wanting) } else { String::new() };
    let own = percent(m.own_cpu / m.processors.max(1) as f32);
    let lines = vec![
        gauge("out", of(c.fast, c.fast_max), &format!("{} of {}{in_line}", c.fast, c.fast_max)),
        gauge("silent", of(c.slow, c.slow_max), &format!("{} of {}", c.slow, c.slow_max)),
        gauge("in", of(c.clients, c.clients_max), &format!("{} of {}", c.clients, c.clients_max)),
        Line::raw(format!("sync   {sync}")),
        gauge("cpu", m.cpu.into(), &format!("{}, ours {own}", percent(m.cpu))),
        gauge(
            "memory",
            of(m.memory_used_bytes, m.memory_bytes),
            &format!("{}, ours {}", bytes(m.memory_used_bytes), bytes(m.own_memory_bytes)),
        ),
        gauge("disk", m.disk_busy.into(), &format!("{}, io wait {}", percent(m.disk_busy), percent(m.io_wait))),
    ];
    frame.render_widget(Paragraph::new(lines), area);
}
