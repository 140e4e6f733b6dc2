//! The lines of a reply: one, or, with many rows, a head and lines of rows.

use base64ct::{Base64, Encoding as _};
use serde::{Deserialize, Serialize};
use stentor_records::now::TrafficLine;

use super::address_view::AddressView;
use super::ages::Ages;
use super::dkim_view::{DkimRecordView, DkimRecords};
use super::doctor::Doctor;
use super::list_view::{ListOverview, ListTable, MemberTable, MemberView, PersonView};
use super::observe::{HostRow, Hosts, Mailqq, MailqqRow, PostReports};
use super::post_view::{PostRcptView, PostView};
use super::problem::Problem;
use super::quarantine_view::{QuarantineList, QuarantinedMessage, QuarantinedView};
use super::recipient_view::RecipientView;
use super::reply::{ControlReply, EnvelopeView, MessageView, QueueSummary, SiteRow, Status, StuckReport, StuckRow};
use super::selection::{ActionResult, AsOf};
use super::site_view::SiteView;
use super::suppression_view::{SuppressionList, SuppressionView};
use super::users_view::{UserRow, UsersView};
use super::verify_view::VerifyView;
use crate::VERSION;
use crate::posts::PostReport;
use crate::snapshot::Snapshot;

/// Maximum rows of one line of a reply.
pub const ROWS_PER_LINE_MAX: usize = 200;

/// One line of a reply.
#[derive(Serialize, Deserialize)]
struct Line {
    v: u64,
    ok: bool,
    more: bool,
    #[serde(flatten)]
    body: Body,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "reply", content = "data", rename_all = "snake_case")]
enum Body {
    Status(Box<Status>),
    Queue(QueueSummary),
    Sites(Vec<SiteRow>),
    Stuck(Box<StuckReport>),
    StuckRecipients(Vec<StuckRow>),
    Message(Box<MessageView>),
    Recipients(Vec<RecipientView>),
    Address(Box<AddressView>),
    Verified(Box<VerifyView>),
    Ages(Box<Ages>),
    Site(Box<SiteView>),
    Envelope(Box<EnvelopeView>),
    Snapshot(Box<Snapshot>),
    Mailqq(Box<Mailqq>),
    MailqqRows(Vec<MailqqRow>),
    Hosts(Box<Hosts>),
    HostRows(Vec<HostRow>),
    Posts(Box<PostReports>),
    Post(Box<PostView>),
    PostRecipients(Vec<PostRcptView>),
    Doctor(Box<Doctor>),
    Users(Box<UsersView>),
    UserRows(Vec<UserRow>),
    Quarantine(Box<QuarantineList>),
    QuarantineRows(Vec<QuarantinedView>),
    Quarantined(Box<QuarantinedMessage>),
    Suppressions(Box<SuppressionList>),
    SuppressionRows(Vec<SuppressionView>),
    DkimRecords(Box<DkimRecords>),
    DkimRecordRows(Vec<DkimRecordView>),
    PostRows(Vec<PostReport>),
    Lists(Box<ListTable>),
    ListRows(Vec<ListOverview>),
    Members(Box<MemberTable>),
    MemberRows(Vec<MemberView>),
    Person(Box<PersonView>),
    /// Lines of sessions; sometimes none.
    Traffic(Vec<TrafficLine>),
    /// Octets in base64.
    Content(String),
    Done(Box<ActionBody>),
    Error(Problem),
}

/// A verb on mail, with its counts.
#[derive(Default, Serialize, Deserialize)]
struct ActionBody {
    text: String,
    count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    messages: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    in_flight: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unchanged: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kept: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dry_run: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    as_of: Option<AsOf>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    remarks: Vec<String>,
}

impl From<ActionResult> for ActionBody {
    fn from(counted: ActionResult) -> ActionBody {
        let ActionResult { text, count, messages, in_flight, unchanged, kept, dry_run, as_of } = counted;
        ActionBody { text, count, messages, in_flight, unchanged, kept, dry_run, as_of, remarks: Vec::new() }
    }
}

/// The lines of a reply, each with its end.
pub fn to_lines(reply: ControlReply) -> Vec<String> {
    let bodies = bodies_of(reply);
    let last = bodies.len() - 1;
    let line = |(i, body)| {
        let line = Line { v: VERSION, ok: !matches!(body, Body::Error(_)), more: i < last, body };
        // Plain structs with string keys: serialising them cannot fail.
        serde_json::to_string(&line).unwrap_or_default() + "\n"
    };
    bodies.into_iter().enumerate().map(line).collect()
}

