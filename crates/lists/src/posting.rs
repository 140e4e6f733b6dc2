//! Whether a message may become a post: checks loops first, then automatic replies, then who may post.
//!
//! Facts known at RCPT may be checked there already ([`check_sender`]); [`List::admit`] checks everything at the end of
//! the data. Both the envelope sender and the author in `From` count as the poster: list managers and mail programs
//! fill in either. Neither proves anything; that takes moderation and authentication.

use stentor_mail::address::{Address, ReversePath};
use stentor_mail::headers::HeaderFacts;
use stentor_mail::reply::{Enhanced, Reply};

use crate::list::{List, PostingPolicy};

const TOO_MANY_HOPS: Reply = Reply::fixed(554, Enhanced::new(5, 4, 6), "Too many hops: this message is in a loop");
const OWN_LIST_ID: Reply =
    Reply::fixed(554, Enhanced::new(5, 4, 6), "This message has already been posted to this list");
const OWN_DELIVERED_TO: Reply =
    Reply::fixed(554, Enhanced::new(5, 4, 6), "This message was already delivered to this address");
const NULL_SENDER: Reply = Reply::fixed(
    550,
    Enhanced::new(5, 7, 1),
    "Lists accept no delivery reports: send them to the list's bounce address",
);
const AUTOMATIC_REPLY: Reply =
    Reply::fixed(550, Enhanced::new(5, 7, 1), "Lists accept no automatic replies (RFC 3834)");
const MAY_NOT_POST: Reply = Reply::fixed(550, Enhanced::new(5, 7, 2), "You are not allowed to post to this list");

/// Refuses a message with more than `received_max` `Received` fields (RFC 5321 section 6.3).
pub fn check_received(facts: &HeaderFacts, received_max: u32) -> Result<(), Reply> {
    if facts.received_count > received_max { Err(TOO_MANY_HOPS) } else { Ok(()) }
}

/// Refuses a message whose `Delivered-To` names `own`, an alias or a list.
pub fn check_delivered_to(facts: &HeaderFacts, own: &Address) -> Result<(), Reply> {
    let own = fold_case(own.as_str());
    if facts.delivered_to.iter().any(|value| fold_case(value) == own) { Err(OWN_DELIVERED_TO) } else { Ok(()) }
}

/// Refuses the null sender to a list; may be called at RCPT.
pub fn check_sender(sender: &ReversePath) -> Result<(), Reply> {
    if sender.is_null() { Err(NULL_SENDER) } else { Ok(()) }
}

impl List {
    /// Decides on a post. `is_member` is called with an address in canonical form ([`Address::as_str`]) and, if that
    /// has capitals, with its lower-case form; it is only called where membership decides.
    pub fn admit(
        &self,
        sender: &ReversePath,
        facts: &HeaderFacts,
        received_max: u32,
        is_member: &mut dyn FnMut(&str) -> bool,
    ) -> Result<(), Reply> {
        self.check_loop(facts, received_max)?;
        check_sender(sender)?;
        // Other automatic mail (cron jobs, commits, another list) is a post like any other.
        if facts.auto_submitted.as_deref().is_some_and(|word| word.eq_ignore_ascii_case("auto-replied")) {
            return Err(AUTOMATIC_REPLY);
        }
        self.check_poster(sender, facts.from.as_deref(), is_member)
    }

    /// Refuses a message that has been here before: too many hops, our own `List-Id` or our own `Delivered-To`.
    pub fn check_loop(&self, facts: &HeaderFacts, received_max: u32) -> Result<(), Reply> {
        check_received(facts, received_max)?;
        if facts.list_ids.iter().any(|id| id.eq_ignore_ascii_case(&self.settings().list_id)) {
            return Err(OWN_LIST_ID);
        }
        check_delivered_to(facts, &self.settings().address)
    }

    fn check_poster(
        &self,
        sender: &ReversePath,
        from: Option<&str>,
        is_member: &mut dyn FnMut(&str) -> bool,
    ) -> Result<(), Reply> {
        if self.is_poster(sender.as_str(), is_member) {
            return Ok(());
        }
        // The header's author may be any text; only a valid address can be a poster.
        let author = from.and_then(|text| Address::parse(text.as_bytes(), true).ok());
        let is_poster = author.is_some_and(|author| self.is_poster(author.as_str(), is_member));
        if is_poster { Ok(()) } else { Err(MAY_NOT_POST) }
    }

    /// Whether this address may post. Does not need the header's author. `is_member` is as for [`List::admit`].
    pub fn is_poster(&self, address: &str, is_member: &mut dyn FnMut(&str) -> bool) -> bool {
        match &self.settings().post {
            PostingPolicy::Anyone => true,
            PostingPolicy::Named(named) => {
                let address = fold_case(address);
                named.iter().any(|poster| fold_case(poster.as_str()) == address)
            }
            PostingPolicy::Members => {
                is_member(address) || {
                    let folded = fold_case(address);
                    folded != address && is_member(&folded)
                }
            }
        }
    }
}

