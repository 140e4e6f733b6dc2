//! A kept post: how many recipients have it, and which ones wait for it or missed it, and why.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use stentor_queue::ids::{MessageId, Ms};

/// Default and maximum recipients of one answer.
pub const ROWS_DEFAULT: u32 = 50;
pub const ROWS_MAX: u32 = 1_000;

/// The recipients to list.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum PostState {
    Missed,
    Waiting,
}

impl PostState {
    pub const ALL: [PostState; 2] = [PostState::Missed, PostState::Waiting];

    pub fn name(self) -> &'static str {
        match self {
            PostState::Missed => "missed",
            PostState::Waiting => "waiting",
        }
    }
}

/// The post to show, and a page of its recipients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PostOptions {
    /// The queue id of any of its messages.
    pub id: MessageId,
    /// `None`: those that missed it, then those that wait.
    pub state: Option<PostState>,
    /// Maximum number of recipients returned.
    pub rows_max: u32,
    /// Number of recipients before the first one returned.
    pub offset: u64,
}

impl PostOptions {
    pub fn new(id: MessageId) -> PostOptions {
        PostOptions { id, state: None, rows_max: ROWS_DEFAULT, offset: 0 }
    }

    /// Parses the request's fields.
    ///
    /// # Errors
    /// The error in the fields.
    pub(crate) fn of_json(fields: Value) -> Result<PostOptions, String> {
        let PostArguments { id, state, rows_max, offset } =
            serde_json::from_value(fields).map_err(|error| error.to_string())?;
        let id = id.parse().map_err(|error| format!("{error}"))?;
        if !(1..=ROWS_MAX).contains(&rows_max) {
            return Err(format!("rows_max must be from 1 to {ROWS_MAX}"));
        }
        Ok(PostOptions { id, state, rows_max, offset })
    }

    pub(crate) fn to_json(self) -> Map<String, Value> {
        let mut fields = Map::new();
        fields.insert("id".to_owned(), self.id.to_string().into());
        fields.extend(self.state.map(|state| ("state".to_owned(), state.name().into())));
        fields.insert("rows_max".to_owned(), self.rows_max.into());
        fields.insert("offset".to_owned(), self.offset.into());
        fields
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PostArguments {
    /// The queue id of the post or of a resend.
    id: String,
    /// `missed` or `waiting`: only these recipients.
    #[serde(default)]
    state: Option<PostState>,
    /// Maximum number of recipients returned (default 50, at most 1000).
    #[serde(default = "rows_default")]
    rows_max: u32,
    /// Number of recipients before the first one returned.
    #[serde(default)]
    offset: u64,
}

fn rows_default() -> u32 {
    ROWS_DEFAULT
}

/// The reply to `stentor post show`.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct PostView {
    pub id: String,
    pub now: Ms,
    pub accepted: Ms,
    /// The decoded subject; empty if there is none.
    pub subject: String,
    /// Octets as transmitted.
    pub size: u64,
    /// Sums over all lists.
    pub counts: PostCounts,
    /// One row for each list that the message was posted to, lists within lists included.
    pub lists: Vec<PostListView>,
    /// Some recipients that missed the post, or wait for it.
    pub recipients: Vec<PostRcptView>,
    /// The value of `offset` for the next recipients, if there are more.
    pub next: Option<u64>,
}

/// Recipients of a post by what became of it. `total` is the sum of `delivered`, `waiting`, `missed`, `removed` and
/// `coalesced`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct PostCounts {
    /// Recipients at acceptance.
    pub total: u64,
    pub delivered: u64,
    /// Pending in the post or in a resend.
    pub waiting: u64,
    /// Bounced, expired, or removed by an operator: `resend` sends it to these.
    pub missed: u64,
    pub bounced: u64,
    pub expired: u64,
    /// Removed by an operator.
    pub dropped: u64,
    /// Unsubscribed or otherwise suppressed.
    pub removed: u64,
    /// Sent in a digest instead.
    pub coalesced: u64,
}

impl PostCounts {
    pub fn add(&mut self, more: &PostCounts) {
        self.total += more.total;
        self.delivered += more.delivered;
        self.waiting += more.waiting;
        self.missed += more.missed;
        self.bounced += more.bounced;
        self.expired += more.expired;
        self.dropped += more.dropped;
        self.removed += more.removed;
        self.coalesced += more.coalesced;
    }
}

/// A post to one list.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct PostListView {
    /// The queue id.
    pub id: String,
    pub list: String,
    /// How long the post is kept; longer while one of its messages is queued.
    pub kept_until: Ms,
    /// Its recipients by what became of the post.
    pub counts: PostCounts,
    /// Queue ids of the messages that sent it again.
    pub resends: Vec<String>,
}

/// A recipient that missed a post, or waits for it.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default)]
pub struct PostRcptView {
    /// The recipient's address.
    pub address: String,
    pub list: String,
    /// `bounced`, `expired`, `removed`; of a waiting recipient its state: `waiting`, `in_flight`, `deferred`, `held`,
    /// `suspended`, `queue_only`.
    pub state: String,
    /// The last reply or reason, from the history for recipients that missed the post; may be empty.
    pub reply: String,
    /// When it missed the post, if the history has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Ms>,
    /// The next attempt of a waiting recipient.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_try: Option<Ms>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Request;

    #[test]
    fn arguments_are_checked_and_round_trip() {
        let options = PostOptions {
            state: Some(PostState::Waiting),
            rows_max: 7,
            offset: 14,
            ..PostOptions::new("02R9BQ000000".parse().unwrap())
        };
        let request = Request::PostShow(options);
        assert_eq!(Request::parse(request.to_line().as_bytes()).unwrap(), request);
        for wrong in
            ["\"id\":\"x\"", "\"id\":\"02R9BQ000000\",\"rows_max\":0", "\"id\":\"02R9BQ000000\",\"state\":\"x\""]
        {
            let line = format!("{{\"v\":1,\"verb\":\"post_show\",{wrong}}}");
            assert!(Request::parse(line.as_bytes()).is_err(), "{wrong}");
        }
    }
}