/// Groups rows into lines.
fn lines_of<T: Clone>(rows: &[T], line: fn(Vec<T>) -> Body) -> Vec<Body> {
    rows.chunks(ROWS_PER_LINE_MAX).map(|rows| line(rows.to_vec())).collect()
}

/// Splits a reply into its head and, if it has many rows, groups of them.
fn bodies_of(reply: ControlReply) -> Vec<Body> {
    let mut bodies = Vec::new();
    match reply {
        ControlReply::Status(status) => bodies.push(Body::Status(status)),
        ControlReply::Queue(mut queue) => {
            let rows = std::mem::take(&mut queue.sites);
            bodies.push(Body::Queue(queue));
            bodies.extend(rows.chunks(ROWS_PER_LINE_MAX).map(|rows| Body::Sites(rows.to_vec())));
        }
        ControlReply::Stuck(mut stuck) => {
            let (recipients, sites) = (std::mem::take(&mut stuck.recipients), std::mem::take(&mut stuck.sites));
            bodies.push(Body::Stuck(stuck));
            bodies.extend(recipients.chunks(ROWS_PER_LINE_MAX).map(|rows| Body::StuckRecipients(rows.to_vec())));
            bodies.extend(sites.chunks(ROWS_PER_LINE_MAX).map(|rows| Body::Sites(rows.to_vec())));
        }
        ControlReply::Message(mut message) => {
            let rows = std::mem::take(&mut message.recipients);
            bodies.push(Body::Message(message));
            bodies.extend(rows.chunks(ROWS_PER_LINE_MAX).map(|rows| Body::Recipients(rows.to_vec())));
        }
        ControlReply::Address(address) => bodies.push(Body::Address(address)),
        ControlReply::Verified(verified) => bodies.push(Body::Verified(verified)),
        ControlReply::Ages(ages) => bodies.push(Body::Ages(ages)),
        ControlReply::Mailqq(mut mailqq) => {
            let rows = lines_of(&std::mem::take(&mut mailqq.rows), Body::MailqqRows);
            bodies.extend(std::iter::once(Body::Mailqq(mailqq)).chain(rows));
        }
        ControlReply::Hosts(mut hosts) => {
            let rows = lines_of(&std::mem::take(&mut hosts.rows), Body::HostRows);
            bodies.extend(std::iter::once(Body::Hosts(hosts)).chain(rows));
        }
        ControlReply::Posts(mut posts) => {
            let rows = lines_of(&std::mem::take(&mut posts.rows), Body::PostRows);
            bodies.extend(std::iter::once(Body::Posts(posts)).chain(rows));
        }
        ControlReply::Post(mut post) => {
            let rows = lines_of(&std::mem::take(&mut post.recipients), Body::PostRecipients);
            bodies.extend(std::iter::once(Body::Post(post)).chain(rows));
        }
        ControlReply::Site(site) => bodies.push(Body::Site(site)),
        ControlReply::Doctor(doctor) => bodies.push(Body::Doctor(doctor)),
        ControlReply::Users(mut users) => {
            let rows = std::mem::take(&mut users.rows);
            bodies.push(Body::Users(users));
            bodies.extend(rows.chunks(ROWS_PER_LINE_MAX).map(|rows| Body::UserRows(rows.to_vec())));
        }
        ControlReply::Quarantine(mut list) => {
            let rows = lines_of(&std::mem::take(&mut list.rows), Body::QuarantineRows);
            bodies.extend(std::iter::once(Body::Quarantine(list)).chain(rows));
        }
        ControlReply::Suppressions(mut list) => {
            let rows = lines_of(&std::mem::take(&mut list.rows), Body::SuppressionRows);
            bodies.extend(std::iter::once(Body::Suppressions(list)).chain(rows));
        }
        ControlReply::DkimRecords(records) => bodies = dkim_bodies(records),
        ControlReply::Lists(table) => bodies = list_bodies(table),
        ControlReply::Members(table) => bodies = member_bodies(table),
        ControlReply::Person(person) => bodies.push(Body::Person(person)),
        ControlReply::Quarantined(message) => bodies.push(Body::Quarantined(message)),
        ControlReply::Done { text, count, remarks } => {
            bodies.push(Body::Done(Box::new(ActionBody { text, count, remarks, ..ActionBody::default() })));
        }
        ControlReply::Counted(counted) => {
            bodies.push(Body::Done(Box::new(ActionBody::from(*counted))));
        }
        ControlReply::Error(problem) => bodies.push(Body::Error(problem)),
    }
    bodies
}

