//! Posts to lists that have addresses of this server among their subscribers: another list (an umbrella list), an
//! alias, a virtual user, the postmaster, a program.
//!
//! Promise: each such subscriber is resolved as if a client had named it, and no recipient gets two copies. Direct
//! subscribers are served first, then the targets of aliases, then the nested lists, each once. The targets of an alias
//! replace the subscriber; their envelope sender is the list's bounce address, unless the alias has an owner. A nested
//! list judges the poster by its own `post`, or accepts the post because it accepts posts from the list above. Its
//! copies have Delivered-To of the lists above it, by which these recognise a post that returns.
//!
//! No copy is lost: all lists are resolved before copies are made, and only a subscriber who gets a copy of his own
//! list's takes precedence over a target. A replaced subscriber gets none from the list that he is on.
//!
//! A person is an address at any next hop and in any letter case. Comparing costs a look-up for each address with
//! capitals, not for each subscriber: two spellings differ only if one has capitals.
//!
//! History records list each resolved subscriber, so `stentor trace` finds the post by it.
//!
//! Loops: a post enters each list once. A list that it has already passed (by the list's List-Id or Delivered-To) is
//! left out. An alias that leads to itself fails as below.
//!
//! Failure: an unknown subscriber, an invalid alias, and a list that refuses the post become bounces to the owner of
//! the list above: the poster does not know of them. A table that cannot be asked, or subscribers that cannot be read,
//! defer the post. So do tables and files of nested lists that together take longer than [`ROUTING_S_MAX`], before the
//! client gives up and sends the post again.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use stentor_core::envelope::{AcceptanceFacts, EnvelopeRcpt, EnvelopeRecipients, NewEnvelope};
use stentor_core::intake::IntakeRefusal;
use stentor_core::people::{MailReader, MailReaders};
use stentor_core::pins::Pin;
use stentor_core::route::Route;
use stentor_core::{Core, Settings};
use stentor_lists::{check_delivered_to, delivered_to_field};
use stentor_mail::address::{Address, ReversePath};
use stentor_mail::headers::HeaderFacts;
use stentor_mail::reply::{Enhanced, Reply};
use stentor_policy::{AddressClass, NAMED_MAX};
use stentor_queue::book::AddressBook;
use stentor_queue::ids::AddressId;
use stentor_queue::idset::IdSet;
use stentor_queue::store::Store;
use stentor_rules::NextHop;
use tokio::time::{Instant, timeout_at};

use super::super::content::check_post;
use super::super::interning::intern;
use super::super::judge::SLOW_TABLES;
use super::super::redirect::alias_of;
use super::envelopes::ROUTING_S_MAX;
use super::{InForce, Transaction, address_of};

/// Addresses compared under one hold of the hub's lock.
const COMPARED_AT_ONCE: usize = 2048;
/// Files of nested lists that take longer than [`ROUTING_S_MAX`].
const SLOW_LISTS: Reply =
    Reply::fixed(451, Enhanced::new(4, 3, 0), "The subscribers of a list within it cannot be read, try again later");
/// A message that has been here before (RFC 3463 X.4.6).
const LOOP: Enhanced = Enhanced::new(5, 4, 6);
/// An unknown subscriber.
const NOBODY: Reply = Reply::fixed(550, Enhanced::new(5, 1, 1), "No such list or address here");
/// The alias is invalid (RFC 3463 X.3.5).
const WRONG: (u16, u16) = (3, 5);

/// A post on its way to one list.
struct Post {
    list: Arc<str>,
    envelope: NewEnvelope,
    /// The fields before the list's; together they are the envelope's prefix.
    base: Vec<u8>,
    /// The fields of the list.
    fields: Vec<u8>,
    /// The list is nested: recipients with a copy from an outer list get none.
    is_within: bool,
}

/// Targets by their alias and its owner.
type Apart = BTreeMap<(Address, Option<Address>), Vec<EnvelopeRcpt>>;