/// Folds case to compare people's addresses: few people write their own local part in one case only.
fn fold_case(address: &str) -> String {
    if address.is_ascii() { address.to_ascii_lowercase() } else { address.to_lowercase() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list::ListSettings;
    use crate::list::tests::settings;

    fn sender(text: &str) -> ReversePath {
        if text.is_empty() { ReversePath::Null } else { ReversePath::Address(text.parse().unwrap()) }
    }

    fn admit(post: PostingPolicy, from_envelope: &str, facts: &HeaderFacts, members: &[&str]) -> String {
        let list = List::new(ListSettings { post, ..settings() }).unwrap();
        let mut is_member = |address: &str| members.contains(&address);
        match list.admit(&sender(from_envelope), facts, 50, &mut is_member) {
            Ok(()) => "post".into(),
            Err(reply) => reply.to_string()[..9].into(),
        }
    }

    fn facts(change: impl FnOnce(&mut HeaderFacts)) -> HeaderFacts {
        let mut facts = HeaderFacts::default();
        change(&mut facts);
        facts
    }

    #[test]
    fn loops_are_refused() {
        let looped = |facts: &HeaderFacts| admit(PostingPolicy::Anyone, "a@x.example", facts, &[]);
        assert_eq!(looped(&facts(|facts| facts.received_count = 50)), "post");
        assert_eq!(looped(&facts(|facts| facts.received_count = 51)), "554 5.4.6");
        assert_eq!(looped(&facts(|facts| facts.list_ids = vec!["other.example".into()])), "post");
        let own = vec!["other.example".into(), "NEWS.lists.example.org".into()];
        assert_eq!(looped(&facts(|facts| facts.list_ids = own)), "554 5.4.6");
        assert_eq!(looped(&facts(|facts| facts.delivered_to = vec!["x@y.example".into()])), "post");
        let own = vec!["News@Lists.Example.org".into()];
        assert_eq!(looped(&facts(|facts| facts.delivered_to = own)), "554 5.4.6");
    }

    #[test]
    fn reports_and_automatic_replies_are_refused_other_automatic_mail_is_not() {
        let automatic = |word: &str| facts(|facts| facts.auto_submitted = Some(word.into()));
        assert_eq!(admit(PostingPolicy::Anyone, "", &HeaderFacts::default(), &[]), "550 5.7.1");
        assert_eq!(admit(PostingPolicy::Anyone, "a@x.example", &automatic("auto-replied"), &[]), "550 5.7.1");
        assert_eq!(admit(PostingPolicy::Anyone, "a@x.example", &automatic("Auto-Replied"), &[]), "550 5.7.1");
        for word in ["auto-generated", "no", "auto-notified"] {
            assert_eq!(admit(PostingPolicy::Anyone, "a@x.example", &automatic(word), &[]), "post");
        }
        let bulk = facts(|facts| {
            facts.precedence = Some("bulk".into());
            facts.has_list_headers = true;
        });
        assert_eq!(admit(PostingPolicy::Anyone, "a@x.example", &bulk, &[]), "post");
    }

    #[test]
    fn members_post_by_envelope_or_author() {
        let members = ["ann@people.example"];
        let by = |text: &str| facts(|facts| facts.from = Some(text.into()));
        assert_eq!(admit(PostingPolicy::Members, "ann@people.example", &by("x@y.example"), &members), "post");
        assert_eq!(admit(PostingPolicy::Members, "x@y.example", &by("Ann@People.Example"), &members), "post");
        assert_eq!(admit(PostingPolicy::Members, "x@y.example", &by("x@y.example"), &members), "550 5.7.2");
        assert_eq!(admit(PostingPolicy::Members, "x@y.example", &by("not an address"), &members), "550 5.7.2");
        assert_eq!(admit(PostingPolicy::Members, "x@y.example", &HeaderFacts::default(), &members), "550 5.7.2");
        assert_eq!(admit(PostingPolicy::Members, "", &by("ann@people.example"), &members), "550 5.7.1");
    }

    #[test]
    fn named_posters_post() {
        let named = || PostingPolicy::Named(vec!["Ann@people.example".parse().unwrap()]);
        let by = |text: &str| facts(|facts| facts.from = Some(text.into()));
        assert_eq!(admit(named(), "ann@people.example", &HeaderFacts::default(), &[]), "post");
        assert_eq!(admit(named(), "x@y.example", &by("ANN@PEOPLE.EXAMPLE"), &[]), "post");
        assert_eq!(admit(named(), "x@y.example", &by("bob@people.example"), &["x@y.example"]), "550 5.7.2");
    }

    #[test]
    fn an_alias_knows_its_own_mark() {
        let alias: Address = "Team@example.org".parse().unwrap();
        let marked = String::from_utf8(crate::delivered_to_field(&alias)).unwrap();
        assert_eq!(marked, "Delivered-To: Team@example.org\r\n");
        let seen = facts(|facts| facts.delivered_to = vec!["team@example.org".into()]);
        assert!(check_delivered_to(&seen, &alias).is_err());
        assert!(check_delivered_to(&HeaderFacts::default(), &alias).is_ok());
    }
}
