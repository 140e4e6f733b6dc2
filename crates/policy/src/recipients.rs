//! Collects the recipients of one transaction with their expansions, and makes the envelopes at its end.
//!
//! Promise: each list gets one envelope, however often it was named, directly or by aliases. Each alias gets one, so
//! that its copies can have its address in Delivered-To, and further ones for the addresses of each owner and for
//! programs. All other recipients share one. A recipient reached by several paths is in one of them (see
//! [`EnvelopeGroups`]). Lists come first, then aliases, then the others.

use std::fmt::Write;
use std::sync::Arc;

use stentor_lists::commands::ListCommand;
use stentor_mail::address::Address;

use crate::envelope_groups::{EnvelopeGroups, EnvelopeKind, Group, RecipientPath};
use crate::ways::RelayReasons;
use crate::{AddressClass, Expansion};

/// Recipients with data `P` of the caller.
#[derive(Debug)]
pub struct Recipients<P> {
    addresses: Vec<(Address, P)>,
    /// Additional copies for named recipients.
    copies: Vec<(Address, P)>,
    lists: Vec<Arc<str>>,
    aliases: Vec<Alias<P>>,
    /// Addresses of lists, their bounce addresses and those of their commands, as named.
    of_lists: Vec<OfList<P>>,
    /// Why recipients elsewhere are relayed.
    relays: RelayReasons,
    /// Number of accepted recipients.
    named: u64,
}

/// A recipient that is an alias.
#[derive(Debug)]
struct Alias<P> {
    address: Address,
    expansion: Arc<Expansion>,
    params: P,
    /// Source of the expansion, as text; may be empty.
    by: String,
}

/// A recipient that belongs to a list.
#[derive(Debug)]
struct OfList<P> {
    list: Arc<str>,
    role: ListRole,
    address: Address,
    params: P,
}

/// What an address of a list receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListRole {
    Posts,
    /// Reports about posts.
    Bounces,
    Commands(ListCommand),
}

/// A recipient that takes a command to a list.
#[derive(Debug, Clone, Copy)]
pub struct CommandRcpt<'r, P> {
    pub list: &'r Arc<str>,
    pub command: ListCommand,
    pub address: &'r Address,
    pub params: &'r P,
}

impl<P> Default for Recipients<P> {
    fn default() -> Recipients<P> {
        Recipients {
            addresses: Vec::new(),
            copies: Vec::new(),
            lists: Vec::new(),
            aliases: Vec::new(),
            of_lists: Vec::new(),
            relays: RelayReasons::default(),
            named: 0,
        }
    }
}

impl<P: RecipientPath> Recipients<P> {
    /// Adds an accepted recipient, with the reason if it is relayed; the first reason applies to all recipients added
    /// in this way. A refused recipient is ignored.
    pub fn add(&mut self, address: Address, params: P, class: AddressClass, why: impl FnOnce() -> String) {
        if matches!(class, AddressClass::Relay) && self.relays.is_empty() {
            self.relays.add(&address, why());
        }
        self.take(address, params, class, String::new());
    }

    /// Adds an accepted recipient with its own reason.
    pub fn add_by(&mut self, address: Address, params: P, class: AddressClass, why: String) {
        let mut by = why;
        if matches!(class, AddressClass::Relay) {
            self.relays.add(&address, std::mem::take(&mut by));
        }
        self.take(address, params, class, by);
    }

    fn take(&mut self, address: Address, params: P, class: AddressClass, by: String) {
        match class {
            AddressClass::Refuse(_) => return,
            AddressClass::Relay => self.addresses.push((address, params)),
            AddressClass::Bounces(list) => {
                unite(&mut self.of_lists, OfList { list, role: ListRole::Bounces, address, params });
            }
            AddressClass::Command { list, command } => {
                unite(&mut self.of_lists, OfList { list, role: ListRole::Commands(command), address, params });
            }
            AddressClass::List(list) => {
                once(&mut self.lists, &list);
                unite(&mut self.of_lists, OfList { list, role: ListRole::Posts, address, params });
            }
            AddressClass::Alias(expansion) => {
                expansion.lists.iter().for_each(|list| once(&mut self.lists, list));
                match self.aliases.iter_mut().find(|alias| alias.address == address) {
                    Some(known) => _ = known.params.unite(&params),
                    None => self.aliases.push(Alias { address, expansion, params, by }),
                }
            }
        }
        self.named += 1;
    }

