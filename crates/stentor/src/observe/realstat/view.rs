//! Draws the [`App`]. It fits 80 columns and 24 rows; on a larger terminal charts and tables grow. Everything from the
//! network is escaped and cut.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph, Sparkline};
use stentor_control::MailqqSort;
use stentor_control::Snapshot;
use stentor_control::format::{bytes, cut, next_try, span};
use stentor_control::snapshot::time_us;
use stentor_control::snapshot::{Lane, SiteNow};
use stentor_stats::rates::clock;

use super::app::{App, Prompt, View, ZOOMS};

const HELP: &str = "\
1 2 3, Tab    rates, sites, messages
s             sort: sites by waiting or latency; messages by count, age or size
l             one list: type its name, Enter; empty for all
/             one site: its name, or a domain that is at it
Esc           everything again
Up, Down      choose a row; Enter opens the site or message
p, Space      the picture stands still, and goes on with what came meanwhile
z             more or fewer seconds in a column of the charts
?             this; any key closes it
q, Ctrl-C     the end";

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn dim() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

pub fn draw(frame: &mut Frame<'_>, app: &App) {
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(1), Constraint::Length(1)]).areas(frame.area());
    title(frame, head, app);
    match (&app.opened, &app.snapshot) {
        (Some(opened), _) => {
            let lines: Vec<Line<'_>> = opened.text.lines().map(Line::raw).collect();
            let [name, text] = Layout::vertical([Constraint::Length(1), Constraint::Min(1)]).areas(body);
            frame.render_widget(Line::styled(cut(&opened.title, 200), bold()), name);
            frame.render_widget(Paragraph::new(lines).scroll((opened.scroll, 0)), text);
        }
        (None, None) => {
            let text = app.lost.as_deref().map_or_else(|| "waiting for the server".to_owned(), |why| cut(why, 300));
            frame.render_widget(Paragraph::new(text), body);
        }
        (None, Some(snapshot)) => match app.view {
            View::Rates => rates(frame, body, app, snapshot),
            View::Sites => {
                let rows = app.sites();
                let order = if app.by_latency { "slowest first" } else { "most waiting first" };
                let heading = format!("{} of {} sites, {order}", rows.len(), snapshot.sites_total);
                let [name, table] = Layout::vertical([Constraint::Length(1), Constraint::Min(1)]).areas(body);
                frame.render_widget(Line::styled(heading, bold()), name);
                sites(frame, table, rows, Some(app.selected), snapshot.now);
            }
            View::Messages => messages(frame, body, app),
        },
    }
    footer(frame, foot, app);
    if app.shows_help {
        help(frame);
    }
}

fn title(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let mut spans = vec![Span::styled("stentor realstat", bold())];
    if let Some(s) = &app.snapshot {
        spans.push(Span::raw(format!("  {}  {} UTC", cut(&s.hostname, 30), clock(s.now, 0))));
    }
    for (what, name) in [("list", &app.options.list), ("site", &app.options.site)] {
        if let Some(name) = name {
            spans.push(Span::styled(format!("  {what} {}", cut(name, 24)), Style::new().fg(Color::Yellow)));
        }
    }
    if app.paused.is_some() {
        spans.push(Span::styled("  PAUSED", Style::new().fg(Color::Yellow).add_modifier(Modifier::BOLD)));
    }
    if let Some(why) = app.lost.as_ref().filter(|_| app.snapshot.is_some()) {
        spans.push(Span::styled(format!("  LOST: {}", cut(why, 40)), Style::new().fg(Color::Red)));
    }
    frame.render_widget(Line::from(spans), area);
}

fn footer(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let line = match &app.prompt {
        Some((prompt, text)) => {
            let what = if *prompt == Prompt::List { "list" } else { "site" };
            Line::from(vec![Span::styled(format!("{what}: "), bold()), Span::raw(cut(text, 200)), Span::raw("_")])
        }
        None => Line::styled("q quit  ? help  1 rates  2 sites  3 messages  s sort  l list  / site  p pause", dim()),
    };
    frame.render_widget(line, area);
}

