//! `stentor explain --message`: what the content of a message leads to, by the decisions of the server ([`check_content`], [`class`]).
//!
//! Promise: the file is read once, in pieces; of it, the beginning with the header is held. Subscribers are read from their files as they
//! are now, where membership decides. Not known here: how much its sender has sent lately.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use stentor_control::format::plural;
use stentor_engine::clock::Clock;
use stentor_engine::core::Settings;
use stentor_engine::core::people::Readers;
use stentor_engine::smtp_in::{Members, Named, check_content, check_post, class, header, redirected};
use stentor_lists::subscribers::{Seen, read};
use stentor_mail::Class;
use stentor_mail::address::{Address, ReversePath};
use stentor_mail::reply::Reply;
use stentor_mail::server::{EndOfData, TextBody};
use stentor_policy::Verdict;
use stentor_rules::{Decision, FoundInContent, Hits, Outcome, Scan, Step, Why};

use super::{Decided, Options};

/// What is held of a message: the server's own piece.
const PIECE_BYTES: usize = 256 * 1024;

/// What the content of a message leads to.
pub(super) struct Judged {
    steps: Vec<Step>,
    refusal: Option<Reply>,
    class: Option<String>,
    /// What rules that waited for the content do, in words, and what they drop it for.
    content: Vec<String>,
    discard: Option<(Box<str>, usize)>,
}

/// Of a recipient that is taken. The error is that of the file.
pub(super) async fn judge(
    settings: &Settings,
    options: &Options,
    decided: &Decided,
    file: &Path,
) -> Result<Judged, std::io::Error> {
    let mut judged = Judged { steps: Vec::new(), refusal: None, class: None, content: Vec::new(), discard: None };
    let open = &decided.decision.marks.open;
    let mut scan = (!open.is_empty()).then(|| Scan::new(settings.rules.content.clone(), 0, true));
    let size_max = settings.config.message_size_bytes_max;
    let (mut first, mut body) = (None, TextBody::new(Vec::new(), size_max, PIECE_BYTES));
    let (mut input, mut buffer) = (File::open(file)?, vec![0; 64 * 1024]);
    let ended = loop {
        let octets = input.read(&mut buffer)?;
        if octets == 0 {
            break body.finish();
        }
        if let Some(scan) = &mut scan {
            scan.push(&buffer[..octets]);
        }
        if let Err(reply) = body.push(&buffer[..octets]) {
            break Err(reply);
        }
        if let Some(piece) = body.full_piece() {
            first.get_or_insert(piece);
        }
    };
    if matches!(decided.decision.outcome, Outcome::Refuse(_) | Outcome::Local(Verdict::Refuse(_))) {
        let answer = "not looked at: the recipient is refused before it".to_owned();
        judged.steps.push(Step { asked: "message".to_owned(), place: String::new(), answer });
        return Ok(judged);
    }
    let place = settings.config.place("", "message_size_bytes_max");
    let (asked, place, answer) = match &ended {
        Err(reply) if reply.code != 552 => ("the content".to_owned(), String::new(), format!("refused with {reply}")),
        Err(reply) => (format!("message_size_bytes_max {size_max}"), place, format!("refused with {reply}")),
        Ok(end) => (format!("message_size_bytes_max {size_max}"), place, plural(end.size, "octet")),
    };
    judged.steps.push(Step { asked, place, answer });
    let end = ended.map_err(|reply| judged.refusal = Some(reply)).ok();
    if let Some(EndOfData { last, facts, .. }) = end {
        let (aliases, lists) = named(decided);
        let sender = decided.from.parse().map_or(ReversePath::Null, ReversePath::Address);
        let named = Named { sender: &sender, aliases, lists: &lists };
        judged.refusal = check_content(settings, &named, &facts, &Files(settings), Some(&mut judged.steps)).err();
        let mut by_rule = decided.decision.marks.class;
        if judged.refusal.is_none()
            && let Some(scan) = scan
        {
            by_rule = judged.by_content(settings, open, &scan.finish()).marks.class.or(by_rule);
        }
        let is_trusted = options.login || settings.policy.is_trusted(options.client);
        if judged.refusal.is_none() && is_trusted && !settings.rules.addresses.rewriting.is_empty() {
            judged.refusal = header(settings, first.unwrap_or(last), Some(&mut judged.steps)).await.err();
        }
        if let (None, Some((to, at))) = (&judged.refusal, &decided.decision.marks.redirect) {
            let found = redirected(settings, (to, Clock::start().now()), &facts).await.and_then(|found| {
                let takes = |list| check_post(settings, list, (&sender, &facts), &Files(settings));
                found.lists.iter().try_for_each(takes).map(|()| found)
            });
            let answer = match &found {
                Ok(found) => goes_to(found),
                Err(reply) => format!("refused with {reply}"),
            };
            let asked = format!("redirect to {to}, {}", settings.rules.shown(&Why::Rule(*at)));
            judged.steps.push(Step { asked, place: String::new(), answer });
            judged.refusal = found.err();
        }
        let class = class(settings, by_rule, options.client, &facts);
        judged.class = Some(match class {
            _ if !lists.is_empty() => "class bulk: a post".to_owned(),
            Some((Class::Bulk, why)) => format!("class bulk: {}", cause(why)),
            Some((Class::Ordinary, why)) => format!("class ordinary: {}", cause(why)),
            None => "class ordinary, unless its sender has sent much lately".to_owned(),
        });
    }
    Ok(judged)
}