    /// The non-empty envelopes, and the number of relayed addresses, counting targets of aliases each time. `owners`
    /// returns the readers of reports about a list's posts, with their data derived from that of the bounce address;
    /// there may be none. `program` derives the data of an alias's programs and files from the alias's data.
    pub fn into_groups(
        mut self,
        mut owners: impl FnMut(&str, P) -> Vec<(Address, P)>,
        program: impl Fn(P) -> P,
    ) -> (Vec<Group<P>>, usize) {
        let mut groups = Vec::with_capacity(self.lists.len() + self.aliases.len() + 1);
        for name in std::mem::take(&mut self.lists) {
            let why = format!("list {name}");
            groups.push(Group { of: EnvelopeKind::List(name), sender: None, to: Vec::new(), why, hops: String::new() });
        }
        let (mut others, mut why) = (std::mem::take(&mut self.addresses), String::new());
        for name in &self.bounces() {
            others.extend(self.way_to_owners(name).map(|way| owners(name, way)).unwrap_or_default());
            let more = if why.is_empty() { "" } else { "; " };
            // Writing to a string cannot fail.
            let _ = write!(why, "{more}reports of list {name} to its owner");
        }
        if !self.relays.is_empty() {
            let more = if why.is_empty() { "" } else { "; " };
            let _ = write!(why, "{more}relay: {}", self.relays);
        }
        let relayed = others.len() + self.aliases.iter().map(|alias| alias.expansion.everyone().count()).sum::<usize>();
        let mut meant = EnvelopeGroups::new(why);
        if self.aliases.is_empty() && others.len() <= 1 {
            // No recipient can have two paths.
            others.append(&mut self.copies);
            self.copies = others;
        } else {
            for (to, way) in &others {
                meant.add(to, way);
            }
            for alias in self.aliases {
                alias.expand(&mut meant, &program);
            }
        }
        groups.append(&mut meant.finish(self.copies));
        (groups, relayed)
    }

    /// Data of a list's bounce addresses.
    fn way_to_owners(&self, list: &Arc<str>) -> Option<P> {
        let reports = self.of_lists.iter().filter(|known| known.role == ListRole::Bounces && known.list == *list);
        let mut ways = reports.map(|report| &report.params);
        let mut first = ways.next()?.clone();
        ways.for_each(|way| _ = first.unite(way));
        Some(first)
    }
}

impl<P: RecipientPath> Alias<P> {
    /// Adds the targets of the alias.
    fn expand(self, meant: &mut EnvelopeGroups<P>, program: impl Fn(P) -> P) {
        let Alias { address, expansion, params, by } = self;
        let why = if by.is_empty() { format!("alias {address}") } else { format!("alias {address}; {by}") };
        let mut group = |sender: Option<&Address>, all: &mut dyn Iterator<Item = &Address>, params: &P| {
            meant.begin(EnvelopeKind::Alias(address.clone()), sender.cloned(), why.clone());
            all.for_each(|to| meant.add(to, params));
        };
        group(None, &mut expansion.addresses.iter(), &params);
        for (owner, all) in &expansion.owned {
            group(Some(owner), &mut all.iter(), &params);
        }
        // Programs are added separately: delivery to them is not forwarding, so their sender is not rewritten.
        let programs = &expansion.programs;
        let mut owners: Vec<Option<&Address>> = programs.iter().map(|program| program.owner.as_ref()).collect();
        owners.sort_unstable();
        owners.dedup();
        let params = program(params);
        for owner in owners {
            let own = programs.iter().filter(|program| program.owner.as_ref() == owner);
            group(owner, &mut own.map(|program| &program.address), &params);
        }
    }
}

