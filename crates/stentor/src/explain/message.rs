//! `stentor explain --message`: what the server would decide about a message's content ([`check_content`], [`class`]).
//!
//! Promise: the file is read once, in pieces; only the beginning with the header is kept in memory. Subscriber files
//! are read in their present state if membership decides. The sender's recent volume is not known here.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use stentor_addresses::HeaderStream;
use stentor_control::format::plural;
use stentor_core::Settings;
use stentor_core::clock::Clock;
use stentor_lists::subscribers::{Occurrence, read};
use stentor_mail::address::{Address, ReversePath};
use stentor_mail::copy_request::COPY_REQUEST_FIELD;
use stentor_mail::edited::{HeaderChanges, HeaderEdit};
use stentor_mail::headers::HeaderFacts;
use stentor_mail::reply::Reply;
use stentor_mail::stored_form::StoredForm;
use stentor_policy::AddressClass;
use stentor_rules::{ContentScanner, MessageFacts, Outcome, ServiceAnswers, Step};
use stentor_sessions::{
    ContentEnvelope, Members, RequestInHeader, RequestedMail, check_content, check_post, class, header, redirected,
};
use stentor_smtp::server::{EndOfData, TextBody};

use super::changes::MessageChanges;
use super::words::goes_to;
use super::{Explanation, Options};

/// Octets of the message kept in memory: the server's own piece size.
const PIECE_BYTES: usize = 256 * 1024;

/// A message read from its file.
struct FileMessage {
    ended: Result<EndOfData, Reply>,
    /// The results of the content rules' searches.
    scan: Option<ContentScanner>,
    header: Header,
}

/// Decides about the content for an accepted recipient. The error is that of reading the file.
pub(super) async fn judge(
    settings: &Settings,
    options: &Options,
    explanation: &mut Explanation,
    file: &Path,
) -> Result<(), std::io::Error> {
    let marks = &explanation.decision.marks;
    let is_searched = !marks.open.is_empty();
    let header = Header::of(settings, options, is_searched || marks.transfer_encoding.is_some());
    let FileMessage { ended, scan, header } = read_file(settings, header, is_searched, file).await?;
    if explanation.decision.refusal().is_some() {
        explanation.steps.push(Step::new("message", "", "not evaluated: the recipient is refused first"));
        return Ok(());
    }
    let (size_max, place) =
        (settings.config.message_size_bytes_max, settings.config.place("", "message_size_bytes_max"));
    let (asked, place, answer) = match &ended {
        Err(reply) if reply.code != 552 => ("the content".to_owned(), String::new(), format!("refused with {reply}")),
        Err(reply) => (format!("message_size_bytes_max {size_max}"), place, format!("refused with {reply}")),
        Ok(end) => (format!("message_size_bytes_max {size_max}"), place, plural(end.size, "octet")),
    };
    let mut steps = vec![Step::new(asked, place, answer)];
    let judged = match ended {
        Ok(end) => judge_content(settings, options, explanation, end, scan, header, &mut steps).await,
        Err(reply) => Err(reply),
    };
    explanation.steps.append(&mut steps);
    match judged {
        Ok(class) => explanation.class = class.or(explanation.class.take()),
        Err(reply) => explanation.refuse(reply),
    }
    Ok(())
}

/// Reads the message. `is_searched`: content rules need its text.
async fn read_file(
    settings: &Settings,
    mut header: Header,
    is_searched: bool,
    file: &Path,
) -> Result<FileMessage, std::io::Error> {
    let id = &settings.config.authserv_id;
    let mut scan = is_searched.then(|| ContentScanner::new(settings.rules.content.clone(), 0, true).with_auth(id));
    let mut body = TextBody::new(Vec::new(), settings.config.message_size_bytes_max, PIECE_BYTES);
    let (mut input, mut buffer) = (File::open(file)?, vec![0; 64 * 1024]);
    loop {
        let octets = input.read(&mut buffer)?;
        if octets == 0 {
            return Ok(FileMessage { ended: body.finish(), scan, header });
        }
        if let Some(scan) = &mut scan {
            scan.push(&buffer[..octets]);
        }
        if let Err(reply) = body.push(&buffer[..octets]) {
            return Ok(FileMessage { ended: Err(reply), scan, header });
        }
        if let Some(piece) = body.full_piece() {
            header.take(settings, piece, false).await;
        }
    }
}

