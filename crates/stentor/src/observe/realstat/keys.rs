//! Key bindings.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use stentor_control::{MailqqSort, Request};

use super::app::{App, Opened, Prompt, View, ZOOMS};
use super::feed::Wish;

/// Longest text that can be typed.
const TYPED_MAX: usize = 253;
const RECIPIENTS_SHOWN: u32 = 200;
/// Rows that Page Up and Page Down go.
const PAGE: usize = 10;

/// The wishes that it brings about.
pub fn press(app: &mut App, key: KeyEvent) -> Vec<Wish> {
    if key.kind == KeyEventKind::Release {
        return Vec::new();
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) && matches!(key.code, KeyCode::Char('c' | 'd')) {
        app.is_over = true;
        return Vec::new();
    }
    if app.prompt.is_some() {
        return typed(app, key.code);
    }
    if app.shows_help {
        app.shows_help = false;
        return Vec::new();
    }
    if app.opened.is_some() {
        read(app, key.code);
        return Vec::new();
    }
    command(app, key.code)
}

fn typed(app: &mut App, code: KeyCode) -> Vec<Wish> {
    let Some((prompt, mut text)) = app.prompt.take() else { return Vec::new() };
    match code {
        KeyCode::Esc => return Vec::new(),
        KeyCode::Enter => return app.narrow(prompt, &text),
        KeyCode::Backspace => drop(text.pop()),
        KeyCode::Char(c) if text.len() < TYPED_MAX && !c.is_control() => text.push(c),
        _ => {}
    }
    app.prompt = Some((prompt, text));
    Vec::new()
}

/// In an opened text.
fn read(app: &mut App, code: KeyCode) {
    let Some(opened) = &mut app.opened else { return };
    let last = u16::try_from(opened.text.lines().count().saturating_sub(1)).unwrap_or(u16::MAX);
    let page = PAGE as u16;
    opened.scroll = match code {
        KeyCode::Down | KeyCode::Char('j') => opened.scroll.saturating_add(1).min(last),
        KeyCode::Up | KeyCode::Char('k') => opened.scroll.saturating_sub(1),
        KeyCode::PageDown | KeyCode::Char(' ') => opened.scroll.saturating_add(page).min(last),
        KeyCode::PageUp => opened.scroll.saturating_sub(page),
        KeyCode::Esc | KeyCode::Enter | KeyCode::Backspace | KeyCode::Char('q') => return app.opened = None,
        _ => opened.scroll,
    };
}

fn command(app: &mut App, code: KeyCode) -> Vec<Wish> {
    let last = app.rows().saturating_sub(1);
    match code {
        KeyCode::Char('q') => app.is_over = true,
        KeyCode::Char('?' | 'h') | KeyCode::F(1) => app.shows_help = true,
        KeyCode::Char('p' | ' ') => app.pause(),
        KeyCode::Char('1') => (app.view, app.selected) = (View::Rates, 0),
        KeyCode::Char('2') => (app.view, app.selected) = (View::Sites, 0),
        KeyCode::Char('3') => {
            (app.view, app.selected) = (View::Messages, 0);
            return vec![app.messages()];
        }
        KeyCode::Tab | KeyCode::Right => return turn(app, 1),
        KeyCode::BackTab | KeyCode::Left => return turn(app, 2),
        KeyCode::Char('s') => return sort(app),
        KeyCode::Char('z') => app.zoom = (app.zoom + 1) % ZOOMS.len(),
        KeyCode::Char('l') => app.prompt = Some((Prompt::List, app.options.list.clone().unwrap_or_default())),
        KeyCode::Char('/') => app.prompt = Some((Prompt::Site, app.options.site.clone().unwrap_or_default())),
        KeyCode::Esc if app.options.list.is_some() || app.options.site.is_some() => {
            app.options.list = None;
            return app.narrow(Prompt::Site, "");
        }
        KeyCode::Down | KeyCode::Char('j') => app.selected = (app.selected + 1).min(last),
        KeyCode::Up | KeyCode::Char('k') => app.selected = app.selected.saturating_sub(1),
        KeyCode::PageDown => app.selected = (app.selected + PAGE).min(last),
        KeyCode::PageUp => app.selected = app.selected.saturating_sub(PAGE),
        KeyCode::Home => app.selected = 0,
        KeyCode::End => app.selected = last,
        KeyCode::Enter => return open(app).into_iter().collect(),
        _ => {}
    }
    Vec::new()
}

/// To the next view, or the one after it.
fn turn(app: &mut App, steps: usize) -> Vec<Wish> {
    const VIEWS: [View; 3] = [View::Rates, View::Sites, View::Messages];
    let at = VIEWS.iter().position(|view| *view == app.view).unwrap_or(0);
    (app.view, app.selected) = (VIEWS[(at + steps) % VIEWS.len()], 0);
    if app.view == View::Messages { vec![app.messages()] } else { Vec::new() }
}