fn list_bodies(mut table: Box<ListTable>) -> Vec<Body> {
    let rows = lines_of(&std::mem::take(&mut table.rows), Body::ListRows);
    std::iter::once(Body::Lists(table)).chain(rows).collect()
}

fn member_bodies(mut table: Box<MemberTable>) -> Vec<Body> {
    let rows = lines_of(&std::mem::take(&mut table.rows), Body::MemberRows);
    std::iter::once(Body::Members(table)).chain(rows).collect()
}

fn dkim_bodies(mut records: Box<DkimRecords>) -> Vec<Body> {
    let rows = std::mem::take(&mut records.rows);
    let rows = rows.chunks(ROWS_PER_LINE_MAX).map(|rows| Body::DkimRecordRows(rows.to_vec()));
    std::iter::once(Body::DkimRecords(records)).chain(rows).collect()
}

/// One line of an export, with its end.
pub fn envelope_line(envelope: EnvelopeView) -> String {
    let line = Line { v: VERSION, ok: true, more: true, body: Body::Envelope(Box::new(envelope)) };
    // A plain struct with string keys: serialising it cannot fail.
    serde_json::to_string(&line).unwrap_or_default() + "\n"
}

/// One snapshot line for a watcher, with its end.
pub fn snapshot_line(snapshot: Snapshot) -> String {
    let line = Line { v: VERSION, ok: true, more: true, body: Body::Snapshot(Box::new(snapshot)) };
    // A plain struct with string keys: serialising it cannot fail.
    serde_json::to_string(&line).unwrap_or_default() + "\n"
}

/// Parses the snapshot in a line of a watch.
pub fn snapshot_of(line: &str) -> Option<Box<Snapshot>> {
    let line: Line = serde_json::from_str(line).ok()?;
    if let Body::Snapshot(snapshot) = line.body { Some(snapshot) } else { None }
}

/// Extracts the envelope in a line of an export, as JSON.
pub fn envelope_of(line: &str) -> Option<String> {
    let line: Line = serde_json::from_str(line).ok()?;
    let Body::Envelope(envelope) = line.body else { return None };
    serde_json::to_string(&envelope).ok()
}

/// One line with lines of sessions, with its end.
pub fn traffic_line(lines: Vec<TrafficLine>) -> String {
    let line = Line { v: VERSION, ok: true, more: true, body: Body::Traffic(lines) };
    // A plain struct with string keys: serialising it cannot fail.
    serde_json::to_string(&line).unwrap_or_default() + "\n"
}

/// Parses the lines of sessions in a line of `traffic`.
pub fn traffic_of(line: &str) -> Option<Vec<TrafficLine>> {
    let line: Line = serde_json::from_str(line).ok()?;
    if let Body::Traffic(lines) = line.body { Some(lines) } else { None }
}

/// One line with a piece of a message's content, with its end.
pub fn content_line(piece: &[u8]) -> String {
    let line = Line { v: VERSION, ok: true, more: true, body: Body::Content(Base64::encode_string(piece)) };
    // A plain struct with string keys: serialising it cannot fail.
    serde_json::to_string(&line).unwrap_or_default() + "\n"
}

/// Decodes the piece in a line of `cat`.
pub fn content_of(line: &str) -> Option<Vec<u8>> {
    let line: Line = serde_json::from_str(line).ok()?;
    if let Body::Content(piece) = line.body { Base64::decode_vec(&piece).ok() } else { None }
}

/// Joins the lines of one reply.
#[derive(Default)]
pub struct Assembler(Option<ControlReply>);