/// Evaluates the content, including the rules that wait for it, and returns the class in words. `None`: a rule refuses
/// it, as the decision says. The error is a refusal for another reason.
async fn judge_content(
    settings: &Settings,
    options: &Options,
    explanation: &mut Explanation,
    end: EndOfData,
    scan: Option<ContentScanner>,
    mut header: Header,
    steps: &mut Vec<Step>,
) -> Result<Option<String>, Reply> {
    let EndOfData { last, facts, .. } = end;
    let (aliases, lists) = named(explanation);
    let sender = explanation.from.parse().map_or(ReversePath::Null, ReversePath::Address);
    let named = ContentEnvelope { sender: &sender, aliases, lists: &lists };
    check_content(settings, &named, &facts, &Files(settings), Some(&mut *steps))?;
    if let Some(scan) = scan {
        let results = settings.rules.by_content(
            &explanation.decision.marks.open,
            MessageFacts { hits: &scan.finish(), answers: &ServiceAnswers::default() },
            &mut Some(&mut *steps),
        );
        // Rules with a policy service apply only in a client's session.
        let results = results.unwrap_or_default();
        explanation.by_content.clone_from(&results.route);
        explanation.decision.merge(results);
        if explanation.decision.refusal().is_some() {
            return Ok(None);
        }
    }
    header.take(settings, last, true).await;
    steps.append(&mut header.steps);
    if let Some(reply) = header.refusal {
        return Err(reply);
    }
    let check = CopyRequestCheck { settings, options, sender: &sender, explanation };
    check.judge(&header.edit.take_copy_request(), &facts, steps)?;
    explanation.changes = header.changes.apply(&mut explanation.decision.marks);
    if let Some((to, by)) = &explanation.decision.marks.redirect {
        let found = redirected(settings, to, &facts, Clock::start().now()).await.and_then(|found| {
            let takes = |list| check_post(settings, list, &sender, &facts, &Files(settings));
            found.lists.iter().try_for_each(takes).map(|()| found)
        });
        let answer = match &found {
            Ok(found) => goes_to(found),
            Err(reply) => format!("refused with {reply}"),
        };
        let asked = format!("redirect to {to}, {}", settings.rules.shown(by));
        steps.push(Step::new(asked, "", answer));
        found?;
    }
    Ok(Some(match class(settings, explanation.decision.marks.class, options.client, &facts) {
        _ if !lists.is_empty() => "class bulk: a post".to_owned(),
        Some((class, cause)) => format!("class {}: {}", class.name(), cause.words()),
        None => "class ordinary, unless the sender has sent much mail recently".to_owned(),
    }))
}

/// The message as it is stored: the header's addresses are rewritten by the server for trusted clients.
struct Header {
    stream: Option<HeaderStream>,
    stored_form: StoredForm,
    /// Takes requests for copies out of it.
    edit: HeaderEdit,
    changes: MessageChanges,
    steps: Vec<Step>,
    refusal: Option<Reply>,
}

impl Header {
    fn of(settings: &Settings, options: &Options, may_recode: bool) -> Header {
        let is_rewritten = is_trusted(settings, options) && !settings.rules.addresses.rewriting.is_empty();
        Header {
            stream: is_rewritten.then(HeaderStream::default),
            stored_form: StoredForm::default(),
            edit: HeaderEdit::new(0, HeaderChanges::default()),
            changes: MessageChanges::new(may_recode),
            steps: Vec::new(),
            refusal: None,
        }
    }

    async fn take(&mut self, settings: &Settings, octets: Vec<u8>, is_last: bool) {
        if self.refusal.is_some() {
            return;
        }
        let octets = self.stored_form.push(octets, is_last);
        let stored = match &mut self.stream {
            Some(stream) => header(settings, stream, octets, is_last, Some(&mut self.steps)).await,
            None => Ok(octets),
        };
        match stored {
            Ok(octets) => self.changes.push(&self.edit.push(octets, is_last)),
            Err(reply) => self.refusal = Some(reply),
        }
    }
}

fn is_trusted(settings: &Settings, options: &Options) -> bool {
    options.login || settings.policy.is_trusted(options.client)
}

/// Checks a message's copy request as the server would.
struct CopyRequestCheck<'a> {
    settings: &'a Settings,
    options: &'a Options,
    sender: &'a ReversePath,
    explanation: &'a Explanation,
}

impl CopyRequestCheck<'_> {
    /// Adds a step with the result for these removed fields.
    ///
    /// # Errors
    /// The server's refusal.
    fn judge(&self, fields: &[u8], facts: &HeaderFacts, steps: &mut Vec<Step>) -> Result<(), Reply> {
        let CopyRequestCheck { settings, options, sender, explanation } = *self;
        let answer = match RequestInHeader::read(fields, facts, is_trusted(settings, options))? {
            RequestInHeader::None => return Ok(()),
            RequestInHeader::Untrusted => "ignored: the client is untrusted".to_owned(),
            RequestInHeader::Relayed => "ignored: the message has a Received field".to_owned(),
            RequestInHeader::Request(request) => {
                let (aliases, lists) = named(explanation);
                let is_for_others = !aliases.is_empty() || lists.is_empty();
                let check = |list: Option<&str>| {
                    let is_from_user = options.login;
                    let mail =
                        RequestedMail { sender, list, is_by_token: false, is_from_user, is_transactional: false };
                    mail.check(settings, &request)
                };
                if is_for_others {
                    check(None)?;
                }
                lists.iter().try_for_each(|list| check(Some(list)))?;
                request.to_string()
            }
        };
        steps.push(Step::new(COPY_REQUEST_FIELD, "", answer));
        Ok(())
    }
}

/// The aliases and lists of the decision's recipient.
fn named(explanation: &Explanation) -> (Vec<&Address>, Vec<Arc<str>>) {
    match &explanation.decision.outcome {
        Outcome::Local(AddressClass::List(name)) => (Vec::new(), vec![name.clone()]),
        Outcome::Local(AddressClass::Alias(expansion)) => (vec![&explanation.to], expansion.lists.clone()),
        _ => (Vec::new(), Vec::new()),
    }
}

/// The subscriber files in their present state.
struct Files<'s>(&'s Settings);

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
            Occurrence::First
        });
        read.is_ok() && is_there
    }
}