/// What the subscribers of a list resolve to: people and lists in their place.
#[derive(Default)]
struct ResolvedSubscribers {
    /// Subscribers that get no copy themselves.
    replaced: Vec<Address>,
    /// Subscribers replaced by people; `trace` finds the copies by them.
    named: Vec<Address>,
    /// Their replacements; those at `error:` are reported to the list's owner.
    people: Vec<EnvelopeRcpt>,
    /// With an envelope of their own: of an alias with an owner, and programs.
    apart: Apart,
    lists: Vec<Arc<str>>,
}

/// A post to one list, before its copies are made.
struct ResolvedPost {
    post: Post,
    /// `None`: the list has no subscribers of this server, and its envelope stays as it is.
    resolved: Option<ResolvedSubscribers>,
}

/// Who has a copy, or will get one.
struct CopyRecipients {
    /// Subscribers who get a copy from their own list, whether it was made yet or not: replaced ones do not.
    direct: IdSet,
    /// Recipients of copies made so far.
    ids: IdSet,
    /// Other entries of the same people.
    same: IdSet,
    /// A nested list is still to come, so that [`CopyRecipients::same`] is needed.
    has_nested: bool,
    /// Targets with an envelope of their own, in small letters.
    apart: HashSet<String>,
    /// Keeps the ids of lists whose envelopes stay as they are.
    _pin: Pin,
}

impl CopyRecipients {
    /// The lists that a client named, and those that accepted the post within them.
    fn new(core: &Arc<Core>, named: &HashSet<Arc<str>>, posts: &[ResolvedPost]) -> CopyRecipients {
        core.with(|hub, _| {
            let (mut direct, mut ids) = (IdSet::new(), IdSet::new());
            let resolved =
                posts.iter().filter_map(|ResolvedPost { post, resolved }| Some((&post.list, resolved.as_ref()?)));
            let resolved: HashMap<&Arc<str>, &ResolvedSubscribers> = resolved.collect();
            for (list, resolved) in &resolved {
                direct.union_with(&direct_subscribers(&hub.store, list, &resolved.replaced).unwrap_or_default());
            }
            for list in named.iter().filter(|list| !resolved.contains_key(list)) {
                ids.union_with(&hub.store.receiving_subscribers(list).unwrap_or_default());
            }
            let has_nested = posts.iter().any(|post| post.post.is_within);
            CopyRecipients {
                direct,
                _pin: hub.pins.pin_all(&ids),
                ids,
                same: IdSet::new(),
                has_nested,
                apart: HashSet::new(),
            }
        })
    }

    /// Adds recipients of copies, whose ids are pinned. `resolved`: those that may have a next hop of their own.
    async fn add(&mut self, core: &Arc<Core>, ids: &IdSet, resolved: &IdSet) {
        if self.has_nested {
            let mut compared = core.with(|hub, _| ids.intersection(hub.store.book.with_capitals()));
            compared.union_with(resolved);
            in_slices(core, &compared, |book, id| {
                for same in all_entries(book, book.text(id)) {
                    self.same.insert(same.0);
                }
            })
            .await;
        }
        self.ids.union_with(ids);
    }

    /// Removes subscribers of a nested list, whose ids are pinned, who already have a copy.
    async fn remove_from(&self, core: &Arc<Core>, ids: &mut IdSet) {
        ids.subtract(&self.ids);
        ids.subtract(&self.same);
        let compared = core.with(|hub, _| ids.intersection(hub.store.book.with_capitals()));
        in_slices(core, &compared, |book, id| {
            if all_entries(book, book.text(id)).iter().any(|other| self.ids.contains(other.0)) {
                ids.remove(id.0);
            }
        })
        .await;
    }
}

/// Visits pinned ids without holding the hub's lock for long.
async fn in_slices(core: &Arc<Core>, ids: &IdSet, mut visit: impl FnMut(&AddressBook, AddressId)) {
    let ids: Vec<u32> = ids.iter().collect();
    for part in ids.chunks(COMPARED_AT_ONCE) {
        core.with(|hub, _| {
            for id in part {
                visit(&hub.store.book, AddressId(*id));
            }
        });
        tokio::task::yield_now().await;
    }
}

