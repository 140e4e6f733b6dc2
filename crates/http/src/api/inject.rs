//! `POST /api/v1/messages`: mail submitted over HTTP.
//!
//! Promise: the same policy, intake, memory and push-back as over SMTP, with the answer sent after the commit: 201
//! means that the message is durable, and carries the queue ids. An SMTP 4xx becomes 503 with Retry-After, a 5xx
//! becomes 422 (413 for size); the SMTP reply is in the body. A login counts as a client network: it may relay.
//!
//! `message/rfc822` is streamed, a piece at a time in memory, with sender and recipients in the query; JSON is held as
//! a whole, within the memory for bodies. A submission is completed even if its client has gone.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use axum::Json;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, post};
use base64ct::{Base64, Encoding as _};
use bytes::Bytes;
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stentor_control::{ErrorCode, Requester};
use stentor_copies::{CopyRequest, RequestItems};
use stentor_core::intake::AssignedId;
use stentor_core::limits::Limit;
use stentor_core::memory::{PIECE_BYTES, Reservation};
use stentor_core::observer::TraceParent;
use stentor_core::{Core, Settings};
use stentor_mail::address::{Address, ReversePath};
use stentor_mail::reply::{Enhanced, Reply};
use stentor_policy::AddressClass;
use stentor_push::telemetry::trace_parent;
use stentor_sessions::{ClientName, ClientProof, Origin, Speaker, Stranger, Transaction};
use stentor_smtp::server::{self, MailFrom, RcptTo, TextBody};

use super::RETRY_AFTER_S;
use super::answers::{ErrorBody, InjectedMessage, InjectionResult, RefusedRcptView};
use super::idempotency::{KEY_BYTES_MAX, KeyState};
use super::merge;
use crate::auth::Caller;
use crate::{Http, problem};

/// Maximum octets of a JSON request; larger mail is sent as `message/rfc822`.
const JSON_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// Memory for parsing JSON, as a multiple of the text.
const JSON_COPIES: u64 = 3;
/// Body parts buffered between the client and the transaction.
const PARTS_MAX: usize = 2;
/// The header that makes a request safe to repeat.
const IDEMPOTENCY_KEY: &str = "idempotency-key";
/// The header of W3C Trace Context.
const TRACEPARENT: &str = "traceparent";

/// A submission.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Order {
    /// The envelope sender; empty for the null path.
    #[serde(default)]
    sender: String,
    /// Addresses of recipients; in a query repeat `recipient`.
    #[serde(default)]
    recipients: Vec<String>,
    /// A list's name, instead of its address among the recipients.
    list: Option<String>,
    /// The message (RFC 5322) as text.
    message: Option<String>,
    /// The message in base64, instead of `message`.
    message_base64: Option<String>,
    /// Merge values by recipient and name; those of the empty address are for all.
    #[serde(default)]
    values: BTreeMap<String, BTreeMap<String, String>>,
    /// `transactional`: a person asked for this mail, such as a password reset; it bypasses suppressions for a list or
    /// a sender, but not those for all mail.
    class: Option<MessageClass>,
    /// What each copy has of its own, in place of what is configured; in a query the text of an `X-Stentor-Copies`
    /// field.
    copies: Option<CopiesOrder>,
    /// Send even if some recipients are refused.
    #[serde(default)]
    partial: bool,
    /// The stored form of `values`.
    #[serde(skip)]
    merge: Vec<u8>,
    /// The checked form of `copies`.
    #[serde(skip)]
    copy_request: Option<CopyRequest>,
    /// The trace parent from the header.
    #[serde(skip)]
    parent: Option<TraceParent>,
}

/// What a submission asks for its copies. Absent fields stay as configured for the list or sender.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CopiesOrder {
    /// The return path: `off`, `plain`, `tagged` or a template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    verp: Option<String>,
    /// Whether copies have a one-click unsubscribe link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    one_click: Option<bool>,
    /// Header fields, `Name: value` each, with values of the copy in braces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fields: Option<Vec<String>>,
}

impl CopiesOrder {
    fn checked(self) -> Result<CopyRequest, Failure> {
        let CopiesOrder { verp, one_click, fields } = self;
        let items = RequestItems { verp, one_click, fields, ..RequestItems::default() };
        CopyRequest::new(items).map_err(|why| Failure::Bad(format!("copies: {why}")))
    }
}

