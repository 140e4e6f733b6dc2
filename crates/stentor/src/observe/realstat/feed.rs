//! The thread that reads snapshots and the details that the user opens. Reconnects if the connection is lost.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use stentor_control::format::plural;
use stentor_control::problem::ErrorCode;
use stentor_control::protocol::snapshot_of;
use stentor_control::{Client, ControlError, ControlReply, Mailqq, MailqqOptions, Observe, Request, render};
use stentor_control::{Snapshot, WatchOptions};
use stentor_logfiles::zone;

/// Pause between two attempts to connect.
const AGAIN: Duration = Duration::from_secs(1);
/// Pause between two requests for the waiting messages.
const MESSAGES_PAUSE: Duration = Duration::from_secs(5);
/// Poll interval for the user's requests; short, since the user is waiting.
const LOOK: Duration = Duration::from_millis(50);

/// News from the reader.
pub enum News {
    /// The server accepted these options; later snapshots follow them.
    Watching(WatchOptions),
    Snapshot(Box<Snapshot>),
    /// The requested list or site does not exist, in the server's words; snapshots continue as before.
    Refused(String),
    Messages(Box<Mailqq>),
    /// The text of the opened item.
    Opened(String),
    /// The amount that the numbered question would affect, or why it is unknown.
    Counted(u64, Result<String, String>),
    /// The result of an action.
    Acted(Result<String, String>),
    /// The server does not answer, with the reason.
    Lost(String),
    /// All requested snapshots have come, or continuing is pointless: the reason, if it is an error.
    End(Option<String>),
}

/// A request of the user.
pub enum UserRequest {
    /// Watch with these options from now on.
    Watch(WatchOptions),
    /// Show the reply as text.
    Open(Request),
    /// List messages in this order with this filter.
    Messages(MailqqOptions),
    /// Count what the numbered question would affect: a dry run.
    Count(u64, Request),
    /// Carry out the action.
    Act(Request),
}