fn help(frame: &mut Frame<'_>) {
    let lines: Vec<Line<'_>> = HELP.lines().map(Line::raw).collect();
    let area = frame.area();
    let height = (lines.len() as u16 + 1).min(area.height);
    let area = Rect { x: 0, y: area.height.saturating_sub(height), width: area.width, height };
    frame.render_widget(Clear, area);
    let [head, text] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    frame.render_widget(Line::styled("Keys", bold()), head);
    frame.render_widget(Paragraph::new(lines), text);
}

/// `12`, `12,345`, `1,234,567`
fn number(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn per_s(count: u64, interval_ms: u64) -> String {
    let rate = count as f64 * 1e3 / interval_ms.max(1) as f64;
    if rate > 0.0 && rate < 9.95 { format!("{rate:.1}/s") } else { format!("{}/s", number(rate.round() as u64)) }
}

fn bytes_per_s(count: u64, interval_ms: u64) -> String {
    format!("{}/s", bytes(count * 1_000 / interval_ms.max(1)))
}

fn percent(share: f32) -> String {
    format!("{:.0} %", share * 100.0)
}

fn rates(frame: &mut Frame<'_>, area: Rect, app: &App, s: &Snapshot) {
    let more = area.height.saturating_sub(22);
    let [now, chart, depth, state, top] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(6 + more / 2),
        Constraint::Length(6),
        Constraint::Length(5),
        Constraint::Min(0),
    ])
    .areas(area);
    let (c, ms) = (&s.since, s.interval_ms);
    let words = format!(
        "delivered {} ({}/h)  failed {}  accepted {} ({} recipients)",
        per_s(c.delivered, ms),
        number(stentor_stats::rates::per_hour(c.delivered, ms)),
        per_s(c.failed, ms),
        per_s(c.accepted, ms),
        per_s(c.accepted_recipients, ms),
    );
    frame.render_widget(Line::raw(words), now);
    charts(frame, chart, app);
    depths(frame, depth, s);
    states(frame, state, s);
    sites(frame, top, app.sites(), None, s.now);
}

fn charts(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let [names, graphs] = Layout::horizontal([Constraint::Length(12), Constraint::Min(10)]).areas(area);
    let columns = app.columns(usize::from(graphs.width));
    let (delivered, failed): (Vec<u64>, Vec<u64>) = columns.into_iter().unzip();
    let most = |rates: &[u64]| rates.iter().copied().max().unwrap_or(0);
    let rows = [Constraint::Min(2), Constraint::Length(2)];
    let [name, name_failed] = Layout::vertical(rows).areas(names);
    let [graph, graph_failed] = Layout::vertical(rows).areas(graphs);
    let zoom = format!("{} s per column", ZOOMS[app.zoom]);
    let text = vec![
        Line::raw("delivered"),
        Line::styled(format!("to {}/s", number(most(&delivered))), dim()),
        Line::styled(zoom, dim()),
    ];
    frame.render_widget(Paragraph::new(text), name);
    let text = vec![Line::raw("failed"), Line::styled(format!("to {}/s", number(most(&failed))), dim())];
    frame.render_widget(Paragraph::new(text), name_failed);
    frame.render_widget(Sparkline::default().data(delivered).style(Style::new().fg(Color::Green)), graph);
    frame.render_widget(Sparkline::default().data(failed).style(Style::new().fg(Color::Red)), graph_failed);
}

/// Queue depth by lane and class.
fn depths(frame: &mut Frame<'_>, area: Rect, s: &Snapshot) {
    let (q, d) = (&s.queue, &s.queue.depth);
    let oldest = q.oldest.map_or_else(String::new, |at| format!(", oldest {}", span(s.now.saturating_sub(at))));
    let of_list = q.of_list.map_or_else(String::new, |pending| format!(", {} of the list", number(pending)));
    let sum = format!(
        "waiting {} ({} ordinary, {} bulk) in {} messages{oldest}{of_list}",
        number(q.pending()),
        number(q.ordinary),
        number(q.bulk),
        number(q.messages)
    );
    let row = |name: &str, lane: &Lane, in_flight: Option<u64>| {
        let in_flight = in_flight.map_or_else(String::new, number);
        Line::raw(format!(
            "{name:<10} {:>12} {:>8} {:>10} {:>14} {:>12}",
            number(lane.recipients),
            number(lane.sites),
            in_flight,
            number(lane.ordinary),
            number(lane.bulk)
        ))
    };
    let heading = format!(
        "{:<10} {:>12} {:>8} {:>10} {:>14} {:>12}",
        "lane", "recipients", "sites", "in flight", "ordinary msgs", "bulk msgs"
    );
    let mut suspended = d.suspended;
    suspended.recipients += d.unresolved;
    let name = if d.unresolved > 0 { "no site yet" } else { "suspended" };
    let lines = vec![
        Line::styled(sum, bold()),
        Line::styled(heading, dim()),
        row("fast", &d.fast, Some(q.in_flight_fast)),
        row("slow", &d.slow, Some(q.in_flight_slow)),
        row("down", &d.clock, None),
        row(name, &suspended, None),
    ];
    frame.render_widget(Paragraph::new(lines), area);
}