/// Subscribers who get a list's copy themselves; `None`: there is no such list.
fn direct_subscribers(store: &Store, list: &str, replaced: &[Address]) -> Option<IdSet> {
    let mut ids = store.receiving_subscribers(list)?;
    for id in replaced.iter().filter_map(|member| store.book.lookup(member.as_str())) {
        ids.remove(id.0);
    }
    Some(ids)
}

impl Transaction {
    /// Returns the envelopes, with local subscribers of lists resolved.
    pub(super) async fn through_lists(
        &self,
        core: &Arc<Core>,
        settings: &Settings,
        envelopes: Vec<NewEnvelope>,
        facts: &HeaderFacts,
    ) -> Result<Vec<NewEnvelope>, Reply> {
        let named = envelopes.iter().filter_map(|envelope| envelope.list.as_deref().map(Arc::from));
        let named: HashSet<Arc<str>> = named.collect();
        if named.is_empty() {
            return Ok(envelopes);
        }
        let (mut all, mut posts) = (Vec::with_capacity(envelopes.len()), VecDeque::new());
        for envelope in envelopes {
            let list = settings.list(envelope.list.as_deref().unwrap_or_default());
            match list.filter(|_| matches!(envelope.recipients, EnvelopeRecipients::List)) {
                Some(list) => {
                    let (base, fields) = (self.added.clone(), list.copy_fields(self.post_fields(facts)));
                    posts.push_back(Post { list: list.name().clone(), envelope, base, fields, is_within: false });
                }
                None => all.push(envelope),
            }
        }
        let posts = self.resolve_lists(core, settings, posts, named.clone(), facts).await?;
        if posts.iter().all(|post| post.resolved.is_none()) {
            all.extend(posts.into_iter().map(|post| post.post.envelope));
            return Ok(all);
        }
        let mut served = CopyRecipients::new(core, &named, &posts);
        let unchanged = served.ids.clone();
        served.add(core, &unchanged, &IdSet::new()).await;
        for ResolvedPost { post, resolved } in posts {
            let Some(resolved) = resolved else {
                all.push(post.envelope);
                continue;
            };
            self.copies(core, post, resolved, &mut served, &mut all).await.map_err(IntakeRefusal::reply)?;
        }
        Ok(all)
    }

    /// Resolves the subscribers of lists, and of the lists within them. `entered`: the lists that the post has come to,
    /// whether they accept it or not.
    async fn resolve_lists(
        &self,
        core: &Arc<Core>,
        settings: &Settings,
        mut posts: VecDeque<Post>,
        mut entered: HashSet<Arc<str>>,
        facts: &HeaderFacts,
    ) -> Result<Vec<ResolvedPost>, Reply> {
        let until = Instant::now() + Duration::from_secs(ROUTING_S_MAX);
        let mut all = Vec::with_capacity(posts.len());
        while let Some(post) = posts.pop_front() {
            let members = timeout_at(until, core.lists.local.of(core, settings, &post.list));
            let members = members.await.map_err(|_| SLOW_TABLES)?;
            if members.is_empty() && !post.is_within {
                all.push(ResolvedPost { post, resolved: None });
                continue;
            }
            let mut resolved = ResolvedSubscribers::default();
            let lookups = settings.found_at_each(&members, core.clock.now(), |member, found| {
                self.stand_for(settings, member, found, facts, &mut resolved)
            });
            timeout_at(until, lookups).await.unwrap_or(Err(SLOW_TABLES))?;
            let mut lists = std::mem::take(&mut resolved.lists);
            lists.retain(|list| entered.insert(list.clone()));
            // All at once: each may be on a file system that hangs.
            timeout_at(until, core.lists.refresh_all(core, &lists)).await.unwrap_or(Err(SLOW_LISTS))?;
            for list in lists {
                match self.enter(core, settings, &list, &post.list, facts)? {
                    Entry::Post => {
                        let fields = settings.list(&list);
                        let fields = fields.map(|one| one.copy_fields(self.post_fields(facts)));
                        let message_id = facts.message_id.as_deref();
                        posts.extend(fields.and_then(|fields| {
                            within(settings, &post, NestedPost { list: &list, fields, message_id })
                        }));
                    }
                    Entry::Loop(why) => {
                        tracing::warn!(message = %self.id, within = %post.list, %list, "list skipped: {why}");
                    }
                    Entry::Refused(reply) => {
                        resolved.people.extend(address_of(settings, &list).map(|to| failing(to, reply)));
                    }
                }
            }
            all.push(ResolvedPost { post, resolved: Some(resolved) });
        }
        Ok(all)
    }

