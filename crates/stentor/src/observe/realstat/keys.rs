//! Key bindings.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use stentor_control::format::quoted;
use stentor_control::snapshot::SiteNow;
use stentor_control::{MailqqRow, MailqqSort, Request, Selection, Subject, Verb, WatchOptions};

use super::app::{App, Notice, PendingAction, Prompt, TextView, View, ZOOMS};
use super::feed::UserRequest;

/// Longest text that can be typed.
const TYPED_MAX: usize = 253;
const RECIPIENTS_SHOWN: u32 = 200;
/// The reason in audit records of actions.
const REASON: &str = "realstat";
/// Rows that Page Up and Page Down move.
const PAGE: usize = 10;

/// Handles a key and returns the resulting requests.
pub fn press(app: &mut App, key: KeyEvent) -> Vec<UserRequest> {
    if key.kind == KeyEventKind::Release {
        return Vec::new();
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) && matches!(key.code, KeyCode::Char('c' | 'd')) {
        app.is_over = true;
        return Vec::new();
    }
    app.notice = None;
    if app.confirm.is_some() {
        return confirmed(app, key.code).into_iter().collect();
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

fn typed(app: &mut App, code: KeyCode) -> Vec<UserRequest> {
    let Some((prompt, mut text)) = app.prompt.take() else { return Vec::new() };
    match code {
        KeyCode::Esc => return Vec::new(),
        KeyCode::Enter => return vec![app.narrow(prompt, &text)],
        KeyCode::Backspace => drop(text.pop()),
        KeyCode::Char(c) if text.len() < TYPED_MAX && !c.is_control() => text.push(c),
        _ => {}
    }
    app.prompt = Some((prompt, text));
    Vec::new()
}

/// Handles a key in an opened text.
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

fn command(app: &mut App, code: KeyCode) -> Vec<UserRequest> {
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
            let everything = WatchOptions { list: None, site: None, ..app.options.clone() };
            return vec![UserRequest::Watch(everything)];
        }
        KeyCode::Char('H') => return ask(app, Action::Hold).into_iter().collect(),
        KeyCode::Char('F') => return ask(app, Action::Flush).into_iter().collect(),
        KeyCode::Char('S') => return ask(app, Action::Suspend).into_iter().collect(),
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

#[derive(Clone, Copy, PartialEq, Eq)]
enum Action {
    Hold,
    Flush,
    Suspend,
}

/// Handles the answer to a confirmation: only `y` means yes.
fn confirmed(app: &mut App, code: KeyCode) -> Option<UserRequest> {
    let confirm = app.confirm.take()?;
    // The affected amount must have been shown.
    let is_known = matches!(confirm.count, Some(Ok(_)));
    if code == KeyCode::Char('y') && is_known {
        return Some(UserRequest::Act(confirm.act));
    }
    app.notice = Some(Notice { text: format!("{}: cancelled", confirm.title), is_error: false });
    None
}

/// Starts an action on the selected site or message: asks for confirmation.
fn ask(app: &mut App, action: Action) -> Option<UserRequest> {
    let (title, selection, act) = match app.view {
        View::Rates | View::Sites => match on_site(app.sites().get(app.selected)?, action) {
            Ok(asked) => asked,
            Err(why) => {
                app.notice = Some(Notice { text: why, is_error: true });
                return None;
            }
        },
        View::Messages => on_message(app.mailqq.as_ref()?.rows.get(app.selected)?, action)?,
    };
    // A suspension affects the same mail as a `requeue`; its own dry run gives words without a count of messages.
    let verb = if let Request::Act { verb, .. } = &act { *verb } else { Verb::Requeue };
    app.questions += 1;
    app.confirm = Some(PendingAction { question: app.questions, title, act, count: None });
    Some(UserRequest::Count(app.questions, Request::Act { verb, selection, dry_run: true, reason: None }))
}

/// The title, selection and request for an action on a site.
///
/// # Errors
/// There is nothing to suspend.
fn on_site(row: &SiteNow, action: Action) -> Result<(String, Selection, Request), String> {
    let site = row.site.clone();
    if action == Action::Suspend && row.lane == "unknown" {
        let keep = format!("stentor queue-only --domain {}", quoted(&site));
        return Err(format!("no site to suspend: DNS has none; keep the mail with {keep}"));
    }
    let selection = Selection { site: Some(site.clone()), ..Selection::default() };
    let is_suspended = row.lane == "suspended";
    let title = match action {
        Action::Hold => format!("Hold the messages with recipients at {site}"),
        Action::Flush => format!("Try the mail at {site} now"),
        Action::Suspend if is_suspended => format!("Resume {site}"),
        Action::Suspend => format!("Suspend {site}"),
    };
    let act = match action {
        Action::Hold => Request::Act {
            verb: Verb::Hold,
            selection: selection.clone(),
            dry_run: false,
            reason: Some(REASON.to_owned()),
        },
        Action::Flush => Request::Flush { site: Some(site), dry_run: false },
        Action::Suspend => Request::Suspend {
            suspended: !is_suspended,
            what: Subject::Site(site),
            reason: Some(REASON.to_owned()),
            for_s: None,
            dry_run: false,
        },
    };
    Ok((title, selection, act))
}

/// The title, selection and request for an action on a message; `None` if the message belongs to no list to suspend.
fn on_message(row: &MailqqRow, action: Action) -> Option<(String, Selection, Request)> {
    let selection = Selection { ids: vec![row.id.parse().ok()?], ..Selection::default() };
    let verb =
        |verb| Request::Act { verb, selection: selection.clone(), dry_run: false, reason: Some(REASON.to_owned()) };
    Some(match action {
        Action::Hold if row.held => (format!("Release message {}", row.id), selection.clone(), verb(Verb::Release)),
        Action::Hold => (format!("Hold message {}", row.id), selection.clone(), verb(Verb::Hold)),
        Action::Flush => (format!("Try message {} now", row.id), selection.clone(), verb(Verb::Requeue)),
        Action::Suspend => {
            let list = row.list.clone()?;
            let selection = Selection { list: Some(list.clone()), ..Selection::default() };
            let title = format!("Suspend list {list}");
            (
                title,
                selection,
                Request::Suspend {
                    suspended: true,
                    what: Subject::List(list),
                    reason: Some(REASON.to_owned()),
                    for_s: None,
                    dry_run: false,
                },
            )
        }
    })
}

/// Moves by this many views.
fn turn(app: &mut App, steps: usize) -> Vec<UserRequest> {
    const VIEWS: [View; 3] = [View::Rates, View::Sites, View::Messages];
    let at = VIEWS.iter().position(|view| *view == app.view).unwrap_or(0);
    (app.view, app.selected) = (VIEWS[(at + steps) % VIEWS.len()], 0);
    if app.view == View::Messages { vec![app.messages()] } else { Vec::new() }
}

fn sort(app: &mut App) -> Vec<UserRequest> {
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

/// Opens the selected site or message.
fn open(app: &mut App) -> Option<UserRequest> {
    let (title, request) = match app.view {
        View::Rates | View::Sites => {
            let name = app.sites().get(app.selected)?.site.clone();
            (format!("site {name}"), Request::Site { name, list: None })
        }
        View::Messages => {
            let id = app.mailqq.as_ref()?.rows.get(app.selected)?.id.clone();
            let show = Request::QueueShow { id: id.parse().ok()?, recipients_max: RECIPIENTS_SHOWN };
            (format!("message {id}"), show)
        }
    };
    app.opened = Some(TextView { title, text: "...".to_owned(), scroll: 0 });
    Some(UserRequest::Open(request))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::realstat::feed::News;
    use stentor_control::{Mailqq, Snapshot};

    fn keys(app: &mut App, text: &str) -> Vec<UserRequest> {
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
        assert!(matches!(&keys(&mut app, "\n")[..], [UserRequest::Open(Request::Site { name, .. })] if name == "one"));
        keys(&mut app, "q");
        let wishes = keys(&mut app, "2jj\n");
        assert!(matches!(&wishes[..], [UserRequest::Open(Request::Site { name, .. })] if name == "two"));
        app.news(News::Opened("a\nb\nc".to_owned()));
        keys(&mut app, "jjjjj");
        assert_eq!(app.opened.as_ref().map(|opened| opened.scroll), Some(2));
        keys(&mut app, "q");
        assert!(app.opened.is_none() && !app.is_over, "q closes what is open first");
        assert!(matches!(
            &keys(&mut app, "3\n")[..],
            [UserRequest::Messages(_), UserRequest::Open(Request::QueueShow { .. })]
        ));
        keys(&mut app, "\u{1b}q");
        assert!(app.is_over);
    }

    #[test]
    fn a_filter_is_typed_and_taken_back() {
        let mut app = app();
        let wishes = keys(&mut app, "lnewsq\n");
        let [UserRequest::Watch(asked)] = &wishes[..] else { panic!("one wish") };
        assert_eq!(asked.list.as_deref(), Some("newsq"));
        assert_eq!((app.options.list.as_deref(), app.points.len()), (None, 1), "until the server takes it");
        app.news(News::Refused("no list newsq; near: news".to_owned()));
        assert!(app.notice.as_ref().is_some_and(|notice| notice.is_error) && app.snapshot.is_some());
        app.news(News::Watching(asked.clone()));
        assert_eq!((app.options.list.as_deref(), app.points.len()), (Some("newsq"), 0), "other rates");
        assert!(keys(&mut app, "/mx\u{1b}").is_empty(), "taken back while typing");
        assert!(app.notice.is_none(), "a key has taken it away");
        assert!(
            matches!(&keys(&mut app, "\u{1b}")[..], [UserRequest::Watch(o)] if o.list.is_none() && o.site.is_none())
        );
    }

    #[test]
    fn actions_are_confirmed_with_their_count() {
        let mut app = app();
        let wishes = keys(&mut app, "2jS");
        let [UserRequest::Count(1, Request::Act { dry_run: true, selection, .. })] = &wishes[..] else {
            panic!("a dry run")
        };
        assert_eq!(selection.site.as_deref(), Some("two"));
        assert!(keys(&mut app, "y").is_empty() && app.confirm.is_none(), "not before the count is there");
        keys(&mut app, "S");
        app.news(News::Counted(1, Ok("3 recipients of 1 message".to_owned())));
        assert!(app.confirm.as_ref().is_some_and(|confirm| confirm.count.is_none()), "the count of another question");
        app.news(News::Counted(2, Ok("671 recipients of 12 messages".to_owned())));
        assert!(keys(&mut app, "n").is_empty() && app.notice.is_some(), "anything but y is no");
        keys(&mut app, "S");
        app.news(News::Counted(3, Ok("671 recipients of 12 messages".to_owned())));
        let wishes = keys(&mut app, "y");
        let is_suspend = |request: &Request| matches!(request, Request::Suspend { suspended: true, what: Subject::Site(site), .. } if site == "two");
        assert!(matches!(&wishes[..], [UserRequest::Act(request)] if is_suspend(request)));
        app.news(News::Acted(Ok("site two is suspended".to_owned())));
        assert!(app.notice.as_ref().is_some_and(|notice| notice.text.contains("suspended")));
        assert_eq!(keys(&mut app, "3H").len(), 2, "messages, and the count of one");
        app.news(News::Counted(4, Err("gone".to_owned())));
        assert!(keys(&mut app, "y").is_empty(), "what cannot be counted is not done");
        assert!(keys(&mut app, "S").is_empty(), "it is of no list");
    }

    #[test]
    fn what_does_not_come_is_stale() {
        let mut app = app();
        assert!(!app.tick(2_000) && app.stale_s().is_none());
        assert!(app.tick(9_500), "the picture changes");
        assert_eq!(app.stale_s(), Some(9));
        assert!(!app.tick(9_900) && app.tick(10_100));
        app.news(News::Snapshot(Box::default()));
        assert_eq!(app.stale_s(), None);
        app.news(News::Lost("gone".to_owned()));
        assert_eq!(app.stale_s(), Some(0), "at once, if it is known");
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
        let delivered = |app: &App, width| app.columns(width).iter().map(|c| c.delivered).collect::<Vec<_>>();
        assert_eq!(delivered(&app, 3), [8, 9, 10]);
        keys(&mut app, "z");
        // 0..4, 5..9, 10.
        assert_eq!(delivered(&app, 4), [0, 3, 7, 10]);
    }
}
