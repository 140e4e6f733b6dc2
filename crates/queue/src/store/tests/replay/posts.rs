//! Kept posts of the model owner: resends, their end, and the naive model of each.

use super::*;

/// A kept post, in terms of ids.
#[derive(Debug, PartialEq, Eq, Clone, Default)]
pub(super) struct ModelPost {
    pub(super) content: u64,
    pub(super) total: u64,
    pub(super) delivered: u64,
    pub(super) missed: BTreeMap<u32, Fate>,
    pub(super) removed: u64,
    pub(super) coalesced: u64,
    pub(super) resends: Vec<u64>,
}

impl Owner {
    pub(super) fn resend(&mut self, which: Index, mask: u32) {
        if self.model.posts.is_empty() {
            return;
        }
        let (&id, post) = self.model.posts.iter().nth(which.index(self.model.posts.len())).unwrap();
        let chosen = |i: &u32| mask >> (i % 32) & 1 == 1 && !self.reserved.contains(&(id, *i));
        let ids: IdSet = post.missed.keys().copied().filter(chosen).collect();
        if ids.is_empty() || self.ending.contains(&id) {
            return;
        }
        self.reserved.extend(ids.iter().map(|i| (id, i)));
        let to = self.live.next_message_id(self.now);
        let message = self.live.post(MessageId(id)).unwrap().message();
        let accept = Accept { id: to, accepted: self.now, ..message.as_accepted(ids) };
        self.new.push(ModelChange::Resend(id, Box::new(accept)));
    }

    pub(super) fn end_post(&mut self, which: Index) {
        if self.model.posts.is_empty() {
            return;
        }
        let id = *self.model.posts.keys().nth(which.index(self.model.posts.len())).unwrap();
        let is_resent = self.new.iter().any(|new| matches!(new, ModelChange::Resend(of, _) if *of == id));
        if !is_resent && self.ending.insert(id) {
            self.new.push(ModelChange::EndPost(id));
        }
    }

    /// Counts recipients with a fate in their message's post.
    pub(super) fn count_in_post(&mut self, id: u64, fate: Fate, ids: &[u32], is_suppressed: bool) {
        let of = self.model.posts.iter().find(|(of, post)| **of == id || post.resends.contains(&id));
        let Some(of) = of.map(|(of, _)| *of) else { return };
        let post = self.model.posts.get_mut(&of).unwrap();
        match fate {
            Fate::Delivered => post.delivered += ids.len() as u64,
            Fate::Coalesced => post.coalesced += ids.len() as u64,
            Fate::Removed if is_suppressed => post.removed += ids.len() as u64,
            Fate::Quarantined => post.missed.extend(ids.iter().map(|id| (*id, Fate::Bounced))),
            fate => post.missed.extend(ids.iter().map(|id| (*id, fate))),
        }
    }

    pub(super) fn apply_resend(&mut self, of: u64, accept: Accept) {
        self.note_names(&accept);
        let post = self.model.posts.get_mut(&of).unwrap();
        assert!(accept.recipients.iter().all(|i| post.missed.remove(&i).is_some() && self.reserved.remove(&(of, i))));
        post.resends.push(accept.id.0);
        let (id, pending) = (accept.id, accept.recipients.iter().collect::<BTreeSet<u32>>());
        self.model.totals.messages_accepted += 1;
        self.model.totals.acknowledged += pending.len() as u64;
        self.model.messages.insert(id.0, (accept.content.0, pending, Tally::default(), false));
        add(&mut self.live, accept);
        let resend = Event::Resend { of: MessageId(of), message: id, until: self.now };
        assert_eq!(self.live.apply(resend), EventEffect::Noted);
    }

    pub(super) fn apply_accept(&mut self, accept: Accept) {
        self.note_names(&accept);
        let pending: BTreeSet<u32> = accept.recipients.iter().collect();
        self.model.totals.messages_accepted += 1;
        self.model.totals.acknowledged += pending.len() as u64;
        let (id, total, content) = (accept.id, pending.len() as u64, accept.content.0);
        self.model.messages.insert(id.0, (content, pending, Tally::default(), false));
        let is_kept = is_kept(&accept);
        add(&mut self.live, accept);
        if is_kept {
            self.model.posts.insert(id.0, ModelPost { content, total, ..ModelPost::default() });
            let kept = Event::Post { message: id, until: self.now };
            assert_eq!(self.live.apply(kept), EventEffect::Noted);
        }
    }

    pub(super) fn apply_end(&mut self, id: u64) {
        self.ending.remove(&id);
        let content = self.model.posts.remove(&id).unwrap().content;
        let expected =
            if self.has_content(content) { EventEffect::Noted } else { EventEffect::Freed(ContentId(content)) };
        assert_eq!(self.live.apply(Event::PostEnd { message: MessageId(id) }), expected);
    }
}

/// Every other message is kept as a post.
pub(super) fn is_kept(accept: &Accept) -> bool {
    accept.id.0.is_multiple_of(2)
}

pub(super) fn modelled_post(store: &Store, post: &KeptPost) -> (u64, ModelPost) {
    let facts = post.facts();
    let model = ModelPost {
        content: post.message().content().0,
        total: facts.total,
        delivered: store.delivered_of_post(post),
        missed: post.missed().iter().map(|id| (id, post.fate_of(id))).collect(),
        removed: facts.removed,
        coalesced: facts.coalesced,
        resends: facts.resends.iter().map(|id| id.0).collect(),
    };
    (post.message().id().0, model)
}