/// How suppressions apply to a submission.
#[derive(Deserialize, Clone, Copy, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum MessageClass {
    Transactional,
}

/// Why nothing was accepted.
enum Failure {
    Bad(String),
    TooLarge(String),
    /// The refusal as an SMTP reply; for recipients, each with its reply.
    Refused(Reply, Vec<RefusedRcpt>),
}

/// A refused recipient, with the reply.
struct RefusedRcpt {
    address: String,
    reply: Reply,
}

impl From<Reply> for Failure {
    fn from(reply: Reply) -> Failure {
        Failure::Refused(reply, Vec::new())
    }
}

/// A body on its way from the connection. Only an empty part marks its end, since a handler dropped midway closes the
/// channel too.
struct Parts(tokio::sync::mpsc::Receiver<Result<Bytes, String>>);

impl Parts {
    async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        match self.0.recv().await {
            Some(Ok(part)) if part.is_empty() => Ok(None),
            Some(Ok(part)) => Ok(Some(part)),
            Some(Err(why)) => Err(Failure::Bad(why)),
            None => Err(Failure::Bad("request body incomplete".to_owned())),
        }
    }
}

pub(super) fn route() -> MethodRouter<Http> {
    // The limit is applied below, by the type of body.
    post(inject).layer(DefaultBodyLimit::disable())
}

async fn inject(
    State(http): State<Http>,
    caller: Caller,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let peer = match caller.may_change(None) {
        Ok(peer) => peer,
        Err(refused) => return refused,
    };
    let Requester::Http { who, .. } = &peer else { return StatusCode::FORBIDDEN.into_response() };
    let key = match headers.get(IDEMPOTENCY_KEY).map(|value| value.to_str().unwrap_or("")) {
        None => None,
        Some(key) if !key.is_empty() && key.len() <= KEY_BYTES_MAX => Some(format!("{who} {key}")),
        Some(_) => {
            let text = format!("Idempotency-Key needs 1 to {KEY_BYTES_MAX} visible characters");
            return problem(StatusCode::BAD_REQUEST, ErrorCode::BadRequest, &text);
        }
    };
    if let Some(key) = &key {
        match http.answers.begin(key, http.core.clock.now(), &http.core.limits) {
            KeyState::New => {}
            KeyState::UnderWay => {
                return problem(StatusCode::CONFLICT, ErrorCode::Busy, "another request with this key is in progress");
            }
            KeyState::Answered(status, body) => return (status, Json(body)).into_response(),
        }
    }
    // Runs to the end even if the client disconnects: the transaction counts as being received, the key as taken.
    let (parts, stream) = tokio::sync::mpsc::channel(PARTS_MAX);
    let work = tokio::spawn(async move {
        let taken = Box::pin(take(&http, &peer, query, &headers, Parts(stream))).await;
        let (status, body) = shown(taken);
        if status == StatusCode::PAYLOAD_TOO_LARGE {
            http.core.limits.hit(Limit::HttpBody, http.core.clock.now());
        }
        if let Some(key) = &key {
            http.answers.end(key, status, &body);
        }
        (status, body)
    });
    let mut octets = body.into_data_stream();
    while let Some(part) = octets.next().await {
        let is_empty = part.as_ref().is_ok_and(Bytes::is_empty);
        if !is_empty && parts.send(part.map_err(|error| error.to_string())).await.is_err() {
            break;
        }
    }
    // Nobody receives it if the answer is already known.
    let _ = parts.send(Ok(Bytes::new())).await;
    let Ok((status, body)) = work.await else {
        return problem(StatusCode::SERVICE_UNAVAILABLE, ErrorCode::Failed, "the server is stopping");
    };
    let mut response = (status, Json(body)).into_response();
    if status == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER_S.into());
    }
    response
}

