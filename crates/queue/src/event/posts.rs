//! Records of posts that are kept.

use super::{Accept, EventError, accept, kind, put_part, take_part};
use crate::codec::{Reader, VARINT_BYTES_MAX, put_varint, put_zigzag};
use crate::ids::{MessageId, Ms};
use crate::idset::IdSet;

/// What is known of a post beside its envelope.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PostFacts {
    /// The post may be dropped from then on, unless one of its messages is queued.
    pub until: Ms,
    /// Recipients at acceptance.
    pub total: u64,
    /// Recipients that a suppression removed.
    pub removed: u64,
    /// Recipients that got a digest instead.
    pub coalesced: u64,
    /// Of those that missed it: expired.
    pub expired: IdSet,
    /// Of those that missed it: removed by an operator.
    pub dropped: IdSet,
    /// Messages that sent it again, oldest first.
    pub resends: Vec<MessageId>,
}

impl PostFacts {
    pub(crate) fn bytes_max(&self) -> usize {
        let ids = self.expired.encoded_bytes_max() + self.dropped.encoded_bytes_max();
        ids + VARINT_BYTES_MAX * (6 + self.resends.len())
    }
}

/// A kept post in a checkpoint: `accept.recipients` are those that missed it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PostSlice {
    pub accept: Accept,
    pub facts: PostFacts,
}

/// Appends a `Post` record.
pub fn encode_post(buf: &mut Vec<u8>, message: MessageId, until: Ms) {
    buf.push(kind::POST);
    put_varint(buf, message.0);
    put_varint(buf, until);
}

/// Appends a `Resend` record.
pub fn encode_resend(buf: &mut Vec<u8>, of: MessageId, message: MessageId, until: Ms) {
    buf.push(kind::RESEND);
    put_varint(buf, of.0);
    put_varint(buf, message.0);
    put_varint(buf, until);
}

/// Appends a `PostEnd` record.
pub fn encode_post_end(buf: &mut Vec<u8>, message: MessageId) {
    buf.push(kind::POST_END);
    put_varint(buf, message.0);
}

/// Bound for a `Post`, `Resend` or `PostEnd` record.
pub const fn post_bytes_max() -> usize {
    1 + 3 * VARINT_BYTES_MAX
}

pub(crate) fn begin_posts(buf: &mut Vec<u8>) {
    buf.push(kind::POSTS);
}

/// Appends the part of a `Posts` record that follows a message.
pub(crate) fn encode_post_facts(buf: &mut Vec<u8>, facts: &PostFacts) {
    put_part(buf, |buf| {
        put_varint(buf, facts.until);
        put_varint(buf, facts.total);
        put_varint(buf, facts.removed);
        put_varint(buf, facts.coalesced);
        facts.expired.encode(buf);
        facts.dropped.encode(buf);
        put_varint(buf, facts.resends.len() as u64);
        let mut last = 0;
        for id in &facts.resends {
            put_zigzag(buf, id.0.wrapping_sub(last).cast_signed());
            last = id.0;
        }
    });
}

fn decode_facts(r: &mut Reader<'_>) -> Result<PostFacts, EventError> {
    let (until, total, removed, coalesced) = (r.varint()?, r.varint()?, r.varint()?, r.varint()?);
    let (expired, dropped) = (IdSet::decode(r)?, IdSet::decode(r)?);
    let (mut resends, mut last) = (Vec::new(), 0u64);
    for _ in 0..r.varint()? {
        last = last.wrapping_add(r.zigzag()?.cast_unsigned());
        resends.push(MessageId(last));
    }
    Ok(PostFacts { until, total, removed, coalesced, expired, dropped, resends })
}

pub(super) fn decode_posts(r: &mut Reader<'_>) -> Result<Vec<PostSlice>, EventError> {
    let mut posts = Vec::new();
    while !r.is_empty() {
        let (accept, _) = accept::decode_body(&mut Reader::new(take_part(r)?))?;
        posts.push(PostSlice { accept, facts: decode_facts(&mut Reader::new(take_part(r)?))? });
    }
    Ok(posts)
}
