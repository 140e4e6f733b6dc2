//! Draws the [`App`]. It fits 80 columns and 24 rows; on a larger terminal charts and tables grow. Text from the
//! network is escaped and cut.

mod chart;
mod overview;
mod tables;
#[cfg(test)]
mod tests;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph};
use stentor_control::Snapshot;
use stentor_control::format::{cut, grouped as number, plural, span};

use super::app::{App, PendingAction, Prompt, View};

const HELP: &str = "\
1 2 3, Tab    overview, sites, messages
Up, Down      choose a row; Enter opens the site or message
H             hold the row's messages; release a held one
F             try the row's mail now
S             suspend the site or the message's list; resume a suspended site
s             sort: sites by waiting or latency; messages by count, age or size
l             filter by list: type its name, Enter; empty for all
/             filter by site: its name, or a domain that it serves
Esc           clear the filters
p, Space      pause or resume the display
z             seconds per column of the charts
?             this help; any key closes it
q, Ctrl-C     quit

Charts: recipients delivered, failed and accepted per second. State of a site:
responding; connecting (no session yet); silent (on all its connections);
backing off (all hosts in retry wait); suspended; unresolved (no DNS answer).
Actions show how many recipients they affect and ask for confirmation.";

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
            View::Rates => overview::draw(frame, body, app, snapshot),
            View::Sites => {
                let rows = app.sites();
                let order = if app.by_latency { "slowest first" } else { "most waiting first" };
                let heading = format!("{}, {order}", sites_words(snapshot, rows.len()));
                let [name, table] = Layout::vertical([Constraint::Length(1), Constraint::Min(1)]).areas(body);
                frame.render_widget(Line::styled(heading, bold()), name);
                tables::sites(frame, table, app, false, snapshot.now);
            }
            View::Messages => tables::messages(frame, body, app),
        },
    }
    if app.stale_s().is_some() && app.opened.is_none() {
        frame.buffer_mut().set_style(body, dim());
    }
    footer(frame, foot, app);
    if let Some(confirm) = &app.confirm {
        question(frame, confirm);
    }
    if app.shows_help {
        overlay(frame, "Keys", HELP);
    }
}

/// Formats `15 sites and 2 unresolved domains`, and how many are shown if not all.
fn sites_words(snapshot: &Snapshot, shown: usize) -> String {
    let sites = plural(snapshot.sites_total.saturating_sub(snapshot.domains_total), "site");
    let domains = match snapshot.domains_total {
        0 => String::new(),
        domains => format!(" and {}", plural(domains, "unresolved domain")),
    };
    let of = if (shown as u64) < snapshot.sites_total { format!("{shown} of ") } else { String::new() };
    format!("{of}{sites}{domains}")
}

fn title(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let mut spans = vec![Span::styled("stentor realstat", bold())];
    if let Some(s) = &app.snapshot {
        spans.push(Span::raw(format!("  {}  {} {}", cut(&s.hostname, 30), app.clock(s.now), app.zone.label(s.now))));
    }
    let alarm = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
    let mark = Style::new().fg(Color::Yellow).add_modifier(Modifier::BOLD);
    if let Some(stale_s) = app.stale_s().filter(|_| app.snapshot.is_some()) {
        let why = app.lost.as_deref().map_or_else(|| "no answer yet".to_owned(), |why| cut(why, 60));
        spans.push(Span::styled(format!("  STALE for {}: {why}", span(stale_s * 1_000)), alarm));
    }
    if app.paused.is_some() {
        spans.push(Span::styled("  PAUSED", mark));
    }
    for (what, name) in [("list", &app.options.list), ("site", &app.options.site)] {
        if let Some(name) = name {
            spans.push(Span::styled(format!("  {what} {}", cut(name, 24)), mark));
        }
    }
    frame.render_widget(Line::from(spans), area);
}

fn footer(frame: &mut Frame<'_>, area: Rect, app: &App) {
    let line = match (&app.prompt, &app.notice) {
        (Some((prompt, text)), _) => {
            let what = if *prompt == Prompt::List { "list" } else { "site" };
            Line::from(vec![Span::styled(format!("{what}: "), bold()), Span::raw(cut(text, 200)), Span::raw("_")])
        }
        (None, Some(notice)) => {
            let color = if notice.is_error { Color::Red } else { Color::Green };
            Line::styled(cut(&notice.text, 300), Style::new().fg(color).add_modifier(Modifier::BOLD))
        }
        (None, None) => Line::styled("q quit  ? help  1 2 3 views  H hold  F flush  S suspend  / site  l list", dim()),
    };
    frame.render_widget(line, area);
}

fn question(frame: &mut Frame<'_>, confirm: &PendingAction) {
    let text = match &confirm.count {
        None => "counting recipients ...\n\nany key: cancel".to_owned(),
        Some(Ok(count)) => format!("This affects {}.\n\ny: confirm   any other key: cancel", cut(count, 200)),
        Some(Err(why)) => format!("Not possible: {}\n\nany key: back", cut(why, 200)),
    };
    overlay(frame, &format!("{}?", cut(&confirm.title, 70)), &text);
}

/// Draws a text over the lower part of the screen.
fn overlay(frame: &mut Frame<'_>, title: &str, text: &str) {
    let lines: Vec<Line<'_>> = text.lines().map(Line::raw).collect();
    let area = frame.area();
    let height = (lines.len() as u16 + 1).min(area.height);
    let area = Rect { x: 0, y: area.height.saturating_sub(height), width: area.width, height };
    frame.render_widget(Clear, area);
    let [head, text] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    let heading = format!("{title:<width$}", width = usize::from(area.width));
    frame.render_widget(Line::styled(heading, bold().add_modifier(Modifier::REVERSED)), head);
    frame.render_widget(Paragraph::new(lines), text);
}