/// Connections, journal, machine, and what they mean.
fn states(frame: &mut Frame<'_>, area: Rect, s: &Snapshot) {
    let (c, j, m) = (&s.connections, &s.journal, &s.machine);
    let sync = if j.sync_us.count == 0 {
        "sync        none in this interval".to_owned()
    } else {
        format!(
            "sync        {} (99 % {}), {} per second; {:.1} messages per batch, {}",
            time_us(j.sync_us.p50),
            time_us(j.sync_us.p99),
            number(j.sync_us.count * 1_000 / s.interval_ms.max(1)),
            j.messages_per_batch(),
            bytes(j.bytes_per_batch())
        )
    };
    let ms = m.interval_ms;
    let lines = vec![
        Line::raw(format!(
            "connections {} of {} out, {} of {} silent, {} sites in line; {} of {} in",
            c.fast, c.fast_max, c.slow, c.slow_max, c.wanting, c.clients, c.clients_max
        )),
        Line::raw(sync),
        Line::raw(format!(
            "machine     cpu {} (ours {}), io wait {}, memory {} of {} (ours {})",
            percent(m.cpu),
            percent(m.own_cpu / m.processors.max(1) as f32),
            percent(m.io_wait),
            bytes(m.memory_used_bytes),
            bytes(m.memory_bytes),
            bytes(m.own_memory_bytes)
        )),
        Line::raw(format!(
            "            disk busy {}, writes {} (ours {}); net out {} (ours {})",
            percent(m.disk_busy),
            bytes_per_s(m.disk_written_bytes, ms),
            bytes_per_s(m.own_written_bytes, ms),
            bytes_per_s(m.net_out_bytes, ms),
            bytes_per_s(m.own_net_out_bytes, ms)
        )),
        Line::styled(cut(&s.verdict, 200), Style::new().fg(Color::Cyan).add_modifier(Modifier::BOLD)),
    ];
    frame.render_widget(Paragraph::new(lines), area);
}

/// The first row that is shown so that the chosen one is.
fn first_row(selected: usize, height: usize) -> usize {
    (selected + 1).saturating_sub(height)
}