    /// Adds a subscriber's resolution.
    fn stand_for(
        &self,
        settings: &Settings,
        member: &Address,
        found: Result<MailReaders, Reply>,
        facts: &HeaderFacts,
        resolved: &mut ResolvedSubscribers,
    ) -> Result<(), Reply> {
        let found = match found {
            Ok(found) => found,
            Err(reply) if reply.enhanced.is_some_and(|code| (code.subject, code.detail) == WRONG) => {
                tracing::warn!(message = %self.id, %member, "subscriber failed: its alias is invalid: {reply}");
                resolved.replaced.push(member.clone());
                resolved.people.push(failing(member.clone(), Reply::new(550, Enhanced::new(5, 3, 5), reply.text)));
                return Ok(());
            }
            Err(reply) => return Err(reply),
        };
        let is_itself =
            |reader: &MailReader| reader.to.address == *member && reader.to.route.is_plain() && reader.owner.is_none();
        if found.lists.is_empty() && matches!(found.people.as_slice(), [only] if is_itself(only)) {
            return Ok(());
        }
        resolved.replaced.push(member.clone());
        if found.is_nobody() {
            resolved.people.push(failing(member.clone(), NOBODY));
        }
        if !found.people.is_empty() {
            resolved.named.push(member.clone());
        }
        resolved.lists.extend(found.lists);
        for MailReader { to, owner } in found.people {
            let program = alias_of(settings, &to.address, to.route.hop.as_ref());
            if owner.is_none() && program.is_none() {
                resolved.people.push(to);
                continue;
            }
            let alias = program.unwrap_or_else(|| member.clone());
            if check_delivered_to(facts, &alias).is_err() {
                tracing::warn!(message = %self.id, %member, %alias, "subscriber skipped: the post was already \
                    delivered to it");
                continue;
            }
            resolved.apart.entry((alias, owner)).or_default().push(to);
        }
        Ok(())
    }

    /// Checks whether a list accepts a post from the list above it.
    fn enter(
        &self,
        core: &Arc<Core>,
        settings: &Settings,
        list: &Arc<str>,
        above: &Arc<str>,
        facts: &HeaderFacts,
    ) -> Result<Entry, Reply> {
        let address = address_of(settings, list);
        if let Some(address) = &address
            && let Some(reply) = self.standing_bounce_refusal(core, address, &AddressClass::List(list.clone()), false)
        {
            return Ok(Entry::Refused(reply));
        }
        let takes_from = |sender: &ReversePath| check_post(settings, list, sender, facts, &InForce(core));
        let Err(reply) = takes_from(&self.mail.path) else { return Ok(Entry::Post) };
        if reply.is_temporary() {
            return Err(reply);
        }
        if reply.enhanced == Some(LOOP) {
            return Ok(Entry::Loop(reply));
        }
        let above = settings.list(above).map(|above| above.settings());
        let above = above.map(|above| [above.address.clone(), above.bounces.clone()].map(ReversePath::Address));
        let is_taken = above.into_iter().flatten().any(|sender| takes_from(&sender).is_ok());
        Ok(if is_taken { Entry::Post } else { Entry::Refused(reply) })
    }