async fn take(
    http: &Http,
    peer: &Requester,
    query: Option<String>,
    headers: &HeaderMap,
    mut parts: Parts,
) -> Result<InjectionResult, Failure> {
    let settings = http.core.settings();
    let size_max = settings.config.message_size_bytes_max;
    let length = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let parent = headers.get(TRACEPARENT).and_then(|value| trace_parent(value.to_str().ok()?));
    match kind.as_str() {
        "message/rfc822" => {
            if length.is_some_and(|length| length > size_max) {
                return Err(Failure::TooLarge(format!("the message exceeds {size_max} octets")));
            }
            let mut order = from_query(query.as_deref().unwrap_or_default())?;
            order.parent = parent;
            Box::pin(run(http, &settings, peer, order, length, None, &mut parts)).await
        }
        "application/json" => {
            let Some(length) = length.filter(|length| *length <= JSON_BYTES_MAX) else {
                return Err(Failure::TooLarge(format!(
                    "JSON needs a Content-Length of at most {JSON_BYTES_MAX}; send larger messages as message/rfc822"
                )));
            };
            let crowded =
                Reply::fixed(452, Enhanced::new(4, 3, 1), "Too many messages are being received, try again later");
            let reserved = http.core.memory.reserve_whole(JSON_COPIES * length).await.ok_or(crowded)?;
            let mut text = Vec::with_capacity(length as usize);
            while let Some(part) = parts.next().await? {
                text.extend_from_slice(&part);
            }
            let mut order: Order = serde_json::from_slice(&text).map_err(|error| Failure::Bad(error.to_string()))?;
            let request_bytes = text.len();
            drop(text);
            order.copy_request = order.copies.take().map(CopiesOrder::checked).transpose()?;
            order.parent = parent;
            let message = match (order.message.take(), order.message_base64.take()) {
                (Some(text), None) => text.into_bytes(),
                (None, Some(text)) => {
                    Base64::decode_vec(&text).map_err(|error| Failure::Bad(format!("message_base64: {error}")))?
                }
                _ => return Err(Failure::Bad("give either message or message_base64".to_owned())),
            };
            let length = message.len() as u64;
            if length > size_max {
                return Err(Failure::TooLarge(format!("the message exceeds {size_max} octets")));
            }
            if !order.values.is_empty() {
                order.merge = merge_table(&mut order, &settings, message.clone(), request_bytes).await?;
            }
            let (one, parts) = tokio::sync::mpsc::channel(2);
            // There is room for both; an empty message has no first part.
            for part in [Bytes::from(message), Bytes::new()] {
                let _ = one.try_send(Ok(part));
            }
            Box::pin(run(http, &settings, peer, order, Some(length), Some(reserved), &mut Parts(parts))).await
        }
        _ => Err(Failure::Bad("Content-Type must be message/rfc822 or application/json".to_owned())),
    }
}

/// Returns the stored form of an order's merge values.
async fn merge_table(
    order: &mut Order,
    settings: &Settings,
    message: Vec<u8>,
    request_bytes: usize,
) -> Result<Vec<u8>, Failure> {
    if request_bytes > merge::REQUEST_BYTES_MAX {
        let max = merge::REQUEST_BYTES_MAX;
        return Err(Failure::TooLarge(format!("a request with `values` may have at most {max} octets: split it")));
    }
    let recipients = recipients_of(order, settings)?;
    let loopback = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    let is_local = |to: &&Address| !matches!(settings.policy.rcpt(loopback, to), AddressClass::Relay);
    if let Some(local) = recipients.iter().find(is_local) {
        return Err(Failure::Bad(format!(
            "{local} is a list or an alias: `values` are for the addresses that get mail"
        )));
    }
    let values = std::mem::take(&mut order.values);
    let made = tokio::task::spawn_blocking(move || merge::table(values, &recipients, &message)).await;
    made.map_err(|_| Failure::Bad("the server is stopping".to_owned()))?.map_err(Failure::Bad)
}