impl Assembler {
    /// Adds a line; returns the reply after the last one.
    ///
    /// # Errors
    /// The line is not valid in this protocol, or does not fit the previous ones.
    pub fn push(&mut self, line: &str) -> Result<Option<ControlReply>, String> {
        let line: Line = serde_json::from_str(line).map_err(|e| format!("unreadable reply: {e}"))?;
        if line.v != VERSION {
            return Err(format!("the server speaks protocol version {}, not {VERSION}", line.v));
        }
        let reply = match (self.0.take(), line.body) {
            (_, Body::Error(problem)) => Some(ControlReply::Error(problem)),
            // These are shown as they come and not kept.
            (None, Body::Envelope(_) | Body::Snapshot(_) | Body::Content(_) | Body::Traffic(_)) if line.more => {
                return Ok(None);
            }
            (None, head) => reply_of(head),
            (Some(reply), rows) => with_rows(reply, rows),
        };
        let reply = reply.ok_or("the lines of the reply do not match")?;
        if line.more {
            self.0 = Some(reply);
            return Ok(None);
        }
        Ok(Some(reply))
    }
}

/// The reply that a first line begins, still without rows.
fn reply_of(head: Body) -> Option<ControlReply> {
    Some(match head {
        Body::Status(status) => ControlReply::Status(status),
        Body::Queue(queue) => ControlReply::Queue(queue),
        Body::Stuck(stuck) => ControlReply::Stuck(stuck),
        Body::Message(message) => ControlReply::Message(message),
        Body::Address(address) => ControlReply::Address(address),
        Body::Verified(verified) => ControlReply::Verified(verified),
        Body::Ages(ages) => ControlReply::Ages(ages),
        Body::Site(site) => ControlReply::Site(site),
        Body::Doctor(doctor) => ControlReply::Doctor(doctor),
        Body::Users(users) => ControlReply::Users(users),
        Body::DkimRecords(records) => ControlReply::DkimRecords(records),
        Body::Lists(table) => ControlReply::Lists(table),
        Body::Members(table) => ControlReply::Members(table),
        Body::Person(person) => ControlReply::Person(person),
        Body::Quarantined(message) => ControlReply::Quarantined(message),
        Body::Quarantine(list) => ControlReply::Quarantine(list),
        Body::Suppressions(list) => ControlReply::Suppressions(list),
        Body::Mailqq(mailqq) => ControlReply::Mailqq(mailqq),
        Body::Hosts(hosts) => ControlReply::Hosts(hosts),
        Body::Posts(posts) => ControlReply::Posts(posts),
        Body::Post(post) => ControlReply::Post(post),
        Body::Done(done) if done.messages.is_some() => {
            let ActionBody { text, count, messages, in_flight, unchanged, kept, dry_run, as_of, .. } = *done;
            ControlReply::Counted(Box::new(ActionResult {
                text,
                count,
                messages,
                in_flight,
                unchanged,
                kept,
                dry_run,
                as_of,
            }))
        }
        Body::Done(done) => ControlReply::Done { text: done.text, count: done.count, remarks: done.remarks },
        _ => return None,
    })
}

/// Adds the rows of a later line, if they belong to the reply.
fn with_rows(mut reply: ControlReply, rows: Body) -> Option<ControlReply> {
    match (&mut reply, rows) {
        (ControlReply::Users(users), Body::UserRows(rows)) => users.rows.extend(rows),
        (ControlReply::Quarantine(list), Body::QuarantineRows(rows)) => list.rows.extend(rows),
        (ControlReply::Suppressions(list), Body::SuppressionRows(rows)) => list.rows.extend(rows),
        (ControlReply::DkimRecords(records), Body::DkimRecordRows(rows)) => records.rows.extend(rows),
        (ControlReply::Lists(table), Body::ListRows(rows)) => table.rows.extend(rows),
        (ControlReply::Members(table), Body::MemberRows(rows)) => table.rows.extend(rows),
        (ControlReply::Mailqq(mailqq), Body::MailqqRows(rows)) => mailqq.rows.extend(rows),
        (ControlReply::Hosts(hosts), Body::HostRows(rows)) => hosts.rows.extend(rows),
        (ControlReply::Posts(posts), Body::PostRows(rows)) => posts.rows.extend(rows),
        (ControlReply::Post(post), Body::PostRecipients(rows)) => post.recipients.extend(rows),
        (ControlReply::Queue(queue), Body::Sites(rows)) => queue.sites.extend(rows),
        (ControlReply::Stuck(stuck), Body::StuckRecipients(rows)) => stuck.recipients.extend(rows),
        (ControlReply::Stuck(stuck), Body::Sites(rows)) => stuck.sites.extend(rows),
        (ControlReply::Message(message), Body::Recipients(rows)) => message.recipients.extend(rows),
        _ => return None,
    }
    Some(reply)
}