    /// Builds the envelopes of one list.
    async fn copies(
        &self,
        core: &Arc<Core>,
        post: Post,
        resolved: ResolvedSubscribers,
        served: &mut CopyRecipients,
        all: &mut Vec<NewEnvelope>,
    ) -> Result<(), IntakeRefusal> {
        let Post { list, envelope, base, fields, is_within } = post;
        let ResolvedSubscribers { replaced, named: stood_for, people, apart, .. } = resolved;
        // These pins are needed until the set below has its own.
        let (in_place, _pins) = intern(core, &people).await?;
        let direct = core.with(|hub, _| {
            let ids = direct_subscribers(&hub.store, &list, &replaced)?;
            let pin = hub.pins.pin_all(&ids);
            Some((ids, pin))
        });
        let (mut ids, _direct_pin) = direct.ok_or(IntakeRefusal::ListGone)?;
        if is_within {
            served.remove_from(core, &mut ids).await;
        }
        let pin = core.with(|hub, _| {
            let (store, book) = (&hub.store, &hub.store.book);
            for id in &in_place {
                let is_served = |other: &AddressId| ids.contains(other.0) || is_within && served.ids.contains(other.0);
                if !all_entries(book, book.text(AddressId(id))).iter().any(is_served) {
                    ids.insert(id);
                }
            }
            for id in store.suspended_subscribers(&list).flat_map(|address| book.entries_of(address)) {
                ids.remove(id.0);
            }
            if is_within {
                for id in served.apart.iter().flat_map(|address| all_entries(book, address)) {
                    ids.remove(id.0);
                }
            }
            hub.pins.pin_all(&ids)
        });
        served.add(core, &ids, &in_place.intersection(&ids)).await;
        for ((alias, owner), to) in Self::without_copy(core, apart, served) {
            if to.is_empty() {
                continue;
            }
            let named = merge_addresses(&envelope.taken.named, [alias.as_str()].into_iter());
            all.push(NewEnvelope {
                sender: owner.map_or_else(|| envelope.sender.clone(), |owner| owner.as_str().to_owned()),
                prefix: [&*base, &delivered_to_field(&alias), &*fields].concat(),
                recipients: EnvelopeRecipients::Addresses(to),
                taken: AcceptanceFacts { named, ..envelope.taken.clone() },
                ..envelope.clone()
            });
        }
        let named = merge_addresses(&envelope.taken.named, stood_for.iter().map(Address::as_str));
        let taken = AcceptanceFacts { named, ..envelope.taken };
        all.push(NewEnvelope { recipients: EnvelopeRecipients::Interned(ids, Vec::new(), pin), taken, ..envelope });
        Ok(())
    }

    /// Leaves out the targets of aliases that get a copy from a list, or by another alias.
    fn without_copy(core: &Arc<Core>, mut apart: Apart, served: &mut CopyRecipients) -> Apart {
        if apart.is_empty() {
            return apart;
        }
        core.with(|hub, _| {
            let book = &hub.store.book;
            for to in apart.values_mut() {
                to.retain(|to| {
                    let address = to.address.as_str();
                    let has_copy = |id: &AddressId| served.ids.contains(id.0) || served.direct.contains(id.0);
                    let has_copy = all_entries(book, address).iter().any(has_copy);
                    !has_copy && served.apart.insert(address.to_ascii_lowercase())
                });
            }
        });
        apart
    }
}

/// Ids of an address at any next hop, and of its other spellings: a person who is written in two ways gets one copy.
fn all_entries(book: &AddressBook, address: &str) -> Vec<AddressId> {
    let mut ids = book.entries_of(address);
    ids.extend(book.entries_of(&address.to_ascii_lowercase()));
    ids.extend(book.spellings(address));
    ids
}

/// Whether a nested list accepts a post.
enum Entry {
    Post,
    /// The post has been there already.
    Loop(Reply),
    Refused(Reply),
}

/// A post for a list within another.
struct NestedPost<'a> {
    list: &'a Arc<str>,
    /// The fields of the list.
    fields: Vec<u8>,
    message_id: Option<&'a str>,
}