/// Adds a recipient that leads to a list, or merges it with the same one.
fn unite<P: RecipientPath>(all: &mut Vec<OfList<P>>, more: OfList<P>) {
    match all.iter_mut().find(|known| known.list == more.list && known.address == more.address) {
        Some(known) => _ = known.params.unite(&more.params),
        None => all.push(more),
    }
}

impl<P> Recipients<P> {
    /// Adds another copy for a named recipient, even if it gets one already.
    pub fn add_copy(&mut self, address: Address, params: P) {
        self.copies.push((address, params));
    }

    /// Whether there are additional copies.
    pub fn has_copies(&self) -> bool {
        !self.copies.is_empty()
    }

    /// Removes all named recipients; additional copies remain.
    pub fn forget_named(&mut self) {
        *self = Recipients { copies: std::mem::take(&mut self.copies), ..Recipients::default() };
    }

    /// Whether the address was named and mail is relayed to it.
    pub fn has(&self, address: &Address) -> bool {
        self.addresses.iter().any(|(named, _)| named == address)
    }

    /// Named recipients that are relayed, and the targets of named aliases, with their data.
    pub fn reached(&self) -> impl Iterator<Item = (&Address, &P)> {
        let aliases = self.aliases.iter();
        let targets = aliases.flat_map(|alias| alias.expansion.everyone().map(move |to| (to, &alias.params)));
        self.addresses.iter().map(|(address, kept)| (address, kept)).chain(targets)
    }

    /// Named recipients that are relayed.
    pub fn relayed(&self) -> impl Iterator<Item = &Address> {
        self.addresses.iter().map(|(address, _)| address)
    }

    /// Named recipients that are relayed, with their data.
    pub fn relayed_mut(&mut self) -> impl Iterator<Item = (&Address, &mut P)> {
        self.addresses.iter_mut().map(|(address, kept)| (&*address, kept))
    }

    /// Named aliases and bounce addresses of lists, with their data.
    pub fn standing_mut(&mut self) -> impl Iterator<Item = (&Address, &mut P)> {
        let aliases = self.aliases.iter_mut().map(|alias| (&alias.address, &mut alias.params));
        let reports = self.of_lists.iter_mut().filter(|known| known.role == ListRole::Bounces);
        aliases.chain(reports.map(|report| (&report.address, &mut report.params)))
    }

    /// All named recipients, with their data.
    pub fn named_mut(&mut self) -> impl Iterator<Item = (&Address, &mut P)> {
        let relayed = self.addresses.iter_mut().map(|(address, kept)| (&*address, kept));
        let of_lists = self.of_lists.iter_mut().map(|known| (&known.address, &mut known.params));
        let aliases = self.aliases.iter_mut().map(|alias| (&alias.address, &mut alias.params));
        relayed.chain(of_lists).chain(aliases)
    }

    /// Data of each recipient that leads to a list.
    pub fn ways_to(&self, list: &Arc<str>) -> impl Iterator<Item = &P> {
        let posts = self.of_lists.iter().filter(move |known| known.role == ListRole::Posts && known.list == *list);
        let leads = move |alias: &&Alias<P>| alias.expansion.lists.contains(list);
        posts.map(|post| &post.params).chain(self.aliases.iter().filter(leads).map(|alias| &alias.params))
    }

    /// Addresses of lists that were named for posts, with their data.
    pub fn posts(&self) -> impl Iterator<Item = (&Address, &P)> {
        let posts = self.of_lists.iter().filter(|known| known.role == ListRole::Posts);
        posts.map(|post| (&post.address, &post.params))
    }

    /// Named aliases, with their targets and data.
    pub fn expansions_mut(&mut self) -> impl Iterator<Item = (&Address, &Expansion, &mut P)> {
        self.aliases.iter_mut().map(|alias| (&alias.address, &*alias.expansion, &mut alias.params))
    }

    /// Number of accepted recipients of any kind.
    pub fn named(&self) -> u64 {
        self.named
    }