/// Reads until the stream ends; `false` means that nothing more will come.
fn watch_once(
    socket: &Path,
    options: &WatchOptions,
    mut see: impl FnMut(Box<Snapshot>) -> bool,
) -> Result<bool, ControlError> {
    let mut client = Client::connect(socket)?;
    client.wait_for(Duration::from_millis(options.interval_ms))?;
    let mut goes_on = true;
    let mut is_ending = false;
    let reply = client.ask_lines(&Request::Observe(Observe::Watch(options.clone())), &mut |line| {
        if let Some(snapshot) = snapshot_of(line) {
            is_ending = snapshot.stopping;
            goes_on = see(snapshot);
        }
        // A client can end a stream only by failing.
        if goes_on { Ok(()) } else { Err(std::io::ErrorKind::Interrupted.into()) }
    });
    match reply {
        Err(_) if !goes_on => Ok(false),
        // The count is reached, or the server is stopping.
        Ok(ControlReply::Done { count, .. }) => {
            Ok(options.count == 0 || count.unwrap_or(0) < options.count || is_ending)
        }
        Ok(_) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Whether the site or list does not exist (now).
fn is_unknown(error: &ControlError) -> bool {
    matches!(error, ControlError::Refused(problem) if problem.code == ErrorCode::NotFound)
}

/// Whether the user must see the error before, or instead of, a retry.
fn is_final(error: &ControlError) -> bool {
    match error {
        ControlError::Refused(problem) => !matches!(problem.code, ErrorCode::Busy | ErrorCode::NotFound),
        ControlError::Protocol(_) | ControlError::Connect { .. } | ControlError::Io(_) | ControlError::Output(_) => {
            false
        }
    }
}

/// Reads snapshots in this thread, reconnecting as needed, until `see` returns false or the requested number has come.
///
/// # Errors
/// The server never answered, or refuses.
pub fn follow(
    socket: &Path,
    mut options: WatchOptions,
    mut see: impl FnMut(Box<Snapshot>) -> bool,
    mut lost: impl FnMut(&str),
) -> Result<(), ControlError> {
    let (count, mut seen, mut was_there) = (options.count, 0, false);
    loop {
        options.count = if count == 0 { 0 } else { count - seen };
        let result = watch_once(socket, &options, |snapshot| {
            (seen, was_there) = (seen + 1, true);
            see(snapshot) && (count == 0 || seen < count)
        });
        match result {
            Ok(false) => return Ok(()),
            Ok(true) if count > 0 && seen >= count => return Ok(()),
            Ok(true) => lost("the server is stopping"),
            Err(error) if !was_there || is_final(&error) => return Err(error),
            Err(error) => lost(&error.to_string()),
        }
        thread::sleep(AGAIN);
    }
}

/// The threads behind the view on a terminal.
pub struct Feed {
    pub news: Receiver<News>,
    wishes: Sender<UserRequest>,
    watching: Sender<WatchOptions>,
    /// Counts changes of the watch options; streams of earlier generations end.
    generation: Arc<AtomicU64>,
    is_over: Arc<AtomicBool>,
}

impl Feed {
    pub fn start(socket: PathBuf, options: WatchOptions) -> Feed {
        let (tell, news) = channel();
        let (wishes, wished) = channel();
        let (watching, watched) = channel();
        let (generation, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (own, over, to, path) = (generation.clone(), is_over.clone(), tell.clone(), socket.clone());
        // The threads end with the process, or when nobody receives their news.
        thread::spawn(move || watch_all(&path, options, &watched, &own, &over, &to));
        let over = is_over.clone();
        thread::spawn(move || answer_all(&socket, &wished, &over, &tell));
        Feed { news, wishes, watching, generation, is_over }
    }

    pub fn wish(&self, wish: UserRequest) {
        // A thread that ended has reported why.
        match wish {
            UserRequest::Watch(options) => {
                self.generation.fetch_add(1, Ordering::Relaxed);
                let _ = self.watching.send(options);
            }
            other => drop(self.wishes.send(other)),
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.generation.fetch_add(1, Ordering::Relaxed);
    }
}

fn watch_all(
    socket: &Path,
    mut options: WatchOptions,
    watched: &Receiver<WatchOptions>,
    generation: &AtomicU64,
    is_over: &AtomicBool,
    tell: &Sender<News>,
) {
    // The options that the server accepted last.
    let mut taken: Option<WatchOptions> = None;
    while !is_over.load(Ordering::Relaxed) {
        let began = generation.load(Ordering::Relaxed);
        options = watched.try_iter().last().unwrap_or(options);
        let result = watch_once(socket, &options, |snapshot| {
            if taken.as_ref() != Some(&options) {
                taken = Some(options.clone());
                if tell.send(News::Watching(options.clone())).is_err() {
                    return false;
                }
            }
            tell.send(News::Snapshot(snapshot)).is_ok() && generation.load(Ordering::Relaxed) == began
        });
        let why = match result {
            _ if generation.load(Ordering::Relaxed) != began => continue,
            Err(error) if is_unknown(&error) && taken.as_ref() != Some(&options) => {
                let Some(before) = taken.clone() else { return drop(tell.send(News::End(Some(error.to_string())))) };
                options = before;
                if tell.send(News::Refused(error.to_string())).is_err() {
                    return;
                }
                continue;
            }
            Ok(false) => None,
            Ok(true) => Some("the server is stopping".to_owned()),
            Err(error) if is_final(&error) => return drop(tell.send(News::End(Some(error.to_string())))),
            Err(error) => Some(error.to_string()),
        };
        let Some(why) = why else { return drop(tell.send(News::End(None))) };
        if tell.send(News::Lost(why)).is_err() {
            return;
        }
        thread::sleep(AGAIN);
    }
}

/// Answers requests at once, and fetches the waiting messages periodically.
fn answer_all(socket: &Path, wished: &Receiver<UserRequest>, is_over: &AtomicBool, tell: &Sender<News>) {
    let (mut messages, mut until_look) = (MailqqOptions::default(), Duration::ZERO);
    while !is_over.load(Ordering::Relaxed) {
        match wished.recv_timeout(LOOK) {
            Ok(UserRequest::Open(request)) => {
                let text = match Client::connect(socket).and_then(|mut client| client.ask(&request)) {
                    Ok(reply) => render::reply(&reply, &zone::local()),
                    Err(error) => error.to_string(),
                };
                if tell.send(News::Opened(text)).is_err() {
                    return;
                }
            }
            Ok(UserRequest::Count(question, request)) => {
                if tell.send(News::Counted(question, act(socket, &request))).is_err() {
                    return;
                }
            }
            Ok(UserRequest::Act(request)) => {
                until_look = Duration::ZERO;
                if tell.send(News::Acted(act(socket, &request))).is_err() {
                    return;
                }
            }
            Ok(UserRequest::Messages(options)) => (messages, until_look) = (options, Duration::ZERO),
            Ok(UserRequest::Watch(_)) | Err(_) => {}
        }
        if until_look.is_zero() {
            until_look = MESSAGES_PAUSE;
            let request = Request::Observe(Observe::Mailqq(messages.clone()));
            // The other thread reports a lost server.
            if let Ok(ControlReply::Mailqq(mailqq)) =
                Client::connect(socket).and_then(|mut client| client.ask(&request))
                && tell.send(News::Messages(mailqq)).is_err()
            {
                return;
            }
        }
        until_look = until_look.saturating_sub(LOOK);
    }
}

/// The reply to an action or its dry run, in one line.
fn act(socket: &Path, request: &Request) -> Result<String, String> {
    let answer = Client::connect(socket).and_then(|mut client| {
        client.be_patient()?;
        client.ask(request)
    });
    match answer {
        Ok(ControlReply::Counted(counted)) if counted.dry_run == Some(true) => {
            let (recipients, messages) = (counted.count.unwrap_or(0), counted.messages.unwrap_or(0));
            let recipients = recipients + counted.in_flight.unwrap_or(0);
            Ok(format!("{} of {}", plural(recipients, "recipient"), plural(messages, "message")))
        }
        Ok(ControlReply::Counted(counted)) => Ok(counted.text),
        Ok(ControlReply::Done { text, .. }) => Ok(text),
        Ok(reply) => Ok(render::reply(&reply, &zone::local())),
        Err(error) => Err(error.to_string()),
    }
}