/// Builds the post for a nested list. It keeps the permalink of the list above (RFC 5064 section 2.3).
fn within(settings: &Settings, above: &Post, nested: NestedPost<'_>) -> Option<Post> {
    let NestedPost { list, fields, message_id } = nested;
    let (outer, within) = (settings.list(&above.list), settings.list(list)?.settings());
    let passed = outer.map(|outer| delivered_to_field(&outer.settings().address)).unwrap_or_default();
    let permalink = outer.map(|outer| outer.archived_at_field(message_id)).unwrap_or_default();
    let base = [above.base.as_slice(), &permalink, &passed].concat();
    let why = format!("list {list} within list {}", above.list);
    let envelope = NewEnvelope {
        sender: within.bounces.as_str().to_owned(),
        list: Some(list.to_string()),
        prefix: [&*base, &*fields].concat(),
        recipients: EnvelopeRecipients::List,
        taken: AcceptanceFacts {
            policy: why.into(),
            named: merge_addresses(&above.envelope.taken.named, address_of(settings, list).iter().map(Address::as_str)),
            ..above.envelope.taken.clone()
        },
        ..above.envelope.clone()
    };
    Some(Post { list: list.clone(), envelope, base, fields, is_within: true })
}

/// Merges the addresses that a post passed through, up to [`NAMED_MAX`].
fn merge_addresses<'a>(named: &[Box<str>], more: impl Iterator<Item = &'a str>) -> Vec<Box<str>> {
    let mut all = named.to_vec();
    for address in more {
        if all.len() < NAMED_MAX && all.iter().all(|known| !known.eq_ignore_ascii_case(address)) {
            all.push(address.into());
        }
    }
    all
}

/// Builds a recipient whose mail is returned to the reader of bounces.
fn failing(address: Address, reply: Reply) -> EnvelopeRcpt {
    EnvelopeRcpt { route: Route::by(NextHop::Refuse(reply)), ..EnvelopeRcpt::plain(address) }
}

#[cfg(test)]
mod tests {
    use stentor_lists::PostFields;

    use super::*;

    #[test]
    fn a_post_goes_on_with_what_was_prepended_and_the_inner_lists_fields() {
        let list = |name: &str| {
            format!(
                "[lists.{name}]\naddress = \"{name}@lists.test\"\nsubscribers = \"/dev/null\"\n\
                 archived_at = \"https://{name}.test/{{message_id}}\"\n"
            )
        };
        let text = format!("[domains]\nlocal = [\"lists.test\"]\n{}{}", list("all"), list("sub"));
        let config = stentor_config::check_text(std::path::Path::new("stentor.toml"), &text);
        let settings = Settings::new(config.unwrap_or_else(|found| panic!("{text}\n{found:?}")), None);
        let above = Post {
            list: "all".into(),
            envelope: NewEnvelope::own(Vec::new(), "<1@test>".to_owned(), "a test"),
            base: b"X-Rule: kept\r\n".to_vec(),
            fields: b"List-Id: <all.lists.test>\r\n".to_vec(),
            is_within: false,
        };
        let replaced = b"List-Id: <p.example>\r\nList-Post: <x>\r\nList-Archive: <1>\r\n";
        let sub: Arc<str> = "sub".into();
        let message_id = Some("<1@test>");
        let fields = PostFields { removed: replaced, author: None, message_id };
        let fields = settings.list(&sub).unwrap().copy_fields(fields);
        let post = within(&settings, &above, NestedPost { list: &sub, fields, message_id }).unwrap();
        let base = "X-Rule: kept\r\nArchived-At: <https://all.test/1@test>\r\nDelivered-To: all@lists.test\r\n";
        let fields = "List-Id: <sub.lists.test>\r\nList-Post: <mailto:sub@lists.test>\r\nPrecedence: list\r\n\
                      Archived-At: <https://sub.test/1@test>\r\nX-Original-List-Id: <p.example>\r\nList-Archive: <1>\r\n";
        assert_eq!(String::from_utf8_lossy(&post.base), base);
        assert_eq!(String::from_utf8_lossy(&post.fields), fields);
        assert_eq!(String::from_utf8_lossy(&post.envelope.prefix), [base, fields].concat());
    }
}