    /// Lists that the message is a post to.
    pub fn lists(&self) -> &[Arc<str>] {
        &self.lists
    }

    /// Lists whose posts the message reports on.
    pub fn bounces(&self) -> Vec<Arc<str>> {
        let mut all = Vec::new();
        self.of_lists
            .iter()
            .filter(|known| known.role == ListRole::Bounces)
            .for_each(|report| once(&mut all, &report.list));
        all
    }

    /// Bounce addresses of lists, as named.
    pub fn reports(&self) -> impl Iterator<Item = (&Arc<str>, &Address)> {
        self.of_lists
            .iter()
            .filter(|known| known.role == ListRole::Bounces)
            .map(|report| (&report.list, &report.address))
    }

    /// Whether any recipient takes commands to a list.
    pub fn has_commands(&self) -> bool {
        self.of_lists.iter().any(|known| matches!(known.role, ListRole::Commands(_)))
    }

    /// Recipients that take commands to lists.
    pub fn commands(&self) -> impl Iterator<Item = CommandRcpt<'_, P>> {
        self.of_lists.iter().filter_map(|known| {
            let ListRole::Commands(command) = known.role else { return None };
            Some(CommandRcpt { list: &known.list, command, address: &known.address, params: &known.params })
        })
    }

    /// Named recipients that are relayed, and named aliases.
    pub fn relayed_and_aliases(&self) -> impl Iterator<Item = &Address> {
        self.addresses.iter().map(|(address, _)| address).chain(self.aliases())
    }

    /// Named aliases that lead to `/dev/null`.
    pub fn nulls(&self) -> impl Iterator<Item = &Address> {
        self.aliases.iter().filter(|alias| alias.expansion.has_null).map(|alias| &alias.address)
    }

    /// Named aliases.
    pub fn aliases(&self) -> impl Iterator<Item = &Address> {
        self.aliases.iter().map(|alias| &alias.address)
    }
}