fn sort(app: &mut App) -> Vec<Wish> {
    app.selected = 0;
    if app.view != View::Messages {
        app.by_latency = !app.by_latency;
        return Vec::new();
    }
    app.sort = match app.sort {
        MailqqSort::Count => MailqqSort::Age,
        MailqqSort::Age => MailqqSort::Size,
        MailqqSort::Size => MailqqSort::Count,
    };
    vec![app.messages()]
}

/// The chosen site or message.
fn open(app: &mut App) -> Option<Wish> {
    let (title, request) = match app.view {
        View::Rates => return None,
        View::Sites => {
            let name = app.sites().get(app.selected)?.site.clone();
            (format!("site {name}"), Request::Site { name })
        }
        View::Messages => {
            let id = app.mailqq.as_ref()?.rows.get(app.selected)?.id.clone();
            let show = Request::QueueShow { id: id.parse().ok()?, recipients_max: RECIPIENTS_SHOWN };
            (format!("message {id}"), show)
        }
    };
    app.opened = Some(Opened { title, text: "...".to_owned(), scroll: 0 });
    Some(Wish::Open(request))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::realstat::feed::News;
    use stentor_control::snapshot::SiteNow;
    use stentor_control::{Mailqq, MailqqRow};
    use stentor_control::{Snapshot, WatchOptions};

    fn keys(app: &mut App, text: &str) -> Vec<Wish> {
        text.chars()
            .flat_map(|c| {
                let code = match c {
                    '\n' => KeyCode::Enter,
                    '\u{1b}' => KeyCode::Esc,
                    c => KeyCode::Char(c),
                };
                press(app, KeyEvent::new(code, KeyModifiers::NONE))
            })
            .collect()
    }

    fn app() -> App {
        let mut app = App::new(WatchOptions::default());
        let site = |name: &str| SiteNow { site: name.to_owned(), ..SiteNow::default() };
        let by_pending = vec![site("one"), site("two")];
        let snapshot = Snapshot { now: 5_000, by_pending, by_latency: vec![site("two")], ..Snapshot::default() };
        app.news(News::Snapshot(Box::new(snapshot)));
        let rows = vec![MailqqRow { id: "00000000002D".to_owned(), ..MailqqRow::default() }];
        app.news(News::Messages(Box::new(Mailqq { rows, ..Mailqq::default() })));
        app
    }

    #[test]
    fn sites_and_messages_are_opened() {
        let mut app = app();
        assert!(keys(&mut app, "\n").is_empty(), "there is nothing to open in the rates");
        let wishes = keys(&mut app, "2jj\n");
        assert!(matches!(&wishes[..], [Wish::Open(Request::Site { name })] if name == "two"));
        app.news(News::Opened("a\nb\nc".to_owned()));
        keys(&mut app, "jjjjj");
        assert_eq!(app.opened.as_ref().map(|opened| opened.scroll), Some(2));
        keys(&mut app, "q");
        assert!(app.opened.is_none() && !app.is_over, "q closes what is open first");
        assert!(matches!(&keys(&mut app, "3\n")[..], [Wish::Messages(_), Wish::Open(Request::QueueShow { .. })]));
        keys(&mut app, "\u{1b}q");
        assert!(app.is_over);
    }

    #[test]
    fn a_filter_is_typed_and_taken_back() {
        let mut app = app();
        let wishes = keys(&mut app, "lnewsq\n");
        assert!(matches!(&wishes[..], [Wish::Watch(o), Wish::Messages(_)] if o.list.as_deref() == Some("newsq")));
        assert!(app.points.is_empty(), "other rates");
        keys(&mut app, "/mx\u{1b}");
        assert_eq!(app.options.site, None, "taken back while typing");
        keys(&mut app, "\u{1b}");
        assert_eq!(app.options.list, None);
    }

    #[test]
    fn a_pause_loses_nothing() {
        let mut app = app();
        keys(&mut app, "p");
        for second in 6..10 {
            app.news(News::Snapshot(Box::new(Snapshot {
                now: second * 1_000,
                interval_ms: 1_000,
                ..Snapshot::default()
            })));
        }
        assert_eq!(app.snapshot.as_ref().map(|s| s.now), Some(5_000));
        keys(&mut app, "p");
        assert_eq!((app.snapshot.as_ref().map(|s| s.now), app.points.len()), (Some(9_000), 5));
        keys(&mut app, "s");
        assert_eq!(app.sites().len(), 0);
    }

    #[test]
    fn columns_are_rates() {
        let mut app = App::new(WatchOptions::default());
        for second in 1..=10u64 {
            let mut snapshot = Snapshot { now: second * 1_000, interval_ms: 1_000, ..Snapshot::default() };
            snapshot.since.delivered = second;
            app.news(News::Snapshot(Box::new(snapshot)));
        }
        assert_eq!(app.columns(3), [(8, 0), (9, 0), (10, 0)]);
        keys(&mut app, "z");
        // 0..4, 5..9, 10.
        assert_eq!(app.columns(4), [(0, 0), (3, 0), (7, 0), (10, 0)]);
    }
}