/// Parses `sender=A&recipient=B&recipient=C&list=NAME&partial=true`.
fn from_query(query: &str) -> Result<Order, Failure> {
    let mut order = Order::default();
    let pairs: Vec<(String, String)> = axum::extract::Query::try_from_uri(
        &format!("/?{query}").parse().map_err(|_| Failure::Bad("the query string is malformed".to_owned()))?,
    )
    .map_err(|error| Failure::Bad(error.body_text()))?
    .0;
    for (name, value) in pairs {
        match name.as_str() {
            "sender" => order.sender = value,
            "recipient" => order.recipients.push(value),
            "list" => order.list = Some(value),
            "partial" => order.partial = value == "true",
            "copies" if order.copy_request.is_some() => return Err(Failure::Bad("`copies` is given twice".to_owned())),
            "copies" => {
                let request = CopyRequest::parse(value.as_bytes());
                order.copy_request = Some(request.map_err(|why| Failure::Bad(format!("copies: {why}")))?);
            }
            "class" if value == "transactional" => order.class = Some(MessageClass::Transactional),
            "class" => return Err(Failure::Bad(format!("{value:?} is not a class; use transactional"))),
            _ => {
                return Err(Failure::Bad(format!(
                    "unknown parameter `{name}`; use sender, recipient, list, class, copies or partial"
                )));
            }
        }
    }
    Ok(order)
}

fn bad(text: &str, why: &dyn std::fmt::Display) -> Failure {
    Failure::Bad(format!("{text:?}: {why}"))
}

/// The recipients of an order: a list, addresses, or both.
fn recipients_of(order: &Order, settings: &Settings) -> Result<Vec<Address>, Failure> {
    let mut recipients: Vec<Address> = Vec::with_capacity(order.recipients.len() + 1);
    if let Some(name) = &order.list {
        let list = settings.list(name).ok_or_else(|| Failure::Bad(format!("there is no list {name:?}")))?;
        recipients.push(list.settings().address.clone());
    }
    for text in &order.recipients {
        recipients.push(text.parse().map_err(|error| bad(text, &error))?);
    }
    if recipients.is_empty() {
        return Err(Failure::Bad("no recipient: give recipients or list".to_owned()));
    }
    Ok(recipients)
}

fn mail_from(sender: &str, recipients: &[Address], length: Option<u64>) -> Result<MailFrom, Failure> {
    let path = match sender {
        "" => ReversePath::Null,
        text => ReversePath::Address(text.parse().map_err(|error| bad(text, &error))?),
    };
    Ok(MailFrom {
        smtputf8: !path.is_ascii() || recipients.iter().any(|to| !to.is_ascii()),
        path,
        size: length,
        body: server::Body::EightBitMime,
        ret: None,
        envid: None,
        requiretls: false,
        verp: None,
    })
}

/// Runs a transaction as an SMTP session would. `length`: octets of the message, if known; `reserved`: memory already
/// reserved for it.
async fn run(
    http: &Http,
    settings: &Arc<Settings>,
    peer: &Requester,
    order: Order,
    length: Option<u64>,
    reserved: Option<Reservation>,
    parts: &mut Parts,
) -> Result<InjectionResult, Failure> {
    let core = &http.core;
    let Requester::Http { who, address: client } = peer else {
        return Err(Failure::Bad("not an HTTP request".to_owned()));
    };
    if core.with(|hub, _| hub.is_stopping()) {
        return Err(Reply::fixed(421, Enhanced::new(4, 3, 2), "Service is closing").into());
    }
    let recipients = recipients_of(&order, settings)?;
    let mail = mail_from(&order.sender, &recipients, length)?;
    let mut transaction = Transaction::begin(core, mail, *client, true, None)?;
    let assigned = transaction.of_injector();
    transaction.merge(order.merge);
    transaction.set_transactional(order.class == Some(MessageClass::Transactional));
    if let Some(request) = order.copy_request {
        transaction.set_copies(request);
    }
    transaction.traced_by(core, order.parent);
    let helo = who.trim_start_matches("token=");
    if let Err(reply) = transaction.filtered_locally(core, settings, helo).await {
        return Err(reply.into());
    }
    let count = recipients.len();
    let refused = add_recipients(core, settings, &mut transaction, recipients, *client).await;
    if !refused.is_empty() && (!order.partial || refused.len() == count) {
        let is_late = refused.iter().any(|rcpt| rcpt.reply.code < 500);
        let (code, class) = if is_late { (450, 4) } else { (550, 5) };
        return Err(Failure::Refused(
            Reply::fixed(code, Enhanced::new(class, 1, 0), "Recipients were refused"),
            refused,
        ));
    }
    match reserved {
        Some(reserved) => transaction.reserved(reserved),
        None => transaction.reserve(core).await?,
    }
    let origin = Origin { helo, protocol: "HTTP", client: *client };
    let prefix = transaction.start_data_by(core, settings, origin);
    let size_max = settings.config.message_size_bytes_max;
    let mut body = TextBody::new(prefix, size_max, PIECE_BYTES as usize);
    loop {
        let pushed = match parts.next().await {
            Ok(None) => break,
            Ok(Some(part)) => {
                push(core, settings, &mut transaction, &mut body, &part, size_max).await.map_err(Failure::from)
            }
            Err(failure) => Err(failure),
        };
        pushed?;
    }
    let reply = match body.finish() {
        Ok(end) => transaction.end(core, settings, None, end).await,
        Err(reply) => reply,
    };
    if reply.code != 250 {
        return Err(reply.into());
    }
    let messages = assigned.get().into_iter().flatten().map(message).collect();
    Ok(InjectionResult { text: reply.text.to_string(), messages, refused: refused.iter().map(refusal).collect() })
}