fn once(names: &mut Vec<Arc<str>>, name: &Arc<str>) {
    if !names.contains(name) {
        names.push(name.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Address {
        text.parse().unwrap()
    }

    fn alias(lists: &[&str], addresses: &[&str]) -> AddressClass {
        AddressClass::Alias(Arc::new(Expansion {
            addresses: addresses.iter().map(|text| address(text)).collect(),
            lists: lists.iter().map(|name| Arc::from(*name)).collect(),
            ..Expansion::default()
        }))
    }

    fn shown(groups: &[Group<u8>]) -> Vec<String> {
        let to = |group: &Group<u8>| {
            let to: Vec<String> = group.to.iter().map(|(to, params)| format!("{}/{params}", to.as_str())).collect();
            to.join(",")
        };
        groups.iter().map(|group| format!("{}: {}", group.why, to(group))).collect()
    }

    #[test]
    fn lists_then_aliases_then_the_others_and_nobody_twice() {
        let mut all: Recipients<u8> = Recipients::default();
        let network = || "client network 10.0.0.0/8".to_owned();
        let none = String::new;
        all.add(address("a@example.org"), 1, AddressClass::Relay, network);
        all.add(address("all@x.test"), 2, alias(&["news"], &["a@example.org", "b@example.org"]), none);
        all.add(address("all@x.test"), 3, alias(&["news"], &["a@example.org", "b@example.org"]), none);
        all.add(address("few@x.test"), 4, alias(&[], &["b@example.org"]), none);
        let by = "table users; few@x.test (users:2)".to_owned();
        all.add_by(address("two@x.test"), 4, alias(&[], &["c@example.org"]), by);
        all.add(address("news@x.test"), 5, AddressClass::List("news".into()), none);
        all.add(address("news-bounces@x.test"), 6, AddressClass::Bounces("news".into()), String::new);
        assert_eq!((all.named(), all.lists().len(), all.aliases().count()), (7, 1, 3));
        let (groups, relayed) = all.into_groups(|_, _| vec![(address("owner@example.org"), 0)], |n| n);
        assert_eq!(
            shown(&groups),
            [
                "list news: ",
                "alias all@x.test: b@example.org/2",
                "alias two@x.test; table users; few@x.test (users:2): c@example.org/4",
                "reports of list news to its owner; relay: client network 10.0.0.0/8: a@example.org/1,owner@example.org/0",
            ]
        );
        assert_eq!(relayed, 6);
    }

    #[test]
    fn whoever_is_meant_twice_gets_one_copy_if_any_way_lets_it_through() {
        let net = || "net".to_owned();
        let (kept, sales) = (100, address("sales@d.test"));
        let of_joe = || alias(&[], &["joe@d.test"]);
        // Reached by two aliases, in both orders; by an alias and by name; by one alias that is named twice.
        for (ways, expected) in [
            (&[("sales", kept), ("info", 1)][..], "alias info@d.test: joe@d.test/1"),
            (&[("info", 1), ("sales", kept)], "alias info@d.test: joe@d.test/1"),
            (&[("joe", kept), ("info", 1)], "alias info@d.test: joe@d.test/1"),
            (&[("sales", kept), ("joe", 1)], "relay: net: joe@d.test/1"),
            (&[("sales", kept), ("info", kept + 1)], "alias sales@d.test: joe@d.test/100"),
            (&[("joe", kept + 1), ("info", kept)], "relay: net: joe@d.test/101"),
            (&[("sales", kept), ("sales", 1)], "alias sales@d.test: joe@d.test/1"),
            (&[("joe", kept), ("joe", 1)], "relay: net: joe@d.test/1"),
        ] {
            let mut all: Recipients<u8> = Recipients::default();
            for (name, way) in ways {
                let class = if *name == "joe" { AddressClass::Relay } else { of_joe() };
                all.add(address(&format!("{name}@d.test")), *way, class, net);
            }
            assert_eq!(shown(&all.into_groups(|_, _| Vec::new(), |n| n).0), [expected], "{ways:?}");
        }
        // The alias's other targets are still held.
        let mut all: Recipients<u8> = Recipients::default();
        all.add(sales, kept, alias(&[], &["ann@d.test", "joe@d.test"]), net);
        all.add(address("info@d.test"), 1, of_joe(), net);
        let (groups, relayed) = all.into_groups(|_, _| Vec::new(), |n| n);
        let expected = ["alias sales@d.test: ann@d.test/100", "alias info@d.test: joe@d.test/1"];
        assert_eq!((shown(&groups), relayed), (expected.map(str::to_owned).to_vec(), 3));
    }

    #[test]
    fn all_ways_to_a_list_are_known_and_what_is_kept_beside_its_bounce_address_is_its_owners() {
        let mut all: Recipients<u8> = Recipients::default();
        let news: Arc<str> = "news".into();
        all.add(address("all@x.test"), 100, alias(&["news"], &[]), String::new);
        all.add(address("news@x.test"), 101, AddressClass::List(news.clone()), String::new);
        all.add(address("news@x.test"), 1, AddressClass::List(news.clone()), String::new);
        all.add(address("few@x.test"), 3, alias(&["few"], &[]), String::new);
        all.add(address("news-bounces@x.test"), 100, AddressClass::Bounces(news.clone()), String::new);
        assert_eq!(all.ways_to(&news).copied().collect::<Vec<u8>>(), [1, 100]);
        for (_, way) in all.standing_mut() {
            *way += 10;
        }
        for (_, way) in all.named_mut() {
            *way += 1;
        }
        assert_eq!(all.ways_to(&news).copied().collect::<Vec<u8>>(), [2, 111]);
        let owners = |name: &str, way| vec![(address(&format!("{name}-owner@x.test")), way)];
        let expected = ["list news: ", "list few: ", "reports of list news to its owner: news-owner@x.test/111"];
        assert_eq!(shown(&all.into_groups(owners, |n| n).0), expected);
    }

    #[test]
    fn reasons_that_differ_are_told_by_recipient() {
        let mut all: Recipients<u8> = Recipients::default();
        for (to, why) in [("a@x.test", "rule 1"), ("b@x.test", "rule 1; to lmtp:inner"), ("c@x.test", "rule 1")] {
            all.add_by(address(to), 1, AddressClass::Relay, why.to_owned());
        }
        all.add(address("archive@x.test"), 1, AddressClass::Relay, || "copied by a rule".to_owned());
        let (groups, _) = all.into_groups(|_, _| Vec::new(), |n| n);
        let why = "relay: a@x.test and 1 more: rule 1; b@x.test: rule 1; to lmtp:inner";
        assert_eq!((groups[0].why.as_str(), groups[0].to.len()), (why, 4));
    }

    #[test]
    fn an_owner_is_the_sender_of_what_its_alias_expands_to() {
        let mut all: Recipients<u8> = Recipients::default();
        let owned = vec![(address("owner-team@x.test"), vec![address("b@y.test"), address("a@y.test")])];
        let expansion = Expansion { addresses: vec![address("a@y.test")], owned, ..Expansion::default() };
        all.add(address("team@x.test"), 1, AddressClass::Alias(Arc::new(expansion)), String::new);
        let (groups, relayed) = all.into_groups(|_, _| Vec::new(), |n| n);
        assert_eq!(shown(&groups), ["alias team@x.test: a@y.test/1", "alias team@x.test: b@y.test/1"]);
        let senders: Vec<_> = groups.iter().map(|group| group.sender.as_ref().map(Address::as_str)).collect();
        assert_eq!((senders, relayed), (vec![None, Some("owner-team@x.test")], 3));
    }

    #[test]
    fn programs_are_by_themselves_and_an_alias_may_stand_for_nobody() {
        let mut all: Recipients<u8> = Recipients::default();
        let program = |to: &str, owner: Option<&str>| crate::LocalTarget {
            address: address(to),
            text: "|x".to_owned(),
            owner: owner.map(address),
        };
        let programs = vec![
            program("a=1@x.test", None),
            program("b=2@x.test", Some("owner-b@x.test")),
            program("c=3@x.test", None),
        ];
        let expansion = Expansion { addresses: vec![address("a@y.test")], programs, ..Expansion::default() };
        all.add(address("team@x.test"), 1, AddressClass::Alias(Arc::new(expansion)), String::new);
        let null = Expansion { has_null: true, ..Expansion::default() };
        all.add(address("null@x.test"), 2, AddressClass::Alias(Arc::new(null)), String::new);
        assert_eq!((all.named(), all.nulls().map(Address::as_str).collect()), (2, vec!["null@x.test"]));
        let (groups, relayed) = all.into_groups(|_, _| Vec::new(), |n| n + 10);
        let expected = ["a@y.test/1", "a=1@x.test/11,c=3@x.test/11", "b=2@x.test/11"];
        assert_eq!(shown(&groups), expected.map(|to| format!("alias team@x.test: {to}")));
        let senders: Vec<_> = groups.iter().map(|group| group.sender.as_ref().map(Address::as_str)).collect();
        assert_eq!((senders, relayed), (vec![None, None, Some("owner-b@x.test")], 4));
    }

    #[test]
    fn a_report_that_nobody_reads_leaves_nothing() {
        let mut all: Recipients<u8> = Recipients::default();
        all.add(address("news-bounces@x.test"), 0, AddressClass::Bounces("news".into()), String::new);
        let (groups, relayed) = all.into_groups(|_, _| Vec::new(), |n| n);
        assert!(groups.is_empty() && relayed == 0);
    }

    #[test]
    fn an_injector_relays_without_a_network() {
        let mut all: Recipients<u8> = Recipients::default();
        all.add(address("a@example.org"), 0, AddressClass::Relay, || "authenticated client".to_owned());
        let (groups, _) = all.into_groups(|_, _| Vec::new(), |n| n);
        assert_eq!(shown(&groups), ["relay: authenticated client: a@example.org/0"]);
    }
}