impl Judged {
    /// Asks the rules that waited for the content.
    fn by_content(&mut self, settings: &Settings, open: &[u16], hits: &Hits) -> FoundInContent {
        let before = self.steps.len();
        let mut said = settings.rules.by_content(open, hits, &mut Some(&mut self.steps));
        self.refusal = said.refusal.take().map(|(reply, _)| reply);
        self.discard = said.discard.take();
        let yes = self.steps[before..].iter().filter(|step| step.answer.starts_with("yes: "));
        self.content = yes.map(|step| format!("by its content, {}: {}", step.asked, &step.answer[5..])).collect();
        said
    }
}

/// Behind the colon of what the log says.
fn cause(why: &'static str) -> &'static str {
    why.rsplit_once(": ").map_or(why, |(_, cause)| cause)
}

/// The aliases and lists that a decision has of its recipient.
fn named(decided: &Decided) -> (Vec<&Address>, Vec<Arc<str>>) {
    match &decided.decision.outcome {
        Outcome::Local(Verdict::List(name)) => (Vec::new(), vec![name.clone()]),
        Outcome::Local(Verdict::Alias(expansion)) => (vec![&decided.to], expansion.lists.clone()),
        _ => (Vec::new(), Vec::new()),
    }
}

/// What the message changes about a decision.
pub(super) fn add(decided: &mut Decided, judged: &Judged) {
    decided.steps.extend(judged.steps.iter().cloned());
    let Some(reply) = &judged.refusal else {
        decided.also.retain(|also| !also.starts_with("class "));
        decided.also.extend(judged.class.clone());
        decided.also.extend(judged.content.iter().cloned());
        if let Some((text, by)) = &judged.discard {
            decided.decision.outcome = Outcome::Discard(text.clone());
            decided.decision.why = Why::Rule(*by);
        }
        return;
    };
    let why = judged.steps.last().map(|step| {
        if step.place.is_empty() { step.asked.clone() } else { format!("{} ({})", step.asked, step.place) }
    });
    let (outcome, why) = (Outcome::Refuse(reply.clone()), Why::Address(why.unwrap_or_default().into()));
    decided.decision = Decision { outcome, why, route: None, marks: std::mem::take(&mut decided.decision.marks) };
    decided.also.clear();
}

/// The subscribers files as they are now.
struct Files<'s>(&'s Settings);

/// Where a redirect leads, in words.
fn goes_to(found: &Readers) -> String {
    let people = plural(found.people.len() as u64, "recipient");
    let lists = found.lists.iter().map(|list| format!("a post to list {list}"));
    let null = found.has_null.then(|| "taken and dropped: it stands for /dev/null".to_owned());
    let people = (!found.people.is_empty()).then(|| format!("goes to {people}"));
    people.into_iter().chain(lists).chain(null).collect::<Vec<_>>().join("; ")
}

impl Files<'_> {
    fn open(&self, list: &str) -> Option<File> {
        let path = self.0.subscribers(list).filter(|path| path.is_file())?;
        File::open(path).ok()
    }
}

impl Members for Files<'_> {
    fn is_read(&self, list: &Arc<str>) -> bool {
        self.open(list).is_some()
    }

    fn is_member(&self, list: &Arc<str>, address: &str) -> bool {
        let Some(mut file) = self.open(list) else { return false };
        let (wanted, mut is_there) = (address.to_lowercase(), false);
        let read = read(&mut file, &mut |subscriber| {
            is_there |= subscriber.address.to_lowercase() == wanted;
            Seen::First
        });
        read.is_ok() && is_there
    }
}