fn sites(frame: &mut Frame<'_>, area: Rect, rows: &[SiteNow], selected: Option<usize>, now: u64) {
    if area.height == 0 {
        return;
    }
    let heading = format!(
        "{:>10} {:>5} {:>7} {:>8} {:<9} {:<24} {}",
        "waiting", "conns", "latency", "next try", "lane", "site", "reason"
    );
    let mut lines = vec![Line::styled(heading, dim())];
    let height = usize::from(area.height).saturating_sub(1);
    let first = first_row(selected.unwrap_or(0), height);
    for (at, row) in rows.iter().enumerate().skip(first).take(height) {
        let why = if row.waits_for.is_empty() || !row.last_reply.is_empty() { &row.last_reply } else { &row.waits_for };
        let latency = if row.latency_ms > 0 { format!("{}ms", row.latency_ms) } else { "-".to_owned() };
        let next = row.next_try.map_or_else(|| "-".to_owned(), |_| next_try(row.next_try, now));
        let text = format!(
            "{:>10} {:>5} {latency:>7} {next:>8} {:<9} {:<24} {}",
            number(row.waiting),
            row.connections,
            cut(&row.lane, 9),
            cut(&row.site, 24),
            cut(why, 120)
        );
        lines.push(Line::styled(text, chosen(selected == Some(at))));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

fn chosen(is_chosen: bool) -> Style {
    if is_chosen { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() }
}

fn messages(frame: &mut Frame<'_>, area: Rect, app: &App) {
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
        "{} recipients in {} messages, {}; {order}{stopped}",
        number(m.matching_recipients.unwrap_or(m.recipients)),
        number(m.matching_messages.unwrap_or(m.messages)),
        bytes(m.octets)
    );
    let heading =
        format!("{:>12}  {:<13} {:>10} {:>7}  {:<16} {}", "recipients", "id", "length", "age", "list", "sender");
    let mut lines = vec![Line::styled(sum, bold()), Line::styled(heading, dim())];
    let height = usize::from(area.height).saturating_sub(2);
    let first = first_row(app.selected, height);
    for (at, row) in m.rows.iter().enumerate().skip(first).take(height) {
        let mark = if row.in_flight > 0 { "*" } else { " " };
        let text = format!(
            "{:>12}  {:<12}{mark} {:>10} {:>7}  {:<16} <{}>",
            number(row.pending),
            cut(&row.id, 12),
            bytes(row.size),
            span(m.now.saturating_sub(row.accepted)),
            cut(row.list.as_deref().unwrap_or("-"), 16),
            cut(&row.sender, 60)
        );
        lines.push(Line::styled(text, chosen(at == app.selected)));
    }
    frame.render_widget(Paragraph::new(lines), area);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::observe::realstat::feed::News;
    use stentor_control::WatchOptions;

    fn screen(app: &App, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal in memory");
        terminal.draw(|frame| draw(frame, app)).expect("it is drawn");
        let buffer = terminal.backend().buffer();
        let row = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..height).map(row).collect()
    }

    fn app() -> App {
        let mut app = App::new(WatchOptions::default());
        let mut s = Snapshot {
            now: 36_000_000,
            interval_ms: 1_000,
            verdict: "idle: the queue is empty".to_owned(),
            ..Snapshot::default()
        };
        (s.since.delivered, s.since.failed, s.queue.bulk) = (12_345, 7, 10_000_000);
        s.connections.fast_max = 800;
        s.queue.depth.clock = Lane { sites: 50_000, recipients: 10_000_000, ordinary: 0, bulk: 500_000 };
        s.by_pending = vec![SiteNow {
            site: "mx.one.example".to_owned(),
            waiting: 990_000,
            last_reply: "451 evil\u{1b}[2J".to_owned(),
            ..SiteNow::default()
        }];
        app.news(News::Snapshot(Box::new(s)));
        app
    }

    #[test]
    fn everything_fits_eighty_by_twenty_four() {
        let mut app = app();
        let rows = screen(&app, 80, 24);
        let all = rows.join("\n");
        for wanted in [
            "delivered 12,345/s (44,442,000/h)  failed 7.0/s",
            "waiting 10,000,000 (0 ordinary, 10,000,000 bulk)",
            "down         10,000,000   50,000                         0      500,000",
            "connections 0 of 800 out",
            "machine     cpu 0 %",
            "disk busy 0 %",
            "idle: the queue is empty",
            "mx.one.example",
            "q quit",
        ] {
            assert!(all.contains(wanted), "{wanted}\n{all}");
        }
        assert!(rows[0].starts_with("stentor realstat") && rows[23].starts_with("q quit"), "{all}");
        app.view = View::Sites;
        let all = screen(&app, 80, 24).join("\n");
        assert!(all.contains("990,000") && all.contains("451 evil") && !all.contains('\u{1b}'), "{all}");
        app.shows_help = true;
        assert!(screen(&app, 80, 24).join("\n").contains("the picture stands still"));
    }

    #[test]
    fn any_size_is_drawn() {
        let mut app = app();
        for view in [View::Rates, View::Sites, View::Messages] {
            app.view = view;
            for (width, height) in [(1, 1), (20, 5), (80, 24), (200, 60), (300, 3)] {
                app.shows_help = height % 2 == 1;
                screen(&app, width, height);
            }
        }
    }
}
