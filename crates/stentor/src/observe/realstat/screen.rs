//! The terminal: taken over at the start and restored at the end, whether a key, a signal or a panic ends it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use stentor_control::WatchOptions;
use stentor_logfiles::zone;

use super::app::{App, HISTORY_S};
use super::feed::{Feed, News};
use super::{keys, view};

/// Longest wait for a key before news is handled.
const KEY_WAIT: Duration = Duration::from_millis(50);
/// Longest time for the view to end after a signal.
const END_WAIT: Duration = Duration::from_secs(1);
/// Exit code of a view that had to be killed.
const ENDED: i32 = 1;
/// Number of sites of each kind.
const SITES: usize = 50;

pub fn run(socket: PathBuf, mut options: WatchOptions) -> Result<(), String> {
    (options.history_s, options.sites_max) = (HISTORY_S, SITES);
    let signalled = signals();
    let mut app = App::new(options.clone());
    (app.is_utf8, app.zone) = (is_utf8(), zone::local());
    let feed = Feed::start(socket, options);
    // This sets a hook that restores the terminal before a panic's message is printed.
    let mut terminal = ratatui::try_init().map_err(|error| format!("cannot use the terminal: {error}"))?;
    let result = show(&mut terminal, &mut app, &feed, &signalled);
    ratatui::restore();
    match (result, app.error) {
        (Err(error), _) => Err(error.to_string()),
        (Ok(()), Some(why)) => Err(why),
        (Ok(()), None) => Ok(()),
    }
}

fn show(terminal: &mut DefaultTerminal, app: &mut App, feed: &Feed, signalled: &AtomicBool) -> io::Result<()> {
    let (mut is_new, began) = (true, Instant::now());
    while !app.is_over && !signalled.load(Ordering::Relaxed) {
        if is_new {
            terminal.draw(|frame| view::draw(frame, app))?;
        }
        is_new = event::poll(KEY_WAIT)?;
        is_new |= app.tick(began.elapsed().as_millis() as u64);
        if event::poll(Duration::ZERO)?
            && let Event::Key(key) = event::read()?
        {
            for wish in keys::press(app, key) {
                feed.wish(wish);
            }
        }
        for news in feed.news.try_iter() {
            let is_other = matches!(news, News::Watching(_));
            app.news(news);
            if is_other {
                feed.wish(app.messages());
            }
            is_new = true;
        }
    }
    Ok(())
}

/// Whether the terminal shows more than ASCII, according to the locale.
fn is_utf8() -> bool {
    let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default();
    let locale = locale.to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

/// A flag that is set by a signal to end the process.
fn signals() -> Arc<AtomicBool> {
    use tokio::signal::unix::{SignalKind, signal};
    let asked = Arc::new(AtomicBool::new(false));
    let set = asked.clone();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        // Without a runtime, a signal ends the process in the default way.
        let Ok(runtime) = runtime else { return };
        runtime.block_on(async {
            let kinds = [SignalKind::terminate(), SignalKind::hangup(), SignalKind::interrupt()];
            let [Ok(mut terminate), Ok(mut hangup), Ok(mut interrupt)] = kinds.map(signal) else { return };
            tokio::select! {
                _ = terminate.recv() => {}
                _ = hangup.recv() => {}
                _ = interrupt.recv() => {}
            }
            set.store(true, Ordering::Relaxed);
        });
        // A closed terminal always reads as at its end, so the wait for a key would loop for ever.
        std::thread::sleep(END_WAIT);
        ratatui::restore();
        std::process::exit(ENDED);
    });
    asked
}