/// Adds recipients to the transaction; returns those that were refused.
async fn add_recipients(
    core: &Arc<Core>,
    settings: &Arc<Settings>,
    transaction: &mut Transaction,
    recipients: Vec<Address>,
    client: IpAddr,
) -> Vec<RefusedRcpt> {
    let speaker = Speaker {
        client,
        name: ClientName::Unknown,
        helo: "",
        may_relay: true,
        proof: ClientProof::None,
        session: None,
        stranger: Stranger::UNKNOWN,
    };
    let mut refused = Vec::new();
    for address in recipients {
        let text = address.as_str().to_owned();
        let reply = transaction.rcpt(core, settings, speaker, RcptTo { address, notify: None, orcpt: None }).await;
        if reply.code != 250 {
            refused.push(RefusedRcpt { address: text, reply });
        }
    }
    refused
}

/// Adds octets; full pieces go to the transaction.
async fn push(
    core: &Arc<Core>,
    settings: &Settings,
    transaction: &mut Transaction,
    body: &mut TextBody,
    octets: &[u8],
    size_max: u64,
) -> Result<(), Reply> {
    for part in octets.chunks(PIECE_BYTES as usize / 4) {
        body.push(part)?;
        if let Some(piece) = body.full_piece() {
            transaction.piece(core, settings, piece, size_max).await;
        }
    }
    Ok(())
}

fn message(assigned: &AssignedId) -> InjectedMessage {
    InjectedMessage { id: assigned.id.to_string(), recipients: assigned.recipients }
}

fn refusal(refused: &RefusedRcpt) -> RefusedRcptView {
    RefusedRcptView { address: refused.address.clone(), reply: text_of(&refused.reply) }
}

fn text_of(reply: &Reply) -> String {
    match reply.enhanced {
        Some(dsn) => format!("{} {dsn} {}", reply.code, reply.text),
        None => format!("{} {}", reply.code, reply.text),
    }
}

fn shown(taken: Result<InjectionResult, Failure>) -> (StatusCode, Value) {
    // Plain structs with string keys: serialising them cannot fail.
    fn json(body: &impl serde::Serialize) -> Value {
        serde_json::to_value(body).unwrap_or_default()
    }
    let error = |code, text: &str, refused: &[RefusedRcpt]| {
        json(&ErrorBody::new(code, text, refused.iter().map(refusal).collect()))
    };
    match taken {
        Ok(body) => (StatusCode::CREATED, json(&body)),
        Err(Failure::Bad(text)) => (StatusCode::BAD_REQUEST, error(ErrorCode::BadRequest, &text, &[])),
        Err(Failure::TooLarge(text)) => (StatusCode::PAYLOAD_TOO_LARGE, error(ErrorCode::TooLarge, &text, &[])),
        Err(Failure::Refused(reply, refused)) => {
            let (status, code) = match reply.code {
                ..500 => (StatusCode::SERVICE_UNAVAILABLE, ErrorCode::Busy),
                552 => (StatusCode::PAYLOAD_TOO_LARGE, ErrorCode::TooLarge),
                _ => (StatusCode::UNPROCESSABLE_ENTITY, ErrorCode::Failed),
            };
            (status, error(code, &text_of(&reply), &refused))
        }
    }
}
